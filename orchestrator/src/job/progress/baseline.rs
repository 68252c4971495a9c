//! `<prefix>/.holdfast/progress.json`: what the end of a generation is compared with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_core::durable::Durability;
use holdfast_core::state_directory::StateDirectory;
use holdfast_core::state_files;
use holdfast_model::Generation;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::error::ProgressError;
use crate::job::state::StateError;

const FILE: &str = "progress.json";
const VERSION: u32 = 1;
/// A hundred thousand files with long names.
const LARGEST: u64 = 64 << 20;

/// What distinguishes a file from an earlier state of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct FileStamp {
    /// Seconds and nanoseconds since the epoch.
    pub(super) modified: (i64, i64),
    pub(super) bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Baseline {
    version: u32,
    /// The generation before whose launch it was taken.
    pub(super) generation: Generation,
    /// The files at that time.
    #[serde(default)]
    pub(super) files: Option<BTreeMap<PathBuf, FileStamp>>,
    /// Why they could not be listed.
    #[serde(default)]
    pub(super) files_unknown: Option<String>,
    /// The largest number in the output of earlier generations.
    #[serde(default)]
    pub(super) largest_before: Option<f64>,
    /// As above, including this generation when it was checked.
    #[serde(default)]
    pub(super) largest: Option<f64>,
}

impl Baseline {
    const NONE: Baseline = Baseline {
        version: VERSION,
        generation: Generation::NONE,
        files: None,
        files_unknown: None,
        largest_before: None,
        largest: None,
    };

    /// That of the prefix directory. One that is missing or cannot be understood is empty.
    pub(super) fn read(prefix: &Path) -> Result<Self, ProgressError> {
        let text = state_files::read(&path(prefix), LARGEST)?;
        let known = text.and_then(|text| serde_json::from_slice::<Baseline>(&text).ok());
        Ok(known.filter(|known| known.version == VERSION).unwrap_or(Self::NONE))
    }

    /// The baseline of a generation that is about to be launched, before its sources are asked.
    pub(super) fn of_next(self, generation: Generation) -> Self {
        let largest = self.largest;
        Baseline { generation, largest_before: largest, largest, ..Self::NONE }
    }

    /// Writes it, unless that was cancelled.
    pub(super) fn write(&self, prefix: &Path, cancelled: &CancellationToken) -> Result<(), ProgressError> {
        // Numbers, strings and maps can always be written as JSON.
        let text = serde_json::to_vec(self).unwrap_or_default();
        if cancelled.is_cancelled() {
            return Err(ProgressError::Cancelled);
        }
        Ok(state_files::replace(&path(prefix), &text)?)
    }

    pub(super) fn remove(prefix: &Path) -> Result<(), StateError> {
        if let Some(own) = StateDirectory::below(prefix).open()? {
            own.remove_file(FILE, Durability::Machine)?;
        }
        Ok(())
    }
}

fn path(prefix: &Path) -> PathBuf {
    StateDirectory::below(prefix).join(FILE)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use holdfast_core::crash::{ALL_ERRORS, Subject};
    use holdfast_core::temporary;

    use super::*;

    /// What earlier generations have reached is known at the end of the next one.
    #[test]
    fn crash_the_baseline_of_a_generation() {
        let known = Baseline { generation: Generation(1), largest: Some(40.0), ..Baseline::NONE };
        let cancelled = CancellationToken::new();
        let prepare = |prefix: &Path| {
            fs::create_dir(prefix).unwrap();
            StateDirectory::below(prefix).create().unwrap();
            known.write(prefix, &cancelled).unwrap();
        };
        let work = |prefix: &Path| {
            let own = StateDirectory::below(prefix);
            temporary::remove_abandoned_below(own.path()).map_err(|error| error.to_string())?;
            let next = Baseline::read(prefix).map_err(|error| error.to_string())?.of_next(Generation(2));
            next.write(prefix, &cancelled).map_err(|error| error.to_string())
        };
        let check = |prefix: &Path| {
            let found = Baseline::read(prefix).map_err(|error| error.to_string())?;
            let is_known = found == known || found == known.clone().of_next(Generation(2));
            (is_known || found.largest_before == Some(40.0)).then_some(()).ok_or(format!("{found:?}"))
        };
        let result = |prefix: &Path| {
            let names = holdfast_testkit::files_below(prefix);
            format!("{:?} {names:?}", Baseline::read(prefix).unwrap())
        };
        let (prepare, work, check, result): (&dyn Fn(&Path), _, _, _) = (&prepare, &work, &check, &result);
        let (name, power, errors) = ("progress", true, ALL_ERRORS);
        let tried = Subject { name, prepare, work, check, result, power, errors }.interrupt();
        assert!(tried.losses > 3 && tried.errors > 20, "{tried:?}");
    }
}
