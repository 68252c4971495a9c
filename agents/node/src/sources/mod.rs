//! Checkpoint sources: what produces the files of a checkpoint, and reads them back.
//!
//! The files of all sources are treated alike: filemap, redundancy, flush, drain, index. A new source is one file
//! here and one line in [`REGISTRY`]; the orchestrator's part of a source is in its folder `sources`.
//!
//! * `source`: what a source is; [`files`]: access of sources to the files of one rank on this node;
//! * [`scr`]: the application, through the checkpoint API;
//! * [`scr_files`]: LLNL's library;
//! * [`command`]: a program that does not use the API, through its rank process ([`schedule`]: when its checkpoints are
//!   due);
//! * [`jubatus`]: Jubatus servers, through rank processes;
//! * [`variables`]: the application, through the variables API;
//! * [`none`]: a program without checkpoints.

pub mod command;
pub mod files;
pub mod jubatus;
pub mod none;
pub mod schedule;
pub mod scr;
pub mod scr_files;
mod source;
pub mod variables;

use std::sync::OnceLock;

use holdfast_wire::run::{Settings, SourceName};

pub use self::files::PutBack;
pub use self::source::{CheckpointSource, SourceEntry, SourcePolicy};

pub static REGISTRY: [&SourceEntry; 6] =
    [&scr::ENTRY, &scr_files::ENTRY, &command::ENTRY, &jubatus::ENTRY, &variables::ENTRY, &none::ENTRY];

/// Sources that a program brings along.
static ADDED: OnceLock<&'static [&'static SourceEntry]> = OnceLock::new();

/// Adds sources to those of this crate, once in a process. False if that was done before.
pub fn add(entries: &'static [&'static SourceEntry]) -> bool {
    ADDED.set(entries).is_ok()
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the checkpoint source {0} does not exist in this version")]
pub struct UnknownSource(pub SourceName);

/// The source that a run's settings name.
///
/// # Errors
/// When there is none of this name.
pub fn open(settings: &Settings) -> Result<CheckpointSource, UnknownSource> {
    let mut known = REGISTRY.iter().chain(ADDED.get().copied().unwrap_or_default());
    match known.find(|entry| entry.name == settings.source.0) {
        Some(entry) => Ok(CheckpointSource { entry, settings: settings.clone() }),
        None => Err(UnknownSource(settings.source.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use holdfast_model::Generation;

    use crate::fixtures::fixture_plan;

    #[test]
    fn finds_every_source_by_its_name_and_refuses_other_names() {
        let mut settings = fixture_plan(Generation(1), "node1", &[1]).settings;
        for entry in REGISTRY {
            settings.source = SourceName(entry.name.to_owned());
            assert_eq!(open(&settings).unwrap().entry().name, entry.name);
        }
        settings.source = SourceName("server".to_owned());
        assert_eq!(
            open(&settings).unwrap_err().to_string(),
            "the checkpoint source server does not exist in this version"
        );
    }
}
