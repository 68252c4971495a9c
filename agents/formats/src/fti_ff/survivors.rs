//! The files of FTI that are left, found below the directories of the remaining nodes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::name::{FileName, FileRole};
use crate::FormatsError;

/// Node, execution and level directories lie this deep at most below the directories one names.
const MAX_DEPTH: u32 = 8;

/// One file that is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivor {
    /// Where it is.
    pub path: PathBuf,
    /// What its name says.
    pub name: FileName,
    /// The directory it lies in: `l1` to `l4`.
    pub level: String,
    /// The directory above: FTI's id of the execution.
    pub execution: String,
}

/// All files that are left of one execution.
#[derive(Debug, Clone, Default)]
pub struct Survivors {
    files: Vec<Survivor>,
}

impl Survivors {
    /// Looks below these directories, links not followed, `tmp` of an unfinished checkpoint left out. A directory that
    /// is not there is a node that is lost.
    ///
    /// # Errors
    /// When a directory cannot be read, or holds files of several executions and none is named.
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
                    why: format!("there are files of several executions, name one of them: {}", names.join(", ")),
                });
            }
            None => {}
        }
        Ok(Survivors { files })
    }

    /// All of them, sorted by path.
    pub fn files(&self) -> &[Survivor] {
        &self.files
    }

    /// Those of one kind, checkpoint and rank.
    pub fn of(&self, checkpoint: u32, role: FileRole, rank: u32) -> impl Iterator<Item = &Survivor> {
        let wanted = FileName { checkpoint: Some(checkpoint), role, rank };
        self.files.iter().filter(move |file| file.name == wanted)
    }

    /// The checkpoints of which anything is left, newest first: FTI deletes lower levels with each checkpoint, so that
    /// the lowest level that is there is the newest.
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
