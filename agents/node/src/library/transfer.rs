//! Copies what the library's asynchronous flush requests, as SCR's daemon `scr_transfer` does (`SCR manual §9.7`,
//! `docs/scr-files.md` §10).
//!
//! The library adds files and sets COMMAND RUN; this copies them piece by piece, records WRITTEN after each piece, and
//! sets FLAG DONE when nothing is left. Copies continue at WRITTEN after an interruption. COMMAND STOP or EXIT
//! ends them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use holdfast_core::control::ControlError;
use holdfast_core::control::transfer::{FileTransfer, TransferCommand, TransferFile, TransferState};
use holdfast_core::regular_file;
use holdfast_model::{CheckpointId, FlushMode, Task};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::CopyLimits;
use holdfast_wire::run::Settings;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::copy::CopyFault;
use crate::copy::pipeline::Pipeline;
use crate::copy::transfer_record;
use crate::directories::paths::PathError;
use crate::prefix::job_prefixes::DatasetAccessError;
use crate::report::events::{ProgressGuard, total_bytes};

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
    Destination(#[from] DatasetAccessError),
    #[error("{} does not name a file", .0.display())]
    NoName(PathBuf),
    #[error("cannot open {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Copy(#[from] CopyFault),
    #[error("{} has {have} bytes, {expected} are to be copied", path.display())]
    Short { path: PathBuf, have: u64, expected: u64 },
}

/// The flush under way.
struct Flush {
    pipeline: Pipeline,
    /// Files that cannot be copied.
    failed: BTreeSet<String>,
    working: Option<ProgressGuard>,
    open: Option<OpenTransfer>,
}

/// The file that is being copied.
struct OpenTransfer {
    transfer: FileTransfer,
    from: (PathBuf, File),
    to: (PathBuf, File),
}

/// Serves the transfer file of the node until the run ends. Blocks.
pub fn serve(agent: &Agent, settings: &Settings, cancelled: &CancellationToken) {
    let path = transfer_record::path(&agent.paths);
    let mut flush: Option<Flush> = None;
    while !cancelled.is_cancelled() {
        let pause = match step(agent, settings, &path, &mut flush, cancelled) {
            Ok(pause) => pause,
            Err(error) => {
                tracing::warn!(%error, "transfer_file_unusable");
                AFTER_ERROR
            }
        };
        wait(pause, cancelled, &path, flush.is_some());
    }
    if flush.is_some()
        && let Err(error) = TransferFile::update(&path, |file| file.set_state(TransferState::Stopped))
    {
        tracing::warn!(%error, "transfer_state_not_recorded");
    }
}

/// Waits; while a flush is under way, no longer than its command is RUN.
fn wait(pause: Duration, cancelled: &CancellationToken, path: &Path, flushes: bool) {
    let mut left = pause;
    while !left.is_zero() && !cancelled.is_cancelled() {
        let now = left.min(COMMAND_WITHIN);
        thread::sleep(now);
        left -= now;
        let stopped = flushes
            && TransferFile::read(path)
                .is_ok_and(|file| file.is_none_or(|file| file.command() != Some(TransferCommand::Run)));
        if stopped {
            return;
        }
    }
}

/// Does what the file requests: at most one piece. Returns how long to wait.
fn step(
    agent: &Agent,
    settings: &Settings,
    path: &Path,
    flush: &mut Option<Flush>,
    cancelled: &CancellationToken,
) -> Result<Duration, ControlError> {
    let Some(file) = TransferFile::read(path)? else {
        *flush = None;
        // The library removes the file at its start, then waits until the state is STOPPED.
        if settings.flush.mode == FlushMode::Async {
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
    let now = flush.get_or_insert_with(|| begin(agent, settings, &file, cancelled));
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
    match now.copy_piece(agent, &transfer) {
        Ok((written, pause)) => {
            TransferFile::update(path, |file| file.set_written(&transfer.source, written))?;
            Ok(pause)
        }
        // The run is over.
        Err(TransferError::Copy(CopyFault::Cancelled)) => Ok(Duration::ZERO),
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

fn begin(agent: &Agent, settings: &Settings, file: &TransferFile, cancelled: &CancellationToken) -> Flush {
    let files = file.files();
    let left = total_bytes(files.iter().map(|file| file.size.saturating_sub(file.written)));
    let checkpoint = files.first().and_then(|file| checkpoint_of(&file.source));
    let working = checkpoint.map(|checkpoint| agent.progress.begin(Task::Flush, checkpoint, left));
    tracing::info!(files = files.len(), bytes = left, checkpoint = checkpoint.map(|id| id.0), "transfer_begins");
    let limits = CopyLimits {
        bandwidth: bytes_per_second(file.bandwidth().unwrap_or_default()),
        percent: file.percent().unwrap_or_default(),
        ..CopyLimits::NONE
    };
    let pipeline = Pipeline::new(settings.copy_bytes, Some(1), cancelled.clone()).limited(limits);
    Flush { pipeline, failed: BTreeSet::new(), working, open: None }
}

/// A limit of the transfer file, of any size; 0 is none.
fn bytes_per_second(limit: f64) -> u64 {
    if limit > 0.0 { (limit as u64).max(1) } else { 0 }
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

    /// Copies the next piece of a file; returns how much of the file is written then, and how long to wait.
    fn copy_piece(&mut self, agent: &Agent, transfer: &FileTransfer) -> Result<(u64, Duration), TransferError> {
        let is_open = |open: &OpenTransfer| {
            (&open.transfer.source, &open.transfer.destination) == (&transfer.source, &transfer.destination)
        };
        let OpenTransfer { from, to, .. } = match self.open.take_if(|open| is_open(open)) {
            Some(open) => self.open.insert(open),
            None => self.open.insert(open(agent, transfer)?),
        };
        let working = self.working.as_ref();
        let mut lane = self.pipeline.lane();
        let (from, to) = ((&*from.0, &from.1), (&*to.0, &to.1));
        let (written, pause) = lane.copy_in_place(from, to, transfer.written, transfer.size, working)?;
        if written == transfer.written {
            let (path, have) = (from.0.to_owned(), transfer.written);
            return Err(TransferError::Short { path, have, expected: transfer.size });
        }
        if written == transfer.size {
            self.open = None;
        }
        Ok((written, pause))
    }
}

/// Opens the two files of a transfer: the source in a cache of the job, the destination below a prefix directory.
fn open(agent: &Agent, transfer: &FileTransfer) -> Result<OpenTransfer, TransferError> {
    let from_path = agent.paths.real_of_job(&transfer.source, &agent.store.bases())?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| TransferError::Open { path, source }
    };
    let from = regular_file::open(&from_path).map_err(failed(&from_path))?;
    let to_path = PathBuf::from(&transfer.destination);
    let no_name = || TransferError::NoName(to_path.clone());
    let (parent, name) = to_path.parent().zip(to_path.file_name()).ok_or_else(no_name)?;
    let directory = agent.prefixes.open_directory(parent)?;
    let to = directory.open_or_create_file(name).map_err(DatasetAccessError::from)?;
    Ok(OpenTransfer { transfer: transfer.clone(), from: (from_path, from), to: (to_path, to) })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileExt as _, symlink};
    use std::sync::Arc;

    use holdfast_model::Generation;
    use tempfile::TempDir;

    use super::*;
    use crate::agent::fixtures::fixture_agent;
    use crate::collective::{Collectives, begin_run};
    use crate::fixtures::{base, fixture_request};
    use crate::run::Run;

    /// A node whose cache contains a file of 10038 bytes, a directory of a dataset, and the transfer file.
    struct Node {
        _root: TempDir,
        dataset: TempDir,
        agent: Arc<Agent>,
        run: Arc<Run>,
        source: String,
        path: PathBuf,
    }

    impl Node {
        async fn new() -> Node {
            let (root, agent) = fixture_agent("node1", "1145655");
            let collectives = Collectives::new(agent.clone());
            let mut request = fixture_request(Generation(2), "node1", &[1]);
            request.shared.settings.copy_bytes = 0;
            begin_run(&collectives, request).await.unwrap();
            let source = format!("{}/index.0/checkpoint.3/rank_1.ckpt", agent.paths.cache_node_path(&base("node1")));
            let path = transfer_record::path(&agent.paths);
            let run = collectives.run().unwrap();
            Node { _root: root, dataset: tempfile::tempdir().unwrap(), agent, run, source, path }
        }

        fn to(&self, name: &str) -> String {
            self.dataset.path().join(name).to_string_lossy().into_owned()
        }

        fn request(&self, files: &[(&str, &str)]) {
            let file = |(source, destination): &(&str, &str)| FileTransfer {
                source: (*source).to_owned(),
                destination: (*destination).to_owned(),
                size: 10038,
                written: 0,
            };
            let files: Vec<_> = files.iter().map(file).collect();
            TransferFile::update(&self.path, |file| file.request(&files, 0.0, 0.0)).unwrap();
        }

        fn step(&self, flush: &mut Option<Flush>) {
            step(&self.agent, &self.run.plan.settings, &self.path, flush, &self.run.cancelled).unwrap();
        }

        fn file(&self) -> TransferFile {
            TransferFile::read(&self.path).unwrap().unwrap()
        }

        fn content(&self) -> Vec<u8> {
            fs::read(self.agent.paths.real(&self.source).unwrap()).unwrap()
        }
    }

    #[tokio::test]
    async fn a_copy_continues_at_written_and_replaces_a_longer_file() {
        let node = Node::new().await;
        let to = node.to("rank_1.ckpt");
        fs::write(&to, vec![7; 20_000]).unwrap();
        node.request(&[(&node.source, &to)]);
        let mut flush = None;
        node.step(&mut flush);
        let written = node.file().files()[0].written;
        assert_eq!((written, node.file().state()), (4096, Some(TransferState::Running)), "the smallest piece");
        // What is written is not copied again by the next agent.
        fs::OpenOptions::new().write(true).open(&to).unwrap().write_all_at(&[7; 4096], 0).unwrap();
        let mut flush = None;
        for _ in 0..3 {
            node.step(&mut flush);
        }
        assert!(node.file().is_done() && flush.is_none());
        assert_eq!(node.file().state(), Some(TransferState::Stopped));
        let copied = fs::read(&to).unwrap();
        assert!(copied[..4096] == [7; 4096] && copied[4096..] == node.content()[4096..]);
    }

    #[tokio::test]
    async fn files_outside_of_cache_and_prefix_are_left_out_and_the_others_are_copied() {
        let node = Node::new().await;
        let (elsewhere, link) = (node.to("target"), node.to("link"));
        fs::write(&elsewhere, "kept").unwrap();
        symlink(&elsewhere, &link).unwrap();
        let outside = format!("{}/../../../secret", node.source);
        let missing = format!("{}x", node.source);
        node.request(&[("/etc/hostname", &node.to("a")), (&outside, &node.to("b")), (&missing, &node.to("c"))]);
        let mut flush = None;
        for to in ["/elsewhere/scr.1/rank_1.ckpt", "/", &link] {
            let mut flush = begin(&node.agent, &node.run.plan.settings, &node.file(), &node.run.cancelled);
            let transfer =
                FileTransfer { source: node.source.clone(), destination: to.to_owned(), size: 10038, written: 0 };
            assert!(flush.copy_piece(&node.agent, &transfer).is_err(), "{to}");
        }
        node.request(&[(&node.source, &node.to("good"))]);
        assert!(node.agent.progress.snapshot().is_empty());
        node.step(&mut flush);
        assert!(!node.agent.progress.snapshot().is_empty());
        for _ in 0..6 {
            node.step(&mut flush);
        }
        assert_eq!(fs::read(node.to("good")).unwrap(), node.content());
        let mut names: Vec<_> = fs::read_dir(node.dataset.path()).unwrap().map(|at| at.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["good", "link", "target"]);
        assert_eq!(fs::read(&elsewhere).unwrap(), b"kept");
        // It is not finished, but nothing is under way; and the orchestrator gets one notice.
        assert!(!node.file().is_done() && node.agent.progress.snapshot().is_empty());
        assert_eq!(node.agent.events.since(0).len(), 1);
        TransferFile::update(&node.path, |file| file.set_command(TransferCommand::Stop)).unwrap();
        node.step(&mut flush);
        assert!(flush.is_none() && node.file().state() == Some(TransferState::Stopped));
    }

    #[tokio::test]
    async fn the_limits_of_the_file_delay_the_next_piece() {
        let node = Node::new().await;
        TransferFile::update(&node.path, |file| {
            let transfer =
                FileTransfer { source: node.source.clone(), destination: node.to("limited"), size: 10038, written: 0 };
            file.request(&[transfer], 1.0, 0.0);
        })
        .unwrap();
        let run = &node.run;
        let pause = step(&node.agent, &run.plan.settings, &node.path, &mut None, &run.cancelled).unwrap();
        assert!(pause > Duration::from_secs(4000) && pause <= Duration::from_secs(4096), "{pause:?}");
        assert_eq!(node.file().files()[0].written, 4096, "recorded before the pause");
        assert_eq!([0.0, -1.0, 1e-300, 7.5, 1e300].map(bytes_per_second), [0, 0, 1, 7, u64::MAX]);
    }

    #[test]
    fn the_checkpoint_is_that_of_the_cache_directory() {
        let source = "/tmp/u/scr.7/index.0/checkpoint.12/rank_0.ckpt";
        assert_eq!(checkpoint_of(source), Some(CheckpointId(12)));
        assert_eq!(checkpoint_of("/tmp/rank_0.ckpt"), None);
    }
}
