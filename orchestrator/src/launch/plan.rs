//! The two files between orchestrator and step supervisor: the plan of a step, and its events.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_core::state_files;
use holdfast_model::{Generation, NodeName, Rank, RankEnd};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::error::LaunchError;
use super::obstacle::Obstacle;

/// The version of both files.
const VERSION: u32 = 2;
/// Maximum size of a plan; enough for a million ranks.
const LARGEST_PLAN: u64 = 2 << 30;

/// The processes of a generation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepPlan {
    pub version: u32,
    pub job_id: String,
    pub generation: Generation,
    /// The executable, the same for all processes.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub working_directory: PathBuf,
    /// Variables of all processes, in addition to those of the supervisor.
    pub environment: BTreeMap<String, String>,
    /// The launcher that made the plan and supervises it.
    pub launcher: String,
    /// A directory of files that the launcher opens by name, to remove after the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_directory: Option<PathBuf>,
    /// The launcher's own part.
    details: Box<RawValue>,
}

/// One line of `steps.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum StepEvent {
    Supervisor {
        pid: u32,
    },
    /// A process was started.
    Started {
        rank: Rank,
        node: NodeName,
        /// The process leads a process group.
        pid: u32,
    },
    /// A process on another node has printed its first output: its output files exist.
    Printed {
        /// Its rank.
        rank: Rank,
    },
    /// A process could not be started; those that were started are killed.
    Refused {
        rank: Rank,
        reason: String,
        /// Whether another launch may succeed.
        #[serde(default)]
        obstacle: Obstacle,
    },
    Exited {
        rank: Rank,
        end: RankEnd,
    },
    /// The launcher failed, and there is no report about any rank.
    Failed {
        end: RankEnd,
    },
    /// The launch was refused for a temporary reason and is retried. Emitted once for each reason.
    Waiting {
        /// The message of the resource manager.
        reason: String,
    },
    /// No process is left.
    Done,
}

/// The common part of all versions of a plan.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl StepPlan {
    /// A plan without a launcher: see [`StepPlan::with_details`].
    pub fn new(job_id: String, generation: Generation, program: PathBuf, working_directory: PathBuf) -> Self {
        StepPlan {
            version: VERSION,
            job_id,
            generation,
            program,
            arguments: Vec::new(),
            working_directory,
            environment: BTreeMap::new(),
            launcher: String::new(),
            private_directory: None,
            details: RawValue::NULL.to_owned(),
        }
    }

    /// The plan with the launcher's own part.
    ///
    /// # Errors
    /// [`LaunchError::Details`].
    pub fn with_details(self, launcher: &'static str, details: &impl Serialize) -> Result<Self, LaunchError> {
        let details =
            to_raw_value(details).map_err(|source| LaunchError::Details { launcher: launcher.to_owned(), source })?;
        Ok(StepPlan { launcher: launcher.to_owned(), details, ..self })
    }

    /// The launcher's own part.
    ///
    /// # Errors
    /// [`LaunchError::Details`].
    pub fn details<T: DeserializeOwned>(&self) -> Result<T, LaunchError> {
        let launcher = self.launcher.clone();
        serde_json::from_str(self.details.get()).map_err(|source| LaunchError::Details { launcher, source })
    }

    /// The path of the plan.
    pub fn path_in(directory: &Path) -> PathBuf {
        directory.join("plan.json")
    }

    /// The path of the events.
    pub fn events_in(directory: &Path) -> PathBuf {
        directory.join("steps.jsonl")
    }

    /// The file that the supervisor keeps locked while it runs.
    pub fn lock_in(directory: &Path) -> PathBuf {
        directory.join("step.lock")
    }

    /// The standard output of a rank.
    pub fn output_in(directory: &Path, rank: Rank) -> PathBuf {
        directory.join(format!("rank_{rank}.out"))
    }

    /// The standard error of a rank.
    pub fn errors_in(directory: &Path, rank: Rank) -> PathBuf {
        directory.join(format!("rank_{rank}.err"))
    }

    /// The labelled standard output of all ranks, if one command starts them.
    pub fn all_output_in(directory: &Path) -> PathBuf {
        directory.join("ranks.out")
    }

    /// The labelled standard error of all ranks, with the launcher's own messages.
    pub fn all_errors_in(directory: &Path) -> PathBuf {
        directory.join("ranks.err")
    }

    /// Writes the plan into the generation's directory.
    ///
    /// # Errors
    /// [`LaunchError::Owned`].
    pub fn write(&self, directory: &Path) -> Result<PathBuf, LaunchError> {
        let path = StepPlan::path_in(directory);
        let bytes = serde_json::to_vec(self).map_err(|error| LaunchError::file("write", &path)(error.into()))?;
        state_files::replace(&path, &bytes)?;
        Ok(path)
    }

    /// Reads a plan, which must be ours: its program is executed.
    ///
    /// # Errors
    /// [`LaunchError::Owned`], [`LaunchError::File`], [`LaunchError::Plan`].
    pub fn read(path: &Path) -> Result<Self, LaunchError> {
        let missing = || LaunchError::file("open", path)(std::io::ErrorKind::NotFound.into());
        let bytes = state_files::read(path, LARGEST_PLAN)?.ok_or_else(missing)?;
        let bad = |problem: String| LaunchError::Plan { path: path.to_owned(), problem };
        let Versioned { version } = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        if version != VERSION {
            return Err(bad(format!("it has version {version}, only {VERSION} is supported")));
        }
        serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_the_plan_of_another_version_with_its_number() {
        let base = tempfile::tempdir().unwrap();
        let path = StepPlan::path_in(base.path());
        std::fs::write(&path, r#"{"version":1,"processes":[]}"#).unwrap();
        let error = StepPlan::read(&path).unwrap_err().to_string();
        assert!(error.contains("version 1"), "{error}");
    }

    #[test]
    fn a_plan_is_read_back() {
        let base = tempfile::tempdir().unwrap();
        let plan = StepPlan::new("17".to_owned(), Generation(1), "/bin/app".into(), "/".into());
        let path = plan.with_details("local", &[3, 4]).unwrap().write(base.path()).unwrap();
        let read = StepPlan::read(&path).unwrap();
        assert_eq!((read.launcher.as_str(), read.details::<Vec<u32>>().unwrap()), ("local", vec![3, 4]));
        assert!(read.details::<String>().unwrap_err().to_string().contains("local"));
    }
}
