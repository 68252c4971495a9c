//! FTI-FF, the file format of the Fault Tolerance Interface (FTI): checkpoints of single ranks, and the redundancy
//! files of its levels 2 and 3. FTI's document describes the layout of v1.1; later versions wrote five others. All six
//! can be read.
//!
//! * [`layout`]: the layouts, and the metadata of a file;
//! * [`blocks`]: blocks of variable metadata, and their rules;
//! * [`checkpoint`]: an open file; several threads can read its variables from any offset;
//! * [`verify`], [`describe`], [`extract`]: the operations of the commands;
//! * [`containers`], [`writer`]: writing layout A, and its rules for variables that grow and shrink;
//! * [`differential`]: writing layouts A and F over a file with the content of an earlier checkpoint;
//! * [`hashing`]: MD5 over ranges of a file, distributed over threads;
//! * [`topology`], [`survivors`], [`restore`], [`group_check`]: the files of a group, and the restoration of a lost
//!   one; `refusal`, `identity`: why a file is not used;
//! * [`repair`]: corrects files that FTI refuses although their data are intact;
//! * [`parity`]: the code rows of level 3 over files;
//! * [`name`]: the names of the files; [`variable_type`]: the types of elements.

use std::path::Path;

use crate::destination::Destination;
use crate::error::Result;
use crate::file_check::FileCheck;
use crate::format::{Confidence, Description, Extracted, Format, Options, Probe, Progress};

pub mod blocks;
pub mod checkpoint;
pub mod containers;
pub mod describe;
pub mod differential;
pub mod extract;
pub mod group_check;
pub mod hashing;
mod identity;
pub mod layout;
mod md5_lanes;
pub mod name;
pub mod parity;
mod refusal;
pub mod repair;
pub mod restore;
pub mod survivors;
pub mod topology;
pub mod variable_type;
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

    fn describe(&self, path: &Path) -> Result<Description> {
        describe::describe(path)
    }

    fn verify(&self, path: &Path, _: &Options, progress: Progress<'_>) -> Result<FileCheck> {
        verify::verify(path, progress)
    }

    fn extract(&self, path: &Path, to: &Destination, options: &Options, progress: Progress<'_>) -> Result<Extracted> {
        extract::extract(path, to, options, progress)
    }
}

#[cfg(test)]
mod tests;
