//! The thread on which the agents are polled.
//!
//! An answer without changes is a few microseconds of work. On a runtime of many threads each would cost more than that
//! for waking threads, which steal work from each other, and polls would queue behind everything else that runs there.

use std::io;
use std::thread::Builder;

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

/// A runtime on a thread of its own. Dropping it ends the tasks that run on it.
#[derive(Debug)]
pub(super) struct PollThread {
    /// To start pollers on.
    pub(super) runtime: Handle,
    _end: oneshot::Sender<()>,
}

impl PollThread {
    pub(super) fn start() -> io::Result<Self> {
        let polls = runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel();
        let runtime = polls.handle().clone();
        Builder::new().name("polls".to_owned()).spawn(move || {
            // Nothing is sent: the sender is dropped.
            let _ = polls.block_on(ended);
        })?;
        Ok(PollThread { runtime, _end: end })
    }
}
