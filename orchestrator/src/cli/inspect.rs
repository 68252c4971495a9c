//! `holdfast inspect`: shows the contents of files of any format, and the formats of the files in a directory.

use std::io::{self, Write};
use std::path::PathBuf;

use holdfast_core::kvtree::file;
use holdfast_core::kvtree::{Tree, json as tree_json, print};
use holdfast_formats::{Description, Format, Options};
use serde::ser::SerializeMap;
use serde_json::Value;

use super::failure::Failure;
use super::findings::{FileOutcome, FileResult, Finding, Findings};
use super::output::{PrintableLines, Report, Style, printable};
use super::progress::Bar;
use super::verify::others;
use super::walk::{Content, Visited, visit, worst};
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

The schema of the JSON of a single file: `holdfast schema inspect file`

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

pub(super) fn run(args: InspectArgs, output: Style) -> Result<u8, Failure> {
    let mut bar = Bar::new(output);
    let one = args.paths.len() == 1 && !args.check && !args.brief;
    let mut files = Vec::new();
    for visited in visit(&args.paths) {
        let found = match &visited.content {
            Content::Known(..) if args.brief => Ok(FileView::Brief),
            Content::Known(format, _) if args.check => check(*format, &visited, &mut bar),
            Content::Known(format, _) if is_scr(*format) => match file::read(&visited.path) {
                Ok(tree) => Ok(FileView::Tree(tree)),
                // With a single file, its error is that of the command.
                Err(error) if one && visited.named => return Err(error.into()),
                Err(error) => Err(error.into()),
            },
            Content::Known(format, _) => {
                match bar.during(&visited.path.display().to_string(), |_| format.describe(&visited.path)) {
                    Ok(description) => Ok(FileView::Description(description)),
                    Err(error) if one && visited.named => return Err(error.into()),
                    Err(error) => Err(error.into()),
                }
            }
            Content::Unreadable(failure) if one && visited.named => {
                return Err(Failure::new(failure.code(), &failure.message));
            }
            content => {
                files.extend(FileOutcome::without_format(content).map(|outcome| Finding { visited, outcome }));
                continue;
            }
        };
        let outcome = found.map_or_else(FileOutcome::Failed, FileOutcome::Found);
        files.push(Finding { visited, outcome });
    }
    let code = worst(files.iter().map(Finding::code));
    match (&files[..], one) {
        ([Finding { visited: Visited { named: true, path, .. }, outcome: FileOutcome::Unknown }], true) => {
            return Err(unknown(path));
        }
        ([Finding { visited: Visited { named: true, path, .. }, outcome: FileOutcome::Found(content) }], true) => {
            output.result(&SingleFile { content })?;
            if let Some(damage) = content.damage() {
                output.report_damage(&format!("{}: {damage}", printable(&path.display().to_string())));
            }
        }
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

/// Verifies a file; only damage is shown.
fn check(format: &'static dyn Format, visited: &Visited, bar: &mut Bar) -> Result<FileView, Failure> {
    if is_scr(format) {
        file::read(&visited.path)?;
    }
    let path = visited.path.display().to_string();
    let check = bar.during(&path, |progress| format.verify(&visited.path, &Options::default(), progress));
    let check = check?;
    let Some(damage) = check.damages.first() else { return Ok(FileView::Brief) };
    let others = others(check.damages.len(), check.unlisted);
    let message = format!("{path}: {}: damaged: {damage}{others}", visited.title());
    Err(Failure::new(exit::DAMAGED_DATA, message))
}

enum FileView {
    Tree(Tree),
    Description(Description),
    /// Only its format.
    Brief,
}

impl FileView {
    /// `damaged: …` with the first damage and the number of others.
    fn damage(&self) -> Option<String> {
        let FileView::Description(Description { damages, .. }) = self else { return None };
        let first = damages.first()?;
        Some(format!("damaged: {}{}", printable(&first.to_string()), others(damages.len(), 0)))
    }
}

impl FileResult for FileView {
    fn is_intact(&self) -> bool {
        self.damage().is_none()
    }

    fn fields<M: SerializeMap>(&self, to: &mut M) -> Result<(), M::Error> {
        match self {
            FileView::Tree(tree) => to.serialize_entry("tree", &tree_json::value(tree)),
            FileView::Description(description) => {
                if let Some(damage) = self.damage() {
                    to.serialize_entry("error", &damage)?;
                }
                to.serialize_entry("description", description)
            }
            FileView::Brief => Ok(()),
        }
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
            FileView::Brief => Ok(()),
        }
    }

    fn json(&self) -> Value {
        match self.content {
            FileView::Tree(tree) => tree_json::value(tree),
            FileView::Description(description) => serde_json::to_value(description).unwrap_or_default(),
            FileView::Brief => Value::Null,
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
    files: Vec<Finding<FileView>>,
    check: bool,
}

impl ManyFiles {
    fn document(&self) -> Findings<'_, FileView> {
        Findings { list: &self.files, only_damaged: self.check }
    }
}

impl Report for ManyFiles {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        for file in &self.files {
            let (path, title) = (printable(&file.path()), file.visited.title());
            let view = match &file.outcome {
                // The message contains the path.
                FileOutcome::Failed(failure) => {
                    writeln!(to, "{}", printable(&failure.message))?;
                    continue;
                }
                FileOutcome::Unknown => &FileView::Brief,
                FileOutcome::Found(view) => view,
            };
            if self.check && file.code() == exit::FINISHED {
                continue;
            }
            writeln!(to, "{path}: {title}")?;
            match view {
                _ if self.check => {}
                FileView::Tree(tree) => write_tree(tree, to)?,
                FileView::Description(description) => {
                    write_description(description, to)?;
                    if let Some(damage) = view.damage() {
                        writeln!(to, "{path}: {damage}")?;
                    }
                }
                FileView::Brief => {}
            }
        }
        Ok(())
    }

    fn json(&self) -> Value {
        serde_json::to_value(self.document()).unwrap_or_default()
    }

    fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        Ok(serde_json::to_writer_pretty(to, &self.document())?)
    }
}
