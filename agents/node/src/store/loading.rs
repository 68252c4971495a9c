//! Reads the filemaps in the control directory with their logs, one by one, so that a damaged one hides no other.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use holdfast_core::control::filemap::log::{self, LogPosition};
use holdfast_core::control::filemap::{Filemap, MasterFilemap};
use holdfast_core::durable::is_exhaustion;

use super::error::StoreError;
use super::names::{level_of, log_path, master_path};
use crate::directories::paths::Paths;

/// The filemaps as they are on disk.
#[derive(Clone, Debug, Default)]
pub struct OnDisk {
    /// The readable filemaps with the number in their name, ascending.
    pub slots: Vec<(usize, Filemap)>,
    /// Files that could not be read, and why.
    pub faults: Vec<String>,
    /// The paths of the damaged ones.
    pub(super) damaged: Vec<PathBuf>,
    /// The master filemap could be read.
    pub(super) master_is_readable: bool,
    /// The position of the log of each readable filemap.
    pub(super) logs: BTreeMap<usize, LogPosition>,
}

/// Reads the filemaps that the master filemap lists; if it is damaged, all in the directory.
///
/// # Errors
/// When descriptors or memory are exhausted: nothing is known of the files then.
pub fn read(paths: &Paths, bases: &[String]) -> Result<OnDisk, StoreError> {
    let mut found = OnDisk::default();
    let master = master_path(paths);
    let listed: Vec<String> = match MasterFilemap::read(&master) {
        Ok(master) => {
            found.master_is_readable = true;
            master.filemaps().map(str::to_owned).collect()
        }
        Err(error) if error.is_exhaustion() => return Err(error.into()),
        Err(error) => {
            if !error.is_not_found() {
                found.faults.push(error.to_string());
                found.damaged.push(master);
            }
            in_directory(paths, &mut found.faults)?
        }
    };
    for node_path in listed {
        let Some(level) = level_of(&node_path) else {
            found
                .faults
                .push(format!("{node_path} is listed as a filemap but does not have the name of one; it is not read"));
            continue;
        };
        let real = match paths.real_of_job(&node_path, bases) {
            Ok(real) => real,
            Err(error) => {
                found.faults.push(error.to_string());
                continue;
            }
        };
        let log = log_path(paths, level);
        match log::read(&real, &log) {
            Ok((map, position)) => {
                if position.ignored_bytes() > 0 {
                    tracing::info!(path = %log.display(), bytes = position.ignored_bytes(), "filemap_log_cut");
                }
                found.slots.push((level, map));
                found.logs.insert(level, position);
            }
            Err(error) if error.is_exhaustion() => return Err(error.into()),
            Err(error) => {
                // A missing one was never written: LLNL's library writes the master filemap first.
                if !error.is_not_found() {
                    found.damaged.push(real);
                    found.faults.push(error.to_string());
                }
            }
        }
    }
    found.slots.sort_by_key(|(level, _)| *level);
    found.slots.dedup_by_key(|(level, _)| *level);
    Ok(found)
}

fn in_directory(paths: &Paths, faults: &mut Vec<String>) -> Result<Vec<String>, StoreError> {
    let control = paths.control();
    let entries = match fs::read_dir(&control) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) if is_exhaustion(&source) => return Err(StoreError::List { path: control, source }),
        Err(error) => {
            faults.push(format!("cannot list the control directory {}: {error}", control.display()));
            return Ok(Vec::new());
        }
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let filemaps = names.filter(|name| level_of(name).is_some());
    Ok(filemaps.map(|name| format!("{}/{name}", paths.control_node_path())).collect())
}
