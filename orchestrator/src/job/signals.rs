//! The signals that end a job, for as long as the job lasts.

use std::future::Future;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::RunError;

/// The signals that a job handles. While this exists, none of them ends the process.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// Batch scripts request these from Slurm as a warning before the end.
    user1: Signal,
    user2: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// Runs work before the loop of a step; a signal cancels it.
    pub(super) async fn or<T, E>(&mut self, work: impl Future<Output = Result<T, E>>) -> Result<T, RunError>
    where
        RunError: From<E>,
    {
        tokio::select! {
            biased;
            name = self.next() => Err(RunError::Signal(name)),
            done = work => Ok(done?),
        }
    }

    /// The name of the next signal. Cancel safe.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hangup.recv() => "SIGHUP",
            _ = self.user1.recv() => "SIGUSR1",
            _ = self.user2.recv() => "SIGUSR2",
        }
    }
}
