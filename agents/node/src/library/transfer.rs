//! Copies what the library's asynchronous flush requests, as SCR's daemon `scr_transfer` does (`SCR manual §9.7`,
//! `docs/scr-files.md` §10).
//!
//! The library adds files and sets COMMAND RUN; this copies them piece by piece, records WRITTEN after each piece, and
//! sets FLAG DONE when nothing is left. Copies continue at WRITTEN after an interruption. COMMAND STOP or EXIT
//! ends them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_core::control::ControlError;
use holdfast_core::control::transfer::{FileTransfer, TransferCommand, TransferFile, TransferState};
use holdfast_core::regular_file;
use holdfast_model::{CheckpointId, FlushMode, Task};
use holdfast_wire::agent::AgentEvent;
use rustix::fs::OFlags;

use crate::agent::Agent;
use crate::dataset_directory::{DatasetDirectory, DatasetDirectoryError};
use crate::events::{ProgressGuard, total_bytes};
use crate::paths::PathError;
use crate::run::Run;

/// The interval between two looks at the file while nothing is copied.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The pause after an error.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// The longest wait between two looks at the command while copying.
const COMMAND_WITHIN: Duration = Duration::from_millis(100);

/// Why a file is not copied.
#[derive(Debug, thiserror::Error)]
enum TransferError {
    #[error(transparent)]
    Source(#[from] PathError),
    #[error(transparent)]
    Destination(#[from] DatasetDirectoryError),
    #[error("{} does not name a file", .0.display())]
    NoName(PathBuf),
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} has {have} bytes, {expected} are to be copied", path.display())]
    Short { path: PathBuf, have: u64, expected: u64 },
}

/// What the flush may use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Limits {
    /// Bytes a second; 0 is no limit.
    bandwidth: f64,
    /// Percent of the time; 0 is no limit.
    percent: f64,
}

/// The time that was worked and waited since the flush began.
#[derive(Clone, Copy, Debug, Default)]
struct Throttle {
    worked: Duration,
    waited: Duration,
}

impl Throttle {
    /// How long to wait after a piece of `bytes` that took `took`.
    fn pause(&mut self, bytes: u64, took: Duration, limits: Limits) -> Duration {
        self.worked += took;
        let for_bandwidth = match limits.bandwidth > 0.0 {
            true => seconds(bytes as f64 / limits.bandwidth).saturating_sub(took),
            false => Duration::ZERO,
        };
        let for_share = match limits.percent > 0.0 && limits.percent < 100.0 {
            true => seconds(self.worked.as_secs_f64() * 100.0 / limits.percent)
                .saturating_sub(self.worked.saturating_add(self.waited)),
            false => Duration::ZERO,
        };
        for_bandwidth.max(for_share)
    }
}

/// Values of the file may be of any size.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// The flush under way.
struct Flush {
    throttle: Throttle,
    /// Files that cannot be copied.
    failed: BTreeSet<String>,
    working: Option<ProgressGuard>,
    open: Option<OpenTransfer>,
}

/// The file that is being copied.
struct OpenTransfer {
    transfer: FileTransfer,
    from: (PathBuf, File),
    to: File,
}

/// Serves the transfer file of the node until the run ends. Blocks.
pub fn serve(agent: &Agent, run: &Run) {
    let path = agent.paths.control().join("transfer.scrinfo");
    let mut flush: Option<Flush> = None;
    while !run.cancelled.is_cancelled() {
        let pause = match step(agent, run, &path, &mut flush) {
            Ok(pause) => pause,
            Err(error) => {
                tracing::warn!(%error, "transfer_file_unusable");
                AFTER_ERROR
            }
        };
        wait(pause, run, &path, flush.as_mut());
    }
    if flush.is_some()
        && let Err(error) = TransferFile::update(&path, |file| file.set_state(TransferState::Stopped))
    {
        tracing::warn!(%error, "transfer_state_not_recorded");
    }
}

/// Waits; while a flush is under way, no longer than its command is RUN.
fn wait(pause: Duration, run: &Run, path: &Path, mut flush: Option<&mut Flush>) {
    let mut left = pause;
    while !left.is_zero() && !run.cancelled.is_cancelled() {
        let now = left.min(COMMAND_WITHIN);
        thread::sleep(now);
        left -= now;
        let Some(flush) = &mut flush else { continue };
        flush.throttle.waited += now;
        let stopped = TransferFile::read(path)
            .is_ok_and(|file| file.is_none_or(|file| file.command() != Some(TransferCommand::Run)));
        if stopped {
            return;
        }
    }
}

/// Does what the file requests: at most one piece. Returns how long to wait.
fn step(agent: &Agent, run: &Run, path: &Path, flush: &mut Option<Flush>) -> Result<Duration, ControlError> {
    let Some(file) = TransferFile::read(path)? else {
        *flush = None;
        // The library removes the file at its start, then waits until the state is STOPPED.
        if run.plan.settings.flush.mode == FlushMode::Async {
            TransferFile::update(path, stopped_if_new)?;
        }
        return Ok(LOOK_EVERY);
    };
    if file.command() != Some(TransferCommand::Run) || file.is_done() {
        if flush.take().is_some() || file.state() != Some(TransferState::Stopped) {
            TransferFile::update(path, |file| file.set_state(TransferState::Stopped))?;
        }
        return Ok(LOOK_EVERY);
    }
    let begins = flush.is_none();
    let now = flush.get_or_insert_with(|| begin(agent, &file));
    if begins && file.state() != Some(TransferState::Running) {
        TransferFile::update(path, |file| file.set_state(TransferState::Running))?;
    }
    let Some(transfer) = now.next(&file) else {
        if !now.failed.is_empty() {
            // Nothing is under way: work keeps an agent that has lost its orchestrator.
            now.working = None;
            return Ok(AFTER_ERROR);
        }
        let done = TransferFile::update(path, |file| {
            // Files may have been added meanwhile.
            let done = file.all_written();
            if done {
                file.set_done();
            }
            done
        })?;
        if done {
            tracing::info!(files = file.files().len(), "transfer_done");
            *flush = None;
        }
        return Ok(Duration::ZERO);
    };
    let begun = Instant::now();
    match now.copy_piece(agent, run, &transfer) {
        Ok(written) => {
            TransferFile::update(path, |file| file.set_written(&transfer.source, written))?;
            let bytes = written.saturating_sub(transfer.written);
            if let Some(working) = &now.working {
                working.advance(bytes);
            }
            let limits =
                Limits { bandwidth: file.bandwidth().unwrap_or_default(), percent: file.percent().unwrap_or_default() };
            Ok(now.throttle.pause(bytes, begun.elapsed(), limits))
        }
        Err(error) => {
            tracing::warn!(source = transfer.source, %error, "transfer_failed");
            // A full file system prevents the copies of all files: one notice a flush.
            if now.failed.is_empty() {
                let message =
                    format!("{} is not flushed: {error}; the agent's log names further files", transfer.source);
                agent.events.add(AgentEvent::Notice { message });
            }
            now.open = None;
            now.failed.insert(transfer.source);
            Ok(Duration::ZERO)
        }
    }
}

fn stopped_if_new(file: &mut TransferFile) {
    if file.state().is_none() {
        file.set_state(TransferState::Stopped);
    }
}

fn begin(agent: &Agent, file: &TransferFile) -> Flush {
    let files = file.files();
    let left = total_bytes(files.iter().map(|file| file.size.saturating_sub(file.written)));
    let checkpoint = files.first().and_then(|file| checkpoint_of(&file.source));
    let working = checkpoint.map(|checkpoint| agent.progress.begin(Task::Flush, checkpoint, left));
    tracing::info!(files = files.len(), bytes = left, ?checkpoint, "transfer_begins");
    Flush { throttle: Throttle::default(), failed: BTreeSet::new(), working, open: None }
}

/// The checkpoint in whose cache directory (`checkpoint.<id>`) a file is.
fn checkpoint_of(source: &str) -> Option<CheckpointId> {
    let directory = Path::new(source).parent()?.file_name()?.to_str()?;
    directory.strip_prefix("checkpoint.")?.parse().ok()
}

impl Flush {
    /// The file to continue with: the one that is open, or the first one that is not written.
    fn next(&self, file: &TransferFile) -> Option<FileTransfer> {
        let left =
            |transfer: &FileTransfer| transfer.written < transfer.size && !self.failed.contains(&transfer.source);
        let mut files = file.files();
        files.retain(left);
        let open = self.open.as_ref().map(|open| open.transfer.source.as_str());
        let at = files.iter().position(|transfer| Some(transfer.source.as_str()) == open).unwrap_or(0);
        (at < files.len()).then(|| files.swap_remove(at))
    }

    /// Copies the next piece of a file; returns how much of the file is written then.
    fn copy_piece(&mut self, agent: &Agent, run: &Run, transfer: &FileTransfer) -> Result<u64, TransferError> {
        let is_open = |open: &OpenTransfer| {
            (&open.transfer.source, &open.transfer.destination) == (&transfer.source, &transfer.destination)
        };
        if !self.open.as_ref().is_some_and(is_open) {
            self.open = Some(open(agent, transfer)?);
        }
        let Some(OpenTransfer { from: (from_path, from), to, .. }) = &self.open else { return Ok(transfer.written) };
        let to_path = || PathBuf::from(&transfer.destination);
        let left = transfer.size.saturating_sub(transfer.written);
        let bytes =
            usize::try_from(left).map_or(run.plan.settings.copy_bytes, |left| left.min(run.plan.settings.copy_bytes));
        let mut piece = vec![0; bytes.max(1)];
        let read = from.read_at(&mut piece, transfer.written);
        let read = read.map_err(|source| TransferError::Io { action: "read", path: from_path.clone(), source })?;
        if read == 0 {
            let (path, have) = (from_path.clone(), transfer.written);
            return Err(TransferError::Short { path, have, expected: transfer.size });
        }
        let written = transfer.written + read as u64;
        let stored = to.write_all_at(&piece[..read], transfer.written).and_then(|()| match written == transfer.size {
            // What an earlier, larger file left.
            true => to.set_len(written),
            false => Ok(()),
        });
        stored.and_then(|()| to.sync_data()).map_err(|source| TransferError::Io {
            action: "write",
            path: to_path(),
            source,
        })?;
        if written == transfer.size {
            self.open = None;
        }
        Ok(written)
    }
}

/// Opens the two files of a transfer: the source in a cache of the job, the destination below a prefix directory.
fn open(agent: &Agent, transfer: &FileTransfer) -> Result<OpenTransfer, TransferError> {
    let (_, bases) = agent.store.on_disk();
    let from_path = agent.paths.real_of_job(&transfer.source, &bases)?;
    let from = regular_file::open(&from_path).map_err(|source| TransferError::Io {
        action: "open",
        path: from_path.clone(),
        source,
    })?;
    let to_path = PathBuf::from(&transfer.destination);
    let no_name = || TransferError::NoName(to_path.clone());
    let (parent, name) = to_path.parent().zip(to_path.file_name()).ok_or_else(no_name)?;
    let directory = DatasetDirectory::to_write(&agent.prefixes, parent)?;
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let opened = options.custom_flags(flags.bits().cast_signed()).open(directory.path().join(name));
    let to = opened.and_then(|file| match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    });
    let to = to.map_err(|source| TransferError::Io { action: "open", path: to_path.clone(), source })?;
    Ok(OpenTransfer { transfer: transfer.clone(), from: (from_path, from), to })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_of_two_pauses_counts() {
        let piece = |limits| Throttle::default().pause(1000, Duration::from_millis(100), limits);
        assert_eq!(piece(Limits::default()), Duration::ZERO);
        assert_eq!(piece(Limits { bandwidth: 1000.0, percent: 0.0 }), Duration::from_millis(900));
        // A tenth of the time: 100 ms of a second.
        assert_eq!(piece(Limits { bandwidth: 0.0, percent: 10.0 }), Duration::from_millis(900));
        assert_eq!(piece(Limits { bandwidth: 5000.0, percent: 10.0 }), Duration::from_millis(900));
        assert_eq!(piece(Limits { bandwidth: 500.0, percent: 10.0 }), Duration::from_millis(1900));
        assert_eq!(piece(Limits { bandwidth: 1e-300, percent: 0.0 }), Duration::MAX - Duration::from_millis(100));
    }

    #[test]
    fn time_that_was_waited_counts_for_the_share() {
        let mut throttle = Throttle::default();
        let limits = Limits { bandwidth: 0.0, percent: 50.0 };
        assert_eq!(throttle.pause(1, Duration::from_secs(1), limits), Duration::from_secs(1));
        throttle.waited += Duration::from_secs(1);
        assert_eq!(throttle.pause(1, Duration::from_secs(1), limits), Duration::from_secs(1));
        throttle.waited += Duration::from_secs(9);
        assert_eq!(throttle.pause(1, Duration::from_secs(1), limits), Duration::ZERO);
    }

    #[test]
    fn the_checkpoint_is_that_of_the_cache_directory() {
        let source = "/tmp/u/scr.7/index.0/checkpoint.12/rank_0.ckpt";
        assert_eq!(checkpoint_of(source), Some(CheckpointId(12)));
        assert_eq!(checkpoint_of("/tmp/rank_0.ckpt"), None);
    }
}
