//! The logs of agents and of the commands that start them.
//!
//! They are below the prefix directory, whose file system may hang. Each operation therefore runs on a blocking thread,
//! and only a few do at a time, so that others remain for everything else. What explains a failure has a time limit,
//! and so has the log of an agent: without one it protects its node as well.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use holdfast_core::owned::OwnedError;
use holdfast_core::state_files;
use holdfast_model::NodeName;
use tokio::sync::Semaphore;

use crate::host::log::last_line;

/// Operations at a time, and so the threads that a file system that hangs can hold.
const AT_ONCE: usize = 4;
/// An agent is started without log if its log cannot be opened within this.
const OPEN_WITHIN: Duration = Duration::from_secs(2);
/// A failure is reported without explanation if its log cannot be read within this.
const READ_WITHIN: Duration = Duration::from_secs(2);

/// The directory with the logs of an allocation.
#[derive(Clone, Debug)]
pub struct AgentLogs {
    pub directory: Arc<Path>,
    permits: Arc<Semaphore>,
}

impl AgentLogs {
    /// Makes the directory. Blocks.
    pub fn create(directory: &Path) -> Result<Self, OwnedError> {
        state_files::create_directory(directory)?;
        Ok(AgentLogs { directory: directory.into(), permits: Arc::new(Semaphore::new(AT_ONCE)) })
    }

    /// The log of a node's agents.
    pub fn of(&self, node: &NodeName) -> PathBuf {
        self.directory.join(format!("{node}.log"))
    }

    /// Opens the log of a node's agents for the standard error of a new one. If the file system hangs, the agent has
    /// none.
    ///
    /// # Errors
    /// That of the file.
    pub(crate) async fn open(&self, node: &NodeName) -> io::Result<(StartLog, Stdio)> {
        let (path, log) = (self.of(node), self.of(node));
        match tokio::time::timeout(OPEN_WITHIN, self.run(move || StartLog::open(log))).await {
            Ok(opened) => opened?,
            Err(_) => Ok(StartLog::none(path)),
        }
    }

    /// The log of a node whose agent opens it itself.
    pub(crate) async fn begin(&self, node: &NodeName) -> StartLog {
        let (path, log) = (self.of(node), self.of(node));
        let begun = self.read(move || Some(StartLog::begin(log))).await;
        begun.unwrap_or(StartLog { path, before: None })
    }

    /// The last line that an agent wrote to its log, if it can be read in time.
    pub(crate) async fn last_line(&self, log: &StartLog) -> Option<String> {
        let log = log.clone();
        self.read(move || log.last_line()).await
    }

    /// Reads something that is missed if the file system hangs.
    pub(super) async fn read<R: Send + 'static>(&self, work: impl FnOnce() -> Option<R> + Send + 'static) -> Option<R> {
        tokio::time::timeout(READ_WITHIN, self.run(work)).await.ok()?.ok()?
    }

    /// Runs `work` on a blocking thread. It keeps its permit until it ends, also if the result is not awaited any more.
    pub(super) async fn run<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> io::Result<R> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(io::Error::other)?;
        let with_permit = move || {
            let result = work();
            drop(permit);
            result
        };
        tokio::task::spawn_blocking(with_permit).await.map_err(io::Error::other)
    }
}

/// The log of an agent that is being started, without the lines of earlier agents.
#[derive(Clone, Debug)]
pub(crate) struct StartLog {
    pub(crate) path: PathBuf,
    /// Bytes of earlier agents; `None` if the file could not be examined in time.
    before: Option<u64>,
}

impl StartLog {
    /// Opens the log for the agent's standard error. Blocks.
    pub(crate) fn open(path: PathBuf) -> io::Result<(Self, Stdio)> {
        let file = state_files::append(&path)?;
        let before = Some(file.metadata()?.len());
        Ok((StartLog { path, before }, file.into()))
    }

    /// The same for a process without a runtime: an agent whose log cannot be opened in time has none.
    pub(crate) fn open_in_time(path: PathBuf) -> io::Result<(Self, Stdio)> {
        let (opened, is_opened) = mpsc::channel();
        let log = path.clone();
        // The receiver may have given up.
        let open = move || drop(opened.send(StartLog::open(log)));
        thread::Builder::new().name("log".to_owned()).spawn(open)?;
        is_opened.recv_timeout(OPEN_WITHIN).unwrap_or_else(|_| Ok(StartLog::none(path)))
    }

    fn none(path: PathBuf) -> (Self, Stdio) {
        tracing::warn!(log = %path.display(), "an agent has no log, because its file system does not respond");
        (StartLog { path, before: None }, Stdio::null())
    }

    /// The log; its current contents are those of earlier agents. Blocks.
    pub(super) fn begin(path: PathBuf) -> Self {
        let before = Some(path.metadata().map_or(0, |metadata| metadata.len()));
        StartLog { path, before }
    }

    /// The last line that was written by this agent. Blocks.
    pub(crate) fn last_line(&self) -> Option<String> {
        last_line(&self.path, self.before?, |line| !line.trim_start().starts_with("help:"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::fs::File;
    use std::time::Instant;

    #[test]
    fn lines_of_an_earlier_agent_are_ignored() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("log");
        std::fs::write(&path, "an earlier end\n").unwrap();
        let log = StartLog::begin(path.clone());
        assert_eq!(log.last_line(), None);
        std::fs::write(&path, "an earlier end\nthis one\n").unwrap();
        assert_eq!(log.last_line().as_deref(), Some("this one"));
    }

    /// One worker, so that a single blocking operation on it would stop the timer.
    #[tokio::test]
    async fn operations_that_hang_hold_a_few_threads_and_never_a_worker() {
        let base = tempfile::tempdir().unwrap();
        let logs = AgentLogs::create(&base.path().join("logs")).unwrap();
        let hung = base.path().join("pipe");
        mkfifoat(CWD, &hung, Mode::from_raw_mode(0o600)).unwrap();
        // Opening a pipe without a writer waits as an operation on a file system that hangs does.
        let waiting: Vec<_> = (0..3 * AT_ONCE)
            .map(|_| {
                let (logs, hung) = (logs.clone(), hung.clone());
                tokio::spawn(async move { logs.run(move || File::open(hung)).await })
            })
            .collect();
        while logs.permits.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let log = logs.begin(&"n1".into()).await;
        assert_eq!((&log.path, log.before), (&logs.of(&"n1".into()), None), "it is not examined");
        let (unopened, _) = logs.open(&"n1".into()).await.unwrap();
        assert_eq!(unopened.before, None, "its agent is started without a log");
        let begun = Instant::now();
        assert_eq!(logs.last_line(&log).await, None);
        assert!(begun.elapsed() >= READ_WITHIN, "it was not asked for");
        assert!(tokio::task::spawn_blocking(|| true).await.unwrap(), "other threads are free");
        assert!(waiting.iter().all(|operation| !operation.is_finished()));
        // Each opening of the pipe for writing lets those through that wait at this moment.
        for operation in waiting {
            while !operation.is_finished() {
                let hung = hung.clone();
                tokio::task::spawn_blocking(move || File::options().write(true).open(hung)).await.unwrap().unwrap();
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(logs.last_line(&logs.begin(&"n1".into()).await).await, None);
        assert_eq!(logs.permits.available_permits(), AT_ONCE);
    }
}
