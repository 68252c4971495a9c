//! The transfer file of a flush that the agents make in the background themselves (`SCR manual §9.7`): which files are
//! copied, to where, within which limits, and how far that is. Nothing here reads it: it is there for the user, and for
//! what a site has that watches it.

use std::mem;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use holdfast_core::control::transfer::{FileTransfer, TransferFile, TransferState};
use holdfast_core::durable;
use holdfast_wire::peer::CopyLimits;
use parking_lot::Mutex;

use crate::directories::paths::Paths;

/// The transfer file is written entirely for each change: not more often than this.
const RECORDED_EVERY: Duration = Duration::from_millis(100);

/// The path of the transfer file of a node.
pub(crate) fn path(paths: &Paths) -> PathBuf {
    paths.control().join("transfer.scrinfo")
}

/// Removes the transfer file of an earlier run, as `SCR_Init` does.
pub(crate) fn remove(paths: &Paths) {
    if let Err(error) = durable::remove_unsynced(&path(paths)) {
        tracing::warn!(%error, "transfer_file_not_removed");
    }
}

/// The record of a flush. On drop the flush is recorded as stopped.
#[derive(Debug)]
pub(crate) struct TransferRecord {
    path: PathBuf,
    copied: Mutex<Copied>,
    is_done: bool,
}

/// Files that are copied, and not yet recorded as such.
#[derive(Debug)]
struct Copied {
    files: Vec<(String, u64)>,
    recorded: Instant,
}

impl Copied {
    /// Adds a file; returns all, if it is time to record them.
    fn add(&mut self, file: (String, u64), now: Instant) -> Vec<(String, u64)> {
        self.files.push(file);
        if now.duration_since(self.recorded) < RECORDED_EVERY {
            return Vec::new();
        }
        self.recorded = now;
        mem::take(&mut self.files)
    }
}

impl TransferRecord {
    /// Records that these files are being copied. A file that cannot be written stops no flush.
    pub(crate) fn begin(paths: &Paths, files: &[FileTransfer], limits: CopyLimits) -> TransferRecord {
        let record = TransferRecord {
            path: path(paths),
            copied: Mutex::new(Copied { files: Vec::new(), recorded: Instant::now() }),
            is_done: false,
        };
        record.change(|file| {
            *file = TransferFile::default();
            file.request(files, limits.bandwidth as f64, limits.percent);
            file.set_state(TransferState::Running);
        });
        record
    }

    /// A file is on the prefix directory, with so many bytes.
    pub(crate) fn copied(&self, source: String, bytes: u64) {
        let due = self.copied.lock().add((source, bytes), Instant::now());
        if !due.is_empty() {
            self.change(|file| set_copied(file, &due));
        }
    }

    /// Everything is copied.
    pub(crate) fn done(mut self) {
        self.is_done = true;
    }

    fn change(&self, change: impl FnOnce(&mut TransferFile)) {
        if let Err(error) = TransferFile::update(&self.path, change) {
            tracing::warn!(%error, "transfer_not_recorded");
        }
    }
}

impl Drop for TransferRecord {
    fn drop(&mut self) {
        let rest = mem::take(&mut self.copied.lock().files);
        self.change(|file| {
            set_copied(file, &rest);
            if self.is_done {
                file.set_done();
            } else {
                file.set_state(TransferState::Stopped);
            }
        });
    }
}

fn set_copied(file: &mut TransferFile, copied: &[(String, u64)]) {
    copied.iter().for_each(|(source, bytes)| file.set_copied(source, *bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_recorded_together_when_it_is_time() {
        let begun = Instant::now();
        let mut copied = Copied { files: Vec::new(), recorded: begun };
        let file = |name: &str| (name.to_owned(), 1);
        assert_eq!(copied.add(file("a"), begun + RECORDED_EVERY / 2), []);
        assert_eq!(copied.add(file("b"), begun + RECORDED_EVERY), [file("a"), file("b")]);
        assert_eq!(copied.add(file("c"), begun + RECORDED_EVERY), []);
    }
}
