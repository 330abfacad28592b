//! `trunkline generate`: writes the man pages and the shell completions, for packages.
//!
//! Everything is derived from the definitions of the command line, which `--help` shows too, and
//! from the example of the configuration file. No text is written twice.

use crate::error::Error;
use crate::mount::fstab::Helper;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The name of the manual, shown on each page.
const MANUAL: &str = "Trunkline";
/// A heading of a help text has at most this many words; a longer line is a sentence.
const HEADING_WORDS_MAX: usize = 5;

/// Write the man pages and the completions for bash, zsh and fish.
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct GenerateArgs {
    /// Directory with the layout of /usr/share; created if missing.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes everything. `program` is the definition of the whole command line.
pub fn run(args: &GenerateArgs, program: Command) -> Result<ExitCode, Error> {
    for (path, content) in files(program) {
        let file = args.directory.join(path);
        let failed = |cause| Error::Write { file: file.display().to_string(), cause };
        fs::create_dir_all(file.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
        fs::write(&file, content).map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The paths below the directory, and the contents.
fn files(program: Command) -> Vec<(String, Vec<u8>)> {
    let completions = [
        (Shell::Bash, "bash-completion/completions/trunkline"),
        (Shell::Zsh, "zsh/vendor-completions/_trunkline"),
        (Shell::Fish, "fish/vendor_completions.d/trunkline.fish"),
    ];
    let mut files = Vec::new();
    for (shell, path) in completions {
        let mut content = Vec::new();
        clap_complete::generate(shell, &mut program.clone(), "trunkline", &mut content);
        files.push((path.to_owned(), content));
    }
    let mut program = program.disable_help_subcommand(true);
    program.build();
    pages(&program, &mut files);
    for helper in [Helper::Mount, Helper::Umount] {
        files.push(page(helper.definition(), "8"));
    }
    files.push(configuration());
    files
}

/// The page of a command and the pages of its commands.
fn pages(command: &Command, files: &mut Vec<(String, Vec<u8>)>) {
    files.push(page(command.clone(), "1"));
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        pages(inner, files);
    }
}

fn page(command: Command, section: &str) -> (String, Vec<u8>) {
    // clap_mangen joins the lines of this text. Examples and tables must keep them.
    let after = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    let command = command.after_help(None::<&str>).after_long_help(None::<&str>).version(None::<&str>);
    let page = Man::new(command).section(section).source(source()).manual(MANUAL);
    let name = page.get_filename();
    let mut content = Vec::new();
    write(&mut content, |content| page.render(content));
    let mut roff = Roff::new();
    preformatted(&mut roff, &after.unwrap_or_default());
    if !name.starts_with("trunkline.") {
        roff.control("SH", ["SEE ALSO"]).text([bold("trunkline"), roman("(1)")]);
    }
    write(&mut content, |content| roff.to_writer(content));
    (format!("man/man{section}/{name}"), content)
}

/// The page of the configuration file, with the example that has every key.
fn configuration() -> (String, Vec<u8>) {
    let mut roff = Roff::new();
    roff.control("TH", ["trunkline.toml", "5", "", &source(), MANUAL]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("trunkline.toml - configuration of a Trunkline server")]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([
        bold("trunkline serve -c"),
        roman(" reads this file, and reads it again at SIGHUP. The service reads "),
        bold("/etc/trunkline/serve.toml"),
        roman(". The format is TOML. A key that is unknown or has an invalid value is an error."),
    ]);
    roff.control("SH", ["KEYS"]);
    preformatted(&mut roff, server::config::EXAMPLE);
    roff.control("SH", ["SEE ALSO"]).text([bold("trunkline-serve"), roman("(1)")]);
    let mut content = Vec::new();
    write(&mut content, |content| roff.to_writer(content));
    ("man/man5/trunkline.toml.5".to_owned(), content)
}

/// Adds a text whose lines stay as they are. A short line that ends in a colon is a heading.
fn preformatted(roff: &mut Roff, text: &str) {
    roff.control("nf", []);
    for line in text.trim_end().lines() {
        match line.strip_suffix(':') {
            Some(title) if !title.starts_with(' ') && title.split(' ').count() <= HEADING_WORDS_MAX => {
                roff.control("fi", []).control("SH", [title.to_uppercase().as_str()]).control("nf", []);
            }
            _ => {
                roff.text([roman(line)]);
            }
        }
    }
    roff.control("fi", []);
}

fn source() -> String {
    format!("trunkline {}", env!("CARGO_PKG_VERSION"))
}

/// Appends to memory, which does not fail.
fn write(content: &mut Vec<u8>, render: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) {
    let _ = render(content);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn generated() -> Vec<(String, String)> {
        let files = files(crate::Cli::command());
        files.into_iter().map(|(path, content)| (path, String::from_utf8(content).unwrap())).collect()
    }

    #[test]
    fn each_command_has_a_page_with_each_of_its_options() {
        fn check(command: &Command, name: &str, files: &[(String, String)]) {
            let path = format!("man/man1/{name}.1");
            let (_, page) = files.iter().find(|(file, _)| *file == path).expect(&path);
            assert!(page.contains(&format!(".TH {name} 1 ")), "{page}");
            for option in command.get_arguments().filter_map(|argument| argument.get_long()) {
                assert!(page.contains(&format!("\\-\\-{}", option.replace('-', "\\-"))), "{path} --{option}");
            }
            for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
                check(inner, &format!("{name}-{}", inner.get_name()), files);
            }
        }
        check(&crate::Cli::command(), "trunkline", &generated());
    }

    #[test]
    fn the_pages_of_the_helpers_have_the_mount_options_and_the_flags_of_mount_8() {
        let files = generated();
        let page = |path: &str| files.iter().find(|(file, _)| file == path).expect(path).1.clone();
        let mount = page("man/man8/mount.trunkline.8");
        assert!(mount.contains("remoteports") && mount.contains("\\-N") && !mount.contains("foreground"));
        assert!(page("man/man8/umount.trunkline.8").contains("\\-r"));
        assert!(page("man/man5/trunkline.toml.5").contains("root_squash"));
    }

    #[test]
    fn lines_of_examples_and_tables_stay_as_they_are() {
        let (_, page) =
            generated().into_iter().find(|(path, _)| path.ends_with("trunkline-serve.1")).unwrap();
        let (_, examples) = page.split_once(".SH EXAMPLES\n.nf\n").expect("a section of examples");
        assert!(examples.starts_with("  trunkline serve \\-\\-mem 2GiB"), "{examples}");
    }

    #[test]
    fn the_completions_know_the_options_of_commands() {
        let files = generated();
        let completions: Vec<_> = files.iter().filter(|(path, _)| !path.starts_with("man/")).collect();
        assert_eq!(completions.len(), 3);
        assert!(completions.iter().all(|(_, content)| content.contains("rpcbind")));
    }
}
