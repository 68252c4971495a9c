//! FTI's file format.

use std::path::Path;

use super::{Confidence, Description, Destination, Extracted, Format, FormatsError, Options, Probe, Progress, Verdict};

/// The format of FTI's checkpoint files.
#[derive(Debug, Clone, Copy)]
pub struct FtiFf;

impl Format for FtiFf {
    fn name(&self) -> &'static str {
        "fti-ff"
    }
    fn title(&self) -> &'static str {
        "FTI-FF checkpoint"
    }
    fn recognise(&self, _: &Probe<'_>) -> Confidence {
        Confidence::No
    }
    fn describe(&self, path: &Path) -> Result<Description, FormatsError> {
        Err(FormatsError::damaged("describe", path, "not an FTI-FF file"))
    }
    fn verify(&self, path: &Path, _: &Options, _: Progress<'_>) -> Result<Verdict, FormatsError> {
        Err(FormatsError::damaged("verify", path, "not an FTI-FF file"))
    }
    fn extract(&self, path: &Path, _: &Destination, _: &Options, _: Progress<'_>) -> Result<Extracted, FormatsError> {
        Err(FormatsError::damaged("extract from", path, "not an FTI-FF file"))
    }
}
