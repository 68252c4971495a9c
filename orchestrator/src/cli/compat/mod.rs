//! `holdfast compat`: the commands of SCR v1.1-8 for scripts that call them.
//!
//! The commands are one program under several names: `holdfast compat install DIR` makes a link for each. A command
//! takes SCR's arguments, prints SCR's output and returns SCR's exit codes; it calls the functions of Holdfast's own
//! commands. `docs/scr-commands.md` lists what each one does, and where it differs.
//!
//! | file | subject |
//! |---|---|
//! | `registry` | the commands, with what differs from SCR |
//! | `install` | the links, and the perl modules |
//! | `result` | exit codes and failures of the commands |
//! | `arguments` | SCR's styles of options |
//! | `control` | the files of a control directory |
//! | `directories` | control and cache directories, and the environment of the job |
//! | `hosts`, `param` | host lists and parameters: SCR's perl modules, of which `perl` has thin ones |
//! | `index` | the index of the prefix directory, and rebuilding of XOR sets |
//! | `check_node`, `down_nodes` | whether a node can be used |
//! | `cache` | what the cache of a node holds, and copying it |
//! | `flush` | copying a checkpoint from the caches of several nodes |
//! | `halt` | halt conditions of jobs |
//! | `node_commands` | running one of these commands on several nodes |
//! | `scripts`, `srun`, `postrun` | the scripts of a job |
//! | `log_event` | events of scripts |

mod arguments;
mod cache;
mod check_node;
mod control;
mod directories;
mod down_nodes;
mod flush;
mod halt;
mod hosts;
mod index;
mod install;
mod job_nodes;
mod log_event;
mod node_commands;
mod param;
mod postrun;
mod registry;
mod result;
mod scripts;
mod srun;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;

use super::failure::Failure;
use super::output::Style;
use crate::exit;
use install::InstallArgs;
use registry::ScrCommand;
use result::{CompatError, NO, YES};

/// Install SCR's own commands, for scripts that call them
///
/// The commands take SCR's arguments, print SCR's output and return SCR's exit codes.
#[derive(Debug, clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  holdfast compat install ~/scr/bin         make a link for each command
  holdfast compat list                      the commands, and how each differs from SCR's
  holdfast compat scr_index --list          run a command without its link
  holdfast compat scr_halt --help           show the options of a command"
)]
pub struct CompatArgs {
    #[command(subcommand)]
    command: CompatCommand,
}

#[derive(Debug, clap::Subcommand)]
enum CompatCommand {
    /// Make a link to this program for each command
    #[command(after_help = "\
Examples:
  holdfast compat install /usr/local/bin
  holdfast compat install --remove /usr/local/bin

Exit codes: 0; 69 a file that is not such a link has the name of a command")]
    Install(InstallArgs),
    /// List the commands, and how each differs from SCR's
    #[command(after_help = "\
Examples:
  holdfast compat list
  holdfast compat list --json | jq -r '.commands[].name'")]
    List,
    #[command(external_subcommand)]
    Run(Vec<OsString>),
}

/// The command and its arguments, if this program was called by the name of one.
pub(super) fn called(mut words: impl Iterator<Item = OsString>) -> Option<(&'static ScrCommand, Vec<String>)> {
    let name = words.next()?;
    let name = Path::new(&name).file_name().and_then(OsStr::to_str)?;
    Some((registry::find(name)?, words.map(text).collect()))
}

/// Runs a command; its messages are printed here.
pub(super) fn go(command: &ScrCommand, arguments: &[String]) -> u8 {
    match (command.run)(arguments) {
        Ok(code) => code,
        Err(CompatError::Usage(usage)) => {
            usage.print();
            if usage.is_help() { NO } else { command.refusal }
        }
        Err(CompatError::Failed(failure)) if failure.is_closed_pipe => YES,
        Err(CompatError::Failed(failure)) => {
            let _ = writeln!(io::stderr(), "{}: {failure}", command.name);
            command.refusal
        }
    }
}

pub(super) fn run(args: CompatArgs, output: Style) -> Result<u8, Failure> {
    match args.command {
        CompatCommand::Install(args) => install::run(&args, output),
        CompatCommand::List => registry::list(output),
        CompatCommand::Run(words) => {
            let name = words.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let (command, arguments) = called(words.into_iter()).ok_or_else(|| {
                Failure::new(exit::USAGE, format!("`{name}` is not a command of SCR"))
                    .remedy("`holdfast compat list` shows the commands")
            })?;
            Ok(go(command, &arguments))
        }
    }
}

fn text(word: OsString) -> String {
    word.to_string_lossy().into_owned()
}
