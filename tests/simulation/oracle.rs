//! The invariants of the relaunch loop and of the collectives, in every simulated world.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use holdfast::events::LogEvent;
use holdfast::relaunch::{Action, Outcome};
use holdfast_model::{CheckpointId, Generation, NodeName, Rank};
use holdfast_wire::peer::Outcome as CallOutcome;

use crate::content::{Content, Origin};
use crate::names::{NodeIndex, position};
use crate::protection::{Protected, UNKNOWN};
use crate::scenario::ms;
use crate::world::{Life, World};

/// Observations that later checks need.
#[derive(Default)]
pub struct Oracle {
    pub down: BTreeSet<NodeName>,
    /// Down nodes that the current orchestrator has fenced.
    pub fenced: BTreeSet<NodeName>,
    /// Down nodes whose agents have reported since: each is fenced once more.
    pub reported: BTreeMap<NodeName, u32>,
    pub launched: Option<Generation>,
    launches: u32,
    homes: BTreeMap<Rank, NodeName>,
    drained: bool,
    signals: u32,
    pub finished: Option<Outcome>,
    without_progress: u32,
    /// The generation whose progress is being checked.
    checked: Option<Generation>,
    /// Superseded directories are being recorded.
    pub superseding: bool,
    take_overs: u32,
    pub drains: u32,
    /// The results of the collectives of the newest generation, by sequence number.
    outcomes: HashMap<u64, Arc<CallOutcome>>,
    of_generation: Option<Generation>,
    /// The sequence number of each rank's last answer.
    answered: HashMap<Rank, u64>,
    /// The origin of the files that a generation restarted from.
    restored: BTreeMap<(Generation, CheckpointId), Origin>,
    /// Nodes were slow at some time: limits are longer then.
    pub slow_nodes: bool,
    /// How often the orchestrator did not run for a time.
    pub stalls: u32,
    /// The running time at which so many nodes were silent last that none was given up.
    many_silent: Duration,
    /// Orders that failed because of a disk, or of a damaged file.
    pub disk_failures: u32,
    /// A file was damaged in a job without checksums.
    pub undetected: bool,
    /// The newest checkpoint that the application could not read.
    pub rejected: Option<CheckpointId>,
    /// The newest checkpoint that survives the loss of a node.
    pub protected: Option<Protected>,
    /// The newest of those that survive the most losses, behind their number.
    pub strongest: Option<(usize, CheckpointId)>,
    /// The application of this generation deleted datasets, or restarted from an older one: of those from the first one
    /// to this one, none is expected any more. Redundancy that is made behind the application may be reported later.
    pub given_up: Option<(Generation, CheckpointId)>,
    /// Nodes whose own directories prevented a restart.
    pub unfit: BTreeSet<NodeName>,
    /// The newest checkpoint since the last restart that bypassed the cache, and the nodes that have a record of it.
    pub on_prefix: Option<(CheckpointId, BTreeSet<NodeIndex>)>,
}

impl Oracle {
    /// Another orchestrator takes over. It fences each of these nodes again; a node whose loss was not on disk yet
    /// counts as up. Signals to its predecessor are lost.
    pub fn taken_over(&mut self, down: BTreeSet<NodeName>) {
        self.take_overs += 1;
        self.begins(down);
    }

    fn begins(&mut self, down: BTreeSet<NodeName>) {
        (self.signals, self.superseding) = (0, false);
        self.down = down;
        self.fenced.clear();
        self.reported.clear();
    }

    /// Another run begins in the same allocation. Limits are counted from zero, and nodes that are down are fenced
    /// again.
    pub fn next_run(&mut self, down: BTreeSet<NodeName>, nodes: usize) {
        // Ranks that were placed on fewer nodes than the run needs are placed anew.
        let used: BTreeSet<&NodeName> = self.homes.values().collect();
        if used.len() != nodes || used.iter().any(|home| down.contains(*home)) {
            self.homes.clear();
        }
        self.begins(down);
        (self.launches, self.without_progress, self.drained, self.checked) = (0, 0, false, None);
    }

    /// The leader answers a collective: always with the same result, and not before that is on disk.
    pub fn answered(
        &mut self,
        generation: Generation,
        seq: u64,
        outcome: &Arc<CallOutcome>,
        saved: Option<u64>,
        disk_fails: bool,
    ) {
        assert!(
            saved >= Some(seq) || disk_fails || self.disk_failures > 0,
            "collective {generation}/{seq} is answered before its result is on disk: {saved:?}"
        );
        if self.of_generation < Some(generation) {
            self.of_generation = Some(generation);
            self.outcomes.clear();
            self.answered.clear();
        }
        if self.of_generation == Some(generation) {
            let known = self.outcomes.entry(seq).or_insert_with(|| outcome.clone());
            assert!(**known == **outcome, "collective {generation}/{seq} has two results: {known:?}, {outcome:?}");
        }
    }

    /// A rank receives its answer.
    pub fn replied(&mut self, generation: Generation, rank: Rank, seq: u64, outcome: &Arc<CallOutcome>, world: u32) {
        if self.of_generation != Some(generation) {
            return;
        }
        let last = self.answered.insert(rank, seq).unwrap_or(0);
        assert_eq!(last + 1, seq, "rank {rank} is answered out of order");
        let known = self.outcomes.get(&seq);
        let known = known.unwrap_or_else(|| panic!("{generation}/{seq} is answered and has not ended"));
        assert!(**known == **outcome, "rank {rank} gets another result of {generation}/{seq} than others");
        if let Ok(holdfast_wire::rank::Reply::Gathered(data)) = &**outcome
            && rank.0 == 0
        {
            let complete =
                data.iter().map(|part| part.as_slice().to_vec()).eq((0..world).map(|rank| rank.to_be_bytes().to_vec()));
            assert!(complete, "{generation}/{seq} did not gather every rank's data");
        }
    }

    /// A rank reads a file of the checkpoint that it restarts from; returns the application's iteration.
    pub fn restored(&mut self, generation: Generation, rank: Rank, checkpoint: CheckpointId, content: &Content) -> u32 {
        let Content::Written(origin) = content else {
            panic!("generation {generation}, rank {rank}: checkpoint {checkpoint} has a file that is {content:?}")
        };
        assert_eq!((origin.rank, origin.checkpoint), (rank, checkpoint), "generation {generation}: a wrong file");
        let first = self.restored.entry((generation, checkpoint)).or_insert(*origin);
        assert_eq!(
            (first.generation, first.iteration),
            (origin.generation, origin.iteration),
            "generation {generation} restarts from files of two runs: {first:?}, {origin:?}"
        );
        origin.iteration
    }

    /// The application deletes datasets by name or restarts from older ones: what was protected is not expected any
    /// more.
    pub fn datasets_given_up(&mut self, generation: Generation, newest: CheckpointId) {
        (self.protected, self.on_prefix, self.given_up) = (None, None, Some((generation, newest)));
        // It may also stay: there may be no such dataset.
        self.strongest = Some(UNKNOWN);
        self.restored.retain(|(of, _), _| *of != generation);
    }

    /// A rank's files of the checkpoint that it is to restart from are missing or damaged.
    pub fn unreadable(&mut self, generation: Generation, rank: Rank, checkpoint: CheckpointId, excused: bool) {
        assert!(excused, "generation {generation}: rank {rank} cannot read checkpoint {checkpoint}");
    }
}

impl World {
    /// Checks an action of the loop before it is performed.
    pub fn watch(&mut self, action: &Action) {
        assert!(self.oracle.finished.is_none(), "an action after the end: {action:?}");
        let oracle = &mut self.oracle;
        let up = |oracle: &Oracle, node: &NodeName| assert!(!oracle.down.contains(node), "{node} is down: {action:?}");
        match action {
            Action::Record(LogEvent::NodeDown { node, .. }) => {
                assert!(oracle.down.insert(node.clone()), "{node} is reported as down twice");
            }
            Action::Record(LogEvent::Signal { .. }) => oracle.signals += 1,
            Action::Record(LogEvent::GenerationEnded { without_progress, progress, cause, .. }) => {
                // A node was taken out each time: there is an end of that.
                oracle.launches = oracle.launches.saturating_sub(u32::from(!cause.counts()));
                let most = if progress.is_some() { 0 } else { oracle.without_progress + 1 };
                assert!(*without_progress <= most, "a wrong number of generations without progress: {action:?}");
                oracle.without_progress = *without_progress;
                oracle.checked = None;
            }
            // A disturbance counts once; there is an end of that too.
            Action::Record(LogEvent::LaunchSpaced { counts, .. }) => {
                oracle.launches = oracle.launches.saturating_sub(u32::from(!counts));
            }
            Action::CheckProgress { generation } => {
                oracle.checked = Some(*generation);
                for (node, _) in self.orchestrator.machine.agents() {
                    let alive = self.living_ranks(node).filter(|ranks| ranks <= generation);
                    assert_eq!(alive, None, "{node}: progress is checked while ranks are alive");
                }
            }
            Action::FenceNode { node, .. } => {
                assert!(oracle.down.contains(node), "{node} is fenced and not down");
                let first = oracle.fenced.insert(node.clone());
                let again = oracle.reported.get_mut(node).filter(|reports| **reports > 0);
                assert!(first || again.is_some(), "{node} is fenced twice");
                if let Some(reports) = again.filter(|_| !first) {
                    *reports -= 1;
                }
            }
            Action::StartAgent { node } => {
                up(oracle, node);
                let node = &self.nodes[position(node).unwrap() as usize];
                assert!(!node.undisturbed, "an agent that is alive and was not disturbed is restarted: {action:?}");
            }
            Action::CheckAgent { node } => up(oracle, node),
            Action::PollNow { to } | Action::KillRanks { to, .. } | Action::UpdatePeers { to, .. } => {
                to.iter().for_each(|node| up(oracle, node))
            }
            Action::RequestHalt { to, .. } => up(oracle, to),
            Action::TerminateRanks { generation, to, .. } => {
                to.iter().for_each(|node| up(oracle, node));
                assert_eq!(oracle.launched, Some(*generation), "SIGTERM to ranks of another generation");
            }
            Action::SaveStacks { ranks, .. } => ranks.keys().for_each(|node| up(oracle, node)),
            Action::Prepare { generation, to, placement } => {
                to.iter().for_each(|node| up(oracle, node));
                placement.used().for_each(|node| up(oracle, &node.name));
                for node in &placement.nodes {
                    let older = self.living_ranks(&node.name).filter(|ranks| ranks < generation);
                    assert_eq!(older, None, "{}: ranks of an older generation are alive", node.name);
                }
            }
            Action::Launch { generation, placement } => self.watch_launch(*generation, placement, action),
            Action::Supersede { .. } => {
                assert!(!oracle.superseding, "two actions read and replace the same list");
                oracle.superseding = true;
            }
            Action::Drain { healthy, down, .. } => {
                assert!(!oracle.superseding, "the drain begins while superseded directories are being recorded");
                let healthy: BTreeSet<&NodeName> = healthy.iter().collect();
                assert!(down.iter().all(|node| !healthy.contains(node)));
            }
            Action::Record(LogEvent::Drained { .. }) => oracle.drained = true,
            Action::Finish(outcome) => {
                assert_eq!(oracle.fenced, oracle.down, "every node that went down is fenced before the end");
                let no_agents = self.orchestrator.machine.agents().next().is_none();
                assert!(
                    oracle.drained || oracle.signals >= 3 || no_agents || oracle.take_overs > 0,
                    "drained before the end"
                );
                oracle.finished = Some(outcome.clone());
            }
            _ => {}
        }
    }

    /// Each node that died is known to be lost after a bounded time in which the orchestrator ran.
    pub fn watch_deaths(&mut self, ran: Duration) {
        // All that is left is to record the end, which a prefix directory that hangs can delay.
        if self.orchestrator.machine.is_finished() {
            return;
        }
        let config = self.orchestrator.machine.config();
        // Polls, the check, and messages take up to a second; most nodes that are silent, and slow ones, get more time.
        let lost = self.nodes.iter().filter(|node| node.life != Life::Alive).count();
        let usual = lost * 3 < self.nodes.len() && !self.oracle.slow_nodes;
        // Silence is counted from the end of the last stall.
        let silence = config.down_after * (1 + self.oracle.stalls);
        let bound = if usual { silence + self.poll_every() + ms(1000) } else { ms(600_000) };
        if !usual {
            self.oracle.many_silent = ran;
        }
        for (node, _) in self.orchestrator.machine.agents() {
            let at = position(node).unwrap() as usize;
            let since = |died: Duration| if usual { died.max(self.oracle.many_silent) } else { died };
            let silent_for = self.nodes[at].died.map(|died| ran.saturating_sub(since(died)));
            // During the drain only closed connections count; the drain waits for agents that are silent.
            if self.orchestrator.draining.is_some() && self.nodes[at].unreachable {
                continue;
            }
            assert!(
                silent_for.is_none_or(|silent| silent <= bound),
                "{node} is dead for {silent_for:?} and counts as up"
            );
        }
    }

    fn poll_every(&self) -> Duration {
        Duration::from_micros(self.scenario.poll_every)
    }

    /// The generation of the ranks that are alive on a node.
    fn living_ranks(&self, node: &NodeName) -> Option<Generation> {
        let node = &self.nodes[position(node).unwrap() as usize];
        node.ranks.filter(|_| node.life == Life::Alive)
    }

    fn watch_launch(&mut self, generation: Generation, placement: &holdfast_model::Placement, action: &Action) {
        let config = self.orchestrator.machine.config();
        let oracle = &self.oracle;
        assert_eq!(oracle.fenced, oracle.down, "every node that went down is fenced before the next launch");
        // A spare may go down while the launch waits for the journal: the leader is notified.
        for node in placement.used() {
            assert!(!oracle.down.contains(&node.name), "{} is down: {action:?}", node.name);
        }
        assert!(oracle.launched.is_none_or(|before| before < generation), "generation numbers increase");
        assert_eq!(oracle.checked, None, "a launch while the progress of an earlier generation is checked");
        assert!(generation > config.finished, "a generation number of a finished step");
        assert!(oracle.signals == 0, "a launch after a signal");
        assert!(oracle.launches <= config.attempts, "more launches than attempts allow");
        assert!(
            oracle.without_progress < config.no_progress_limit,
            "a launch after the limit of generations without progress"
        );
        assert!(placement.used().count() <= config.nodes_needed as usize);
        assert!(placement.nodes.len() >= config.min_nodes as usize);
        let mut homes = BTreeMap::new();
        for node in &placement.nodes {
            for rank in &node.ranks {
                assert_eq!(homes.insert(*rank, node.name.clone()), None, "a rank has one home");
            }
            assert_eq!(self.living_ranks(&node.name), None, "{}: ranks of an older generation are alive", node.name);
        }
        assert_eq!(homes.len(), config.ranks as usize, "every rank has a home");
        for (rank, home) in &oracle.homes {
            let left = oracle.down.contains(home) || oracle.unfit.contains(home);
            assert!(homes[rank] == *home || left, "survivors keep their ranks");
        }
        assert_eq!(placement.leader, placement.used().next().unwrap().name);
        let oracle = &mut self.oracle;
        oracle.launched = Some(generation);
        oracle.launches += 1;
        oracle.homes = homes;
    }
}
