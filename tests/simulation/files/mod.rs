//! Jobs with real files: the cache and control directory of each simulated node and the prefix directory are
//! directories, and the file work of agents, leaders and drains is the product's. After each step the model of a node
//! ([`Disk`](crate::store::Disk)) is read back from its directories, so that the invariants of all jobs are checked
//! against what is on disk. Agents are killed at any call of [`holdfast_core::calls`], and calls fail.
//!
//! * `bytes`: the content of the application's files;
//! * `faults`: kills and errors at a call; `power`: losses of power below the prefix directory;
//! * `node`: an agent on its directories; `read_back`: what is there;
//! * `orders`, `together`: orders of one agent, and those that several carry out together;
//! * `below_prefix`: the work of leaders and drains on the prefix directory;
//! * `journal`: the orchestrator's decisions, from which another one takes over;
//! * `recovery`: a protected checkpoint is restored without some of its members;
//! * `scenario`, `seeds`: the jobs, and running them.

mod below_prefix;
mod bytes;
mod faults;
mod journal;
mod node;
mod orders;
mod power;
mod read_back;
mod recovery;
mod scenario;
mod seeds;
mod together;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use holdfast::drain::prefix_steps::PrefixSteps;
use holdfast_agent::simulation::{Network, SimulatedAgent};
use holdfast_model::{CheckpointId, Rank};
use tempfile::TempDir;

use journal::DecisionJournal;
pub use node::Refusal;
pub use scenario::FileRates;

use crate::content::{FileName, Parity};

/// The directories of a job, and the agents that work on them.
pub struct Files {
    root: TempDir,
    network: Arc<Network>,
    nodes: Vec<NodeFiles>,
    /// What redundancy files were computed from, by a hash of their name and bytes.
    encoded: HashMap<u64, Arc<Parity>>,
    /// The steps of the drain of this number.
    draining: Option<(u32, PrefixSteps)>,
    journal: Option<DecisionJournal>,
    pub tally: Tally,
}

#[derive(Default)]
struct NodeFiles {
    agent: Option<SimulatedAgent>,
    /// Where the files are that were read back last.
    paths: BTreeMap<(CheckpointId, Rank, FileName), PathBuf>,
}

/// What happened in a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Steps of agents, leaders and drains with real files.
    pub steps: u64,
    /// Agents that were killed at a call.
    pub kills: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Nodes that lost power while they worked on the prefix directory.
    pub losses: u64,
    /// States after a loss of power in which what was reported was there.
    pub examined: u64,
    /// Checkpoints that were restored without some of their members.
    pub recoveries: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.steps += other.steps;
        self.kills += other.kills;
        self.errors += other.errors;
        self.losses += other.losses;
        self.examined += other.examined;
        self.recoveries += other.recoveries;
    }
}

impl Files {
    pub fn new(nodes: u32) -> Files {
        let root = holdfast_testkit::fast_directory();
        let files = Files {
            root,
            network: Arc::default(),
            nodes: (0..nodes).map(|_| NodeFiles::default()).collect(),
            encoded: HashMap::new(),
            draining: None,
            journal: None,
            tally: Tally::default(),
        };
        std::fs::create_dir(files.prefix()).unwrap();
        files
    }

    pub fn prefix(&self) -> PathBuf {
        self.root.path().join("prefix")
    }
}
