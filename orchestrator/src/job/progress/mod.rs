//! Sources of progress besides the checkpoints: `progress` in the spec.
//!
//! The relaunch machine learns of newer checkpoints by itself. When a generation has ended, it has the other sources
//! checked ([`ProgressSources::check`]), each of which compares what it finds now with what was there before the launch
//! ([`ProgressSources::begin`]). That is kept in `<prefix>/.holdfast/progress.json`, for an orchestrator that takes
//! over. A check can be repeated with the same result: what it records counts for later generations only.
//!
//! All of this may wait for a file system. It runs on threads, with time limits.

mod baseline;
mod error;
mod files;
mod output;
mod source;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use baseline::Baseline;
use error::ProgressError;
use files::FileProgress;
use holdfast_model::Generation;
use output::OutputProgress;
use source::{EndedGeneration, ProgressSource};
use tokio_util::sync::CancellationToken;

use super::state;
use crate::relaunch::ProgressFound;
use crate::spec::Progress;

/// A launch does not wait longer for what its end will be compared with.
const BEGIN_WITHIN: Duration = Duration::from_secs(10);
/// A check that takes longer has no result.
const CHECK_WITHIN: Duration = Duration::from_secs(30);
/// How often it is checked whether a launch was cancelled.
const CANCELLED_EVERY: Duration = Duration::from_millis(50);

/// The sources of progress of a step.
#[derive(Clone, Debug)]
pub(super) struct ProgressSources {
    prefix: PathBuf,
    ranks: u32,
    sources: Arc<[Box<dyn ProgressSource>]>,
}

impl ProgressSources {
    /// The sources of the spec. Paths are relative to the working directory of the ranks.
    pub(super) fn new(spec: &Progress, prefix: &Path, working_directory: &Path, ranks: u32) -> Self {
        let mut sources: Vec<Box<dyn ProgressSource>> = Vec::new();
        if let Some(patterns) = &spec.files {
            sources.push(Box::new(FileProgress::new(working_directory, patterns)));
        }
        if let Some(expression) = &spec.output {
            sources.push(Box::new(OutputProgress::new(expression)));
        }
        ProgressSources { prefix: prefix.to_owned(), ranks, sources: sources.into() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Records what the end of a generation will be compared with. Blocks, for ten seconds at most. Without a record,
    /// it will not be known whether the generation made progress.
    pub(super) fn begin(&self, generation: Generation, cancelled: &CancellationToken) {
        if self.is_empty() {
            return;
        }
        if let Err(error) = self.try_to_begin(generation, cancelled) {
            tracing::warn!(%generation, %error, "the state before a launch, of which progress is judged, is not known");
        }
    }

    fn try_to_begin(&self, generation: Generation, cancelled: &CancellationToken) -> Result<(), ProgressError> {
        let (sources, token) = (self.clone(), cancelled.child_token());
        let guard = token.clone().drop_guard();
        let (done, result) = mpsc::channel();
        thread::Builder::new()
            .name("progress".to_owned())
            .spawn(move || {
                // Nothing receives it after the time limit.
                let _ = done.send(sources.record(generation, &token));
            })
            .map_err(ProgressError::Thread)?;
        let begun = Instant::now();
        let recorded = loop {
            match result.recv_timeout(CANCELLED_EVERY) {
                Ok(recorded) => break recorded,
                Err(mpsc::RecvTimeoutError::Timeout) if cancelled.is_cancelled() => {
                    break Err(ProgressError::Cancelled);
                }
                Err(mpsc::RecvTimeoutError::Timeout) if begun.elapsed() < BEGIN_WITHIN => {}
                Err(_) => break Err(ProgressError::TimedOut(BEGIN_WITHIN)),
            }
        };
        drop(guard);
        recorded
    }

    fn record(&self, generation: Generation, cancelled: &CancellationToken) -> Result<(), ProgressError> {
        let mut baseline = Baseline::read(&self.prefix)?.of_next(generation);
        for source in self.sources.iter() {
            source.begin(&mut baseline, cancelled);
        }
        baseline.write(&self.prefix, cancelled)
    }

    /// The progress of a generation whose ranks have ended. Has a time limit.
    pub(super) async fn check(self, generation: Generation) -> ProgressFound {
        let cancelled = CancellationToken::new();
        let _guard = cancelled.clone().drop_guard();
        let checked = tokio::task::spawn_blocking(move || self.check_here(generation, &cancelled));
        match tokio::time::timeout(CHECK_WITHIN, checked).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => ProgressFound::Unknown { reason: error.to_string() },
            Err(_) => ProgressFound::Unknown { reason: ProgressError::TimedOut(CHECK_WITHIN).to_string() },
        }
    }

    /// Blocks.
    fn check_here(&self, generation: Generation, cancelled: &CancellationToken) -> ProgressFound {
        let directory = state::generation_directory(&self.prefix, generation);
        let ended = EndedGeneration { directory, ranks: self.ranks };
        let mut baseline = match Baseline::read(&self.prefix) {
            Ok(baseline) if baseline.generation == generation => baseline,
            // None was recorded before its launch.
            Ok(earlier) => earlier.of_next(generation),
            Err(error) => return ProgressFound::Unknown { reason: error.to_string() },
        };
        let (mut progress, mut unknown) = (None, None);
        for source in self.sources.iter() {
            match source.check(&ended, &mut baseline, cancelled) {
                Ok(found) => progress = progress.or(found),
                Err(error) => unknown = unknown.or(Some(error)),
            }
        }
        if let Err(error) = baseline.write(&self.prefix, cancelled) {
            tracing::warn!(%generation, %error, "the progress of a generation cannot be recorded");
        }
        match (progress, unknown) {
            (Some(progress), _) => ProgressFound::Progress(progress),
            (None, Some(error)) => ProgressFound::Unknown { reason: error.to_string() },
            (None, None) => ProgressFound::NoProgress,
        }
    }

    /// Removes what is recorded: the next run of this job is no continuation of this one.
    pub(super) async fn forget(&self) {
        if self.is_empty() {
            return;
        }
        let prefix = self.prefix.clone();
        let removed = tokio::task::spawn_blocking(move || Baseline::remove(&prefix));
        match tokio::time::timeout(BEGIN_WITHIN, removed).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the record of progress cannot be removed"),
            Ok(Err(_)) | Err(_) => tracing::warn!("the record of progress cannot be removed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::events::GenerationProgress;
    use holdfast_core::state_directory::StateDirectory;
    use holdfast_core::state_files;

    fn world(spec: &Progress) -> (tempfile::TempDir, ProgressSources) {
        let base = tempfile::tempdir().unwrap();
        state_files::create_directory(StateDirectory::below(base.path()).path()).unwrap();
        let sources = ProgressSources::new(spec, base.path(), base.path(), 1);
        (base, sources)
    }

    fn begin(sources: &ProgressSources, generation: u64) {
        sources.try_to_begin(Generation(generation), &CancellationToken::new()).unwrap();
    }

    fn check(sources: &ProgressSources, generation: u64) -> ProgressFound {
        sources.check_here(Generation(generation), &CancellationToken::new())
    }

    fn print(base: &Path, generation: u64, text: &str) {
        let directory = state::generation_directory(base, Generation(generation));
        state_files::create_directory(&directory).unwrap();
        fs::write(directory.join("rank_0.out"), text).unwrap();
    }

    fn file(found: ProgressFound) -> String {
        match found {
            ProgressFound::Progress(GenerationProgress::Files { file }) => file.display().to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn line(found: ProgressFound) -> String {
        match found {
            ProgressFound::Progress(GenerationProgress::Output { line, .. }) => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn new_and_changed_files_are_progress_until_the_next_launch() {
        let (base, sources) = world(&Progress { files: Some(vec!["state/*.ckpt".to_owned()]), output: None });
        fs::create_dir(base.path().join("state")).unwrap();
        let path = |name: &str| base.path().join("state").join(name);
        fs::write(path("a.ckpt"), "1").unwrap();
        begin(&sources, 1);
        assert_eq!(check(&sources, 1), ProgressFound::NoProgress);
        fs::write(path("b.log"), "1").unwrap();
        assert_eq!(check(&sources, 1), ProgressFound::NoProgress, "no pattern matches it");
        fs::write(path("a.ckpt"), "12").unwrap();
        assert_eq!([file(check(&sources, 1)), file(check(&sources, 1))], ["state/a.ckpt"; 2], "it can be repeated");
        begin(&sources, 2);
        assert_eq!(check(&sources, 2), ProgressFound::NoProgress);
        fs::write(path("c.ckpt"), "").unwrap();
        assert_eq!(file(check(&sources, 2)), "state/c.ckpt");
        begin(&sources, 3);
        // The same size as before.
        let old = fs::metadata(path("a.ckpt")).unwrap().modified().unwrap();
        fs::File::options().write(true).open(path("a.ckpt")).unwrap().set_modified(old + BEGIN_WITHIN).unwrap();
        assert_eq!(file(check(&sources, 3)), "state/a.ckpt");
        fs::remove_file(path("a.ckpt")).unwrap();
        begin(&sources, 4);
        fs::remove_file(path("c.ckpt")).unwrap();
        assert_eq!(check(&sources, 4), ProgressFound::NoProgress, "a file that was removed");
    }

    #[test]
    fn own_files_of_a_prefix_directory_are_no_progress() {
        let (base, sources) = world(&Progress { files: Some(vec!["**/*".to_owned()]), output: None });
        begin(&sources, 1);
        fs::write(StateDirectory::below(base.path()).join("events.jsonl"), "more").unwrap();
        assert_eq!(check(&sources, 1), ProgressFound::NoProgress);
    }

    #[test]
    fn files_that_were_not_listed_before_the_launch_leave_it_unknown() {
        let (base, sources) = world(&Progress { files: Some(vec!["*.ckpt".to_owned()]), output: None });
        fs::write(base.path().join("a.ckpt"), "").unwrap();
        let reason = |found| match found {
            ProgressFound::Unknown { reason } => reason,
            other => panic!("{other:?}"),
        };
        assert!(reason(check(&sources, 1)).contains("before the launch"));
        begin(&sources, 1);
        assert_eq!(check(&sources, 1), ProgressFound::NoProgress);
        assert!(reason(check(&sources, 2)).contains("before the launch"));
    }

    #[test]
    fn numbers_in_the_output_count_across_generations() {
        let (base, sources) = world(&Progress { files: None, output: Some("^step ([0-9.]+)".to_owned()) });
        begin(&sources, 1);
        print(base.path(), 1, "starting\nstep 4\nstep 3\nnot step 9\n");
        assert_eq!([line(check(&sources, 1)), line(check(&sources, 1))], ["step 4"; 2], "it can be repeated");
        begin(&sources, 2);
        print(base.path(), 2, "step 3\nstep 4\nstep .\n");
        assert_eq!(check(&sources, 2), ProgressFound::NoProgress);
        begin(&sources, 3);
        // Without a line end: the rank was killed.
        print(base.path(), 3, "step 4\nstep 4.5");
        assert_eq!(line(check(&sources, 3)), "step 4.5");
        // Nothing was recorded before the launch.
        print(base.path(), 5, "step 4.5\n");
        assert_eq!(check(&sources, 5), ProgressFound::NoProgress);
        print(base.path(), 6, "step 5\n");
        assert_eq!([line(check(&sources, 6)), line(check(&sources, 6))], ["step 5"; 2]);
    }

    #[test]
    fn a_number_that_is_printed_again_is_no_progress_however_many_digits_it_has() {
        let (base, sources) = world(&Progress { files: None, output: Some("^t = (.*)".to_owned()) });
        // Without its feature `float_roundtrip`, `serde_json` reads a smaller number, and a larger one.
        for (at, text) in [(1, "t = 907.3038322028689\n"), (3, "t = 914.5731834770435\n")] {
            begin(&sources, at);
            print(base.path(), at, text);
            assert_eq!(line(check(&sources, at)), text.trim_end());
            begin(&sources, at + 1);
            print(base.path(), at + 1, text);
            assert_eq!(check(&sources, at + 1), ProgressFound::NoProgress, "{text}");
        }
    }

    #[test]
    fn any_line_that_matches_an_expression_without_a_group_is_progress() {
        let (base, sources) = world(&Progress { files: None, output: Some("saved|written".to_owned()) });
        begin(&sources, 1);
        print(base.path(), 1, "starting\nstate written\nstate saved\n");
        assert_eq!(line(check(&sources, 1)), "state written");
        begin(&sources, 2);
        print(base.path(), 2, "starting\n");
        assert_eq!(check(&sources, 2), ProgressFound::NoProgress);
    }

    #[test]
    fn either_source_is_sufficient_and_both_are_recorded() {
        let spec = Progress { files: Some(vec!["a".to_owned()]), output: Some("step ([0-9]+)".to_owned()) };
        let (base, sources) = world(&spec);
        begin(&sources, 1);
        fs::write(base.path().join("a"), "").unwrap();
        print(base.path(), 1, "step 7\n");
        assert_eq!(file(check(&sources, 1)), "a");
        begin(&sources, 2);
        print(base.path(), 2, "step 7\n");
        assert_eq!(check(&sources, 2), ProgressFound::NoProgress, "step 7 was seen, although the file sufficed");
    }

    #[test]
    fn a_check_that_was_cancelled_records_nothing() {
        let (base, sources) = world(&Progress { files: None, output: Some("step ([0-9]+)".to_owned()) });
        begin(&sources, 1);
        print(base.path(), 1, "step 7\n");
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        assert!(matches!(sources.check_here(Generation(1), &cancelled), ProgressFound::Unknown { .. }));
        begin(&sources, 2);
        print(base.path(), 2, "step 6\n");
        assert_eq!(line(check(&sources, 2)), "step 6");
    }
}
