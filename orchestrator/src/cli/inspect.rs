//! `holdfast inspect`: shows the contents of files of any format, and the formats of the files in a directory.

use std::io::{self, Write};
use std::path::PathBuf;

use holdfast_core::kvtree::file::{self, HashFileError};
use holdfast_core::kvtree::{Tree, json as tree_json, print};
use holdfast_formats::{Damage, Description, Format, Options};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::failure::Failure;
use super::output::{JSON_VERSION, Output, PrintableLines, Report, printable};
use super::progress::Bar;
use super::verify::others;
use super::walk::{Content, FileFailure, Visited, visit, worst};
use crate::exit;

/// Show what is in a checkpoint file: SCR's own files, FTI-FF checkpoints, SION containers, Jubatus models
///
/// The format is recognised by the content. SCR files are printed as by `scr_print_hash_file`, XOR files by their
/// header, FTI-FF checkpoints as tables of blocks and variables, SION containers as by siondump. Directories are walked
/// recursively; symlinks are not followed. A damaged file gets one line that describes the damage.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast inspect index.scr
  holdfast inspect --json /tmp/user1/scr.1145655/filemap.scrinfo | jq '.RANK'
  holdfast inspect 1_of_4_in_0.xor          the header
  holdfast inspect Ckpt7-Rank2.fti          blocks, variables and their containers
  holdfast inspect --brief ./heat-run       the format of each file
  holdfast inspect --check ./heat-run       damaged files only

JSON for one SCR file: its tree as nested objects in file order; a key without value is {}. For one file of another \
format: its description, with the names of that format. For several files, or a directory: {version, files: [{path, \
format, tree} or {path, format, description} or {path, format, error}…], unknown: [path…], damaged}

Exit codes: 0; 65 a file is damaged, or a file that was named has an unknown format; 69 a file cannot be read")]
pub struct InspectArgs {
    /// Files and directories
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Verify all files, and show only damaged ones
    #[arg(long)]
    check: bool,
    /// Show only the format of each file
    #[arg(long, conflicts_with = "check")]
    brief: bool,
}

pub(super) fn run(args: InspectArgs, output: &dyn Output) -> Result<u8, Failure> {
    let mut bar = Bar::new(output.shows_progress());
    let one = args.paths.len() == 1 && !args.check && !args.brief;
    let mut files: Vec<Inspected> = Vec::new();
    for visited in visit(&args.paths) {
        let content = match &visited.content {
            Content::Unknown => FileView::Unknown,
            Content::Known(..) if args.brief => FileView::Brief,
            Content::Known(format, _) if args.check => check(*format, &visited, &mut bar),
            Content::Known(format, _) if is_scr(*format) => match file::read(&visited.path) {
                Ok(tree) => FileView::Tree(tree),
                // With a single file, its error is that of the command.
                Err(error) if one && visited.named => return Err(error.into()),
                Err(error) => FileView::Nothing(hash_file_failure(&error)),
            },
            Content::Known(format, _) => {
                match bar.during(&visited.path.display().to_string(), |_| format.describe(&visited.path)) {
                    Ok(description) => FileView::Description(description),
                    Err(error) if one && visited.named => return Err(error.into()),
                    Err(error) => FileView::Nothing(FileFailure::of(error)),
                }
            }
            Content::Unreadable(FileFailure { message, code }) if one && visited.named => {
                return Err(Failure::new(*code, message.clone()));
            }
            Content::Unreadable(FileFailure { message, code }) => {
                FileView::Nothing(FileFailure { message: message.clone(), code: *code })
            }
        };
        files.push(Inspected { visited, content });
    }
    let code = worst(files.iter().map(Inspected::code));
    match (&files[..], one) {
        ([Inspected { visited: Visited { named: true, path, .. }, content }], true) => match content {
            FileView::Unknown => return Err(unknown(path)),
            content => {
                output.result(&SingleFile { content })?;
                if let Some(damage) = content.damage() {
                    output.report_damage(&format!("{}: {damage}", printable(&path.display().to_string())));
                }
            }
        },
        _ => output.result(&ManyFiles { files, check: args.check })?,
    }
    Ok(code)
}

/// A named file of unknown format.
pub(super) fn unknown(path: &std::path::Path) -> Failure {
    Failure::new(exit::DAMAGED_DATA, "unknown format: not a file of SCR, FTI-FF, SION or Jubatus")
        .at(printable(&path.display().to_string()))
        .remedy("formats are recognised by their content, not by the file name; check that this is the right file")
}

/// SCR's files are shown in the format of SCR's own tools.
fn is_scr(format: &dyn Format) -> bool {
    format.name().starts_with("scr-")
}

fn hash_file_failure(error: &HashFileError) -> FileFailure {
    let code = if matches!(error, HashFileError::Format { .. }) { exit::DAMAGED_DATA } else { exit::UNAVAILABLE };
    FileFailure { message: error.to_string(), code }
}

/// Verifies a file; only damage is shown.
fn check(format: &'static dyn Format, visited: &Visited, bar: &mut Bar) -> FileView {
    if is_scr(format)
        && let Err(error) = file::read(&visited.path)
    {
        return FileView::Nothing(hash_file_failure(&error));
    }
    let path = visited.path.display().to_string();
    match bar.during(&path, |progress| format.verify(&visited.path, &Options::default(), progress)) {
        Ok(check) => match check.damages.first() {
            None => FileView::Brief,
            Some(damage) => {
                let others = others(check.damages.len(), check.unlisted);
                let message = format!("{path}: {}: damaged: {damage}{others}", visited.title());
                FileView::Nothing(FileFailure { message, code: exit::DAMAGED_DATA })
            }
        },
        Err(error) => FileView::Nothing(FileFailure::of(error)),
    }
}

struct Inspected {
    visited: Visited,
    content: FileView,
}

/// The view of a file.
enum FileView {
    Tree(Tree),
    Description(Description),
    /// Only its format.
    Brief,
    Unknown,
    /// The file cannot be shown.
    Nothing(FileFailure),
}

impl FileView {
    fn damage(&self) -> Option<String> {
        match self {
            FileView::Description(description) => damage_line(&description.damages),
            _ => None,
        }
    }
}

/// `damaged: …` with the first damage and the number of others.
fn damage_line(damages: &[Damage]) -> Option<String> {
    let first = damages.first()?;
    Some(format!("damaged: {}{}", printable(&first.to_string()), others(damages.len(), 0)))
}

impl Inspected {
    fn code(&self) -> u8 {
        match &self.content {
            FileView::Nothing(failure) => failure.code,
            FileView::Unknown if self.visited.named => exit::DAMAGED_DATA,
            FileView::Description(description) if !description.damages.is_empty() => exit::DAMAGED_DATA,
            _ => exit::FINISHED,
        }
    }
}

impl Serialize for Inspected {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("path", &self.visited.path.display().to_string())?;
        fields.serialize_entry("format", &self.visited.format().map(Format::name))?;
        match &self.content {
            FileView::Tree(tree) => fields.serialize_entry("tree", &tree_json::value(tree))?,
            FileView::Description(description) => {
                if let Some(damage) = damage_line(&description.damages) {
                    fields.serialize_entry("error", &damage)?;
                }
                fields.serialize_entry("description", description)?;
            }
            FileView::Nothing(failure) => fields.serialize_entry("error", &failure.message)?,
            FileView::Brief | FileView::Unknown => {}
        }
        fields.end()
    }
}

fn write_description(description: &Description, to: &mut dyn Write) -> io::Result<()> {
    let mut lines = PrintableLines::new(to);
    description.write_text(&mut lines)?;
    lines.finish()
}

pub(super) fn write_tree(tree: &Tree, to: &mut dyn Write) -> io::Result<()> {
    let text = print::text(tree);
    // A key that contains a line end must not look like two keys.
    if text.lines().count() == text.matches('\n').count() && !text.contains(|c: char| c.is_control() && c != '\n') {
        return to.write_all(text.as_bytes());
    }
    text.lines().try_for_each(|line| writeln!(to, "{}", printable(line)))
}

struct SingleFile<'a> {
    content: &'a FileView,
}

impl Report for SingleFile<'_> {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        match self.content {
            FileView::Tree(tree) => write_tree(tree, to),
            FileView::Description(description) => write_description(description, to),
            FileView::Brief | FileView::Unknown | FileView::Nothing(_) => Ok(()),
        }
    }

    fn json(&self) -> Value {
        match self.content {
            FileView::Tree(tree) => tree_json::value(tree),
            FileView::Description(description) => serde_json::to_value(description).unwrap_or_default(),
            FileView::Brief | FileView::Unknown | FileView::Nothing(_) => Value::Null,
        }
    }

    fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        match self.content {
            FileView::Description(description) => Ok(serde_json::to_writer_pretty(to, description)?),
            _ => Ok(serde_json::to_writer_pretty(to, &self.json())?),
        }
    }
}

struct ManyFiles {
    files: Vec<Inspected>,
    check: bool,
}

impl Report for ManyFiles {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        for file in &self.files {
            let path = printable(&file.visited.path.display().to_string());
            let title = file.visited.title();
            match &file.content {
                // The message contains the path.
                FileView::Nothing(failure) => writeln!(to, "{}", printable(&failure.message))?,
                _ if self.check => {
                    if file.code() != exit::FINISHED {
                        writeln!(to, "{path}: {title}")?;
                    }
                }
                FileView::Tree(tree) => {
                    writeln!(to, "{path}: {title}")?;
                    write_tree(tree, to)?;
                }
                FileView::Description(description) => {
                    writeln!(to, "{path}: {title}")?;
                    write_description(description, to)?;
                    if let Some(damage) = damage_line(&description.damages) {
                        writeln!(to, "{path}: {damage}")?;
                    }
                }
                FileView::Brief | FileView::Unknown => writeln!(to, "{path}: {title}")?,
            }
        }
        Ok(())
    }

    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        Ok(serde_json::to_writer_pretty(to, self)?)
    }
}

/// The document, with one description in memory at a time.
impl Serialize for ManyFiles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_unknown = |file: &&Inspected| matches!(file.content, FileView::Unknown);
        let unknown: Vec<String> =
            self.files.iter().filter(is_unknown).map(|file| file.visited.path.display().to_string()).collect();
        let known = || self.files.iter().filter(|file| !is_unknown(file));
        let bad = |file: &&Inspected| file.code() != exit::FINISHED;
        let shown: Vec<&Inspected> = known().filter(|file| !self.check || bad(file)).collect();
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("version", &JSON_VERSION)?;
        fields.serialize_entry("files", &shown)?;
        fields.serialize_entry("unknown", &unknown)?;
        fields.serialize_entry("damaged", &known().filter(bad).count())?;
        fields.end()
    }
}
