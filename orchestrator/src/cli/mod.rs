//! The subcommands: one file each, thin.
//!
//! Arguments have two levels: as written (a clap struct), and their checked meaning (the result of a method of that
//! struct). A command calls the library and passes a [`Report`] to its output. It returns an exit code or a
//! [`Failure`], which is converted to a message here only.

mod agent;
mod check;
mod checkpoint;
mod compat;
mod completions;
mod documents;
mod drain;
mod example;
mod example_pair;
mod explain;
mod extract;
mod failure;
mod fault_permission;
mod findings;
pub(crate) mod fti;
mod halt;
mod hosts;
mod index;
mod init;
mod inspect;
mod job;
mod log_lines;
mod node;
mod nodes;
mod output;
mod pair_client;
mod pairs;
mod pbs_task;
mod prefix_access;
mod progress;
mod rank;
mod reach;
mod rehearse;
mod remote_shell;
mod report;
mod run;
mod running_job;
mod runtime;
mod schema;
mod sion;
mod status;
mod step;
mod top;
mod verify;
mod verify_prefix;
mod walk;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use signal_hook::consts::SIGXFSZ;

pub use agent::AgentArgs;
pub use drain::DrainArgs;
pub use example::{ExampleArgs, ExampleCommand};
pub use failure::Failure;
pub use halt::{HaltArgs, HaltCommand, HaltSetArgs, HaltUnsetArgs};
pub use job::{JobSelection, StepSelection};
pub use output::{JSON_VERSION, Report, Style, document, printable};
pub use run::RunArgs;
pub use status::StatusArgs;
pub use step::StepArgs;

use self::runtime::LogOf;
use crate::exit;

/// Keep a parallel job alive: run, relaunch after node failures, drain, index.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, propagate_version = true, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// A message that is not accepted within this, because nothing reads it or its file system hangs, does not keep the
/// process.
const REPORTED_WITHIN: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Examples:
  holdfast init ./app --steps 400           write a job spec for a program
  holdfast run job.yaml                     run a job
  holdfast run -- ./app --steps 400         run a command with default settings
  holdfast check --explain job.yaml         print every setting and its origin
  holdfast drain job.yaml                   save the newest checkpoint in the nodes' caches
  holdfast report job.yaml                  why it failed, and where the time went
  holdfast verify ./ckpt                    check all checkpoint files below ./ckpt, of any format
  holdfast explain 75                       what an exit code, an event, a key or a parameter means

Exit codes:
   0  finished
  64  usage error on the command line
  65  data is damaged or incomplete
  69  something is missing: a file, a command, a node, a running job
  70  internal error of Holdfast
  73  a drain could not write to the prefix directory: correct the cause, then run `holdfast drain`
  75  not finished: another allocation can continue
  78  error in the job spec or in a parameter
  90  the application failed and is not relaunched again; or both copies of a pair failed too often
  91  no progress: several generations in a row ended without a newer checkpoint

Environment:
  HOLDFAST_LOG=debug                        show the internal log on standard error, and in the agents' logs
  HOLDFAST_LOG=warn,holdfast::drain=trace   of one module; docs/logs.md";

/// Options of every command.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Global {
    /// Print the result as one JSON document on standard output; its schema: `holdfast schema` with the words of the
    /// command
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
    /// Print warnings and errors only
    #[arg(short, long, global = true, help_heading = "Output", conflicts_with = "verbose")]
    quiet: bool,
    /// Print details on standard error
    #[arg(short, long, global = true, help_heading = "Output")]
    verbose: bool,
}

impl Global {
    fn style(self) -> Style {
        match self {
            Global { json: true, quiet, verbose } => Style::Json { verbose, quiet },
            Global { quiet: true, .. } => Style::Quiet,
            Global { verbose, .. } => Style::Human { verbose },
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::InitArgs),
    Run(RunArgs),
    Rehearse(rehearse::RehearseArgs),
    Check(check::CheckArgs),
    Drain(DrainArgs),
    Index(index::IndexArgs),
    Halt(HaltArgs),
    Checkpoint(checkpoint::CheckpointArgs),
    Nodes(nodes::NodesArgs),
    Pairs(pairs::PairsArgs),
    Status(StatusArgs),
    Top(top::TopArgs),
    Report(report::ReportArgs),
    Inspect(inspect::InspectArgs),
    Verify(verify::VerifyArgs),
    Extract(extract::ExtractArgs),
    Sion(sion::SionArgs),
    Fti(fti::FtiArgs),
    Hosts(hosts::HostsArgs),
    Explain(explain::ExplainArgs),
    Schema(schema::SchemaArgs),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
    Compat(compat::CompatArgs),
    Agent(AgentArgs),
    #[command(hide = true)]
    Step(StepArgs),
    #[command(hide = true)]
    Rank(rank::RankArgs),
    #[command(hide = true)]
    RemoteShell(remote_shell::RemoteShellArgs),
    #[command(hide = true)]
    Node(node::NodeArgs),
    #[command(hide = true)]
    Reach(reach::ReachArgs),
    #[command(hide = true)]
    PbsTask(pbs_task::PbsTaskArgs),
    Example(ExampleArgs),
}

/// The program: parses the arguments, runs the command, prints failures, returns the exit code. A panic is a defect of
/// Holdfast; its message is printed where it occurs.
pub fn main() -> ExitCode {
    std::panic::catch_unwind(program).unwrap_or_else(|_| exit::code(exit::INTERNAL))
}

/// A write beyond the limit on file sizes (`ulimit -f`) fails with an error that names the file, instead of killing
/// this process. A handler, unlike an ignored signal, is not inherited by the programs that it starts.
fn outlive_the_file_size_limit() {
    // Without it, such a write kills the process as before.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

fn program() -> ExitCode {
    outlive_the_file_size_limit();
    if let Some(arguments) = remote_shell::called(std::env::args_os()) {
        return exit::code(remote_shell::go(&arguments).unwrap_or_else(|failure| {
            report(&failure, Style::Quiet);
            failure.code()
        }));
    }
    if let Some((command, arguments)) = compat::called(std::env::args_os()) {
        let _log = runtime::start_log(LogOf::Other);
        return exit::code(compat::go(command, &arguments));
    }
    let (command, style) = match agent::called(std::env::args_os()) {
        Some(args) => (Command::Agent(args), Style::Human { verbose: false }),
        None => match parse() {
            Ok(Cli { command, global }) => (command, global.style()),
            Err(error) => {
                let code = usage(&error);
                // Options before the command have no values.
                let mut words =
                    std::env::args_os().skip(1).skip_while(|word| word.as_encoded_bytes().starts_with(b"-"));
                if words.next().is_some_and(|command| command == "run") {
                    run::prevent_rerun(code, None, Style::Human { verbose: false });
                }
                return exit::code(code);
            }
        },
    };
    let code = match dispatch(command, style) {
        Ok(code) => code,
        Err(failure) if failure.is_closed_pipe => exit::FINISHED,
        Err(failure) => {
            report(&failure, style);
            failure.code()
        }
    };
    exit::code(code)
}

fn parse() -> clap::error::Result<Cli> {
    Cli::from_arg_matches(&Cli::command().try_get_matches()?)
}

fn dispatch(command: Command, style: Style) -> Result<u8, Failure> {
    let _log = runtime::start_log(match command {
        Command::Agent(_) => LogOf::Agent,
        Command::Top(_) => LogOf::WholeTerminal,
        _ => LogOf::Other,
    });
    match command {
        Command::Init(args) => init::run(&args, style),
        Command::Run(args) => run::run(args, style),
        Command::Rehearse(args) => rehearse::run(args, style),
        Command::Check(args) => check::run(args, style),
        Command::Drain(args) => drain::run(args, style),
        Command::Index(args) => index::run(args, style),
        Command::Halt(args) => halt::run(args, style),
        Command::Checkpoint(args) => checkpoint::run(args, style),
        Command::Nodes(args) => nodes::run(args, style),
        Command::Pairs(args) => pairs::run(args, style),
        Command::Status(args) => status::run(args, style),
        Command::Top(args) => top::run(&args, style),
        Command::Report(args) => report::run(&args, style),
        Command::Inspect(args) => inspect::run(args, style),
        Command::Verify(args) => verify::run(args, style),
        Command::Extract(args) => extract::run(args, style),
        Command::Sion(args) => sion::run(args, style),
        Command::Fti(args) => fti::run(args, style),
        Command::Hosts(args) => hosts::run(args, style),
        Command::Explain(args) => explain::run(&args, style),
        Command::Schema(args) => schema::run(&args, style),
        Command::Completions(args) => completions::completions(&args, style),
        Command::Man(args) => completions::man(&args, style),
        Command::Compat(args) => compat::run(args, style),
        Command::Agent(args) => agent::run(args, style),
        Command::Step(args) => step::run(args, style),
        Command::Rank(args) => rank::run(args),
        Command::RemoteShell(args) => remote_shell::run(args),
        Command::Node(args) => node::run(args, style),
        Command::Reach(args) => reach::run(args, style),
        Command::PbsTask(args) => pbs_task::run(args),
        Command::Example(args) => example::run(args, style),
    }
}

/// Prints clap's message. Help and version are results; the rest are usage errors, with `--json` as a document.
fn usage(error: &clap::Error) -> u8 {
    if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
        let text = error.to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        let _ = writeln!(io::stdout(), "{}", Failure::new(exit::USAGE, message).json());
    }
    // A closed pipe (`holdfast --help | head`) is no error.
    let _ = error.print();
    if error.use_stderr() { exit::USAGE } else { exit::FINISHED }
}

fn report(failure: &Failure, style: Style) {
    let document = matches!(style, Style::Json { .. }).then(|| failure.json());
    let text = failure.to_string();
    let write = move || {
        if let Some(document) = &document {
            let _ = writeln!(io::stdout(), "{document}");
        }
        let _ = writeln!(io::stderr(), "{text}");
    };
    let (written, is_written) = mpsc::channel();
    let writing = write.clone();
    let thread = thread::Builder::new().spawn(move || {
        writing();
        let _ = written.send(());
    });
    match thread {
        Ok(_) => drop(is_written.recv_timeout(REPORTED_WITHIN)),
        Err(_) => write(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    use super::*;

    /// The command lines of Holdfast in a text: lines that begin with `holdfast`, perhaps after a prompt and variables,
    /// up to a comment, a pipe or a description.
    fn command_lines(text: &str) -> impl Iterator<Item = Vec<String>> {
        text.lines().filter_map(|line| {
            let line = line.trim().trim_start_matches("$ ");
            let line = line.split("  ").next()?;
            let words = line.split_whitespace().skip_while(|word| word.contains('=') && !word.starts_with('-'));
            let words =
                words.take_while(|word| !word.starts_with('>') && !["#", "|", "||", "&&", "&", "<"].contains(word));
            let words: Vec<String> = words.map(|word| word.trim_matches(['\'', '"']).to_owned()).collect();
            (words.first()? == "holdfast" && words.len() > 1).then_some(words)
        })
    }

    fn examples(command: &clap::Command, found: &mut Vec<Vec<String>>) {
        let texts = [command.get_after_help(), command.get_after_long_help()];
        texts.into_iter().flatten().for_each(|text| found.extend(command_lines(&text.to_string())));
        command.get_subcommands().for_each(|below| examples(below, found));
    }

    #[test]
    fn the_command_lines_in_help_and_pages_are_valid() {
        let mut found = Vec::new();
        examples(&Cli::command(), &mut found);
        assert!(found.len() > 40, "only {} examples found", found.len());
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let below = |directory| fs::read_dir(root.join(directory)).unwrap().map(|entry| entry.unwrap().path());
        let pages = below("docs").chain(below("docs/tutorials")).chain([root.join("README.md")]);
        for page in pages.filter(|page| page.is_file()) {
            found.extend(command_lines(&fs::read_to_string(page).unwrap()));
        }
        for words in found {
            match Cli::try_parse_from(&words) {
                Err(error) if error.kind() != ErrorKind::DisplayHelp => panic!("{words:?}: {error}"),
                _ => {}
            }
        }
    }
}
