//! The surviving files of FTI, found below the directories of the remaining nodes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::name::{FileName, FileRole};
use crate::error::FormatsError;
use crate::input::Input;

/// Node, execution and level directories are at most this deep below the given directories.
const MAX_DEPTH: u32 = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivor {
    pub path: PathBuf,
    pub name: FileName,
    /// The name of its directory: `l1` to `l4`.
    pub level: String,
    /// The name of the directory above: FTI's id of the execution.
    pub execution: String,
}

/// All surviving files of one execution.
#[derive(Debug, Clone, Default)]
pub struct Survivors {
    /// All files, sorted by path.
    pub files: Vec<Survivor>,
    /// Where FTI's `Topology.fti` of an execution is.
    topologies: Vec<(String, PathBuf)>,
}

/// The name of the file in which FTI lists the nodes of an execution.
const TOPOLOGY: &str = "Topology.fti";
/// The largest one that is read: a million nodes.
const MOST_TOPOLOGY_BYTES: u64 = 64 << 20;

impl Survivors {
    /// Searches these directories recursively. Symbolic links are not followed; `tmp`, the directory of an unfinished
    /// checkpoint, is skipped; a missing directory counts as that of a lost node.
    ///
    /// # Errors
    /// When a directory cannot be read, or there are files of several executions and `execution` is `None`.
    pub fn scan(roots: &[&Path], execution: Option<&str>) -> Result<Survivors, FormatsError> {
        let (mut files, mut topologies) = (Vec::new(), Vec::new());
        for root in roots {
            collect(root, 0, &mut files, &mut topologies)?;
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
        topologies.retain(|(execution, _)| files.iter().any(|file| file.execution == *execution));
        Ok(Survivors { files, topologies })
    }

    /// The number of nodes of the execution, as FTI's metadata list them; `None` if these are not there.
    pub fn nodes(&self) -> Result<Option<u32>, FormatsError> {
        let mut nodes = None;
        for (_, path) in &self.topologies {
            let input = Input::open(path)?;
            let bytes = usize::try_from(input.size.min(MOST_TOPOLOGY_BYTES)).unwrap_or(usize::MAX);
            let text = input.bytes_at(0, bytes)?;
            nodes = nodes.max(Some(listed_nodes(&String::from_utf8_lossy(&text))));
        }
        Ok(nodes)
    }

    /// The files of one checkpoint, role and rank.
    pub fn of(&self, checkpoint: u32, role: FileRole, rank: u32) -> impl Iterator<Item = &Survivor> {
        let wanted = FileName { checkpoint: Some(checkpoint), role, rank };
        self.files.iter().filter(move |file| file.name == wanted)
    }

    /// The files of the differential checkpoint.
    pub fn differential(&self) -> impl Iterator<Item = &Survivor> {
        self.files.iter().filter(|file| file.name.checkpoint.is_none())
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

/// The entries `<number> = <host>` of the section `topology`.
fn listed_nodes(text: &str) -> u32 {
    let lines = text.lines().skip_while(|line| line.trim() != "[topology]").skip(1);
    let entries = lines.take_while(|line| !line.starts_with('['));
    let numbers = entries.filter_map(|line| line.split_once('=')?.0.trim().parse::<u32>().ok());
    u32::try_from(numbers.count()).unwrap_or(u32::MAX)
}

fn collect(
    directory: &Path,
    depth: u32,
    files: &mut Vec<Survivor>,
    topologies: &mut Vec<(String, PathBuf)>,
) -> Result<(), FormatsError> {
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
            collect(&path, depth + 1, files, topologies)?;
        } else if entry.file_name() == TOPOLOGY && kind.is_file() {
            let execution = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
            topologies.push((execution, path));
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
