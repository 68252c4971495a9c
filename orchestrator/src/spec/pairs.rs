//! `pairs:`, `jobs:` and `replication:`: what a job of `kind: replicated` runs instead of ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use holdfast_model::NodeName;
use holdfast_model::pair::{JobConfig, MOST_PAIRS, PairConfig, RestartBackOff, Side};
use holdfast_wire::environment;
use holdfast_wire::pairs::{LARGEST_CHECKPOINT, LONGEST_PERIOD, MOST_JOBS, SHORTEST_PERIOD, is_name};

use super::allocation::{self, virtual_node};
use super::checkpoint::{ControlDirectory, TEMPORARY};
use super::keys::{keys, names, section, section_as_above, words};
use super::node_reference::NodeReference;
use super::quantity;
use super::reading::{Reader, Section};
use super::registered::{ManagerFacts, NodeCount};
use super::run::check_variables;
use super::supervision::names_no_program;
use super::value_kinds::{
    Choice, bytes_within, choice, duration, path, short_duration, text, whole, whole_or_unlimited,
};

/// Replaced by the number of a pair among those of one element of the list.
const INDEX_PLACEHOLDER: &str = "{index}";
/// Replaced by `main` or `replica`.
const SIDE_PLACEHOLDER: &str = "{side}";
/// Replaced by the name of the node that is rebooted.
const NODE_PLACEHOLDER: &str = "{node}";
/// More attempts than this are a typing mistake.
const MOST_REBOOTS: u64 = 1000;
/// Instead of names of pairs: every pair.
pub const ALL_PAIRS: &str = "all";
/// A lease that is shorter would end between two requests.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);
/// More misses than this are a typing mistake.
const MOST_MISSES: u64 = 1_000_000;
/// No machine has more processors.
const MOST_PROCESSORS: u64 = 4096;

/// What a job of `kind: replicated` runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Replicated {
    /// At least one; the position of a pair is its number in the job.
    pub pairs: Vec<PlacedPair>,
    pub jobs: Vec<PlacedJob>,
    pub settings: Replication,
    /// The control directories of the agents (`checkpoint.control`).
    pub control: ControlDirectory,
}

/// A pair with the nodes of its copies.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedPair {
    pub config: PairConfig,
    pub main: NodeReference,
    pub replica: NodeReference,
    pub started_by: StartedBy,
}

/// Who starts the programs of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartedBy {
    Agent,
    User,
}

impl Choice for StartedBy {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("agent", StartedBy::Agent), ("user", StartedBy::User)];
}

/// The command of a copy whose program a user starts: it waits for the program.
pub const CLIENT_COMMAND: [&str; 3] = ["holdfast", "pairs", "client"];
/// Nobody knows when the user starts the program.
const START_WITHIN_OF_USER: Duration = Duration::from_secs(u32::MAX as u64);

/// A non-critical job with its node.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedJob {
    pub config: JobConfig,
    pub node: NodeReference,
}

/// An element of `pairs:` as written: one pair, or several that differ by their number.
pub struct WrittenPairs {
    path: String,
    name: String,
    count: u32,
    main: Vec<String>,
    replica: Vec<String>,
    nodes: [NodeReference; 2],
    heartbeat: Heartbeat,
    checkpoint: CheckpointSize,
    restart: RestartBackOff,
    suspends: Option<Vec<String>>,
    started_by: StartedBy,
}

/// An element of `jobs:` as written.
pub struct WrittenBeside {
    path: String,
    name: String,
    command: Vec<String>,
    node: NodeReference,
    order: u32,
    restart: RestartBackOff,
}

/// The key `pairs:`.
pub(super) struct Pairs;
/// The key `jobs:`.
pub(super) struct Jobs;

keys! {
    Pairs => WrittenPairs;
    /// The name, part of the names of files; of several, with `{index}`: `"dnn{index}"`.
    name = text().optional(),
    /// So many pairs that differ by `{index}`, from 0, in `name`, `main` and `replica`.
    count = whole::<u32>(1..=MOST_PAIRS.into()).or(1),
    /// The command of the main, as a list; no shell is involved. `{side}` is replaced by `main` or `replica`:
    /// `[./dnn, "{side}", "{index}"]`.
    main = words(),
    /// The command of the replica. Default: that of the main.
    replica = words(),
    /// Who starts the programs: the `agent`, by `main` and `replica`, or a `user`, who sets the variable that `holdfast
    /// pairs env` prints and passes side and number to `ft_init_wait`: `./dnn main 0`.
    started_by = choice().or(StartedBy::Agent),
    /// The nodes of main and replica, by their numbers in the allocation, from 0, or their names. Default: `[0, 0]`.
    nodes = words(),
    /// When a copy that is awake counts as hung.
    heartbeat = section::<Heartbeat>(),
    /// The checkpoints in shared memory.
    checkpoint = section::<CheckpointSize>(),
    /// When a copy that failed is started again.
    restart = section::<Restart>(),
    /// The names of the jobs that are suspended while the replica is awake on another node than the main's. Default:
    /// all jobs of that node. `[]`: none.
    suspends = words(),
    |section| {
        let name = required_name(section, name, "dnn0");
        let main = match started_by {
            StartedBy::Agent => required_command(section, "main", main, "[./dnn, main, \"0\"]"),
            StartedBy::User => {
                for key in ["main", "replica"].into_iter().filter(|key| section.has(key)) {
                    let help = "leave it out, or write `started_by: agent`";
                    section.mistake(key, "with `started_by: user` the user starts the program", help);
                }
                CLIENT_COMMAND.map(str::to_owned).to_vec()
            }
        };
        let replica = match replica.filter(|_| started_by == StartedBy::Agent) {
            Some(replica) => required_command(section, "replica", Some(replica), "[./dnn, replica, \"0\"]"),
            None => main.clone(),
        };
        if count > 1 && !name.is_empty() && !name.contains(INDEX_PLACEHOLDER) {
            let help = format!("write `name: \"{name}{INDEX_PLACEHOLDER}\"`");
            section.mistake("name", format!("the {count} pairs would have the same name"), help);
        }
        let nodes = nodes_of(section, nodes);
        WrittenPairs {
            path: section.path(),
            name,
            count,
            main,
            replica,
            nodes,
            heartbeat,
            checkpoint,
            restart,
            suspends,
            started_by,
        }
    }
}

keys! {
    Jobs => WrittenBeside;
    /// The name, part of the names of files.
    name = text().optional(),
    /// The program and its arguments.
    command = words(),
    /// The node, by its number in the allocation, from 0, or its name.
    node = text().or("0".to_owned()),
    /// Jobs with a smaller number are suspended first, and resumed last.
    order = whole::<u32>(0..=u32::MAX.into()).or(1),
    /// As `restart` of a pair.
    restart = section_as_above::<Restart>(),
    |section| {
        let name = required_name(section, name, "app1");
        let command = required_command(section, "command", command, "[./app1]");
        WrittenBeside { path: section.path(), name, command, node: NodeReference::of(&node), order, restart }
    }
}

keys! {
    /// When a copy that is awake counts as hung.
    pub struct Heartbeat {
        /// The time between two heartbeats, 100us to 60s.
        period: Duration = short_duration().or(Duration::from_millis(1)),
        /// A copy without a heartbeat for so many periods is killed, and the other one is woken.
        misses: u32 = whole(1..=MOST_MISSES).or(3),
    }
    checked by Heartbeat::check;
}

impl Heartbeat {
    fn check(&self, section: &Section<'_>) {
        if !(SHORTEST_PERIOD..=LONGEST_PERIOD).contains(&self.period) {
            section.mistake("period", "a period is at least 100us and at most 60s", "write `period: 1ms`, for example");
        }
    }
}

keys! {
    /// The checkpoints in shared memory.
    pub struct CheckpointSize {
        /// The largest checkpoint; the last ten are kept.
        size: u64 = bytes_within(1..=LARGEST_CHECKPOINT).or(400 << 10),
        /// Within this time a new checkpoint is copied to the node of the other copy.
        period: Duration = duration().or(Duration::from_millis(10)),
    }
}

/// The section `restart:`.
pub(super) struct Restart;

keys! {
    Restart => RestartBackOff;
    /// The time before a failed copy is started again; doubled with each failure that follows.
    first = duration().or(Duration::from_secs(1)),
    /// The longest such time. A copy that was up for so long has no failures behind it.
    most = duration().or(Duration::from_secs(30)),
    /// After so many failures one after the other a copy is given up; or `unlimited`.
    attempts = whole_or_unlimited().or(None),
    |section| {
        if first > most {
            section.mistake("first", "`first` is longer than `most`", "make it shorter, or raise `most`");
        }
        RestartBackOff { first, most, attempts }
    }
}

keys! {
    /// How a node is rebooted whose agent does not come back.
    pub struct Reboot {
        /// The program and its arguments, as a list; run on the machine of `holdfast run`, with `{node}` replaced by
        /// the name of the node. Default: nodes are not rebooted.
        command: Option<Vec<String>> = words(),
        /// After so long without an agent that can be started. Copies on two nodes have failed over long before.
        after: Duration = duration().or(Duration::from_secs(60)),
        /// How often for one loss of the node, each time after `after`.
        attempts: u32 = whole::<u32>(1..=MOST_REBOOTS).or(1),
        /// After this time the processes of the command are ended, and it has failed.
        time_limit: Duration = duration().or(Duration::from_secs(600)),
    }
    checked by Reboot::check;
}

impl Reboot {
    fn check(&self, section: &Section<'_>) {
        if self.command.as_ref().is_some_and(|command| names_no_program(command)) {
            let help = "write the program and its arguments: `command: [ipmitool, -H, \"{node}-bmc\", power, cycle]`";
            section.mistake("command", "the command is empty", help);
        }
    }

    /// The words of the command for a node.
    pub fn command_for(&self, node: &NodeName) -> Option<Vec<String>> {
        let words = self.command.as_ref()?.iter();
        Some(words.map(|word| word.replace(NODE_PLACEHOLDER, node.as_str())).collect())
    }
}

keys! {
    /// What all copies have in common.
    pub struct Replication {
        /// For pairs whose copies are on two nodes: how long after its last contact with the orchestrator a node's copy
        /// may stay awake. Nor is the other one woken before.
        lease: Duration = duration().or(Duration::from_secs(2)),
        /// The time from the request to end (SIGTERM, and a flag in shared memory) to SIGKILL. With pairs on two nodes,
        /// at most half of `lease`.
        stop_grace: Duration = duration().or(Duration::from_millis(50)),
        /// A copy that does not call `ft_init_wait` within this time after its start has failed.
        start_within: Duration = duration().or(Duration::from_secs(30)),
        /// The number of the processor that watches the heartbeats. Default: any.
        pin_watcher: Option<u32> = whole::<u32>(0..=MOST_PROCESSORS).optional(),
        /// Variables added to the environment of every copy and job.
        env: BTreeMap<String, String> = names(),
        /// The working directory of copies and jobs. Default: that of `holdfast`.
        directory: Option<PathBuf> = path().optional(),
        /// How a node is rebooted whose agent does not come back.
        reboot: Reboot = section::<Reboot>(),
    }
    checked by Replication::check;
}

impl Replication {
    fn check(&self, section: &Section<'_>) {
        if self.lease < SHORTEST_LEASE {
            section.mistake("lease", "a lease is at least 100ms", "write `lease: 2s`, for example");
        }
        if self.start_within.is_zero() {
            section.mistake("start_within", "no copy could register in time", "write `start_within: 30s`, for example");
        }
        for name in self.env.keys().filter(|name| name.starts_with(environment::PAIR)) {
            let message = format!("`{}` is set by Holdfast for each copy", name.escape_debug());
            section.mistake("env", message, "give the variable another name");
        }
        check_variables(section, &self.env);
    }
}

fn required_name(section: &Section<'_>, name: Option<String>, example: &str) -> String {
    if name.is_none() && !section.has("name") {
        section.mistake("name", "the name is missing", format!("write `name: {example}`"));
    }
    name.unwrap_or_default()
}

fn required_command(section: &Section<'_>, key: &str, command: Option<Vec<String>>, example: &str) -> Vec<String> {
    let help = format!("write the program and its arguments: `{key}: {example}`");
    match &command {
        None if !section.has(key) => section.mistake(key, "the command is missing", help),
        Some(words) if words.first().is_none_or(|program| program.trim().is_empty()) => {
            section.mistake(key, "the command is empty", help);
        }
        _ => {}
    }
    command.unwrap_or_default()
}

fn nodes_of(section: &Section<'_>, nodes: Option<Vec<String>>) -> [NodeReference; 2] {
    match nodes.as_deref() {
        Some([main, replica]) => [NodeReference::of(main), NodeReference::of(replica)],
        Some(others) => {
            let message = format!("expected two nodes, found {}", others.len());
            section.mistake("nodes", message, "write the nodes of main and replica: `nodes: [0, 1]`");
            [NodeReference::Position(0), NodeReference::Position(0)]
        }
        None => [NodeReference::Position(0), NodeReference::Position(0)],
    }
}

/// The three keys as written.
pub struct WrittenReplicated {
    pub(super) pairs: Vec<WrittenPairs>,
    pub(super) jobs: Vec<WrittenBeside>,
    pub(super) settings: Replication,
    /// `None` where the spec has `steps`, which is refused.
    pub(super) control: Option<ControlDirectory>,
}

impl WrittenReplicated {
    /// Nodes that the copies and jobs need, as far as they are named by their positions.
    pub(super) fn nodes_needed(&self) -> u32 {
        let of_pairs = self.pairs.iter().flat_map(|pairs| &pairs.nodes);
        let nodes = of_pairs.chain(self.jobs.iter().map(|job| &job.node));
        let position = |node: &NodeReference| match node {
            NodeReference::Position(position) => position.saturating_add(1),
            NodeReference::Name(_) => 1,
        };
        nodes.map(position).max().unwrap_or(1)
    }

    /// Every pair and job.
    pub(super) fn completed(
        self,
        allocation: &allocation::Allocation,
        manager: Option<&ManagerFacts>,
        reader: &Reader,
    ) -> Replicated {
        let WrittenReplicated { pairs, jobs, settings, control } = self;
        let nodes = KnownNodes::of(allocation, manager);
        let mut names = BTreeMap::new();
        let mut all = Vec::new();
        for written in &pairs {
            for (key, node) in [("nodes[0]", &written.nodes[0]), ("nodes[1]", &written.nodes[1])] {
                nodes.check(node, &format!("{}.{key}", written.path), reader);
            }
            // Not more than a job can have, also where `count` is large in many elements.
            let most = (MOST_PAIRS as usize + 1).saturating_sub(all.len());
            // Several of the same name were reported when they were read.
            let most = if written.name.contains(INDEX_PLACEHOLDER) { most } else { most.min(1) };
            for index in (0..written.count).take(most) {
                let pair = written.pair(index, &settings);
                check_name(&pair.config.name, &written.path, &mut names, reader);
                all.push(pair);
            }
        }
        if all.len() > MOST_PAIRS as usize {
            let help = "make several jobs of them";
            reader.mistake("pairs", format!("more than {MOST_PAIRS} pairs"), help);
        }
        if jobs.len() > MOST_JOBS {
            reader.mistake("jobs", format!("more than {MOST_JOBS} jobs"), "leave some out");
        }
        check_grace(&pairs, &settings, &nodes, reader);
        let of_pairs: BTreeSet<String> = all.iter().map(|pair| pair.config.name.clone()).collect();
        let mut beside = Vec::new();
        for written in jobs {
            let WrittenBeside { path, name, command, node, order, restart } = written;
            nodes.check(&node, &format!("{path}.node"), reader);
            check_name(&name, &path, &mut names, reader);
            let copy = Side::BOTH.into_iter().find_map(|side| name.strip_suffix(&format!(".{side}")));
            if let Some(pair) = copy.filter(|pair| of_pairs.contains(*pair)) {
                let message = format!("the output of this job and that of the pair `{pair}` would be in one file");
                reader.mistake(&format!("{path}.name"), message, "choose another name");
            }
            beside.push(PlacedJob { config: JobConfig { name, command, order, restart }, node });
        }
        let known: BTreeSet<&str> = beside.iter().map(|job| job.config.name.as_str()).collect();
        for written in &pairs {
            for name in written.suspends.iter().flatten().filter(|name| !known.contains(name.as_str())) {
                let message = format!("there is no job `{}`", name.escape_debug());
                let help = match known.is_empty() {
                    true => "list it under `jobs`".to_owned(),
                    false => format!("jobs: {}", known.iter().copied().collect::<Vec<_>>().join(", ")),
                };
                reader.mistake(&format!("{}.suspends", written.path), message, help);
            }
        }
        let control = control.unwrap_or_else(|| ControlDirectory { base: TEMPORARY.into(), bytes: None });
        Replicated { pairs: all, jobs: beside, settings, control }
    }
}

impl WrittenPairs {
    fn pair(&self, index: u32, settings: &Replication) -> PlacedPair {
        let spec_index = index;
        let index = index.to_string();
        let numbered = |text: &str| text.replace(INDEX_PLACEHOLDER, &index);
        let command = |words: &[String], side: Side| {
            words.iter().map(|word| numbered(word).replace(SIDE_PLACEHOLDER, &side.to_string())).collect()
        };
        let config = PairConfig {
            spec_index,
            name: numbered(&self.name),
            main: command(&self.main, Side::Main),
            replica: command(&self.replica, Side::Replica),
            period: self.heartbeat.period,
            misses: self.heartbeat.misses,
            checkpoint_bytes: self.checkpoint.size,
            checkpoint_period: self.checkpoint.period,
            restart: self.restart,
            stop_grace: settings.stop_grace,
            start_within: match self.started_by {
                StartedBy::Agent => settings.start_within,
                StartedBy::User => START_WITHIN_OF_USER,
            },
            suspends: self.suspends.clone(),
        };
        let [main, replica] = self.nodes.clone();
        PlacedPair { config, main, replica, started_by: self.started_by }
    }
}

/// Adds a mistake if the name cannot be part of a file's name, or is that of another pair or job.
fn check_name(name: &str, path: &str, names: &mut BTreeMap<String, String>, reader: &Reader) {
    let key = format!("{path}.name");
    if name.is_empty() {
        // Reported when it was read.
        return;
    }
    if name == ALL_PAIRS {
        let help = "choose another name";
        reader.mistake(&key, format!("`{ALL_PAIRS}` stands for all pairs in `holdfast pairs`"), help);
    } else if !is_name(name) {
        let message = format!("`{}` cannot be part of a file's name", name.escape_debug());
        let help = "use letters, digits, `.`, `-` and `_`, at most 100, the first a letter or a digit";
        // Once, also for many pairs.
        if names.insert(format!("\0{path}"), path.to_owned()).is_none() {
            reader.mistake(&key, message, help);
        }
    } else if names.insert(name.to_owned(), path.to_owned()).is_some() {
        let help = "give each pair and each job its own name";
        reader.mistake(&key, format!("a second pair or job named `{name}`"), help);
    }
}

/// A copy whose node has lost the lease ends before it runs out.
fn check_grace(pairs: &[WrittenPairs], settings: &Replication, nodes: &KnownNodes<'_>, reader: &Reader) {
    let Replication { lease, stop_grace, .. } = settings;
    let split = pairs.iter().find(|pair| !nodes.are_same(&pair.nodes[0], &pair.nodes[1]));
    if let Some(pair) = split.filter(|_| *stop_grace > *lease / 2) {
        let name = pair.name.escape_debug();
        let message = format!("longer than half of `replication.lease`, under which the pair `{name}` is on two nodes");
        let (grace, lease) = (quantity::format_duration(*lease / 2), quantity::format_duration(*stop_grace * 2));
        let help = format!("write at most `stop_grace: {grace}`, or at least `lease: {lease}`");
        reader.mistake("replication.stop_grace", message, help);
    }
}

/// The nodes of the allocation, as far as they are known before it is opened.
struct KnownNodes<'a> {
    /// `None` where the manager names them.
    names: Option<Vec<NodeName>>,
    count: u32,
    allocation: &'a allocation::Allocation,
    manager: Option<&'a ManagerFacts>,
}

impl<'a> KnownNodes<'a> {
    fn of(allocation: &'a allocation::Allocation, manager: Option<&'a ManagerFacts>) -> Self {
        let names = match (manager.map(|manager| &manager.nodes), &allocation.hosts[..]) {
            (Some(NodeCount::Asked), _) => Some((0..allocation.nodes).map(virtual_node).collect()),
            (_, []) => None,
            (_, hosts) => Some(hosts.to_vec()),
        };
        KnownNodes { names, count: allocation.nodes, allocation, manager }
    }

    fn are_same(&self, one: &NodeReference, other: &NodeReference) -> bool {
        let names = self.names.as_deref().unwrap_or_default();
        one == other || one.find(names).is_some_and(|name| other.find(names) == Some(name))
    }

    fn check(&self, node: &NodeReference, key: &str, reader: &Reader) {
        let is_known = match (node, &self.names) {
            (NodeReference::Position(position), _) => *position < self.count,
            (NodeReference::Name(_), Some(names)) => node.find(names).is_some(),
            (NodeReference::Name(_), None) => true,
        };
        if !is_known {
            let more = match (node, self.manager) {
                (NodeReference::Position(position), Some(manager)) => {
                    format!("{}, or ", (manager.more_nodes)(position.saturating_add(1)))
                }
                _ => String::new(),
            };
            let help = format!("{more}write one of its {} nodes, by its number from 0 or its name", self.count);
            reader.mistake(key, format!("the allocation has no node `{node}`"), help);
            return;
        }
        let name = match (node, &self.names) {
            (NodeReference::Name(name), _) => Some(name),
            (_, Some(names)) => node.find(names),
            (NodeReference::Position(_), None) => None,
        };
        if let Some(name) = name.filter(|name| self.allocation.is_excluded(name)) {
            let help = "choose another node, or change `allocation.exclude` or `allocation.only`";
            reader.mistake(key, format!("the node {name} is excluded"), help);
        }
    }
}
