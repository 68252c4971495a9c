//! What must hold in every simulated world, whatever happens there.

use holdfast::events::LogEvent;
use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::{Generation, NodeName, Rank};

use crate::simulation::{Life, Simulation};
use holdfast::relaunch::*;

/// What must hold.
#[derive(Default)]
pub(super) struct Oracle {
    pub(super) down: BTreeSet<NodeName>,
    /// Down nodes that were fenced; by this orchestrator, if another one took over.
    pub(super) fenced: BTreeSet<NodeName>,
    /// Down nodes whose agents have reported since: they are fenced once more.
    pub(super) reported: BTreeSet<NodeName>,
    pub(super) launched: Option<Generation>,
    pub(super) launches: u32,
    pub(super) homes: BTreeMap<Rank, NodeName>,
    pub(super) drained: bool,
    pub(super) signals: u32,
    pub(super) finished: Option<Outcome>,
    pub(super) without_progress: u32,
}

impl Simulation {
    /// Looks at an action before it is carried out.
    pub(super) fn watch(&mut self, action: &Action) {
        let oracle = &mut self.oracle;
        assert!(oracle.finished.is_none(), "nothing after the end: {action:?}");
        let up = |oracle: &Oracle, node: &NodeName| assert!(!oracle.down.contains(node), "{node} is down: {action:?}");
        match action {
            Action::Record(LogEvent::NodeDown { node, .. }) => {
                assert!(oracle.down.insert(node.clone()), "down once")
            }
            Action::Record(LogEvent::Signal { .. }) => oracle.signals += 1,
            Action::Record(LogEvent::GenerationEnded { without_progress, .. }) => {
                oracle.without_progress = *without_progress;
            }
            Action::FenceNode { node, .. } => {
                assert!(oracle.down.contains(node), "{node} is fenced and not down");
                let first = oracle.fenced.insert(node.clone());
                assert!(first | oracle.reported.remove(node), "{node} is fenced twice");
            }
            Action::StartAgent { node } => up(oracle, node),
            Action::PollNow { to }
            | Action::KillRanks { to, .. }
            | Action::UpdatePeers { to, .. }
            | Action::StopAgents { to } => to.iter().for_each(|node| up(oracle, node)),
            Action::SaveStacks { ranks, .. } => ranks.keys().for_each(|node| up(oracle, node)),
            Action::Prepare { generation, to, placement } => {
                let living = |node: &NodeName| self.nodes[node].ranks.filter(|_| self.nodes[node].life == Life::Alive);
                for node in &placement.nodes {
                    let older = living(&node.name).filter(|ranks| ranks < generation);
                    assert_eq!(older, None, "{}: not everyone had killed its ranks", node.name);
                }
                to.iter().for_each(|node| up(oracle, node));
                placement.used().for_each(|node| up(oracle, &node.name));
            }
            Action::Launch { generation, placement } => {
                let config = self.machine.config();
                assert_eq!(oracle.fenced, oracle.down, "every node that went down is fenced before the next launch");
                placement.nodes.iter().for_each(|node| up(oracle, &node.name));
                assert!(oracle.launched.is_none_or(|before| before < *generation), "numbers rise");
                oracle.launched = Some(*generation);
                oracle.launches += 1;
                assert!(oracle.launches <= config.attempts + 1, "attempts");
                assert!(oracle.without_progress < config.no_progress_limit, "progress");
                assert!(placement.used().count() <= self.weather.needed as usize);
                assert!(placement.nodes.len() >= self.weather.min_nodes as usize);
                let mut homes = BTreeMap::new();
                for node in &placement.nodes {
                    for rank in &node.ranks {
                        assert_eq!(homes.insert(*rank, node.name.clone()), None, "a rank has one home");
                    }
                    let living = self.nodes[&node.name].ranks.filter(|_| self.nodes[&node.name].life == Life::Alive);
                    assert_eq!(living, None, "{}: ranks of an older generation live", node.name);
                }
                assert_eq!(homes.len(), config.ranks as usize, "every rank has a home");
                for (rank, home) in &oracle.homes {
                    assert!(homes[rank] == *home || oracle.down.contains(home), "survivors keep their ranks");
                }
                assert_eq!(placement.leader, placement.used().next().unwrap().name);
                oracle.homes = homes;
            }
            Action::Drain { healthy, down, .. } => {
                healthy.iter().for_each(|node| up(oracle, node));
                assert!(down.iter().all(|node| !healthy.contains(node)));
            }
            Action::Record(LogEvent::Drained { .. }) => oracle.drained = true,
            Action::Finish(outcome) => {
                assert_eq!(oracle.fenced, oracle.down, "every node that went down is fenced before the end");
                let nobody = self.machine.agents().next().is_none();
                assert!(
                    oracle.drained || oracle.signals >= 2 || nobody || self.weather.takeovers,
                    "drained before the end"
                );
                oracle.finished = Some(outcome.clone());
            }
            _ => {}
        }
    }
}
