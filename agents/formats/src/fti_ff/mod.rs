//! FTI-FF, the file format of the Fault Tolerance Interface: checkpoints of single ranks, and what its levels 2 and 3 put beside
//! them. The document describes the layout of FTI v1.1; later versions wrote five others, all of which are read here.
//!
//! * [`layout`]: the layouts, and the metadata of a whole file;
//! * [`blocks`]: blocks of variable metadata, and the rules that they keep;
//! * [`checkpoint`]: an open file, its variables readable from any offset by several threads;
//! * [`verify`], [`describe`], [`extract`]: what the commands do;
//! * [`containers`], [`writer`]: the document's layout written, and its rules of growing and shrinking;
//! * [`hashing`]: MD5 over parts of a file, spread over threads;
//! * [`topology`], [`survivors`], [`restore`], [`group_check`]: the files of a group, and a lost one from the others;
//!   `refusal`: why one of them is not used;
//! * [`galois`], [`parity`]: the arithmetic of level 3, and its rows over files;
//! * [`name`]: what the names of the files say.

use std::path::Path;

use super::{Confidence, Description, Destination, Extracted, Format, FormatsError, Options, Probe, Progress, FileCheck};

pub mod blocks;
pub mod checkpoint;
pub mod containers;
pub mod describe;
pub mod extract;
pub mod galois;
pub mod group_check;
pub mod hashing;
pub mod layout;
pub mod name;
pub mod parity;
mod refusal;
pub mod restore;
pub mod survivors;
pub mod topology;
pub mod verify;
pub mod writer;

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

    fn recognise(&self, probe: &Probe<'_>) -> Confidence {
        let named = match name::FileName::parse(probe.name) {
            Some(_) => Confidence::ByName,
            None => Confidence::No,
        };
        checkpoint::confidence(probe.input).unwrap_or(Confidence::No).max(named)
    }

    fn describe(&self, path: &Path) -> Result<Description, FormatsError> {
        describe::describe(path)
    }

    fn verify(&self, path: &Path, _: &Options, progress: Progress<'_>) -> Result<FileCheck, FormatsError> {
        verify::verify(path, progress)
    }

    fn extract(
        &self,
        path: &Path,
        to: &Destination,
        options: &Options,
        progress: Progress<'_>,
    ) -> Result<Extracted, FormatsError> {
        extract::extract(path, to, options, progress)
    }
}

#[cfg(test)]
mod tests;
