//! Checks the requirements of Slurm on this machine before anything is started.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use super::environment::{JOB, job_of_environment};
use super::error::SlurmError;
use crate::allocation::error::AllocationError;
use crate::host::{external_command, program};

/// The commands of Slurm that we use.
const SLURM_COMMANDS: [&str; 3] = ["srun", "squeue", "sinfo"];
/// The oldest version with overlapping steps.
const OLDEST_SLURM: (u32, u32) = (20, 11);
/// Time limit for `srun --version`.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Set in heterogeneous jobs: its name today, and until Slurm 20.02.
const HETEROGENEOUS: [&str; 2] = ["SLURM_HET_SIZE", "SLURM_PACK_SIZE"];
const ARRAY: &str = "SLURM_ARRAY_JOB_ID";

/// Checks the kind of the job, and Slurm's commands and version.
pub(super) fn check(variable: impl Fn(&str) -> Option<String>, path: Option<&OsStr>) -> Result<(), AllocationError> {
    if job_of_environment(&variable).is_none() {
        return Err(SlurmError::Outside { missing: JOB[0] }.into());
    }
    let is_set = |name: &&str| variable(name).is_some_and(|value| !value.is_empty());
    if let Some(variable) = HETEROGENEOUS.into_iter().find(is_set) {
        return Err(SlurmError::Heterogeneous { variable }.into());
    }
    if is_set(&ARRAY) {
        return Err(SlurmError::Array { variable: ARRAY }.into());
    }
    for command in SLURM_COMMANDS {
        if program::find(command, Path::new("/"), path).is_err() {
            return Err(AllocationError::NoCommand { command, manager: "Slurm" });
        }
    }
    let found = external_command::run("srun", &["--version"], &BTreeMap::new(), ANSWER_WITHIN)
        .map_err(AllocationError::from)?
        .output;
    let found = found.trim().to_owned();
    match slurm_version(&found) {
        Some(version) if version < OLDEST_SLURM => Err(SlurmError::Old { found, oldest: OLDEST_SLURM }.into()),
        // An unknown version format is not an error.
        _ => Ok(()),
    }
}

/// `slurm 22.05.8` or `slurm-wlm 22.05.8`.
fn slurm_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slurm_without_overlapping_steps_is_recognised_by_its_version() {
        assert_eq!(slurm_version("slurm-wlm 22.05.8"), Some((22, 5)));
        assert!(slurm_version("slurm 20.02.7").is_some_and(|version| version < OLDEST_SLURM));
        assert!(slurm_version("slurm 20.11.0").is_some_and(|version| version >= OLDEST_SLURM));
        assert_eq!(slurm_version("slurm"), None);
    }

    #[test]
    fn a_missing_command_is_named() {
        let inside = |name: &str| (name == "SLURM_JOB_ID").then(|| "7".to_owned());
        let error = check(inside, Some(OsStr::new("/nowhere"))).unwrap_err().to_string();
        assert!(error.contains("srun") && error.contains("PATH"), "{error}");
        let error = check(|_| None, None).unwrap_err().to_string();
        assert!(error.contains("sbatch"), "{error}");
    }
}
