//! What compares the end of a generation with its beginning.

use std::fmt;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::baseline::Baseline;
use super::error::ProgressError;
use crate::events::GenerationProgress;

/// A source of progress.
pub(super) trait ProgressSource: fmt::Debug + Send + Sync {
    /// Before a launch: records in the baseline what its end will be compared with.
    fn begin(&self, baseline: &mut Baseline, cancelled: &CancellationToken);

    /// After a generation has ended: the progress since [`begin`](Self::begin). Changes nothing in the baseline that
    /// a repeated check depends on.
    ///
    /// # Errors
    /// It cannot be found out.
    fn check(
        &self,
        ended: &EndedGeneration,
        baseline: &mut Baseline,
        cancelled: &CancellationToken,
    ) -> Result<Option<GenerationProgress>, ProgressError>;
}

/// A generation whose ranks have ended.
#[derive(Clone, Debug)]
pub(super) struct EndedGeneration {
    /// The directory of its files.
    pub(super) directory: PathBuf,
    pub(super) ranks: u32,
}
