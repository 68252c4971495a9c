//! The orchestrator's requests about pairs of main and replica, and about the non-critical jobs beside them. HTTPS +
//! JSON as in [`agent`](crate::agent).
//!
//! | request | path | body → answer |
//! |---|---|---|
//! | POST | [`PLAN`] | [`PairsPlan`] → [`PairsAccepted`] |
//! | POST | [`SYNC`] | [`PairsSync`] → [`PairsReport`]; held back up to `wait_ms` while nothing changes |
//! | POST | [`COMMAND`] | [`CommandRequest`] → [`PairStatus`] |
//! | POST | [`STOP`] | [`PairsStop`] → [`Empty`](crate::agent::Empty), when all copies and jobs have ended |
//!
//! Each names the epoch of its orchestrator. An agent refuses requests of an older epoch than it has seen: an
//! orchestrator that was replaced cannot grant anything any more.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_model::pair::{
    Grant, JobConfig, JobStatus, MOST_PAIRS, PairCommand, PairConfig, PairStatus, Revocation, Side,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Which pairs and jobs a node has.
pub const PLAN: &str = "/v1/pairs/plan";
/// Leases, and the state of pairs and jobs.
pub const SYNC: &str = "/v1/pairs/sync";
/// What a user requests for a pair.
pub const COMMAND: &str = "/v1/pairs/command";
/// The end of all copies and jobs.
pub const STOP: &str = "/v1/pairs/stop";

/// The most non-critical jobs of a node.
pub const MOST_JOBS: usize = 1024;
/// The largest checkpoint of a pair, bytes.
pub const LARGEST_CHECKPOINT: u64 = 1 << 30;
/// The largest checkpoint of a pair whose copies are on two nodes, bytes.
pub const LARGEST_MIRRORED: u64 = 256 << 20;
/// The shortest period of heartbeats.
pub const SHORTEST_PERIOD: Duration = Duration::from_micros(100);
/// The longest period of heartbeats.
pub const LONGEST_PERIOD: Duration = Duration::from_secs(60);
/// The longest name of a pair or job, bytes.
pub const LONGEST_NAME: usize = 100;

/// The copies of a pair that belong to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SidesOnNode {
    Both,
    Main,
    Replica,
}

impl SidesOnNode {
    pub fn has(self, side: Side) -> bool {
        match self {
            SidesOnNode::Both => true,
            SidesOnNode::Main => side == Side::Main,
            SidesOnNode::Replica => side == Side::Replica,
        }
    }

    /// The copy of this node, if the other one belongs to another node.
    pub fn only(self) -> Option<Side> {
        match self {
            SidesOnNode::Both => None,
            SidesOnNode::Main => Some(Side::Main),
            SidesOnNode::Replica => Some(Side::Replica),
        }
    }
}

/// A pair of which a node has at least one copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairOnNode {
    /// The pair's number in the job, below [`MOST_PAIRS`].
    pub index: u32,
    pub config: PairConfig,
    pub sides: SidesOnNode,
    /// No copy of it has been awake in this run: it goes on from what an earlier run has saved.
    #[serde(default)]
    pub restore: bool,
    /// The agent of the other copy's node. `None` if both copies are here, or if that agent is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
}

/// What holds for all copies and jobs of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairsSettings {
    /// How long a lease is valid after it was renewed.
    #[serde(with = "holdfast_model::time::millis")]
    pub lease: Duration,
    /// The CPU of the thread that watches the heartbeats; `None`: any.
    pub pin_watcher: Option<u32>,
    /// The working directory of copies and jobs, as the node sees it.
    pub directory: PathBuf,
    /// The directory for the output of copies and jobs, below a prefix directory. `None`: beside the registry.
    pub output: Option<PathBuf>,
    /// Where the newest checkpoints of pairs that are not finished are written when the job ends, below a prefix
    /// directory. `None`: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save_to: Option<PathBuf>,
    /// Where earlier runs have written theirs, the newest run first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restore_from: Vec<PathBuf>,
    /// Variables in addition to the agent's environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

/// The pairs and jobs of a node. The same plan again, also for an agent that was restarted, changes nothing but the
/// peers' addresses. One with other commands, environment or restart policies changes these; the layout of the shared
/// memory, and the settings that running copies have read, must be the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairsPlan {
    pub epoch: u64,
    pub pairs: Vec<PairOnNode>,
    pub jobs: Vec<JobConfig>,
    pub settings: PairsSettings,
    /// The numbers of pairs that are finished: an agent without a state of its own does not run them again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub finished: BTreeSet<u32>,
}

/// Why a plan cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanFault {
    #[error("pair number {0} is too large; a job has at most {MOST_PAIRS} pairs")]
    Index(u32),
    #[error("{0} jobs on a node; at most {MOST_JOBS} are possible")]
    Jobs(usize),
    #[error("pair number {0} is in the plan twice")]
    Twice(u32),
    #[error("the name {0:?} is in the plan twice")]
    Name(String),
    #[error(
        "{0:?} is no name of a pair or job: letters, digits, '.', '_' and '-', at most {LONGEST_NAME}, the first one \
         a letter or digit"
    )]
    Invalid(String),
    #[error("{name}: the command is empty")]
    Command { name: String },
    #[error("{name}: a NUL byte in the command or environment")]
    Nul { name: String },
    #[error("{name}: a period of {} µs; {} µs to {} s are possible", .period.as_micros(), SHORTEST_PERIOD.as_micros(),
        LONGEST_PERIOD.as_secs())]
    Period { name: String, period: Duration },
    #[error("{name}: 0 heartbeats may be missed; at least 1 is needed")]
    Misses { name: String },
    #[error("{name}: checkpoints of {bytes} bytes; at most {LARGEST_CHECKPOINT} are possible")]
    Checkpoint { name: String, bytes: u64 },
    #[error("{name}: checkpoints of {bytes} bytes; with copies on two nodes, at most {LARGEST_MIRRORED} are possible")]
    Mirrored { name: String, bytes: u64 },
    #[error("the directory {} is not absolute", .0.display())]
    Directory(PathBuf),
}

/// True for a name that can be part of a file's name.
pub fn is_name(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let rest = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    first && rest && name.len() <= LONGEST_NAME
}

impl PairsPlan {
    /// Checks names, numbers and sizes.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), PlanFault> {
        if self.jobs.len() > MOST_JOBS {
            return Err(PlanFault::Jobs(self.jobs.len()));
        }
        let (mut indexes, mut names) = (BTreeSet::new(), BTreeSet::new());
        for pair in &self.pairs {
            let config = &pair.config;
            let name = || config.name.clone();
            if pair.index >= MOST_PAIRS {
                return Err(PlanFault::Index(pair.index));
            }
            if !indexes.insert(pair.index) {
                return Err(PlanFault::Twice(pair.index));
            }
            check_name(&config.name, &mut names)?;
            check_command(&config.name, &config.main)?;
            check_command(&config.name, &config.replica)?;
            if !(SHORTEST_PERIOD..=LONGEST_PERIOD).contains(&config.period) {
                return Err(PlanFault::Period { name: name(), period: config.period });
            }
            if config.misses == 0 {
                return Err(PlanFault::Misses { name: name() });
            }
            if config.checkpoint_bytes > LARGEST_CHECKPOINT {
                return Err(PlanFault::Checkpoint { name: name(), bytes: config.checkpoint_bytes });
            }
        }
        for pair in self.pairs.iter().filter(|pair| pair.sides.only().is_some()) {
            let PairConfig { name, checkpoint_bytes: bytes, .. } = &pair.config;
            if *bytes > LARGEST_MIRRORED {
                return Err(PlanFault::Mirrored { name: name.clone(), bytes: *bytes });
            }
        }
        for job in &self.jobs {
            check_name(&job.name, &mut names)?;
            check_command(&job.name, &job.command)?;
        }
        let settings = &self.settings;
        let saved = settings.save_to.iter().chain(&settings.restore_from);
        let mut directories = [&settings.directory].into_iter().chain(&settings.output).chain(saved);
        if let Some(directory) = directories.find(|at| !at.is_absolute()) {
            return Err(PlanFault::Directory(directory.clone()));
        }
        match settings
            .environment
            .iter()
            .find(|(key, value)| key.is_empty() || key.contains(['=', '\0']) || value.contains('\0'))
        {
            Some((key, _)) => Err(PlanFault::Nul { name: key.clone() }),
            None => Ok(()),
        }
    }
}

fn check_name<'a>(name: &'a str, names: &mut BTreeSet<&'a str>) -> Result<(), PlanFault> {
    if !is_name(name) {
        return Err(PlanFault::Invalid(name.chars().take(LONGEST_NAME).collect()));
    }
    names.insert(name).then_some(()).ok_or_else(|| PlanFault::Name(name.to_owned()))
}

fn check_command(name: &str, command: &[String]) -> Result<(), PlanFault> {
    if command.first().is_none_or(String::is_empty) {
        return Err(PlanFault::Command { name: name.to_owned() });
    }
    match command.iter().any(|word| word.contains('\0')) {
        true => Err(PlanFault::Nul { name: name.to_owned() }),
        false => Ok(()),
    }
}

/// The plan is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairsAccepted {
    /// The registry of the node in shared memory, as a path that a process on this machine can open.
    pub registry: PathBuf,
    /// The copies of an earlier agent that go on.
    pub adopted: Vec<AdoptedCopy>,
}

/// A copy that an earlier agent of the node started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptedCopy {
    pub pair: u32,
    pub side: Side,
    pub pid: u32,
}

/// Where the agent of a pair's other copy listens now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerOfPair {
    pub pair: u32,
    pub address: SocketAddr,
}

/// Grants and revokes leases, and requests the state of pairs and jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairsSync {
    pub epoch: u64,
    /// The [`PairsReport::instance`] to whose clock the leases refer. Another instance ignores them. 0: not known.
    #[serde(default)]
    pub instance: u64,
    #[serde(default)]
    pub leases: Vec<Grant>,
    /// Leases that are to be released: the copy is ended, and its last checkpoint mirrored.
    #[serde(default)]
    pub revoke: Vec<Revocation>,
    /// Pairs that finished on another node: their copies are ended.
    #[serde(default)]
    pub finished: Vec<u32>,
    #[serde(default)]
    pub peers: Vec<PeerOfPair>,
    /// The [`PairsReport::version`] of the last answer, 0 at first.
    pub seen: u64,
    /// How long to wait for a change before answering without one, milliseconds.
    pub wait_ms: u64,
}

/// The state of all pairs and jobs of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairsReport {
    /// As in [`PollReply`](crate::agent::PollReply): chosen at random when the agent starts.
    pub instance: u64,
    /// The agent's monotonic clock when it answered, milliseconds.
    pub clock: u64,
    /// Counts changes of what follows, other than the numbers of heartbeats and checkpoints. 0: the agent has no plan.
    pub version: u64,
    /// The directory in which programs of users find the copies that wait for them, as on this node.
    #[serde(default)]
    pub clients: PathBuf,
    pub pairs: Vec<PairStatus>,
    pub jobs: Vec<JobStatus>,
}

/// A request of a user. Answered when it is accepted, with the state before its effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRequest {
    pub epoch: u64,
    pub pair: u32,
    pub command: PairCommand,
}

/// Ends all copies and jobs: the flag, SIGTERM, after the grace SIGKILL. Repeated, it changes nothing, unless it is to
/// be at once now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairsStop {
    pub epoch: u64,
    /// SIGKILL without a grace, also for copies that have been told to end.
    #[serde(default)]
    pub at_once: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::examples::pairs_plan;

    fn fault(change: impl FnOnce(&mut PairsPlan)) -> Option<PlanFault> {
        let mut plan = pairs_plan();
        change(&mut plan);
        plan.check().err()
    }

    #[test]
    fn the_example_is_accepted() {
        assert_eq!(fault(|_| ()), None);
    }

    #[test]
    fn refuses_names_that_leave_their_directory() {
        for name in ["", "../x", "a/b", ".hidden", "a\0", &"x".repeat(101)] {
            let fault = fault(|plan| plan.pairs[0].config.name = name.to_owned());
            assert!(matches!(fault, Some(PlanFault::Invalid(_))), "{name:?}: {fault:?}");
        }
    }

    #[test]
    fn refuses_numbers_out_of_range() {
        assert_eq!(fault(|plan| plan.pairs[0].index = MOST_PAIRS), Some(PlanFault::Index(MOST_PAIRS)));
        let twice = fault(|plan| plan.pairs.push(plan.pairs[0].clone()));
        assert_eq!(twice, Some(PlanFault::Twice(0)));
        let config = |change: fn(&mut PairConfig)| fault(|plan| change(&mut plan.pairs[0].config));
        assert!(matches!(config(|config| config.period = Duration::ZERO), Some(PlanFault::Period { .. })));
        assert!(matches!(config(|config| config.misses = 0), Some(PlanFault::Misses { .. })));
        assert!(matches!(config(|config| config.checkpoint_bytes = u64::MAX), Some(PlanFault::Checkpoint { .. })));
        let mirrored = fault(|plan| plan.pairs[1].config.checkpoint_bytes = LARGEST_MIRRORED + 1);
        assert!(matches!(mirrored, Some(PlanFault::Mirrored { .. })));
    }

    #[test]
    fn refuses_commands_that_cannot_be_started() {
        assert!(matches!(fault(|plan| plan.jobs[0].command.clear()), Some(PlanFault::Command { .. })));
        let nul = fault(|plan| plan.pairs[0].config.main.push("a\0b".to_owned()));
        assert!(matches!(nul, Some(PlanFault::Nul { .. })));
        let environment = fault(|plan| drop(plan.settings.environment.insert("A=B".to_owned(), String::new())));
        assert!(matches!(environment, Some(PlanFault::Nul { .. })));
        assert!(matches!(fault(|plan| plan.settings.directory = "x".into()), Some(PlanFault::Directory(_))));
    }

    #[test]
    fn a_job_and_a_pair_do_not_share_a_name() {
        let fault = fault(|plan| plan.jobs[0].name = plan.pairs[0].config.name.clone());
        assert!(matches!(fault, Some(PlanFault::Name(_))), "{fault:?}");
    }
}
