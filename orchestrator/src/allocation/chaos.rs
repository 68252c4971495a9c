//! The failures that the local manager rehearses: which are due, which an agent acts out itself, which have struck.
//!
//! Pure. A failure strikes once in a job: whoever carries this schedule keeps the numbers of those that have struck.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_core::ids::{CheckpointId, NodeName};
use holdfast_wire::run::{Rehearsal, RehearsalPoint};

use crate::spec::{Chaos, ChaosAction, ChaosMoment, ChaosPhase};

/// What a schedule wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// So long ago the application was launched for the first time.
    SinceLaunch(Duration),
    /// A checkpoint is complete and protected.
    Protected(CheckpointId),
}

/// A failure that strikes now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strike {
    /// Its number in the spec, from 0.
    pub number: usize,
    /// Whom it hits.
    pub node: NodeName,
    /// Only the agent dies.
    pub agent_only: bool,
}

/// The rehearsed failures of a job.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    chaos: Vec<Chaos>,
    struck: BTreeSet<usize>,
}

impl Schedule {
    /// The schedule of a spec, of which some have struck already.
    pub fn new(chaos: Vec<Chaos>, struck: BTreeSet<usize>) -> Self {
        Schedule { chaos, struck }
    }

    /// The failures that are due now; they count as struck from here on.
    pub fn due(&mut self, observation: Observation) -> Vec<Strike> {
        let mut due = Vec::new();
        for (number, chaos) in self.chaos.iter().enumerate() {
            let strikes = match (chaos.moment, observation) {
                (ChaosMoment::After(delay), Observation::SinceLaunch(passed)) => passed >= delay,
                // A checkpoint that was skipped, because the one before was lost, must not save the node.
                (ChaosMoment::AfterCheckpoint(id), Observation::Protected(complete)) => complete >= id,
                _ => false,
            };
            if strikes && self.struck.insert(number) {
                let agent_only = chaos.action == ChaosAction::KillAgent;
                due.push(Strike { number, node: chaos.node.clone(), agent_only });
            }
        }
        due
    }

    /// What an agent that is started now acts out itself, with the failures' numbers.
    pub fn armed(&self, node: &NodeName) -> Vec<(usize, Rehearsal)> {
        let of_node = |(number, chaos): &(usize, &Chaos)| chaos.node == *node && !self.struck.contains(number);
        self.chaos
            .iter()
            .enumerate()
            .filter(of_node)
            .filter_map(|(number, chaos)| match chaos.moment {
                ChaosMoment::During { phase, checkpoint } => {
                    let agent_only = chaos.action == ChaosAction::KillAgent;
                    Some((number, Rehearsal { point: point(phase), checkpoint, agent_only }))
                }
                ChaosMoment::After(_) | ChaosMoment::AfterCheckpoint(_) => None,
            })
            .collect()
    }

    /// The agent of a node died by itself: which of its rehearsals struck. If it was armed to take the node along,
    /// the node goes (all of its rehearsals with it); else the first that would take only the agent has struck.
    pub fn agent_died(&mut self, node: &NodeName) -> Option<Strike> {
        let armed = self.armed(node);
        let (number, agent_only) = match armed.iter().find(|(_, rehearsal)| !rehearsal.agent_only) {
            Some((number, _)) => (*number, false),
            None => (armed.first()?.0, true),
        };
        if agent_only {
            self.struck.insert(number);
        } else {
            self.struck.extend(armed.iter().map(|(number, _)| *number));
        }
        Some(Strike { number, node: node.clone(), agent_only })
    }

    /// The numbers of the failures that have struck.
    pub fn struck(&self) -> &BTreeSet<usize> {
        &self.struck
    }
}

fn point(phase: ChaosPhase) -> RehearsalPoint {
    match phase {
        ChaosPhase::Write => RehearsalPoint::Write,
        ChaosPhase::Encode => RehearsalPoint::Encode,
        ChaosPhase::Rebuild => RehearsalPoint::Rebuild,
        ChaosPhase::Copy => RehearsalPoint::Copy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chaos(node: &str, moment: ChaosMoment, action: ChaosAction) -> Chaos {
        Chaos { node: node.into(), moment, action }
    }

    #[test]
    fn a_failure_by_time_strikes_once() {
        let moment = ChaosMoment::After(Duration::from_secs(2));
        let mut schedule = Schedule::new(vec![chaos("node1", moment, ChaosAction::Kill)], BTreeSet::new());
        assert!(schedule.due(Observation::SinceLaunch(Duration::from_secs(1))).is_empty());
        let struck = schedule.due(Observation::SinceLaunch(Duration::from_secs(3)));
        assert_eq!(struck, [Strike { number: 0, node: "node1".into(), agent_only: false }]);
        assert!(schedule.due(Observation::SinceLaunch(Duration::from_secs(4))).is_empty());
    }

    #[test]
    fn a_failure_after_a_checkpoint_strikes_at_the_next_one_if_that_one_was_lost() {
        let moment = ChaosMoment::AfterCheckpoint(CheckpointId(3));
        let mut schedule = Schedule::new(vec![chaos("node0", moment, ChaosAction::Kill)], BTreeSet::new());
        assert!(schedule.due(Observation::Protected(CheckpointId(2))).is_empty());
        assert_eq!(schedule.due(Observation::Protected(CheckpointId(4))).len(), 1);
    }

    #[test]
    fn what_has_struck_before_an_orchestrator_died_does_not_strike_again() {
        let moment = ChaosMoment::After(Duration::ZERO);
        let all = vec![chaos("node1", moment, ChaosAction::Kill), chaos("node2", moment, ChaosAction::KillAgent)];
        let mut schedule = Schedule::new(all, BTreeSet::from([0]));
        let struck = schedule.due(Observation::SinceLaunch(Duration::ZERO));
        assert_eq!(struck, [Strike { number: 1, node: "node2".into(), agent_only: true }]);
    }

    #[test]
    fn an_agent_is_armed_until_its_rehearsal_has_struck() {
        let during = |phase| ChaosMoment::During { phase, checkpoint: Some(CheckpointId(2)) };
        let all = vec![
            chaos("node1", during(ChaosPhase::Encode), ChaosAction::KillAgent),
            chaos("node1", during(ChaosPhase::Copy), ChaosAction::KillAgent),
            chaos("node2", during(ChaosPhase::Write), ChaosAction::Kill),
        ];
        let mut schedule = Schedule::new(all, BTreeSet::new());
        assert_eq!(schedule.armed(&"node1".into()).len(), 2);
        assert!(schedule.armed(&"node0".into()).is_empty());
        assert_eq!(schedule.agent_died(&"node1".into()).map(|strike| strike.number), Some(0));
        assert_eq!(schedule.armed(&"node1".into())[0].1.point, RehearsalPoint::Copy);
        let node = schedule.agent_died(&"node2".into()).unwrap();
        assert!(!node.agent_only);
        assert_eq!(schedule.agent_died(&"node2".into()), None);
    }
}
