//! `holdfast extract`: what a container or checkpoint holds, as files.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use holdfast_core::formats::{Destination, Extracted, Format, FormatsError, Options};
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::inspect::unknown;
use super::output::{Output, Report, document, printable};
use super::progress::Bar;
use super::verify::others;
use super::walk::{Content, Trouble, Visited, visit, worst};
use crate::exit;

/// Write what checkpoint files hold into a directory, each part as a file of its own
///
/// An FTI-FF checkpoint gives `var_<id>.bin` for each variable, a SION container `t_<task>` for each task (key-value:
/// `t_<task>_<key>`), a Jubatus model `config.json` and `model.msgpack`. Of a single file the parts go into the directory itself; of
/// several, or of a directory, into a directory for each file, named as the file. Every part is whole or not there; what is
/// damaged is left out and told. SCR's own files and parity hold no files and are passed over in a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast extract Ckpt7-Rank2.fti --to vars
  holdfast extract --dry-run run.sion --to tasks
                                            read and check all of it, write nothing
  holdfast extract --recover run.sion --to tasks
                                            what a container that was never closed still holds
  holdfast extract ./ckpt --to parts        everything below ckpt

JSON: {version, to, dry_run, files: [{path, format, to, files: [name…], bytes, damages: [{kind, place, offset, what}…]} or
{path, format, error}…], unknown: [path…], damaged}

Exit codes: 0; 64 a file that was named holds no files; 65 at least one file is damaged, also where parts of it were written,
or a file that was named is of no known format; 69 a part is there already, or a file cannot be read or written")]
pub struct ExtractArgs {
    /// Files and directories
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Where the parts go; made if it is missing
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Write also what is damaged, as far as it is there: chunks that fail their hash, containers that were never closed
    #[arg(long)]
    recover: bool,
    /// Replace parts that are there already
    #[arg(long)]
    force: bool,
    /// Read and check everything, and only say what would be written
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(args: ExtractArgs, output: &dyn Output) -> Result<u8, Failure> {
    let options = Options { recover: args.recover, ..Options::default() };
    let visited = visit(&args.paths);
    let alone = matches!(&visited[..], [Visited { named: true, .. }]);
    let mut bar = Bar::new(output.shows_progress());
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
                    Ok(extracted) => Outcome::Extracted(extracted),
                    // Parity beside checkpoints holds none; nobody named it.
                    Err(FormatsError::NotPossible { .. }) if !visited.named => continue,
                    Err(error) if alone => return Err(error.into()),
                    Err(error) => Outcome::Failed(Trouble::of(error)),
                }
            }
            Content::Unknown if alone => return Err(unknown(&visited.path)),
            Content::Unknown => Outcome::Unknown,
            Content::Unreadable(Trouble { message, code }) if alone => {
                return Err(Failure::new(*code, message.clone()));
            }
            Content::Unreadable(Trouble { message, code }) => {
                Outcome::Failed(Trouble { message: message.clone(), code: *code })
            }
        };
        files.push(One { visited, to, outcome });
    }
    let code = worst(files.iter().map(One::code));
    output.result(&All { files, to: args.to, dry_run: args.dry_run })?;
    Ok(code)
}

/// The place for the parts of one file.
pub(super) fn place(to: &Path, force: bool, dry_run: bool) -> Result<Destination, FormatsError> {
    if dry_run { Ok(Destination::pretended(to, force)) } else { Destination::new(to, force) }
}

fn destination(to: &Path, args: &ExtractArgs) -> Result<Destination, FormatsError> {
    place(to, args.force, args.dry_run)
}

/// False for what is passed over in a directory: files that hold no others, and the later files of a SION set, whose
/// streams come with the first.
fn holds_parts(format: &dyn Format, path: &Path) -> bool {
    if format.name().starts_with("scr-") {
        return false;
    }
    let Some((first, number)) = path.to_str().and_then(|path| path.rsplit_once('.')) else { return true };
    let later = number.len() == 6 && number.bytes().all(|byte| byte.is_ascii_digit());
    !(format.name() == "sion" && later && Path::new(first).is_file())
}

struct One {
    visited: Visited,
    to: PathBuf,
    outcome: Outcome,
}

enum Outcome {
    Extracted(Extracted),
    Unknown,
    Failed(Trouble),
}

impl One {
    fn code(&self) -> u8 {
        match &self.outcome {
            Outcome::Extracted(extracted) if extracted.damages.is_empty() => exit::FINISHED,
            Outcome::Extracted(_) => exit::DAMAGED_DATA,
            Outcome::Unknown if self.visited.named => exit::DAMAGED_DATA,
            Outcome::Unknown => exit::FINISHED,
            Outcome::Failed(trouble) => trouble.code,
        }
    }

    fn json(&self) -> Value {
        let mut fields = Map::new();
        fields.insert("path".to_owned(), self.visited.path.display().to_string().into());
        fields.insert("format".to_owned(), self.visited.format().map(Format::name).into());
        match &self.outcome {
            Outcome::Extracted(extracted) => {
                fields.insert("to".to_owned(), self.to.display().to_string().into());
                fields.insert("files".to_owned(), json!(extracted.files));
                fields.insert("bytes".to_owned(), extracted.bytes.into());
                let damages: Vec<Value> = extracted.damages.iter().map(|damage| damage.json()).collect();
                fields.insert("damages".to_owned(), damages.into());
            }
            Outcome::Failed(trouble) => {
                fields.insert("error".to_owned(), trouble.message.clone().into());
            }
            Outcome::Unknown => {}
        }
        fields.into()
    }
}

struct All {
    files: Vec<One>,
    to: PathBuf,
    dry_run: bool,
}

impl Report for All {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        let verb = if self.dry_run { "would extract" } else { "extracted" };
        for file in &self.files {
            let path = printable(&file.visited.path.display().to_string());
            match &file.outcome {
                Outcome::Unknown => writeln!(to, "{path}: unknown")?,
                Outcome::Failed(trouble) => writeln!(to, "{}", printable(&trouble.message))?,
                Outcome::Extracted(Extracted { files, bytes, damages }) => {
                    let place = printable(&file.to.display().to_string());
                    let plural = if files.len() == 1 { "" } else { "s" };
                    writeln!(to, "{path}: {verb} {} file{plural}, {bytes} bytes, to {place}", files.len())?;
                    if let Some(first) = damages.first() {
                        let others = others(damages.len(), 0);
                        writeln!(to, "{path}: damaged: {}{others}", printable(&first.to_string()))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let is_unknown = |file: &&One| matches!(file.outcome, Outcome::Unknown);
        let unknown: Vec<String> =
            self.files.iter().filter(is_unknown).map(|file| file.visited.path.display().to_string()).collect();
        let known = self.files.iter().filter(|file| !is_unknown(file));
        let damaged = known.clone().filter(|file| file.code() != exit::FINISHED).count();
        document(json!({
            "to": self.to.display().to_string(),
            "dry_run": self.dry_run,
            "files": known.map(One::json).collect::<Vec<_>>(),
            "unknown": unknown,
            "damaged": damaged,
        }))
    }
}
