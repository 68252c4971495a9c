//! The links with the names of SCR's commands, and beside them SCR's perl modules, which call the commands.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
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
    /// The directory of the links and modules
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Replace files of the same names that this program did not install
    #[arg(long, conflicts_with = "remove")]
    force: bool,
    /// Remove the links and modules
    #[arg(long)]
    remove: bool,
}

/// What has the name of a command or module in the directory.
enum Found {
    Nothing,
    /// A link to a program of Holdfast's name, or a module of Holdfast.
    Ours,
    Foreign,
}

/// SCR's perl modules.
const MODULES: [(&str, &str); 2] =
    [("scr_hostlist.pm", include_str!("perl/scr_hostlist.pm")), ("scr_param.pm", include_str!("perl/scr_param.pm"))];

/// The beginning of each of them.
const MODULE_MARK: &str = "# Installed by `holdfast compat install`";

pub(super) fn run(args: &InstallArgs, output: Style) -> Result<u8, Failure> {
    let program = program::ourselves().map_err(|error| Failure::of(exit::UNAVAILABLE, &error))?;
    if !args.remove {
        fs::create_dir_all(&args.directory).map_err(cannot("create the directory", &args.directory))?;
    }
    let (mut installed, mut removed) = (Vec::new(), Vec::new());
    let mut found = Vec::new();
    let modules = MODULES.iter().map(|(name, text)| (*name, Some(*text)));
    for (name, module) in COMMANDS.iter().map(|command| (command.name, None)).chain(modules) {
        let path = args.directory.join(name);
        let there = examine(&path, module.is_some(), &program)?;
        if matches!(there, Found::Foreign) && !args.force && !args.remove {
            return Err(Failure::new(exit::UNAVAILABLE, "was not installed by this program; nothing was changed")
                .at(path.display())
                .remedy("install into another directory, or replace the files with `--force`"));
        }
        found.push((name, module, path, there));
    }
    for (name, module, path, there) in found {
        match there {
            Found::Foreign if args.remove => continue,
            Found::Nothing if args.remove => continue,
            Found::Ours | Found::Foreign => fs::remove_file(&path).map_err(cannot("remove", &path))?,
            Found::Nothing => {}
        }
        if args.remove {
            removed.push(name);
        } else {
            match module {
                Some(text) => File::create_new(&path)
                    .and_then(|mut file| file.write_all(text.as_bytes()))
                    .map_err(cannot("create the module", &path))?,
                None => symlink(&program, &path).map_err(cannot("create the link", &path))?,
            }
            installed.push(name);
        }
    }
    let fields = json!({"directory": args.directory, "installed": installed, "removed": removed});
    output.result(&report(fields, |to| {
        let directory = printable(&args.directory.display().to_string());
        for (names, verb) in [(&installed, "installed in"), (&removed, "removed from")] {
            if !names.is_empty() {
                writeln!(to, "{} commands and modules {verb} {directory}: {}", names.len(), names.join(" "))?;
            }
        }
        if installed.is_empty() && removed.is_empty() {
            writeln!(to, "{directory} has no links to this program and no modules of it")?;
        }
        Ok(())
    }))?;
    Ok(exit::FINISHED)
}

fn examine(path: &Path, is_module: bool, program: &Path) -> Result<Found, Failure> {
    match fs::read_link(path) {
        Ok(target) if target.file_name() == program.file_name() => Ok(Found::Ours),
        Ok(_) => Ok(Found::Foreign),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
        // It is no link.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && is_module => {
            // Only its beginning: what is of others may be of any size.
            let mut text = Vec::new();
            let file = File::open(path).map_err(cannot("open", path))?;
            file.take(MODULE_MARK.len() as u64).read_to_end(&mut text).map_err(cannot("read", path))?;
            Ok(if text == MODULE_MARK.as_bytes() { Found::Ours } else { Found::Foreign })
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(Found::Foreign),
        Err(error) => Err(cannot("read", path)(error)),
    }
}

fn cannot<'a>(action: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> Failure + 'a {
    move |error| Failure::new(exit::UNAVAILABLE, format!("cannot {action}")).at(path.display()).because(error)
}
