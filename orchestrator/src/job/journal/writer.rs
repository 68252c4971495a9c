//! The thread that writes the state of a job.
//!
//! The loop hands changes over and goes on; actions that wait for them are released when they are on disk. While the
//! thread writes, further changes are collected in the loop and handed over as one: a slow file system makes entries
//! larger, not more.
//!
//! **A state that cannot be written** (full file system, I/O error) must not stop the job, because only a take-over
//! needs it: a warning is logged, and the changes count as written, so that actions are released. The complete state is
//! written with the next changes. A write that hangs is not an error: actions go on waiting for it.

use std::path::PathBuf;
use std::sync::mpsc as std_mpsc;

use tokio::sync::mpsc;

use super::file::JournalFile;
use crate::job::claim::Claim;
use crate::job::state::{JobState, StateChanges, StateError};

/// No new journal is begun before the present one has this size, also if the state is smaller.
const SMALLEST_TO_REPLACE: u64 = 1 << 20;

#[derive(Debug)]
struct WriteOrder {
    /// The number of the order.
    commit: u64,
    changes: StateChanges,
    /// Synchronise the file.
    sync: bool,
    /// The last order: write the complete state to one file.
    last: bool,
}

/// An order was carried out, or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub commit: u64,
}

/// The handle of the thread. When it is dropped, the thread carries out the orders that are left.
#[derive(Debug)]
pub struct JournalWriter {
    orders: std_mpsc::Sender<WriteOrder>,
    written: mpsc::UnboundedReceiver<Written>,
}

impl JournalWriter {
    /// Starts the thread, which first writes the complete state and begins a new journal. With a `claim`, it writes
    /// nothing when another orchestrator has claimed the job: the state is that one's then.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(prefix: PathBuf, state: JobState, claim: Option<Claim>) -> std::io::Result<Self> {
        let (orders, received) = std_mpsc::channel();
        let (report, written) = mpsc::unbounded_channel();
        std::thread::Builder::new().name("journal".to_owned()).spawn(move || {
            let mut store = StateStore::begin(prefix, state, claim);
            while let Ok(order) = received.recv() {
                let WriteOrder { commit, changes, sync, last } = order;
                store.write(changes, sync, last);
                // Before `keep_small`, because the loop waits for it.
                if report.send(Written { commit }).is_err() {
                    return;
                }
                store.keep_small();
            }
        })?;
        Ok(JournalWriter { orders, written })
    }

    /// Orders changes to be written; with `sync` they are on disk when that is reported.
    pub fn write(&self, commit: u64, changes: StateChanges, sync: bool) {
        self.order(WriteOrder { commit, changes, sync, last: false });
    }

    /// As [`write`](Self::write), and the complete state is then in one file.
    pub fn write_last(&self, commit: u64, changes: StateChanges) {
        self.order(WriteOrder { commit, changes, sync: true, last: true });
    }

    fn order(&self, order: WriteOrder) {
        if self.orders.send(order).is_err() {
            tracing::error!("the thread that writes the job's state has ended; the job could not be taken over now");
        }
    }

    /// The next report; never completes if the thread has ended. Cancel safe.
    pub async fn next(&mut self) -> Written {
        match self.written.recv().await {
            Some(written) => written,
            None => std::future::pending().await,
        }
    }
}

/// What the thread does: the state, and its journal while that can be written.
#[derive(Debug)]
pub struct StateStore {
    prefix: PathBuf,
    /// The state with all changes, written or not.
    state: JobState,
    claim: Option<Claim>,
    /// None if the next changes have to be written with the complete state.
    journal: Option<JournalFile>,
    /// The size of `job.json`.
    state_bytes: u64,
    failed: bool,
}

impl StateStore {
    /// Writes the complete state, and begins a new journal.
    pub fn begin(prefix: PathBuf, state: JobState, claim: Option<Claim>) -> Self {
        let mut store = StateStore { prefix, state, claim, journal: None, state_bytes: 0, failed: false };
        if store.may_write() {
            store.replace_all();
        }
        store
    }

    /// True if changes could not be written: until the complete state is, the job cannot be taken over.
    pub fn is_behind(&self) -> bool {
        self.failed
    }

    /// Writes changes, with `last` as part of the complete state.
    pub fn write(&mut self, changes: StateChanges, sync: bool, last: bool) {
        let entry = (!changes.is_empty()).then_some(changes);
        if let Some(changes) = &entry {
            if self.state.apply(changes.clone()).is_err() {
                tracing::error!("a change does not belong to the job's state");
            }
            self.state.entries += 1;
        }
        if !self.may_write() {
            self.journal = None;
            return;
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

    /// False if another orchestrator has the job, or that is not known.
    fn may_write(&mut self) -> bool {
        match self.claim.as_ref().map(|claim| claim.is_newest(&self.prefix)) {
            None => true,
            Some(Ok(is_newest)) => is_newest,
            Some(Err(error)) => {
                self.warn(&error);
                false
            }
        }
    }

    /// Writes the complete state, and begins a new journal.
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
        if self.journal.as_ref().is_some_and(|journal| journal.bytes > limit) {
            self.replace_all();
        }
    }

    /// Warns once, until the state can be written again.
    fn warn(&mut self, error: &StateError) {
        if !std::mem::replace(&mut self.failed, true) {
            tracing::warn!(%error, "the job's state could not be written; it could not be taken over now");
        }
    }
}
