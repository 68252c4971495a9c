//! `holdfast inspect`: what stands in SCR's files.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use holdfast_core::kvtree::file::{self, FileError};
use holdfast_core::kvtree::{Tree, json as tree_json, print};
use serde_json::{Value, json};

use super::failure::Failure;
use super::output::{Output, Report, document, printable};
use crate::exit;

/// Directories deeper than this are not entered; SCR's own are five deep.
const MAX_DEPTH: usize = 32;
/// How SCR's files are named, whose content is a hash, or begins with one.
const ENDINGS: [&str; 4] = ["scrinfo", "scr", "scrfilemap", "xor"];

/// Show any SCR file: filemaps, flush, halt, nodes and transfer files, meta files, summaries, indexes, headers of XOR files
///
/// A single file is printed as `scr_print_hash_file` does. Of a directory, every SCR file in it and below it is shown; files of
/// the application are passed over. A file that is damaged gets one line that says how.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast inspect index.scr
  holdfast inspect --json /tmp/user1/scr.1145655/filemap.scrinfo | jq '.RANK'
  holdfast inspect 1_of_4_in_0.xor          its header
  holdfast inspect --check ./heat-run       only what is damaged

JSON: of one file, its tree as nested objects in file order, a key without value as {}. Of several, or of a directory:
{version, files: [{path, tree} or {path, error}…], damaged}

Exit codes: 0; 65 at least one file is damaged; 69 at least one file cannot be read")]
pub struct InspectArgs {
    /// Files and directories
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Show only what is damaged
    #[arg(long)]
    check: bool,
}

pub(super) fn run(args: InspectArgs, output: &dyn Output) -> Result<u8, Failure> {
    if let [path] = &args.paths[..]
        && !path.is_dir()
        && !args.check
    {
        let tree = file::read(path)?;
        output.result(&One { tree })?;
        return Ok(exit::FINISHED);
    }
    let mut files = Vec::new();
    for path in &args.paths {
        if path.is_dir() {
            walk(path, 0, &mut files);
        } else {
            inspect(path.clone(), &mut files);
        }
    }
    let code = files.iter().map(Inspected::code).max_by_key(|code| match *code {
        exit::FINISHED => 0,
        exit::UNAVAILABLE => 1,
        _ => 2,
    });
    output.result(&Several { files, check: args.check })?;
    Ok(code.unwrap_or(exit::FINISHED))
}

/// A file, or a directory that could not be listed.
struct Inspected {
    path: PathBuf,
    content: Result<Tree, Unreadable>,
}

struct Unreadable {
    message: String,
    damaged: bool,
}

impl Inspected {
    fn code(&self) -> u8 {
        match &self.content {
            Ok(_) => exit::FINISHED,
            Err(Unreadable { damaged: true, .. }) => exit::DAMAGED_DATA,
            Err(_) => exit::UNAVAILABLE,
        }
    }
}

fn inspect(path: PathBuf, files: &mut Vec<Inspected>) {
    let content = file::read(&path)
        .map_err(|error| Unreadable { damaged: matches!(error, FileError::Format { .. }), message: error.to_string() });
    files.push(Inspected { path, content });
}

/// Every SCR file below a directory, in the order of their names. Links are not followed: `scr.current` would show its
/// target twice, and others lead away.
fn walk(directory: &Path, depth: usize, files: &mut Vec<Inspected>) {
    let unreadable = |message: String| Inspected {
        path: directory.to_owned(),
        content: Err(Unreadable { message, damaged: false }),
    };
    if depth > MAX_DEPTH {
        files.push(unreadable(format!("{}: deeper than {MAX_DEPTH} levels; not entered", directory.display())));
        return;
    }
    let mut entries: Vec<fs::DirEntry> = match fs::read_dir(directory).and_then(Iterator::collect) {
        Ok(entries) => entries,
        Err(error) => {
            files.push(unreadable(format!("cannot list {}: {error}; check its permissions", directory.display())));
            return;
        }
    };
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&path, depth + 1, files),
            Ok(kind) if kind.is_file() && is_scr_file(&path) => inspect(path, files),
            _ => {}
        }
    }
}

fn is_scr_file(path: &Path) -> bool {
    path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| ENDINGS.contains(&ending))
}

fn write_tree(tree: &Tree, to: &mut dyn Write) -> io::Result<()> {
    let text = print::text(tree);
    // A key with a line end in it would look like two keys.
    if text.lines().count() == text.matches('\n').count() && !text.contains(|c: char| c.is_control() && c != '\n') {
        return to.write_all(text.as_bytes());
    }
    text.lines().try_for_each(|line| writeln!(to, "{}", printable(line)))
}

struct One {
    tree: Tree,
}

impl Report for One {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        write_tree(&self.tree, to)
    }

    fn json(&self) -> Value {
        tree_json::value(&self.tree)
    }
}

struct Several {
    files: Vec<Inspected>,
    check: bool,
}

impl Report for Several {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        for file in &self.files {
            let path = printable(&file.path.display().to_string());
            match &file.content {
                Ok(_) if self.check => {}
                Ok(tree) => {
                    writeln!(to, "{path}:")?;
                    write_tree(tree, to)?;
                }
                // The message names the path.
                Err(unreadable) => writeln!(to, "{}", printable(&unreadable.message))?,
            }
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let shown = |file: &&Inspected| !self.check || file.content.is_err();
        let one = |file: &Inspected| {
            let path = file.path.display().to_string();
            match &file.content {
                Ok(tree) => json!({"path": path, "tree": tree_json::value(tree)}),
                Err(unreadable) => json!({"path": path, "error": unreadable.message}),
            }
        };
        let damaged = self.files.iter().filter(|file| file.content.is_err()).count();
        document(json!({"files": self.files.iter().filter(shown).map(one).collect::<Vec<_>>(), "damaged": damaged}))
    }
}
