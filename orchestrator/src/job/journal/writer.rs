//! The thread that writes the state of a job.
//!
//! The loop hands changes over and goes on; what waits for them is released when they are on disk. While the thread writes,
//! the changes of further events gather in the loop and are handed over as one: a file system that is slow makes entries
//! larger, not more.
//!
//! **A state that cannot be written** (prefix full, an I/O error) must not stop the job, because only a take-over would miss
//! it: a warning says so, and the changes count as written, so that what waited for them is done. The whole state is
//! written with the next changes. A write that hangs is neither: what waits for it goes on waiting.

use std::path::PathBuf;
use std::sync::mpsc as std_mpsc;

use tokio::sync::mpsc;

use super::file::JournalFile;
use crate::job::state::{JobState, StateChanges, StateError};

/// A journal is not begun anew before it has this size, however small the state is.
const SMALLEST_TO_REPLACE: u64 = 1 << 20;

#[derive(Debug)]
struct WriteOrder {
    /// Counts the orders.
    commit: u64,
    changes: StateChanges,
    /// On disk, and not only handed to the system.
    sync: bool,
    /// All in one file: nothing follows.
    last: bool,
}

/// An order was carried out, as well as it could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub commit: u64,
}

/// The loop's side of the thread. Dropped, it lets the thread finish what it has.
#[derive(Debug)]
pub struct JournalWriter {
    orders: std_mpsc::Sender<WriteOrder>,
    written: mpsc::UnboundedReceiver<Written>,
}

impl JournalWriter {
    /// Begins with the whole state: what an earlier orchestrator left in the journal ends with it.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn start(prefix: PathBuf, state: JobState) -> std::io::Result<Self> {
        let (orders, received) = std_mpsc::channel();
        let (report, written) = mpsc::unbounded_channel();
        let mut store = StateStore { prefix, state, journal: None, state_bytes: 0, failed: false };
        std::thread::Builder::new().name("journal".to_owned()).spawn(move || {
            store.replace_all();
            while let Ok(order) = received.recv() {
                let WriteOrder { commit, changes, sync, last } = order;
                store.write(changes, sync, last);
                // Before anything else: the loop waits for it.
                if report.send(Written { commit }).is_err() {
                    return;
                }
                store.keep_small();
            }
        })?;
        Ok(JournalWriter { orders, written })
    }

    /// Has changes written, at least handed to the system; with `sync` they are on disk when it is reported.
    pub fn write(&self, commit: u64, changes: StateChanges, sync: bool) {
        self.order(WriteOrder { commit, changes, sync, last: false });
    }

    /// As [`write`](Self::write), and the state is in one file then.
    pub fn write_last(&self, commit: u64, changes: StateChanges) {
        self.order(WriteOrder { commit, changes, sync: true, last: true });
    }

    fn order(&self, order: WriteOrder) {
        if self.orders.send(order).is_err() {
            tracing::error!("the thread that writes the job's state is gone; the job could not be taken over now");
        }
    }

    /// The next report. Never, if the thread is gone. Cancel safe.
    pub async fn next(&mut self) -> Written {
        match self.written.recv().await {
            Some(written) => written,
            None => std::future::pending().await,
        }
    }
}

/// The thread's side.
struct StateStore {
    prefix: PathBuf,
    /// The state with all changes, written or not.
    state: JobState,
    /// None if the next changes have to be written with the whole state.
    journal: Option<JournalFile>,
    /// The size of `job.json`.
    state_bytes: u64,
    failed: bool,
}

impl StateStore {
    fn write(&mut self, changes: StateChanges, sync: bool, last: bool) {
        let entry = (!changes.is_empty()).then_some(changes);
        if let Some(changes) = &entry {
            if self.state.apply(changes.clone()).is_err() {
                // The loop's own changes always fit.
                tracing::error!("a change of the job's state does not fit it");
            }
            self.state.entries += 1;
        }
        let Some(journal) = self.journal.as_mut().filter(|_| !last) else {
            self.replace_all();
            return;
        };
        let number = self.state.entries;
        let appended = entry.map_or(Ok(()), |changes| journal.append(number, changes));
        let written = appended.and_then(|()| if sync { journal.sync() } else { Ok(()) });
        if let Err(error) = written {
            self.journal = None;
            self.warn(&error);
        }
    }

    /// Writes the whole state, and begins the journal anew.
    fn replace_all(&mut self) {
        self.journal = None;
        let replaced = self.state.replace(&self.prefix).and_then(|bytes| {
            self.state_bytes = bytes;
            JournalFile::begin(&self.prefix, &self.state)
        });
        match replaced {
            Ok(journal) => {
                (self.journal, self.failed) = (Some(journal), false);
            }
            Err(error) => self.warn(&error),
        }
    }

    fn keep_small(&mut self) {
        let limit = self.state_bytes.max(SMALLEST_TO_REPLACE);
        if self.journal.as_ref().is_some_and(|journal| journal.bytes() > limit) {
            self.replace_all();
        }
    }

    /// Once, until it can be written again.
    fn warn(&mut self, error: &StateError) {
        if !std::mem::replace(&mut self.failed, true) {
            tracing::warn!(%error, "the job's state could not be written; it could not be taken over now");
        }
    }
}
