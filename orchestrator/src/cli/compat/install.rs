//! The links with the names of SCR's commands, and beside them SCR's perl modules, which call the commands.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use holdfast_core::durable::{self, CreationMode, DurableError};
use holdfast_core::{calls, regular_file, temporary};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
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
    let (installed, removed) = change(args, &program)?;
    let fields = json!({"directory": args.directory.display().to_string(), "installed": installed, "removed": removed});
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

type Names = Vec<&'static str>;

/// Installs or removes links to the program, and the modules. Returns the names of what was installed and removed.
fn change(args: &InstallArgs, program: &Path) -> Result<(Names, Names), Failure> {
    if !args.remove {
        durable::create_directory(&args.directory, CreationMode::Umask).map_err(unavailable)?;
    }
    if let Ok(directory) = calls::openat(CWD, &args.directory, OFlags::DIRECTORY, Mode::empty()) {
        // Left by a process that was killed.
        let _ = temporary::remove_abandoned(&directory);
    }
    let (mut installed, mut removed) = (Vec::new(), Vec::new());
    let mut found = Vec::new();
    let modules = MODULES.iter().map(|(name, text)| (*name, Some(*text)));
    for (name, module) in COMMANDS.iter().map(|command| (command.name, None)).chain(modules) {
        let path = args.directory.join(name);
        let there = examine(&path, module.is_some(), program)?;
        if matches!(there, Found::Foreign) && !args.force && !args.remove {
            return Err(Failure::new(exit::UNAVAILABLE, "was not installed by this program; nothing was changed")
                .at(path.display())
                .remedy("install into another directory, or replace the files with `--force`"));
        }
        found.push((name, module, path, there));
    }
    for (name, module, path, there) in found {
        if args.remove && !matches!(there, Found::Ours) {
            continue;
        }
        // What is replaced by its like is replaced in one step: a script may be using it.
        let is_replaced = module.is_some() != path.is_symlink();
        if !matches!(there, Found::Nothing) && (args.remove || !is_replaced) {
            durable::remove(&path).map_err(unavailable)?;
        }
        if args.remove {
            removed.push(name);
            continue;
        }
        match module {
            Some(text) => durable::replace(&path, CreationMode::Umask, text.as_bytes()).map_err(unavailable)?,
            None => durable::replace_symlink(&path, program).map_err(unavailable)?,
        }
        installed.push(name);
    }
    Ok((installed, removed))
}

fn unavailable(error: DurableError) -> Failure {
    Failure::of(exit::UNAVAILABLE, &error)
}

fn examine(path: &Path, is_module: bool, program: &Path) -> Result<Found, Failure> {
    match calls::readlinkat(CWD, path) {
        Ok(target) if Path::new(&target).file_name() == program.file_name() => Ok(Found::Ours),
        Ok(_) => Ok(Found::Foreign),
        Err(Errno::NOENT) => Ok(Found::Nothing),
        // It is no link.
        Err(Errno::INVAL) if is_module => {
            let file = match regular_file::open(path) {
                // It is no regular file.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(Found::Foreign),
                opened => opened.map_err(cannot("open", path))?,
            };
            // Only its beginning: what is of others may be of any size.
            let mut text = Vec::new();
            file.take(MODULE_MARK.len() as u64).read_to_end(&mut text).map_err(cannot("read", path))?;
            Ok(if text == MODULE_MARK.as_bytes() { Found::Ours } else { Found::Foreign })
        }
        Err(Errno::INVAL) => Ok(Found::Foreign),
        Err(errno) => Err(cannot("read", path)(errno.into())),
    }
}

fn cannot<'a>(action: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> Failure + 'a {
    move |error| Failure::new(exit::UNAVAILABLE, format!("cannot {action}")).at(path.display()).because(error)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use holdfast_core::crash::{ALL_ERRORS, Subject};

    use super::*;

    const PROGRAM: &str = "/opt/new/bin/holdfast";

    fn installed(directory: &Path, remove: bool) -> Result<(), String> {
        let args = InstallArgs { directory: directory.to_owned(), force: false, remove };
        change(&args, Path::new(PROGRAM)).map(drop).map_err(|failure| format!("{failure:?}"))
    }

    /// The names, and where the links lead.
    fn listed(directory: &Path) -> BTreeSet<(String, Option<PathBuf>)> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        entries
            .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_link(&path).ok()))
            .collect()
    }

    fn interrupted(name: &str, remove: bool, check: &dyn Fn(&Path) -> Result<(), String>) {
        let prepare = |directory: &Path| {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("own"), "of the user").unwrap();
            let older = InstallArgs { directory: directory.to_owned(), force: false, remove: false };
            change(&older, Path::new("/opt/old/bin/holdfast")).map_err(|failure| format!("{failure:?}")).unwrap();
        };
        let work = |directory: &Path| installed(directory, remove);
        let result = |directory: &Path| format!("{:?}", listed(directory));
        let (prepare, work, result): (&dyn Fn(&Path), _, _) = (&prepare, &work, &result);
        let tried = Subject { name, prepare, work, check, result, power: true, errors: ALL_ERRORS }.interrupt();
        assert!(tried.kills > 40 && tried.losses > 20 && tried.errors > 100, "{tried:?}");
    }

    fn is_kept(directory: &Path) -> Result<(), String> {
        let own = fs::read_to_string(directory.join("own")).map_err(|error| error.to_string())?;
        if own == "of the user" { Ok(()) } else { Err(own) }
    }

    #[test]
    fn a_pipe_with_the_name_of_a_module_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join(MODULES[0].0);
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let refused = installed(directory.path(), false).unwrap_err();
        assert!(refused.contains("was not installed by this program"), "{refused}");
        assert_eq!(listed(directory.path()).len(), 1);
    }

    /// Each command works at every instant.
    #[test]
    fn crash_an_installation_over_another_one() {
        interrupted("compat install", false, &|directory| {
            is_kept(directory)?;
            let links = COMMANDS.iter().map(|command| fs::read_link(directory.join(command.name)));
            let modules =
                MODULES.iter().map(|(name, text)| fs::read_to_string(directory.join(name)).map(|found| found == *text));
            let usable = links.filter(|link| link.as_ref().is_ok_and(|link| link.ends_with("bin/holdfast"))).count();
            let whole = modules.filter(|whole| matches!(whole, Ok(true))).count();
            let all = usable == COMMANDS.len() && whole == MODULES.len();
            all.then_some(()).ok_or(format!("{usable} links, {whole} modules"))
        });
    }

    #[test]
    fn crash_the_removal_of_an_installation() {
        interrupted("compat install --remove", true, &is_kept);
    }
}
