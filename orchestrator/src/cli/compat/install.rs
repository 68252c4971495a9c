//! The links with the names of SCR's commands.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::super::failure::Failure;
use super::super::output::{Output, Report, document, printable};
use super::InstallArgs;
use super::registry::COMMANDS;
use crate::exit;
use crate::host::program;

/// What has the name of a command in the directory.
enum Found {
    Nothing,
    /// A link to a program of Holdfast's name.
    Ours,
    Foreign,
}

pub(super) fn run(args: &InstallArgs, output: &dyn Output) -> Result<u8, Failure> {
    let program = program::ourselves().map_err(|error| Failure::of(exit::UNAVAILABLE, &error))?;
    if !args.remove {
        fs::create_dir_all(&args.directory).map_err(cannot("create the directory", &args.directory))?;
    }
    let mut changes = Links { directory: args.directory.clone(), installed: Vec::new(), removed: Vec::new() };
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
            changes.removed.push(name);
        } else {
            symlink(&program, &path).map_err(cannot("create the link", &path))?;
            changes.installed.push(name);
        }
    }
    output.result(&changes)?;
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

struct Links {
    directory: PathBuf,
    installed: Vec<&'static str>,
    removed: Vec<&'static str>,
}

impl Report for Links {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        let directory = printable(&self.directory.display().to_string());
        for (names, verb) in [(&self.installed, "installed in"), (&self.removed, "removed from")] {
            if !names.is_empty() {
                writeln!(to, "{} commands {verb} {directory}: {}", names.len(), names.join(" "))?;
            }
        }
        if self.installed.is_empty() && self.removed.is_empty() {
            writeln!(to, "{directory} has no links to this program")?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        document(json!({"directory": self.directory, "installed": self.installed, "removed": self.removed}))
    }
}
