//! Answers the other commands of `trunkline block`: what is served and to whom, and who owns what.

use super::Serving;
use crate::block::document::{
    Address, Answer, Controller, Count, FENCE, FORMAT, NodeProcess, OWN, SHOW, SOCKETS, Server, UNFENCE,
    Volume,
};
use crate::error::Error;
use crate::local_sockets::Socket;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::time::Duration;
use target::{Access, ControllerState, Node, Nqn, Reach, VolumeState};

/// How long who asks waits for the server's thread.
const TIMEOUT: Duration = Duration::from_secs(4);

/// A question, and where its answer goes.
pub struct Question {
    pub text: String,
    answer: SyncSender<Vec<u8>>,
}

impl Question {
    pub fn answer(self, answer: &Answer) {
        let document = serde_json::to_vec(answer).unwrap_or_default();
        // Who has asked may have given up.
        let _ = self.answer.send(document);
    }
}

/// Passes questions to the thread that serves, until the value is dropped.
pub fn listen<E: From<Question> + Send + 'static>(events: Sender<E>) -> std::io::Result<Socket> {
    SOCKETS.answer_questions("tl-block", move |text| {
        let (answer, answered) = sync_channel(1);
        events.send(Question { text: text.to_owned(), answer }.into()).ok()?;
        answered.recv_timeout(TIMEOUT).ok()
    })
}

impl Serving<'_> {
    /// Does what a question asks.
    pub fn handle(&mut self, question: &str) -> Answer {
        let mut words = question.split(' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some(SHOW), None, ..) => Answer::Server(Box::new(self.document())),
            (Some(FENCE), Some(host), None, _) => done(self.fence(host, true)),
            (Some(UNFENCE), Some(host), None, _) => done(self.fence(host, false)),
            (Some(OWN), Some(nsid), Some(node), None) => done(self.own(nsid, node)),
            _ => Answer::Refused {
                sentence: "the server does not know what it is asked".to_owned(),
                cause: format!("this is version {}", env!("CARGO_PKG_VERSION")),
                advice: "the program that was started as the server".to_owned(),
            },
        }
    }

    /// Refuses a host from now on, or lets it in again. Its controllers end when what it has begun
    /// has ended, which who asks waits for.
    fn fence(&mut self, host: &str, is_fenced: bool) -> Result<String, Error> {
        let host = Nqn::new(host).map_err(|error| Error::Refused {
            sentence: format!("{host} is no name of a host"),
            cause: error.to_string(),
            advice: "the NQN in /etc/nvme/hostnqn of the host".to_owned(),
        })?;
        let changes = self.fences.set(&host, is_fenced)?;
        self.set_hosts();
        tracing::warn!(%host, is_fenced, "a host is fenced, or let in again");
        Ok(match (is_fenced, changes) {
            (true, true) => format!("{host} is refused\n"),
            (true, false) => format!("{host} was refused already\n"),
            (false, true) => format!("{host} may connect again\n"),
            (false, false) => format!("{host} was not fenced\n"),
        })
    }

    fn own(&mut self, nsid: &str, node: &str) -> Result<String, Error> {
        let known = nsid.parse().ok().filter(|nsid| self.opened.iter().any(|it| it.export.nsid == *nsid));
        let Some(nsid) = known else {
            let all: Vec<String> = self.opened.iter().map(|it| it.export.nsid.to_string()).collect();
            return Err(Error::Refused {
                sentence: format!("there is no namespace {nsid}"),
                cause: format!("the server has {}", all.join(", ")),
                advice: "trunkline block list        to see them".to_owned(),
            });
        };
        let owner = if node == "A" { Node::A } else { Node::B };
        let given = self.owners.give(&self.target, nsid, owner)?;
        Ok(format!("namespace {nsid}: node {owner} {}\n", given.in_words()))
    }

    fn document(&self) -> Server {
        let overview = self.target.overview();
        let addresses = self.target.addresses().iter().zip(&self.settings.listen);
        Server {
            format: FORMAT,
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            subsystem: self.subsystem.nqn.to_string(),
            serial: self.subsystem.serial.clone(),
            state: self.state.directory().to_owned(),
            addresses: addresses
                .map(|(address, listen)| Address {
                    address: *address,
                    transport: listen.transport.name().to_owned(),
                    node: listen.node.to_string(),
                })
                .collect(),
            fenced: self.fences.hosts().iter().map(ToString::to_string).collect(),
            named: self.settings.named.iter().map(ToString::to_string).collect(),
            authenticated: self.settings.secrets.keys().map(ToString::to_string).collect(),
            finishing: overview.is_finishing,
            processes: self.process().into_iter().collect(),
            differences: Vec::new(),
            volumes: overview.volumes.iter().filter_map(|state| self.volume(state)).collect(),
            controllers: overview.controllers.iter().map(controller).collect(),
        }
    }

    /// This process, if it is one node.
    fn process(&self) -> Option<NodeProcess> {
        let (node, config) = (self.settings.node?, self.args.config.as_ref()?);
        let other = if node == Node::A { Node::B } else { Node::A };
        Some(NodeProcess {
            node: node.to_string(),
            pid: std::process::id(),
            config: std::path::absolute(config).unwrap_or_else(|_| config.clone()),
            host_ids: self
                .settings
                .host_ids
                .iter()
                .map(|(host, id)| (host.to_string(), id.to_string()))
                .collect(),
            other: other.to_string(),
            has_other: self.owners.has_other(),
        })
    }

    fn volume(&self, state: &VolumeState) -> Option<Volume> {
        let opened = self.opened.iter().find(|opened| opened.export.nsid == state.nsid)?;
        let facts = &opened.export.facts;
        let block_bytes = facts.block.bytes();
        let hosts = match self.hosts.get(&state.nsid)? {
            Access::Any | Access::AnyBut(_) => None,
            Access::Only(hosts) => Some(hosts.iter().map(ToString::to_string).collect()),
        };
        let (mut reads, mut writes, mut others) = (Count::default(), Count::default(), Count::default());
        for (key, tally) in state.operations.iter() {
            let count = match key.operation.as_deref() {
                Some("READ") => &mut reads,
                Some("WRITE") => &mut writes,
                _ => &mut others,
            };
            count.count += tally.count;
            count.errors += tally.errors;
            count.bytes += tally.received_bytes + tally.sent_bytes;
        }
        Some(Volume {
            nsid: state.nsid,
            source: opened.source.to_string(),
            uuid: super::state::in_words(facts.identity.uuid),
            bytes: facts.blocks * u64::from(block_bytes),
            block_bytes,
            owner: state.owner.to_string(),
            reach: word(state.reach).to_owned(),
            volatile_cache: facts.volatile_cache,
            hosts,
            warnings: opened.warnings.clone(),
            commands: state.commands,
            reads,
            writes,
            others,
        })
    }
}

fn done(result: Result<String, Error>) -> Answer {
    match result {
        Ok(text) => Answer::Done(text),
        Err(Error::Refused { sentence, cause, advice }) => Answer::Refused { sentence, cause, advice },
        Err(other) => Answer::Refused {
            sentence: "nothing has changed".to_owned(),
            cause: other.to_string(),
            advice: "the log of the server".to_owned(),
        },
    }
}

const fn word(reach: Reach) -> &'static str {
    match reach {
        Reach::Serving => "serving",
        Reach::Moving => "moving",
        Reach::Unreachable => "unreachable",
        Reach::Lost => "lost",
    }
}

fn controller(ControllerState { report, peer }: &ControllerState) -> Controller {
    Controller {
        cntlid: report.cntlid,
        for_discovery: report.is_for_discovery(),
        host: report.host.to_string(),
        host_id: report.host_id.to_string(),
        node: report.node.to_string(),
        peer: *peer,
        is_ready: report.is_ready,
        io_queues: report.io_queues,
        keep_alive_ms: u64::try_from(report.keep_alive.as_millis()).unwrap_or(u64::MAX),
        namespaces: report.namespaces.clone(),
    }
}
