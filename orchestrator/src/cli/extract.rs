//! `holdfast extract`: writes the contents of containers and checkpoints to files.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use holdfast_formats::{Damage, Destination, Extracted, Format, FormatsError, Options};
use serde::ser::SerializeMap;
use serde_json::json;

use super::failure::Failure;
use super::findings::{FileOutcome, FileResult, Finding, Findings};
use super::inspect::unknown;
use super::output::{Style, printable, report};
use super::progress::Bar;
use super::verify::others;
use super::walk::{Content, Visited, visit, worst};

/// Write the parts of checkpoint files into a directory, each part as a file
///
/// An FTI-FF checkpoint becomes `var_<id>.bin` for each variable, a SION container `t_<task>` for each task (key-value:
/// `t_<task>_<key>`), a Jubatus model `config.json` and `model.msgpack`. The parts of a single file are written to the
/// directory itself; those of several files, or of a directory, to a directory for each file, named like the file. A
/// part is written completely or not at all; damaged parts are omitted and reported. SCR's own files and parity have no
/// parts, and are skipped in a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast extract Ckpt7-Rank2.fti --to vars
  holdfast extract --dry-run run.sion --to tasks
                                            read and check everything, write nothing
  holdfast extract --recover run.sion --to tasks
                                            recover the data of a container that was never closed
  holdfast extract ./ckpt --to parts        everything below ckpt

Exit codes: 0; 64 a file that was named has no parts; 65 a file is damaged, even if some of its parts were written, \
or a file that was named has an unknown format; 69 a part exists already, or a file cannot be read or written")]
pub struct ExtractArgs {
    /// Files and directories
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// The directory for the parts; created if missing
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Also write damaged parts, as far as possible: chunks that fail their hash, containers that were never closed
    #[arg(long)]
    recover: bool,
    /// Replace existing parts
    #[arg(long)]
    force: bool,
    /// Read and check everything, and show what would be written
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(args: ExtractArgs, output: Style) -> Result<u8, Failure> {
    let options = Options { recover: args.recover, ..Options::default() };
    let visited = visit(&args.paths);
    let alone = matches!(&visited[..], [Visited { named: true, .. }]);
    let mut bar = Bar::new(output);
    let mut files = Vec::new();
    for visited in visited {
        let to = if alone { args.to.clone() } else { args.to.join(&visited.below) };
        let outcome = match &visited.content {
            Content::Known(format, _) => {
                if !visited.named && !holds_parts(*format, &visited.path) {
                    continue;
                }
                let extracted = bar.during(&visited.path.display().to_string(), |progress| {
                    let to = destination(&to, &args)?;
                    format.extract(&visited.path, &to, &options, progress)
                });
                match extracted {
                    Ok(extracted) => Some(FileOutcome::Found(ExtractedParts { to, extracted })),
                    // Parity files have no contents to extract; skipped unless named.
                    Err(FormatsError::NotPossible { .. }) if !visited.named => continue,
                    Err(error) if alone => return Err(error.into()),
                    Err(error) => Some(FileOutcome::Failed(error.into())),
                }
            }
            Content::Unknown if alone => return Err(unknown(&visited.path)),
            Content::Unreadable(failure) if alone => return Err(Failure::new(failure.code(), &failure.message)),
            content => FileOutcome::without_format(content),
        };
        files.extend(outcome.map(|outcome| Finding { visited, outcome }));
    }
    let code = worst(files.iter().map(Finding::code));
    let mut fields = json!(Findings { list: &files, only_damaged: false });
    fields["to"] = args.to.display().to_string().into();
    fields["dry_run"] = args.dry_run.into();
    let is_alone = files.len() == 1;
    output
        .result(&report(fields, |to| files.iter().try_for_each(|file| write_file(file, args.dry_run, is_alone, to))))?;
    Ok(code)
}

/// The destination for the parts of a file.
pub(super) fn place(to: &Path, force: bool, dry_run: bool) -> Result<Destination, FormatsError> {
    if dry_run { Ok(Destination::dry_run(to, force)) } else { Destination::new(to, force) }
}

fn destination(to: &Path, args: &ExtractArgs) -> Result<Destination, FormatsError> {
    place(to, args.force, args.dry_run)
}

/// False for files that are skipped in a directory: those that contain no others, and the later files of a SION set,
/// whose streams are extracted with the first.
fn holds_parts(format: &dyn Format, path: &Path) -> bool {
    if format.name().starts_with("scr-") {
        return false;
    }
    let Some((first, number)) = path.to_str().and_then(|path| path.rsplit_once('.')) else { return true };
    let later = number.len() == 6 && number.bytes().all(|byte| byte.is_ascii_digit());
    !(format.name() == "sion" && later && Path::new(first).is_file())
}

/// The extracted parts of a file.
struct ExtractedParts {
    to: PathBuf,
    extracted: Extracted,
}

impl FileResult for ExtractedParts {
    fn is_intact(&self) -> bool {
        self.extracted.damages.is_empty()
    }

    fn fields<M: SerializeMap>(&self, to: &mut M) -> Result<(), M::Error> {
        let Extracted { files, bytes, damages } = &self.extracted;
        to.serialize_entry("to", &self.to.display().to_string())?;
        to.serialize_entry("files", files)?;
        to.serialize_entry("bytes", bytes)?;
        to.serialize_entry("damages", &damages.iter().map(Damage::json).collect::<Vec<_>>())
    }
}

/// The lines of a file; of a single one, with all damages.
fn write_file(file: &Finding<ExtractedParts>, dry_run: bool, is_alone: bool, to: &mut dyn Write) -> io::Result<()> {
    let path = printable(&file.path());
    let ExtractedParts { to: place, extracted: Extracted { files, bytes, damages } } = match &file.outcome {
        FileOutcome::Unknown => return writeln!(to, "{path}: unknown"),
        FileOutcome::Failed(failure) => return writeln!(to, "{}", printable(&failure.message)),
        FileOutcome::Found(parts) => parts,
    };
    let verb = if dry_run { "would extract" } else { "extracted" };
    let place = printable(&place.display().to_string());
    let plural = if files.len() == 1 { "" } else { "s" };
    writeln!(to, "{path}: {verb} {} file{plural}, {bytes} bytes, to {place}", files.len())?;
    let Some(first) = damages.first() else { return Ok(()) };
    let others = others(damages.len(), 0);
    writeln!(to, "{path}: damaged: {}{others}", printable(&first.to_string()))?;
    let mut rest = damages.iter().skip(1).filter(|_| is_alone);
    rest.try_for_each(|damage| writeln!(to, "  damaged: {}", printable(&damage.to_string())))
}
