//! The options of `trunkline bench` for clients on other machines.

use crate::error::Error;
use ::bench::clients::{Access, ClientSpec, Place};
use clap::Args;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The program of agents that are started by ssh.
const PROGRAM: &str = "trunkline";

/// Options of experiments with many clients.
#[derive(Debug, Args)]
#[command(next_help_heading = "Clients")]
pub struct ClientArgs {
    /// Make the load on these machines instead of this one, by their agents (`trunkline agent`):
    /// HOST or HOST:PORT, NAME=HOST to give it a name, or ssh:HOST. fio:HOST or fio:HOST:PORT runs
    /// a job file by the `fio --server` there.
    #[arg(long = "client", value_name = "CLIENT,...", value_delimiter = ',', value_parser = client)]
    clients: Vec<ClientSpec>,
    /// The file with the key of the agents.
    #[arg(long, value_name = "FILE")]
    client_key: Option<PathBuf>,
    /// The command that runs the agent of ssh:HOST there.
    #[arg(long, value_name = "COMMAND", default_value = ::bench::clients::SSH_COMMAND)]
    ssh: String,
    /// The program to run there.
    #[arg(long, value_name = "PROGRAM", default_value = PROGRAM)]
    client_program: String,
    /// The addresses on which the nodes of an embedded group listen, one for each node, so that
    /// the clients reach them.
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',')]
    nodes_on: Vec<IpAddr>,
}

fn client(text: &str) -> Result<ClientSpec, String> {
    text.parse()
}

impl ClientArgs {
    /// The clients; empty if the experiment file names them.
    pub fn clients(&self) -> Vec<ClientSpec> {
        self.clients.clone()
    }

    /// The job file that fio is to run on these clients, if they are fio's.
    pub fn job_of_fio<'a>(&self, files: &'a [PathBuf]) -> Result<Option<&'a Path>, Error> {
        let of_fio = self.clients.iter().filter(|client| matches!(client.place, Place::Fio(_))).count();
        match (of_fio, files) {
            (0, _) => Ok(None),
            (some, [job]) if some == self.clients.len() => Ok(Some(job)),
            (some, _) => Err(Error::Usage {
                sentence: "cannot run this on fio:HOST".to_owned(),
                cause: match some == self.clients.len() {
                    true => format!("fio runs one job file, {} files are given", files.len()),
                    false => "other clients are not fio's".to_owned(),
                },
                advice: "trunkline bench --client fio:HOST1,fio:HOST2 JOB.fio".to_owned(),
            }),
        }
    }

    /// The first option that is given and is for agents only.
    pub fn given_for_agents(&self) -> Option<&'static str> {
        let options = [
            ("--client-key", self.client_key.is_some()),
            ("--ssh", self.ssh != ::bench::clients::SSH_COMMAND),
            ("--client-program", self.client_program != PROGRAM),
        ];
        options.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// How the clients are reached.
    pub fn access(&self) -> Access {
        Access {
            key: self.client_key.clone(),
            ssh: self.ssh.split_whitespace().map(str::to_owned).collect(),
            program: self.client_program.clone(),
            directories: Vec::new(),
        }
    }

    /// The addresses of the nodes of an embedded group.
    pub fn nodes_on(&self) -> Vec<IpAddr> {
        self.nodes_on.clone()
    }
}
