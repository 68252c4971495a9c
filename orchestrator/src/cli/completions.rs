//! `holdfast completions` and `holdfast man`: what a package installs beside the program.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;

use clap::CommandFactory as _;
use clap_complete::Shell;
use serde_json::json;

use super::failure::Failure;
use super::output::{Style, printable, report};
use crate::exit;

const PROGRAM: &str = "holdfast";

/// Print the completions of commands and options for a shell
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast completions bash >/etc/bash_completion.d/holdfast
  holdfast completions zsh >/usr/share/zsh/site-functions/_holdfast
  holdfast completions fish >/usr/share/fish/vendor_completions.d/holdfast.fish

Exit codes: 0 printed; 64 another shell; 69 standard output cannot be written")]
pub struct CompletionsArgs {
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// Write a manual page for each command into a directory
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast man /usr/share/man/man1

Exit codes: 0 written; 69 a file cannot be written")]
pub struct ManArgs {
    /// The directory; it is made if it does not exist, and pages in it are replaced
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

pub(super) fn completions(args: &CompletionsArgs, style: Style) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), PROGRAM, &mut text);
    let shown = json!({"completions": String::from_utf8_lossy(&text)});
    style.result(&report(shown, |to| to.write_all(&text)))?;
    Ok(exit::FINISHED)
}

pub(super) fn man(args: &ManArgs, style: Style) -> Result<u8, Failure> {
    let failed = |error: io::Error| {
        Failure::new(exit::UNAVAILABLE, "the manual pages cannot be written")
            .at(args.directory.display())
            .because(error)
            .remedy("name a directory that you may write to")
    };
    fs::create_dir_all(&args.directory).map_err(failed)?;
    let mut files = Vec::new();
    // Pages of commands name their parents: `holdfast-index-add.1`.
    for (name, page) in pages(super::Cli::command(), PROGRAM).map_err(failed)? {
        let file = args.directory.join(format!("{name}.1"));
        // No link is followed.
        match fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let mut made = fs::OpenOptions::new().write(true).create_new(true).open(&file).map_err(failed)?;
        made.write_all(&page).map_err(failed)?;
        files.push(format!("{name}.1"));
    }
    style.result(&report(json!({"files": &files}), |to| {
        writeln!(to, "{} pages in {}", files.len(), printable(&args.directory.display().to_string()))
    }))?;
    Ok(exit::FINISHED)
}

/// The page of a command and those of the commands below it, without hidden ones.
fn pages(command: clap::Command, name: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone().name(name.to_owned()).bin_name(name.replace('-', " "))).render(&mut page)?;
    let mut all = vec![(name.to_owned(), page)];
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        all.extend(pages(below.clone(), &format!("{name}-{}", below.get_name()))?);
    }
    Ok(all)
}
