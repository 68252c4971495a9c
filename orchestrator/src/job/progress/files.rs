//! `progress.files`: files that are new or changed since the launch.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};
use tokio_util::sync::CancellationToken;

use super::baseline::{Baseline, FileStamp};
use super::error::ProgressError;
use super::source::{EndedGeneration, ProgressSource};
use crate::events::GenerationProgress;

/// More files would take too long to list at every relaunch.
const MOST_FILES: usize = 100_000;

/// Wildcards match neither `/` nor a leading dot: `.holdfast` changes all the time.
const RULES: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

#[derive(Debug)]
pub(super) struct FileProgress {
    /// The working directory of the ranks.
    directory: PathBuf,
    patterns: Vec<String>,
}

impl FileProgress {
    pub(super) fn new(directory: &Path, patterns: &[String]) -> Self {
        FileProgress { directory: directory.to_owned(), patterns: patterns.to_vec() }
    }

    /// The files that match, by their paths relative to the working directory.
    fn list(&self, cancelled: &CancellationToken) -> Result<BTreeMap<PathBuf, FileStamp>, ProgressError> {
        let mut files = BTreeMap::new();
        let here = Pattern::escape(&self.directory.to_string_lossy());
        for pattern in &self.patterns {
            // An absolute pattern replaces the directory.
            let pattern = Path::new(&here).join(pattern);
            for found in glob::glob_with(&pattern.to_string_lossy(), RULES)? {
                if cancelled.is_cancelled() {
                    return Err(ProgressError::Cancelled);
                }
                let (path, metadata) = match found {
                    Ok(path) => (path.clone(), fs::metadata(&path)),
                    Err(error) => (error.path().to_owned(), Err(error.into())),
                };
                let metadata = match metadata {
                    Ok(metadata) => metadata,
                    // Removed meanwhile, or a link to nothing.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(source) => return Err(ProgressError::File { path, source }),
                };
                let stamp = FileStamp { modified: (metadata.mtime(), metadata.mtime_nsec()), bytes: metadata.len() };
                files.insert(path.strip_prefix(&self.directory).unwrap_or(&path).to_owned(), stamp);
                if files.len() > MOST_FILES {
                    return Err(ProgressError::TooManyFiles { most: MOST_FILES });
                }
            }
        }
        // Paths that are not UTF-8 cannot be recorded.
        files.retain(|path: &PathBuf, _| path.to_str().is_some());
        Ok(files)
    }
}

impl ProgressSource for FileProgress {
    fn begin(&self, baseline: &mut Baseline, cancelled: &CancellationToken) {
        match self.list(cancelled) {
            Ok(files) => baseline.files = Some(files),
            Err(error) => baseline.files_unknown = Some(error.to_string()),
        }
    }

    fn check(
        &self,
        _: &EndedGeneration,
        baseline: &mut Baseline,
        cancelled: &CancellationToken,
    ) -> Result<Option<GenerationProgress>, ProgressError> {
        let reason = || baseline.files_unknown.clone().unwrap_or_else(|| "it is not recorded why".to_owned());
        let before = baseline.files.as_ref().ok_or_else(|| ProgressError::NoBaseline { reason: reason() })?;
        let now = self.list(cancelled)?;
        let changed = now.into_iter().filter(|(path, stamp)| before.get(path) != Some(stamp));
        // The one that was written last.
        let newest = changed.max_by_key(|(_, stamp)| *stamp);
        Ok(newest.map(|(file, _)| GenerationProgress::Files { file }))
    }
}
