//! `<prefix>/.holdfast/steps.json`: the names of the steps of a job, for commands that are given only its prefix
//! directory.

use std::path::{Path, PathBuf};

use holdfast_core::durable::Durability;
use holdfast_core::owned::Access;
use holdfast_core::state_directory::StateDirectory;
use serde::{Deserialize, Serialize};

use super::state::StateError;
use crate::spec::JobSpec;

const VERSION: u32 = 1;
const FILE: &str = "steps.json";
const LARGEST: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
struct StepNames {
    version: u32,
    steps: Vec<String>,
}

/// Writes the names of the steps; removes the file for a job of one step, which has no directories for its steps.
///
/// # Errors
/// [`StateError::Owned`].
pub(super) fn write(spec: &JobSpec, prefix: &Path) -> Result<(), StateError> {
    let Some(own) = StateDirectory::below(prefix).open()? else { return Ok(()) };
    if spec.has_short_form() {
        own.remove_file(FILE, Durability::Machine)?;
        return Ok(());
    }
    let names = StepNames { version: VERSION, steps: spec.steps.iter().map(|step| step.name.clone()).collect() };
    // A list of strings can always be written as JSON.
    let text = serde_json::to_vec(&names).unwrap_or_default();
    own.replace(FILE, &text, spec.group_access.access(), Durability::Machine)?;
    Ok(())
}

/// The steps of the job of a prefix directory: name and prefix directory of each, in the order in which they run; none
/// for a job of one step.
///
/// # Errors
/// [`StateError::Owned`] if the file is not ours; [`StateError::Content`].
pub fn read(prefix: &Path) -> Result<Vec<(String, PathBuf)>, StateError> {
    let Some(own) = StateDirectory::below(prefix).open_to_show()? else { return Ok(Vec::new()) };
    let Some(text) = own.read(FILE, Access::GroupRead, LARGEST)? else { return Ok(Vec::new()) };
    let content = |problem: String| StateError::Content { path: own.path().join(FILE), problem };
    let names: StepNames = serde_json::from_slice(&text).map_err(|error| content(error.to_string()))?;
    if names.version != VERSION {
        return Err(content(format!("its version is {}, this one reads {VERSION}", names.version)));
    }
    if names.steps.iter().any(|name| name.is_empty() || name == ".." || name == "." || name.contains('/')) {
        return Err(content("a step's name is not a single path component".to_owned()));
    }
    Ok(names.steps.into_iter().map(|name| (name.clone(), prefix.join(name))).collect())
}
