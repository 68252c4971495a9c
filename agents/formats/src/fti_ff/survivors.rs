//! The surviving files of FTI, found below the directories of the remaining nodes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::name::{FileName, FileRole};
use crate::FormatsError;

/// Node, execution and level directories are at most this deep below the given directories.
const MAX_DEPTH: u32 = 8;

/// A surviving file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivor {
    /// Its path.
    pub path: PathBuf,
    /// Its parsed name.
    pub name: FileName,
    /// The name of its directory: `l1` to `l4`.
    pub level: String,
    /// The name of the directory above: FTI's id of the execution.
    pub execution: String,
}

/// All surviving files of one execution.
#[derive(Debug, Clone, Default)]
pub struct Survivors {
    files: Vec<Survivor>,
}

impl Survivors {
    /// Searches these directories recursively. Symbolic links are not followed; `tmp`, the directory of an unfinished
    /// checkpoint, is skipped; a missing directory counts as that of a lost node.
    ///
    /// # Errors
    /// When a directory cannot be read, or there are files of several executions and `execution` is `None`.
    pub fn scan(roots: &[&Path], execution: Option<&str>) -> Result<Survivors, FormatsError> {
        let mut files = Vec::new();
        for root in roots {
            collect(root, 0, &mut files)?;
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let executions: BTreeSet<&str> = files.iter().map(|file| file.execution.as_str()).collect();
        match execution {
            Some(wanted) => files.retain(|file| file.execution == wanted),
            None if executions.len() > 1 => {
                let names: Vec<&str> = executions.into_iter().collect();
                return Err(FormatsError::NotRestorable {
                    what: "FTI checkpoints".to_owned(),
                    why: format!("there are files of several executions; specify one of them: {}", names.join(", ")),
                });
            }
            None => {}
        }
        Ok(Survivors { files })
    }

    /// All files, sorted by path.
    pub fn files(&self) -> &[Survivor] {
        &self.files
    }

    /// The files of one checkpoint, role and rank.
    pub fn of(&self, checkpoint: u32, role: FileRole, rank: u32) -> impl Iterator<Item = &Survivor> {
        let wanted = FileName { checkpoint: Some(checkpoint), role, rank };
        self.files.iter().filter(move |file| file.name == wanted)
    }

    /// The checkpoints with surviving files, newest first. FTI deletes the files of lower levels with each checkpoint,
    /// so that the lowest level present is the newest.
    pub fn checkpoints(&self) -> Vec<u32> {
        let levels = self.files.iter().filter_map(|file| Some((file.level.as_str(), file.name.checkpoint?)));
        let sorted: BTreeSet<(&str, u32)> = levels.collect();
        let mut checkpoints = Vec::new();
        for (_, checkpoint) in sorted {
            if !checkpoints.contains(&checkpoint) {
                checkpoints.push(checkpoint);
            }
        }
        checkpoints
    }
}

fn collect(directory: &Path, depth: u32, files: &mut Vec<Survivor>) -> Result<(), FormatsError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(FormatsError::reading("list", directory)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(FormatsError::reading("list", directory))?;
        let kind = entry.file_type().map_err(FormatsError::reading("look at", directory))?;
        let path = entry.path();
        if kind.is_dir() && depth < MAX_DEPTH && entry.file_name() != "tmp" {
            collect(&path, depth + 1, files)?;
        } else if let Some(name) = entry.file_name().to_str().and_then(FileName::parse).filter(|_| kind.is_file()) {
            let above = |steps: usize| {
                let component = path.ancestors().nth(steps).and_then(Path::file_name);
                component.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
            };
            let (level, execution) = (above(1), above(2));
            files.push(Survivor { path, name, level, execution });
        }
    }
    Ok(())
}
