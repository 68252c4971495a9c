//! What a step consists of, and what becomes of it: the two files between the orchestrator and the step supervisor.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use holdfast_core::durable;
use holdfast_model::{Generation, NodeName, Rank};
use serde::{Deserialize, Serialize};

use super::LaunchError;
use super::labels::Labels;
use super::remote::RemoteStep;
use holdfast_model::RankEnd;

/// The version of both files.
const VERSION: u32 = 1;
/// A plan of a million ranks stays below this.
const LARGEST_PLAN: u64 = 2 << 30;

/// The processes of a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepPlan {
    /// The version of the plan.
    pub version: u32,
    /// The job id.
    pub job_id: String,
    /// The generation.
    pub generation: Generation,
    /// What is run; the same for all processes.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where it is run.
    pub working_directory: PathBuf,
    /// Variables that all processes get, in addition to what the supervisor has.
    pub environment: BTreeMap<String, String>,
    /// The processes; none if one launcher command starts them all.
    pub processes: Vec<StepProcess>,
    /// The command that starts all ranks, if there is one.
    #[serde(default)]
    pub launcher: Option<LauncherCommand>,
    /// The nodes to which the supervisor goes over ssh to start the processes there, if that is how.
    #[serde(default)]
    pub remote: Option<RemoteStep>,
}

/// A command that starts all ranks: the program and its arguments follow its own options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherCommand {
    /// Its program.
    pub program: PathBuf,
    /// Its options.
    pub options: Vec<String>,
    /// Variables that it must not inherit.
    pub without: Vec<String>,
    /// The ranks that it starts, and where.
    pub ranks: BTreeMap<Rank, NodeName>,
    /// How it says whose line it is.
    #[serde(default)]
    pub labels: Labels,
}

/// One process of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepProcess {
    /// Its rank.
    pub rank: Rank,
    /// The node that it belongs to.
    pub node: NodeName,
    /// Variables of its own.
    pub environment: BTreeMap<String, String>,
}

/// One line of `steps.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum StepEvent {
    /// The supervisor runs.
    Supervisor {
        /// Its process.
        pid: u32,
    },
    /// A process was started.
    Started {
        /// Its rank.
        rank: Rank,
        /// Its node.
        node: NodeName,
        /// Its process, which leads a process group.
        pid: u32,
    },
    /// A process could not be started; those that were are killed.
    Refused {
        /// Its rank.
        rank: Rank,
        /// Why.
        reason: String,
    },
    /// A process ended.
    Exited {
        /// Its rank.
        rank: Rank,
        /// How.
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

impl StepPlan {
    /// A plan without processes.
    pub fn new(job_id: String, generation: Generation, program: PathBuf, working_directory: PathBuf) -> Self {
        StepPlan {
            version: VERSION,
            job_id,
            generation,
            program,
            arguments: Vec::new(),
            working_directory,
            environment: BTreeMap::new(),
            processes: Vec::new(),
            launcher: None,
            remote: None,
        }
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
        let plan: StepPlan = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        if plan.version != VERSION {
            return Err(bad(format!("version {}, and only {VERSION} is known", plan.version)));
        }
        Ok(plan)
    }
}
