//! What a step consists of, and what becomes of it: the two files between the orchestrator and the step supervisor.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use holdfast_core::durable;
use holdfast_model::{Generation, NodeName, Rank, RankEnd};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::LaunchError;

/// The version of both files.
const VERSION: u32 = 2;
/// A plan of a million ranks stays below this.
const LARGEST_PLAN: u64 = 2 << 30;

/// The processes of a generation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepPlan {
    /// The version of the plan.
    pub version: u32,
    pub job_id: String,
    pub generation: Generation,
    /// What is run; the same for all processes.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Where it is run.
    pub working_directory: PathBuf,
    /// Variables that all processes get, in addition to what the supervisor has.
    pub environment: BTreeMap<String, String>,
    /// The launcher that made the plan, and supervises it.
    pub launcher: String,
    /// What only that launcher understands.
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
        /// Its process, which leads a process group.
        pid: u32,
    },
    /// A process that was started elsewhere has printed something: its output files exist from now on.
    Printed {
        /// Its rank.
        rank: Rank,
    },
    /// A process could not be started; those that were are killed.
    Refused {
        rank: Rank,
        reason: String,
    },
    Exited {
        rank: Rank,
        end: RankEnd,
    },
    /// The launcher failed, and nobody said a word of any rank.
    Failed {
        /// How it ended itself.
        end: RankEnd,
    },
    /// The launcher was refused for a reason that passes, and will be tried again. Told once a reason.
    Waiting {
        /// The resource manager's words.
        reason: String,
    },
    /// No process is left.
    Done,
}

/// What every version of a plan has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl StepPlan {
    /// A plan of no launcher yet: [`StepPlan::with_details`].
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
            details: RawValue::NULL.to_owned(),
        }
    }

    /// The same plan with what `launcher` has to know to supervise it.
    ///
    /// # Errors
    /// [`LaunchError::Details`].
    pub fn with_details(self, launcher: &'static str, details: &impl Serialize) -> Result<Self, LaunchError> {
        let details =
            to_raw_value(details).map_err(|source| LaunchError::Details { launcher: launcher.to_owned(), source })?;
        Ok(StepPlan { launcher: launcher.to_owned(), details, ..self })
    }

    /// What the plan's launcher has written for its supervision.
    ///
    /// # Errors
    /// [`LaunchError::Details`].
    pub fn details<T: DeserializeOwned>(&self) -> Result<T, LaunchError> {
        let launcher = self.launcher.clone();
        serde_json::from_str(self.details.get()).map_err(|source| LaunchError::Details { launcher, source })
    }

    /// Where the plan of a generation stands.
    pub fn path_in(directory: &Path) -> PathBuf {
        directory.join("plan.json")
    }

    /// Where the supervisor writes what happens.
    pub fn events_in(directory: &Path) -> PathBuf {
        directory.join("steps.jsonl")
    }

    /// The file that the supervisor keeps locked as long as it lives.
    pub fn lock_in(directory: &Path) -> PathBuf {
        directory.join("step.lock")
    }

    /// Where a rank's standard output goes.
    pub fn output_in(directory: &Path, rank: Rank) -> PathBuf {
        directory.join(format!("rank_{rank}.out"))
    }

    /// Where a rank's standard error goes.
    pub fn errors_in(directory: &Path, rank: Rank) -> PathBuf {
        directory.join(format!("rank_{rank}.err"))
    }

    /// Where the labelled standard output of all ranks goes that one command started.
    pub fn all_output_in(directory: &Path) -> PathBuf {
        directory.join("ranks.out")
    }

    /// The same for standard error; the launcher's own words are there too.
    pub fn all_errors_in(directory: &Path) -> PathBuf {
        directory.join("ranks.err")
    }

    /// Writes the plan into the generation's directory.
    ///
    /// # Errors
    /// [`LaunchError::Durable`].
    pub fn write(&self, directory: &Path) -> Result<PathBuf, LaunchError> {
        let path = StepPlan::path_in(directory);
        let bytes = serde_json::to_vec(self).map_err(|error| LaunchError::file("write", &path)(error.into()))?;
        durable::replace(&path, &bytes)?;
        Ok(path)
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// [`LaunchError::File`], [`LaunchError::Plan`].
    pub fn read(path: &Path) -> Result<Self, LaunchError> {
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(LaunchError::file("open", path))?;
        file.take(LARGEST_PLAN).read_to_end(&mut bytes).map_err(LaunchError::file("read", path))?;
        let bad = |problem: String| LaunchError::Plan { path: path.to_owned(), problem };
        let Versioned { version } = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        if version != VERSION {
            return Err(bad(format!("version {version}, and only {VERSION} is known")));
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
    fn a_plan_is_read_as_it_was_written() {
        let base = tempfile::tempdir().unwrap();
        let plan = StepPlan::new("17".to_owned(), Generation(1), "/bin/app".into(), "/".into());
        let path = plan.with_details("local", &[3, 4]).unwrap().write(base.path()).unwrap();
        let read = StepPlan::read(&path).unwrap();
        assert_eq!((read.launcher.as_str(), read.details::<Vec<u32>>().unwrap()), ("local", vec![3, 4]));
        assert!(read.details::<String>().unwrap_err().to_string().contains("local"));
    }
}
