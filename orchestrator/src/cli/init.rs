//! `holdfast init`: writes a job spec for a program.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use holdfast_core::durable::{self, CreationMode};
use serde_json::{Value, json};

use super::failure::Failure;
use super::output::{Report, Style, document, printable};
use crate::exit;
use crate::new_spec::choice::{Choice, choose};
use crate::new_spec::program::{ExamineError, Program, examine};
use crate::new_spec::surroundings::{Wanted, surroundings};
use crate::new_spec::text;
use crate::spec::JobSpec;

/// Write a job spec for a program
///
/// The libraries that the program is linked with decide what makes its checkpoints and which launcher starts it; of a
/// script, what Python imports, and the libraries of its interpreter. The nodes are those of the allocation in which
/// the command is called, those of a hosts file, or else virtual nodes on this machine. Each choice has its reason in
/// a comment.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast init ./pi                        write job.yaml
  holdfast init ./heat --steps 400          with its arguments
  holdfast init -o pi.yaml -- ./pi -n 5     another file; behind `--` everything is the command
  holdfast init -o - ./pi                   print the spec
  holdfast init --hosts-file hosts ./pi     on these machines, over ssh
  holdfast init --local ./pi                to try it on a login node

Without --hosts-file and --local, the allocation of Slurm or PBS is used; then the hosts that LSB_DJOB_HOSTFILE lists;
then the file `hosts` in the current directory; then virtual nodes.

Exit codes: 0 written; 69 the program or one of its libraries is missing, or the file exists; 78 a parameter is wrong")]
pub struct InitArgs {
    /// The file to write; `-` prints the spec
    #[arg(short, long, value_name = "FILE", default_value = "job.yaml")]
    output: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// A file with one host a line: the nodes
    #[arg(long, value_name = "FILE")]
    hosts_file: Option<PathBuf>,
    /// Virtual nodes on this machine, also where a resource manager is
    #[arg(long, conflicts_with = "hosts_file")]
    local: bool,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

struct Written {
    /// `None` if the spec is printed.
    path: Option<PathBuf>,
    program: Program,
    choice: Choice,
    text: String,
}

pub(super) fn run(args: &InitArgs, output: Style) -> Result<u8, Failure> {
    let here = env::current_dir()
        .map_err(|error| Failure::new(exit::UNAVAILABLE, "cannot find the working directory").because(error))?;
    let path = env::var_os("PATH");
    let program = examine(&args.command, &here, path.as_deref()).map_err(unusable)?;
    let wanted = match &args.hosts_file {
        Some(path) => Wanted::HostsFile(path),
        None if args.local => Wanted::OneMachine,
        None => Wanted::Found,
    };
    let surroundings = surroundings(&here, wanted);
    let choice = choose(&program, &surroundings, |mpi| mpi.find_mpirun(&here));
    let printed = args.output == Path::new("-");
    let file = if printed { Path::new("job.yaml") } else { &args.output };
    let text = text::yaml(&program, &surroundings, &choice, file);
    // Nothing is written that `holdfast run` would refuse.
    let spec = JobSpec::parse_at(file, &text, &super::job::environment(output)?)?;
    spec.warnings.iter().for_each(|warning| output.warn(warning));
    if !printed {
        write(file, &text, args.force)?;
    }
    output.result(&Written { path: (!printed).then(|| file.to_owned()), program, choice, text })?;
    Ok(exit::FINISHED)
}

fn unusable(error: ExamineError) -> Failure {
    let remedy = match &error {
        ExamineError::Program(_) => "build it first, or give its path",
        ExamineError::Libraries(_) => "check the file system of the program",
        ExamineError::Missing { .. } => {
            "set LD_LIBRARY_PATH to their directories (load the modules), or link with -Wl,-rpath; then call this again"
        }
    };
    Failure::new(exit::UNAVAILABLE, error.to_string()).remedy(remedy)
}

fn write(file: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let failed = |message| Failure::new(exit::UNAVAILABLE, message).at(file.display());
    if force {
        // No link is followed.
        let replaced = durable::replace(file, CreationMode::Umask, text.as_bytes());
        return replaced.map_err(|error| failed("the file cannot be replaced").because(error));
    }
    let made = OpenOptions::new().write(true).create_new(true).open(file);
    made.and_then(|mut made| made.write_all(text.as_bytes())).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            failed("the file exists").remedy("give --force to replace it, or another file with -o")
        }
        _ => failed("the file cannot be written").because(error).remedy("give another file with -o"),
    })
}

impl Report for Written {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        let Written { path, program, choice, text } = self;
        let Some(path) = path else { return to.write_all(text.as_bytes()) };
        let path = printable(&path.display().to_string());
        writeln!(to, "{path}: the spec of job {}", program.name)?;
        for (key, found) in [("manager", &choice.manager), ("launcher", &choice.launcher), ("source", &choice.source)] {
            writeln!(to, "  {key:9} {:10} {}", found.what, printable(&found.how))?;
        }
        writeln!(to, "next: `holdfast check {path}`, then `holdfast run {path}`")
    }

    fn json(&self) -> Value {
        let Written { path, program, choice, text } = self;
        document(json!({
            "path": path.as_ref().map(|path| path.display().to_string()),
            "job": program.name,
            "program": program.path.display().to_string(),
            "manager": choice.manager.what,
            "nodes": choice.run_nodes,
            "launcher": choice.launcher.what,
            "launcher_program": choice.launcher_program,
            "source": choice.source.what,
            "reasons": {
                "manager": choice.manager.how,
                "launcher": choice.launcher.how,
                "source": choice.source.how,
            },
            "spec": text,
        }))
    }
}
