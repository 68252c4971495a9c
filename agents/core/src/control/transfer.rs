//! The transfer file: what an asynchronous flush has to copy and how far it is (`docs/scr-files.md` §10).
//!
//! The run writes its requests (files, COMMAND) into it, the copying process its progress (WRITTEN, STATE, FLAG); both
//! change it under its lock.

use std::path::Path;

use super::{ContentError, ControlError, in_file, parse, required};
use crate::kvtree::Tree;
use crate::kvtree::lock::{LockedFile, read_shared};

const FILES: &str = "FILES";
const DESTINATION: &str = "DESTINATION";
const SIZE: &str = "SIZE";
const WRITTEN: &str = "WRITTEN";
const BANDWIDTH: &str = "BW";
const PERCENT: &str = "PERCENT";
const COMMAND: &str = "COMMAND";
const STATE: &str = "STATE";
const FLAG: &str = "FLAG";
const DONE: &str = "DONE";

/// What the run requests of the copying process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransferCommand {
    Run,
    /// Stop copying, but keep running.
    Stop,
    /// Stop copying and exit.
    Exit,
}

impl TransferCommand {
    /// Its name in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            TransferCommand::Run => "RUN",
            TransferCommand::Stop => "STOP",
            TransferCommand::Exit => "EXIT",
        }
    }
}

/// What the copying process reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransferState {
    Stopped,
    Running,
}

impl TransferState {
    /// Its name in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            TransferState::Stopped => "STOPPED",
            TransferState::Running => "RUNNING",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTransfer {
    /// From where, as the node sees it.
    pub source: String,
    /// Path of the copy, absolute.
    pub destination: String,
    pub size: u64,
    /// Bytes that are there and synchronised.
    pub written: u64,
}

/// What there is to copy, and how far it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransferFile {
    tree: Tree,
}

impl TransferFile {
    /// Makes a transfer file of a tree after checking its values. Unknown keys are kept.
    ///
    /// # Errors
    /// A file without destination or sizes, or a value that is not what its key needs.
    pub fn from_tree(tree: Tree) -> Result<TransferFile, ContentError> {
        let unknown = |key: &str, value: &str, expected| {
            Err(ContentError::Value { key: key.to_owned(), value: value.to_owned(), expected })
        };
        for (source, entry) in tree.get(FILES).into_iter().flat_map(Tree::iter) {
            transfer(source, entry)?;
        }
        for key in [BANDWIDTH, PERCENT] {
            if let Some(value) = tree.value(key)
                && !parse::<f64>(key, value, "a number")?.is_finite()
            {
                return unknown(key, value, "a finite number");
            }
        }
        match tree.value(COMMAND) {
            None | Some("RUN" | "STOP" | "EXIT") => {}
            Some(value) => return unknown(COMMAND, value, "RUN, STOP or EXIT"),
        }
        match tree.value(STATE) {
            // EXITING is defined and never written by the original.
            None | Some("STOPPED" | "RUNNING" | "EXITING") => {}
            Some(value) => return unknown(STATE, value, "STOPPED or RUNNING"),
        }
        Ok(TransferFile { tree })
    }

    /// The tree, as it would be written.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Reads a transfer file under a shared lock; `None` when there is none.
    ///
    /// # Errors
    /// When there is one that cannot be read.
    pub fn read(path: &Path) -> Result<Option<TransferFile>, ControlError> {
        read_shared(path)?.map(|tree| in_file(path, TransferFile::from_tree(tree))).transpose()
    }

    /// Changes a transfer file under its lock, making it if it is not there, and returns what `change` returned.
    ///
    /// # Errors
    /// When it cannot be locked, read or written; it is then as it was.
    pub fn update<R>(path: &Path, change: impl FnOnce(&mut TransferFile) -> R) -> Result<R, ControlError> {
        let (locked, tree) = LockedFile::open(path)?;
        let mut transfers = in_file(path, TransferFile::from_tree(tree))?;
        let result = change(&mut transfers);
        locked.write(&transfers.tree)?;
        Ok(result)
    }

    /// The files, in stored order.
    pub fn files(&self) -> Vec<FileTransfer> {
        let entries = self.tree.get(FILES).into_iter().flat_map(Tree::iter);
        entries.filter_map(|(source, entry)| transfer(source, entry).ok()).collect()
    }

    /// Requests that files are copied, and sets the limits where none are set: bytes per second, and percent of a CPU.
    pub fn request(&mut self, files: &[FileTransfer], bandwidth: f64, percent: f64) {
        // The original builds a list and merges it: that reverses it.
        let mut list = Tree::new();
        for file in files {
            let entry = list.set_kv(FILES, &file.source);
            entry.put(DESTINATION, &file.destination);
            entry.put(SIZE, file.size);
            entry.put(WRITTEN, file.written);
        }
        self.tree.merge(&list);
        for (key, value) in [(BANDWIDTH, bandwidth), (PERCENT, percent)] {
            if self.tree.get(key).is_none() {
                // C's `%f`.
                self.tree.put(key, format!("{value:.6}"));
            }
        }
        self.tree.unset(FLAG);
        self.set_command(TransferCommand::Run);
    }

    /// Records how much of a file is written; does nothing if the file is no longer listed.
    pub fn set_written(&mut self, source: &str, bytes: u64) {
        if let Some(entry) = self.tree.get_kv_mut(FILES, source) {
            entry.put(WRITTEN, bytes);
        }
    }

    /// Records that a file is copied and has this size: that of a meta file changes when a checksum is added.
    pub fn set_copied(&mut self, source: &str, bytes: u64) {
        if let Some(entry) = self.tree.get_kv_mut(FILES, source) {
            entry.put(SIZE, bytes);
            entry.put(WRITTEN, bytes);
        }
    }

    /// Removes a file from the list and returns whether it was listed.
    pub fn remove_file(&mut self, source: &str) -> bool {
        self.tree.unset_kv(FILES, source)
    }

    /// True if every file on the list is written: how the library finds a flush finished.
    pub fn all_written(&self) -> bool {
        self.files().iter().all(|file| file.written >= file.size)
    }

    /// Bytes a second that may be written.
    pub fn bandwidth(&self) -> Option<f64> {
        self.tree.parsed(BANDWIDTH)
    }

    /// Percent of a CPU that may be used; 0 is no limit.
    pub fn percent(&self) -> Option<f64> {
        self.tree.parsed(PERCENT)
    }

    /// The command of the transfer file; `None` if the run has written none.
    pub fn command(&self) -> Option<TransferCommand> {
        let word = self.tree.value(COMMAND)?;
        [TransferCommand::Run, TransferCommand::Stop, TransferCommand::Exit]
            .into_iter()
            .find(|command| command.as_str() == word)
    }

    /// Records the run's request.
    pub fn set_command(&mut self, command: TransferCommand) {
        self.tree.put(COMMAND, command.as_str());
    }

    /// What the copying process reports.
    pub fn state(&self) -> Option<TransferState> {
        let word = self.tree.value(STATE)?;
        [TransferState::Stopped, TransferState::Running].into_iter().find(|state| state.as_str() == word)
    }

    /// Records what the copying process is doing.
    pub fn set_state(&mut self, state: TransferState) {
        self.tree.put(STATE, state.as_str());
    }

    /// True once nothing was left to copy.
    pub fn is_done(&self) -> bool {
        self.tree.get_kv(FLAG, DONE).is_some()
    }

    /// Records that nothing is left to copy: STATE STOPPED and FLAG DONE.
    pub fn set_done(&mut self) {
        self.set_state(TransferState::Stopped);
        self.tree.put(FLAG, DONE);
    }
}

fn transfer(source: &str, entry: &Tree) -> Result<FileTransfer, ContentError> {
    Ok(FileTransfer {
        source: source.to_owned(),
        destination: required(entry, DESTINATION, "a path")?,
        size: required(entry, SIZE, "a number of bytes")?,
        written: required(entry, WRITTEN, "a number of bytes")?,
    })
}
