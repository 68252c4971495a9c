//! `<prefix>/.holdfast/steps.json`: the steps of a job and their prefix directories, for commands that are given only
//! the prefix directory of the job.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_core::durable::Durability;
use holdfast_core::owned::Access;
use holdfast_core::state_directory::StateDirectory;
use serde::{Deserialize, Serialize};

use super::state::StateError;
use crate::spec::JobSpec;

const VERSION: u32 = 2;
/// It has only the names: each step is in `<prefix>/<name>`.
const WITHOUT_PREFIXES: u32 = 1;
const FILE: &str = "steps.json";
const LARGEST: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
struct StepNames {
    version: u32,
    steps: Vec<String>,
    /// Those that are not in `<prefix>/<name>`: relative to the prefix directory of the job, or absolute.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    prefixes: BTreeMap<String, PathBuf>,
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
    let elsewhere = spec.steps.iter().filter_map(|step| {
        let below = step.prefix.strip_prefix(&spec.prefix).unwrap_or(&step.prefix);
        (below != Path::new(&step.name)).then(|| (step.name.clone(), below.to_owned()))
    });
    let prefixes: BTreeMap<String, PathBuf> = elsewhere.collect();
    let version = if prefixes.is_empty() { WITHOUT_PREFIXES } else { VERSION };
    let steps = spec.steps.iter().map(|step| step.name.clone()).collect();
    let names = StepNames { version, steps, prefixes };
    // Their paths are UTF-8, as that of the job is.
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
    if ![WITHOUT_PREFIXES, VERSION].contains(&names.version) {
        return Err(content(format!("its version is {}, this one reads {VERSION}", names.version)));
    }
    if names.steps.iter().any(|name| name.is_empty() || name == ".." || name == "." || name.contains('/')) {
        return Err(content("a step's name is not a single path component".to_owned()));
    }
    let prefix_of = |name: &String| prefix.join(names.prefixes.get(name).map_or(Path::new(name), PathBuf::as_path));
    Ok(names.steps.iter().map(|name| (name.clone(), prefix_of(name))).collect())
}
