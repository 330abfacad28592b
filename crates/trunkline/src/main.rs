//! The `trunkline` program: parses the command line, runs one command, and reports how it ended.
//!
//! Each command is a file with its arguments and a `run`. The exit status is 0 for success, 1 for
//! failure, 2 for bad usage; called by mount(8), it is as mount(8) defines it. Results go to
//! standard output, everything else (errors, logs, progress) to standard error.

mod agent;
mod attach;
mod attributes;
mod bench;
mod block;
mod cat;
mod check;
mod cp;
mod df;
mod du;
mod error;
mod figures;
mod generate;
mod human;
mod lab;
mod live;
mod local_sockets;
mod logging;
mod ls;
mod mkdir;
mod mount;
mod names;
mod output;
mod plan;
mod remote;
mod report;
mod rm;
mod serve;
mod service_manager;
mod signals;
mod stat;
mod status;
mod table;
mod top;
mod tree;
mod umount;

use clap::{CommandFactory, Parser, Subcommand};
use error::Error;
use mount::fstab;
use std::process::ExitCode;

/// Network storage that uses every path at once: serve, mount, measure.
#[derive(Debug, Parser)]
#[command(name = "trunkline", version, propagate_version = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(flatten)]
    logging: logging::LoggingArgs,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "Environment:\n  \
    TRUNKLINE_LOG  level of log messages, for example info or server=debug,client=trace\n  \
    NO_COLOR       no colours if this is set and not empty";

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::BenchArgs),
    Agent(agent::AgentArgs),
    Serve(serve::ServeArgs),
    Block(block::BlockArgs),
    Attach(attach::AttachArgs),
    Mount(mount::MountArgs),
    Umount(umount::UmountArgs),
    Status(status::StatusArgs),
    Top(top::TopArgs),
    Report(report::ReportArgs),
    Ls(ls::LsArgs),
    Cat(cat::CatArgs),
    Cp(cp::CpArgs),
    Stat(stat::StatArgs),
    Rm(rm::RmArgs),
    Mkdir(mkdir::MkdirArgs),
    Du(du::DuArgs),
    Df(df::DfArgs),
    Plan(plan::PlanArgs),
    Check(check::CheckArgs),
    Lab(lab::LabArgs),
    Generate(generate::GenerateArgs),
}

fn main() -> ExitCode {
    // A process that is started through /proc/self/exe would otherwise be named `exe`.
    let _ = rustix::thread::set_name(c"trunkline");
    // As mount.trunkline or umount.trunkline the program is called by mount(8) or umount(8), with
    // their arguments and exit statuses.
    let args = match fstab::arguments(std::env::args_os().collect()) {
        fstab::Call::Ours(args) => args,
        fstab::Call::Nothing => return ExitCode::SUCCESS,
    };
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        // Bad usage, --help and --version end here, with clap's own message and status.
        Err(error) => {
            // If the message cannot be printed, there is no other way to report it.
            let _ = error.print();
            let status = u8::try_from(error.exit_code()).unwrap_or(error::BAD_USAGE);
            return ExitCode::from(fstab::status(status));
        }
    };
    match logging::start(&cli.logging).and_then(|()| run(cli.command)) {
        Ok(status) => status,
        Err(error) => ExitCode::from(fstab::status(error.report_to_user())),
    }
}

fn run(command: Command) -> Result<ExitCode, Error> {
    match command {
        Command::Bench(args) => bench::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Serve(args) => serve::run(args),
        Command::Block(args) => block::run(&args),
        Command::Attach(args) => attach::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Umount(args) => umount::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Cp(args) => cp::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Rm(args) => rm::run(&args),
        Command::Mkdir(args) => mkdir::run(&args),
        Command::Du(args) => du::run(&args),
        Command::Df(args) => df::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Lab(args) => lab::run(args),
        Command::Generate(args) => generate::run(&args, Cli::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_document_of_the_command_line_has_every_command_and_option() {
        fn check(command: &clap::Command, name: &str) {
            let document = include_str!("../../../docs/CLI.md");
            assert!(document.contains(name), "{name} is not described");
            for option in command.get_arguments().filter_map(|argument| argument.get_long()) {
                assert!(document.contains(&format!("`--{option}")), "{name} --{option} is not described");
            }
            for inner in command.get_subcommands() {
                check(inner, &format!("{name} {}", inner.get_name()));
            }
        }
        check(&Cli::command(), "trunkline");
    }
}
