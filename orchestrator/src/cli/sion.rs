//! `holdfast sion`: the functions of SIONlib's own tools.

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use holdfast_core::durable;
use holdfast_formats::sion::{
    self, Container, DefragOptions, Defragmented, DumpOptions, Fault, JoinInput, JoinOptions, Joined, Sion, SionError,
    SplitOptions, VerifyOptions, Warning,
};
use holdfast_formats::{Confidence, Description, Format as _, FormatsError};
use serde_json::{Value, json};

use super::extract::place;
use super::failure::Failure;
use super::findings::{FileOutcome, Finding};
use super::output::{PrintableLines, Report, Style, printable, report};
use super::progress::Bar;
use super::verify::VerifyReport;
use super::walk::{Content, Visited, worst};
use crate::exit;

/// Show, split, join, defragment and verify SION containers
///
/// For a set of several files, name the first file.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct SionArgs {
    #[command(subcommand)]
    command: SionCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SionCommand {
    /// Describe a container in the format of siondump
    #[command(after_help = "\
Examples:
  holdfast sion dump run.sion               as siondump -a -l -m run.sion
  holdfast sion dump --keys run.sion        and the keys of a key-value container (-k)
  holdfast sion dump --head run.sion        head and sums only
  holdfast sion dump --recover run.sion     a container that was never closed

Exit codes: 0; 65 it is damaged or was never closed, even if recovered; 69 it cannot be read")]
    Dump(DumpArgs),
    /// Write each task's stream, or each key's value, to a file
    #[command(after_help = "\
Examples:
  holdfast sion split run.sion --to tasks   t_00000, t_00001, …; key-value: t_00000_000000000007, …
  holdfast sion split --by-rank run.sion --to tasks
                                            numbered by global rank
  holdfast sion split scr.dataset.7/holdfast-1.sion --to files
                                            a dataset that Holdfast packed: its files, by their names
  holdfast sion split --recover run.sion --to tasks
                                            recover the data of a container that was never closed

Exit codes: 0; 65 it is damaged or was never closed, even if recovered; 69 a file exists already, or cannot be read or \
written")]
    Split(SplitArgs),
    /// Join the files of a directory, named as by split, into one container
    #[command(after_help = "\
Examples:
  holdfast sion join tasks run.sion         one file, one chunk a task
  holdfast sion join --files 4 tasks run.sion
                                            run.sion and run.sion.000001 to .000003
  holdfast sion join --block-size 1 tasks run.sion
                                            packed without gaps

Every entry of the directory must have such a name. A task or key has one file; keys from 2^63 on are negative \
numbers, as sionsplit writes them.

Exit codes: 0; 64 these files cannot be one container; 69 the output exists already, or the directory or a file cannot \
be read or written")]
    Join(JoinArgs),
    /// Copy a container, with each task's data in one chunk
    #[command(after_help = "\
Examples:
  holdfast sion defrag run.sion small.sion
  holdfast sion defrag --block-size 1 run.sion dense.sion
                                            packed without gaps, as siondefrag -q 1
  holdfast sion defrag --force run.sion run.sion
                                            in place: the name always refers to a complete container

The further files of a set that is replaced are removed.

Exit codes: 0; 65 the input is damaged or was never closed, even if recovered; 69 the output exists already, or a file \
cannot be read or written")]
    Defrag(DefragArgs),
    /// Check everything that the format allows to check
    #[command(after_help = "\
Examples:
  holdfast sion verify run.sion
  holdfast sion verify --read-data *.sion   also read every byte: finds read errors of the disk

A container has no checksum: a changed byte of data is not detected, except in the files of a dataset of a job, which \
are compared with the checksums in their meta files. Key-value records are read to their end.

Exit codes: 0 intact; 65 damaged, never closed, or no container; 69 it cannot be read")]
    Verify(VerifyArgs),
}

#[derive(Debug, clap::Args)]
struct DumpArgs {
    /// The container
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Only the head and the sums
    #[arg(long, conflicts_with_all = ["keys", "records"])]
    head: bool,
    /// The sums for each key
    #[arg(long)]
    keys: bool,
    /// Every record
    #[arg(long)]
    records: bool,
    /// Recover the data of a container that was never closed or lost its end
    #[arg(long)]
    recover: bool,
}

#[derive(Debug, clap::Args)]
struct SplitArgs {
    /// The container
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The directory for the files; created if missing
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Number files by global rank instead of by their order in the container
    #[arg(long)]
    by_rank: bool,
    /// Recover the data of a container that was never closed or lost its end
    #[arg(long)]
    recover: bool,
    /// Replace existing files
    #[arg(long)]
    force: bool,
    /// Show what would be written; write nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
struct JoinArgs {
    /// The directory with t_00000, t_00001, … or t_00000_000000000007, …
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The container to write
    #[arg(value_name = "FILE")]
    output: PathBuf,
    /// Physical files of the container
    #[arg(long, value_name = "N", default_value_t = 1)]
    files: u32,
    /// Alignment of chunks in bytes [default: block size of the file system]
    #[arg(long, value_name = "BYTES")]
    block_size: Option<u32>,
    /// Bytes of a chunk [default: the size of the task's data]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    chunk_size: Option<u64>,
    /// Replace an existing container of one file
    #[arg(long)]
    force: bool,
    /// Show what would be written; write nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
struct DefragArgs {
    /// The container
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// The container to write
    #[arg(value_name = "OUTPUT")]
    output: PathBuf,
    /// Alignment of chunks in bytes [default: that of the input]
    #[arg(long, value_name = "BYTES")]
    block_size: Option<u32>,
    /// Recover the data of a container that was never closed or lost its end
    #[arg(long)]
    recover: bool,
    /// Replace an existing container
    #[arg(long)]
    force: bool,
    /// Show what would be written; write nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
struct VerifyArgs {
    /// Containers
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Read every byte of every stream
    #[arg(long)]
    read_data: bool,
    /// Print a line for each damage and each note
    #[arg(long)]
    details: bool,
}

pub(super) fn run(args: SionArgs, style: Style) -> Result<u8, Failure> {
    match args.command {
        SionCommand::Dump(args) => dump(&args, style),
        SionCommand::Split(args) => split(&args, style),
        SionCommand::Join(args) => join(&args, style),
        SionCommand::Defrag(args) => defrag(&args, style),
        SionCommand::Verify(args) => verify(args, style),
    }
}

/// Prints warnings. Returns the exit code, which depends on whether data may be missing.
fn warn_all(warnings: &[Warning], output: Style) -> u8 {
    for warning in warnings {
        output.warn(&printable(&warning.to_string()));
    }
    if warnings.iter().any(|warning| warning.anomaly.is_loss()) { exit::DAMAGED_DATA } else { exit::FINISHED }
}

fn texts(warnings: &[Warning]) -> Vec<String> {
    warnings.iter().map(ToString::to_string).collect()
}

fn dump(args: &DumpArgs, style: Style) -> Result<u8, Failure> {
    let container = if args.recover { sion::recover(&args.file)? } else { Container::open(&args.file)? };
    let options = DumpOptions { keys: args.keys, records: args.records, ..DumpOptions::default() };
    let options = if args.head { DumpOptions { tasks: false, mapping: false, ..options } } else { options };
    let is_json = matches!(style, Style::Json { .. });
    if is_json {
        // As text, the part before a damaged record is shown; a JSON document is complete or an error.
        sion::describe(&container, &options, &mut io::sink())?;
    }
    let description = if is_json { Some(Sion.describe(&args.file)?) } else { None };
    let dumped = Dumped { container: &container, options, description, error: RefCell::new(None) };
    style.result(&dumped)?;
    if let Some(error) = dumped.error.into_inner() {
        return Err(error.into());
    }
    Ok(warn_all(&container.warnings, style))
}

/// A description that is written piece by piece: it can be much larger than the tables of the container.
struct Dumped<'a> {
    container: &'a Container,
    options: DumpOptions,
    /// For JSON.
    description: Option<Description>,
    /// Why the text is not complete.
    error: RefCell<Option<SionError>>,
}

impl Report for Dumped<'_> {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut lines = PrintableLines::new(to);
        let described = sion::describe(self.container, &self.options, &mut lines);
        lines.finish()?;
        self.error.replace(described.err());
        Ok(())
    }

    fn json(&self) -> Value {
        serde_json::to_value(&self.description).unwrap_or_default()
    }

    fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        Ok(serde_json::to_writer_pretty(to, &self.description)?)
    }
}

fn split(args: &SplitArgs, output: Style) -> Result<u8, Failure> {
    let options = SplitOptions { recover: args.recover, by_global_rank: args.by_rank, dry_run: args.dry_run };
    let to = place(&args.to, args.force, args.dry_run)?;
    let split = Bar::new(output)
        .during(&args.file.display().to_string(), |progress| sion::split(&args.file, &to, &options, progress))?;
    let code = warn_all(&split.warnings, output);
    for (task, fault) in &split.damaged {
        match fault {
            // They name the rank.
            Fault::FilesLost { .. } | Fault::FileDamaged { .. } => output.warn(&printable(&fault.to_string())),
            _ => output.warn(&format!("task {task} is damaged: {fault}")),
        }
    }
    let code = if split.damaged.is_empty() { code } else { exit::DAMAGED_DATA };
    let bytes = split.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
    let files = split.files.iter();
    let files = files.map(|file| json!({"name": file.name, "task": file.task, "key": file.key, "bytes": file.bytes}));
    let damaged = split.damaged.iter().map(|(task, fault)| json!({"task": task, "what": fault.to_string()}));
    let fields = json!({
        "to": args.to.display().to_string(),
        "files": files.collect::<Vec<_>>(),
        "bytes": bytes,
        "warnings": texts(&split.warnings),
        "damaged": damaged.collect::<Vec<_>>(),
        "dry_run": args.dry_run,
    });
    output.result(&report(fields, |to| {
        split.files.iter().try_for_each(|file| writeln!(to, "{} {} bytes", file.name, file.bytes))?;
        let verb = if args.dry_run { "would be written" } else { "written" };
        let place = printable(&args.to.display().to_string());
        writeln!(to, "{} files, {bytes} bytes, {verb} to {place}", split.files.len())
    }))?;
    Ok(code)
}

/// Fails if the output exists and may not be replaced.
fn check_output(output: &Path, force: bool) -> Result<(), Failure> {
    if !force && output.symlink_metadata().is_ok() {
        return Err(FormatsError::Exists { path: output.to_owned() }.into());
    }
    durable::check_replaceable(output).map_err(FormatsError::from)?;
    Ok(())
}

fn join(args: &JoinArgs, output: Style) -> Result<u8, Failure> {
    check_output(&args.output, args.force)?;
    let parent = args.output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if parent.canonicalize().is_ok_and(|parent| args.directory.canonicalize().is_ok_and(|input| parent == input)) {
        return Err(Failure::new(exit::USAGE, "the container would be among the files that it is made of")
            .at(printable(&args.output.display().to_string()))
            .remedy("give an output outside of the directory that is joined"));
    }
    let input = JoinInput::from_directory(&args.directory)?;
    let options = JoinOptions {
        files: args.files,
        block_size: args.block_size,
        chunk_bytes: args.chunk_size,
        dry_run: args.dry_run,
    };
    let joined = Bar::new(output)
        .during(&args.output.display().to_string(), |progress| sion::join(&input, &args.output, &options, progress))?;
    let Joined { tasks, bytes, removed } = joined;
    made(output, (&args.output, args.dry_run), (tasks, bytes), None, &removed)?;
    Ok(exit::FINISHED)
}

fn defrag(args: &DefragArgs, output: Style) -> Result<u8, Failure> {
    check_output(&args.output, args.force)?;
    let options = DefragOptions { block_size: args.block_size, recover: args.recover, dry_run: args.dry_run };
    let name = args.input.display().to_string();
    let Defragmented { tasks, bytes, warnings, removed } =
        Bar::new(output).during(&name, |progress| sion::defrag(&args.input, &args.output, &options, progress))?;
    let code = warn_all(&warnings, output);
    made(output, (&args.output, args.dry_run), (tasks, bytes), Some(&warnings), &removed)?;
    Ok(code)
}

/// Reports a container that was written, with warnings about its input and the further files of a replaced set.
fn made(
    output: Style,
    (path, dry_run): (&Path, bool),
    (tasks, bytes): (usize, u64),
    warnings: Option<&[Warning]>,
    removed: &[PathBuf],
) -> io::Result<()> {
    let shown = |path: &Path| path.display().to_string();
    let mut fields = json!({"output": shown(path), "tasks": tasks, "bytes": bytes});
    if let Some(warnings) = warnings {
        fields["warnings"] = texts(warnings).into();
    }
    fields["removed"] = removed.iter().map(|path| shown(path)).collect();
    fields["dry_run"] = dry_run.into();
    output.result(&report(fields, |to| {
        let (written, gone) = if dry_run { ("would be written", "would be removed") } else { ("written", "removed") };
        writeln!(to, "{}: {tasks} tasks, {bytes} bytes {written}", printable(&shown(path)))?;
        let mut removed = removed.iter();
        removed.try_for_each(|path| writeln!(to, "{}: {gone}: it is of the replaced set", printable(&shown(path))))
    }))
}

fn verify(args: VerifyArgs, output: Style) -> Result<u8, Failure> {
    let options = VerifyOptions { read_data: args.read_data };
    let mut bar = Bar::new(output);
    let mut files = Vec::new();
    for path in args.files {
        let name = path.display().to_string();
        let outcome = match bar.during(&name, |progress| sion::verify(&path, &options, progress)) {
            Ok(check) => FileOutcome::Found(check),
            Err(error) => FileOutcome::Failed(FormatsError::from(error).into()),
        };
        let below = path.file_name().map(PathBuf::from).unwrap_or_default();
        files.push(Finding {
            visited: Visited { path, below, named: true, content: Content::Known(&Sion, Confidence::Certain) },
            outcome,
        });
    }
    let code = worst(files.iter().map(Finding::code));
    let details = args.details || files.len() == 1;
    output.result(&VerifyReport { files, details, damaged: false })?;
    Ok(code)
}
