//! The thread on which the agents are polled.
//!
//! An answer that nothing changed is a few microseconds of work. On a runtime of many threads each would cost more than
//! that for waking the threads, which look to each other for work; and polls would wait behind whatever else runs there.

use std::io;
use std::thread::Builder;

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

/// A runtime on a thread of its own; ends with everything that runs on it when it is dropped.
#[derive(Debug)]
pub(super) struct PollThread {
    runtime: Handle,
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

    /// The runtime, to start pollers on.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}
