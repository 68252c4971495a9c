//! Jobs with real files: the cache and control directory of each simulated node and the prefix directory are
//! directories, and the file work of agents, leaders and drains is the product's. After each step that changes it the
//! model of a node ([`Disk`](crate::store::Disk)) is read back from its directories, so that the invariants of
//! all jobs are checked against what is on disk. Agents are killed at any call of [`holdfast_core::calls`], and calls
//! fail.
//!
//! * `bytes`: the content of the application's files;
//! * `faults`: kills and errors at a call; `power`: losses of power below the prefix directory;
//! * `node`: an agent on its directories; `read_back`: what is there;
//! * `halts`: the conditions of users;
//! * `orders`, `together`: orders of one agent, and those that several carry out together;
//! * `below_prefix`: the work of leaders and drains on the prefix directory;
//! * `journal`: the orchestrator's decisions, from which another one takes over;
//! * `recovery`: a protected checkpoint is restored without some of its members;
//! * `scenario`, `seeds`: the jobs, and running them.

mod below_prefix;
mod bytes;
mod faults;
mod halts;
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
use std::sync::{Arc, Mutex};

use holdfast::drain::prefix_steps::PrefixSteps;
use holdfast::job::journal::StateStore;
use holdfast_agent::simulation::{Network, SimulatedAgent};
use holdfast_model::{CheckpointId, Rank};
use tempfile::TempDir;

pub use node::Refusal;
use read_back::KnownFile;
pub use scenario::FileRates;

use crate::content::{FileName, Parity};

/// The directories of a job, and the agents that work on them.
pub struct Files {
    root: TempDir,
    network: Arc<Network>,
    nodes: Vec<NodeFiles>,
    known: Mutex<HashMap<PathBuf, KnownFile>>,
    /// What redundancy files were computed from, by a hash of their name and bytes.
    encoded: HashMap<u64, Arc<Parity>>,
    /// The steps of the drain of this number.
    draining: Option<(u32, PrefixSteps)>,
    /// The orchestrator's state and journal.
    journal: Option<StateStore>,
    pub tally: Tally,
}

#[derive(Default)]
struct NodeFiles {
    agent: Option<SimulatedAgent>,
    /// The halt file, once an agent has made its directory.
    halt: Option<PathBuf>,
    /// Where the files are that were read back last.
    paths: BTreeMap<(CheckpointId, Rank, FileName), PathBuf>,
}

/// What happened in a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Steps of agents, leaders and drains with real files.
    pub steps: u64,
    /// Outputs that were published, those among them that bypassed the cache, and containers that were completed.
    pub outputs: u64,
    pub bypasses: u64,
    pub containers: u64,
    /// Halt conditions that users wrote into the file of a node.
    pub halts: u64,
    /// Agents that were killed at a call.
    pub kills: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Those of the orchestrator: its journal, its state, its steps of a drain.
    pub orchestrator_errors: u64,
    /// Steps whose writes took a few bytes at once.
    pub short_writes: u64,
    /// Nodes that lost power while they worked on the prefix directory.
    pub losses: u64,
    /// States after a loss of power in which what was reported was there.
    pub examined: u64,
    /// Checkpoints that were restored without some of their members.
    pub recoveries: u64,
}

impl Tally {
    /// The counts, with what each is of.
    fn counts(&mut self) -> [(&'static str, &mut u64); 12] {
        [
            ("steps", &mut self.steps),
            ("outputs", &mut self.outputs),
            ("bypasses", &mut self.bypasses),
            ("containers", &mut self.containers),
            ("halts", &mut self.halts),
            ("kills", &mut self.kills),
            ("errors", &mut self.errors),
            ("orchestrator_errors", &mut self.orchestrator_errors),
            ("short_writes", &mut self.short_writes),
            ("losses", &mut self.losses),
            ("examined", &mut self.examined),
            ("recoveries", &mut self.recoveries),
        ]
    }

    pub fn add(&mut self, mut other: Tally) {
        for ((_, sum), (_, more)) in self.counts().into_iter().zip(other.counts()) {
            *sum += *more;
        }
    }

    /// What did not happen.
    pub fn missing(mut self) -> Vec<&'static str> {
        self.counts().into_iter().filter(|(_, count)| **count == 0).map(|(what, _)| what).collect()
    }
}

impl Files {
    pub fn new(nodes: u32) -> Files {
        let root = holdfast_testkit::fast_directory();
        let files = Files {
            root,
            network: Arc::default(),
            nodes: (0..nodes).map(|_| NodeFiles::default()).collect(),
            known: Mutex::default(),
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
