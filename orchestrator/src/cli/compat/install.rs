//! The links with the names of SCR's commands.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::super::failure::Failure;
use super::super::output::{Style, printable, report};
use super::registry::COMMANDS;
use crate::exit;
use crate::host::program;

#[derive(Debug, clap::Args)]
pub(super) struct InstallArgs {
    /// The directory of the links
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Replace files of the same names that are not links to this program
    #[arg(long, conflicts_with = "remove")]
    force: bool,
    /// Remove the links
    #[arg(long)]
    remove: bool,
}

/// What has the name of a command in the directory.
enum Found {
    Nothing,
    /// A link to a program of Holdfast's name.
    Ours,
    Foreign,
}

pub(super) fn run(args: &InstallArgs, output: Style) -> Result<u8, Failure> {
    let program = program::ourselves().map_err(|error| Failure::of(exit::UNAVAILABLE, &error))?;
    if !args.remove {
        fs::create_dir_all(&args.directory).map_err(cannot("create the directory", &args.directory))?;
    }
    let (mut installed, mut removed) = (Vec::new(), Vec::new());
    let mut found = Vec::new();
    for command in COMMANDS {
        let path = args.directory.join(command.name);
        let there = examine(&path, &program)?;
        if matches!(there, Found::Foreign) && !args.force && !args.remove {
            return Err(Failure::new(exit::UNAVAILABLE, "is not a link to this program; nothing was changed")
                .at(path.display())
                .remedy("install into another directory, or replace the files with `--force`"));
        }
        found.push((command.name, path, there));
    }
    for (name, path, there) in found {
        match there {
            Found::Foreign if args.remove => continue,
            Found::Nothing if args.remove => continue,
            Found::Ours | Found::Foreign => fs::remove_file(&path).map_err(cannot("remove", &path))?,
            Found::Nothing => {}
        }
        if args.remove {
            removed.push(name);
        } else {
            symlink(&program, &path).map_err(cannot("create the link", &path))?;
            installed.push(name);
        }
    }
    let fields = json!({"directory": args.directory, "installed": installed, "removed": removed});
    output.result(&report(fields, |to| {
        let directory = printable(&args.directory.display().to_string());
        for (names, verb) in [(&installed, "installed in"), (&removed, "removed from")] {
            if !names.is_empty() {
                writeln!(to, "{} commands {verb} {directory}: {}", names.len(), names.join(" "))?;
            }
        }
        if installed.is_empty() && removed.is_empty() {
            writeln!(to, "{directory} has no links to this program")?;
        }
        Ok(())
    }))?;
    Ok(exit::FINISHED)
}

fn examine(path: &Path, program: &Path) -> Result<Found, Failure> {
    match fs::read_link(path) {
        Ok(target) if target.file_name() == program.file_name() => Ok(Found::Ours),
        Ok(_) => Ok(Found::Foreign),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
        // It is no link.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(Found::Foreign),
        Err(error) => Err(cannot("read", path)(error)),
    }
}

fn cannot<'a>(action: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> Failure + 'a {
    move |error| Failure::new(exit::UNAVAILABLE, format!("cannot {action}")).at(path.display()).because(error)
}
