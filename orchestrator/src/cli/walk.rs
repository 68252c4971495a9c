//! The files of a command: those that were named, and all files in named directories, each with its format.
//!
//! Directories are walked recursively. Symlinks are not followed: the target of `scr.current` would be shown twice, and
//! other links may leave the directory.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_formats::sion::dataset;
use holdfast_formats::{Confidence, Format, Recognised};

use super::failure::Failure;
use crate::exit;

/// Deeper directories are not entered; those of SCR have five levels.
const MAX_DEPTH: usize = 32;

/// A file, or a directory that could not be listed.
pub(super) struct Visited {
    pub path: PathBuf,
    /// The path relative to the named directory, or the file name if the file itself was named.
    pub below: PathBuf,
    /// True if the file itself was named.
    pub named: bool,
    pub content: Content,
}

pub(super) enum Content {
    Known(&'static dyn Format, Confidence),
    Unknown,
    Unreadable(Failure),
}

impl Visited {
    /// The format, if it is known.
    pub(super) fn format(&self) -> Option<&'static dyn Format> {
        match self.content {
            Content::Known(format, _) => Some(format),
            _ => None,
        }
    }

    /// The format for messages.
    pub(super) fn title(&self) -> String {
        match self.content {
            Content::Known(format, Confidence::ByName) => format!("{} by its name", format.title()),
            Content::Known(format, _) => format.title().to_owned(),
            _ => "unknown".to_owned(),
        }
    }
}

/// All files; those of a directory are sorted by name.
pub(super) fn visit(paths: &[PathBuf]) -> Vec<Visited> {
    let mut visited = Vec::new();
    for path in paths {
        if path.is_dir() {
            enter(path, Path::new(""), 0, &mut visited);
        } else {
            let below = path.file_name().map(PathBuf::from).unwrap_or_default();
            visited.push(look(path.clone(), below, true));
        }
    }
    visited
}

fn look(path: PathBuf, below: PathBuf, named: bool) -> Visited {
    let content = match holdfast_formats::recognise(&path) {
        Ok(Recognised { format: Some(format), confidence }) => Content::Known(format, confidence),
        Ok(_) => Content::Unknown,
        Err(error) => Content::Unreadable(error.into()),
    };
    Visited { path, below, named, content }
}

fn enter(directory: &Path, below: &Path, depth: usize, visited: &mut Vec<Visited>) {
    let unreadable = |message: String| Visited {
        path: directory.to_owned(),
        below: below.to_owned(),
        named: depth == 0,
        content: Content::Unreadable(Failure::new(exit::UNAVAILABLE, message)),
    };
    if depth > MAX_DEPTH {
        visited.push(unreadable(format!("{}: deeper than {MAX_DEPTH} levels; not entered", directory.display())));
        return;
    }
    let mut entries: Vec<fs::DirEntry> = match fs::read_dir(directory).and_then(Iterator::collect) {
        Ok(entries) => entries,
        Err(error) => {
            let message = format!("cannot list {}: {error}; check its permissions", directory.display());
            visited.push(unreadable(message));
            return;
        }
    };
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, below) = (entry.path(), below.join(entry.file_name()));
        // A dataset without this file has lost all files in it.
        let is_lost =
            |kind: &fs::FileType| !kind.is_file() && entry.file_name().to_str().is_some_and(dataset::is_container_name);
        match entry.file_type() {
            Ok(kind) if is_lost(&kind) => {
                let problem = "it has the name of a container, and is not a regular file: nothing is read from it";
                let message = format!("{}: {problem}", path.display());
                let content = Content::Unreadable(Failure::new(exit::DAMAGED_DATA, message));
                visited.push(Visited { path, below, named: false, content });
            }
            Ok(kind) if kind.is_dir() => enter(&path, &below, depth + 1, visited),
            Ok(kind) if kind.is_file() => visited.push(look(path, below, false)),
            _ => {}
        }
    }
}

/// The exit code for several files: damage takes precedence over files that cannot be read.
pub(super) fn worst(codes: impl Iterator<Item = u8>) -> u8 {
    let weight = |code: &u8| match *code {
        exit::FINISHED => 0,
        exit::DAMAGED_DATA => 3,
        exit::UNAVAILABLE => 2,
        _ => 1,
    };
    codes.max_by_key(weight).unwrap_or(exit::FINISHED)
}
