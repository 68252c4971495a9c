//! `holdfast verify`: checks files as far as their format allows.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use holdfast_formats::jubatus::{self, Engine, ModelFileName, Release, Rules, Server};
use holdfast_formats::{Damage, FileCheck, FormatsError, Options};
use serde::ser::SerializeMap;
use serde_json::Value;

use super::failure::Failure;
use super::findings::{FileOutcome, FileResult, Finding, Findings};
use super::output::{Report, Style, printable};
use super::progress::Bar;
use super::walk::{Content, visit, worst};
use crate::exit;

/// Check every hash and every rule of checkpoint files: SCR's own, FTI-FF, SION, Jubatus
///
/// Prints one line a file: its format, and whether it is intact or how it is damaged. Files of other formats are listed
/// as unknown. For a single file, and with --details for all files, each damage and each note has a line.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast verify Ckpt7-Rank2.fti           file hash, checksum, and the hash of every chunk
  holdfast verify local/ global/            all files below
  holdfast verify --prefix ./heat-run       all checkpoints of a job
  holdfast verify --json run.sion | jq '.files[0].damages'
  holdfast verify --type stat --config stat.json 127.0.0.1_9199_stat_a.jubatus
                                            check whether this server would load it

A Jubatus model is checked as `load` of a released server does; the first failed check is reported. Defaults: \
release 1.1.1, type and id from the file's name, no configuration. The engine's data in models of releases before \
1.1.0 are not checked as the engine does when it loads them: the result is then \"engine data not checked\".

With --prefix, a checkpoint that is recorded as incomplete is listed and is no damage, unless one of its files is \
damaged.

Exit codes: 0 all files are intact; 65 a file or a checkpoint is damaged, or a file that was named has an unknown \
format; 69 a file or a checkpoint cannot be read")]
pub struct VerifyArgs {
    /// Files and directories
    #[arg(value_name = "PATH", required_unless_present = "prefix")]
    paths: Vec<PathBuf>,
    /// All checkpoints of a prefix directory, several at a time: each file against its size and checksum
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["paths", "as_documented", "release", "engine", "config", "id"]
    )]
    prefix: Option<PathBuf>,
    /// Print a line for each damage and each note
    #[arg(long)]
    details: bool,
    /// Print only files or checkpoints that are not intact
    #[arg(long)]
    damaged: bool,
    /// Follow the format's document where the servers differ: a different configuration is a note, and ids follow its
    /// rules
    #[arg(long, help_heading = "Jubatus models")]
    as_documented: bool,
    /// The release of the server
    #[arg(long, value_name = "X.Y.Z", help_heading = "Jubatus models")]
    release: Option<Release>,
    /// The type of the server
    #[arg(long = "type", value_name = "TYPE", value_parser = engine, help_heading = "Jubatus models")]
    engine: Option<Engine>,
    /// The configuration file of the server
    #[arg(long, value_name = "FILE", help_heading = "Jubatus models")]
    config: Option<PathBuf>,
    /// The id that is passed to `load`
    #[arg(long, value_name = "ID", help_heading = "Jubatus models")]
    id: Option<String>,
}

#[derive(Debug, thiserror::Error)]
#[error("not a type of Jubatus servers; the types are {}", Engine::ALL.map(Engine::name).join(", "))]
struct UnknownEngine;

fn engine(name: &str) -> Result<Engine, UnknownEngine> {
    Engine::from_name(name.as_bytes()).ok_or(UnknownEngine)
}

/// The server for which models are verified, as far as the user specified it.
struct ForServer {
    rules: Rules,
    release: Option<Release>,
    engine: Option<Engine>,
    config: Option<Vec<u8>>,
    id: Option<String>,
}

impl VerifyArgs {
    fn server(&self) -> Result<ForServer, Failure> {
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|error| {
                Failure::new(exit::UNAVAILABLE, "cannot read the configuration").at(path.display()).because(error)
            })
        };
        Ok(ForServer {
            rules: if self.as_documented { Rules::Documented } else { Rules::Released },
            release: self.release,
            engine: self.engine,
            config: self.config.as_ref().map(read).transpose()?,
            id: self.id.clone(),
        })
    }
}

impl ForServer {
    fn verify(&self, path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<FileCheck, FormatsError> {
        let by_name = ModelFileName::of(path).map(|name| Server::for_name(&name, self.rules));
        let mut server = by_name.unwrap_or_else(|| Server::newest(self.rules));
        server.release = self.release.unwrap_or(server.release);
        server.engine = self.engine.or(server.engine);
        server.config = self.config.clone();
        server.id = self.id.clone().or(server.id);
        jubatus::verify_for(path, &server, progress)
    }
}

pub(super) fn run(args: VerifyArgs, output: Style) -> Result<u8, Failure> {
    if let Some(prefix) = &args.prefix {
        return super::verify_prefix::run(prefix, (args.details, args.damaged), output);
    }
    let server = args.server()?;
    let options = Options { as_documented: args.as_documented, ..Options::default() };
    let mut bar = Bar::new(output);
    let mut files = Vec::new();
    for visited in visit(&args.paths) {
        let name = visited.path.display().to_string();
        let outcome = match &visited.content {
            Content::Known(format, _) => bar
                .during(&name, |progress| match format.name() {
                    "jubatus" => server.verify(&visited.path, progress),
                    _ => format.verify(&visited.path, &options, progress),
                })
                .map_or_else(|error| Some(FileOutcome::Failed(error.into())), |check| Some(FileOutcome::Found(check))),
            content => FileOutcome::without_format(content),
        };
        files.extend(outcome.map(|outcome| Finding { visited, outcome }));
    }
    let code = worst(files.iter().map(Finding::code));
    let details = args.details || files.len() == 1;
    output.result(&VerifyReport { files, details, damaged: args.damaged })?;
    Ok(code)
}

/// ` (and 3 more)` for this many damages.
pub(super) fn others(listed: usize, unlisted: u64) -> String {
    match (listed as u64).saturating_add(unlisted).saturating_sub(1) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    }
}

impl FileResult for FileCheck {
    fn is_intact(&self) -> bool {
        FileCheck::is_intact(self)
    }

    fn fields<M: SerializeMap>(&self, to: &mut M) -> Result<(), M::Error> {
        self.json().iter().try_for_each(|(key, value)| to.serialize_entry(key, value))
    }
}

/// The results of all files.
pub(super) struct VerifyReport {
    pub files: Vec<Finding<FileCheck>>,
    pub details: bool,
    pub damaged: bool,
}

impl Report for VerifyReport {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        for file in &self.files {
            if self.damaged && file.code() == exit::FINISHED {
                continue;
            }
            let (path, title) = (printable(&file.path()), file.visited.title());
            match &file.outcome {
                FileOutcome::Unknown => writeln!(to, "{path}: unknown")?,
                FileOutcome::Failed(failure) => writeln!(to, "{}", printable(&failure.message))?,
                FileOutcome::Found(check) => {
                    match check.damages.first() {
                        None => {
                            let notes = match check.notes.len() {
                                0 => String::new(),
                                1 => ", 1 note".to_owned(),
                                count => format!(", {count} notes"),
                            };
                            let unchecked: String =
                                check.unchecked.iter().map(|part| format!(", {part} not checked")).collect();
                            let bytes = check.checked_bytes;
                            writeln!(to, "{path}: {title}: intact, {bytes} bytes checked{unchecked}{notes}")?;
                        }
                        Some(first) => {
                            let others = others(check.damages.len(), check.unlisted);
                            writeln!(to, "{path}: {title}: damaged: {}{others}", printable(&first.to_string()))?;
                        }
                    }
                    if self.details {
                        details(check, to)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn json(&self) -> Value {
        serde_json::to_value(Findings { list: &self.files, only_damaged: self.damaged }).unwrap_or_default()
    }
}

/// A line for each note, and for each damage except the first, which is in the file's own line.
fn details(check: &FileCheck, to: &mut dyn Write) -> io::Result<()> {
    let line = |to: &mut dyn Write, label: &str, damage: &Damage| {
        writeln!(to, "  {label}: {}", printable(&damage.to_string()))
    };
    check.damages.iter().skip(1).try_for_each(|damage| line(to, "damaged", damage))?;
    if check.unlisted > 0 {
        writeln!(to, "  and {} damages that are not listed", check.unlisted)?;
    }
    check.notes.iter().try_for_each(|note| line(to, "note", note))
}
