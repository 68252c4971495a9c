//! Fault injection on virtual nodes: which faults are due, which an agent injects itself, which have been injected.
//!
//! Pure. A fault is injected once in a job: the owner of the schedule saves the numbers of the injected faults.

use std::collections::BTreeSet;

use holdfast_model::NodeName;
use holdfast_wire::run::{FaultInjection, FaultPoint};

use super::faults::{FaultAction, FaultMoment, FaultPhase, InjectedFault};
use crate::allocation::faults::{Fault, Observation};

/// The faults of a job.
#[derive(Clone, Debug, Default)]
pub struct FaultSchedule {
    faults: Vec<InjectedFault>,
    injected: BTreeSet<usize>,
}

impl FaultSchedule {
    /// The faults of a spec, of which some have been injected already.
    pub fn new(faults: Vec<InjectedFault>, injected: BTreeSet<usize>) -> Self {
        FaultSchedule { faults, injected }
    }

    /// The faults that are due after an observation; from now on they count as injected.
    pub fn due(&mut self, observation: Observation) -> Vec<Fault> {
        let mut due = Vec::new();
        for (number, fault) in self.faults.iter().enumerate() {
            let due_now = match (fault.moment, observation) {
                (FaultMoment::After(delay), Observation::SinceLaunch(passed)) => passed >= delay,
                // A later checkpoint counts too, because the one in the spec may have been lost.
                (FaultMoment::AfterCheckpoint(id), Observation::Checkpoint(complete)) => complete >= id,
                _ => false,
            };
            if due_now && self.injected.insert(number) {
                let agent_only = fault.action == FaultAction::KillAgent;
                due.push(Fault { number, node: fault.node.clone(), agent_only });
            }
        }
        due
    }

    /// The faults that an agent of this node injects itself, with their numbers.
    pub fn armed(&self, node: &NodeName) -> Vec<(usize, FaultInjection)> {
        let of_node =
            |(number, fault): &(usize, &InjectedFault)| fault.node == *node && !self.injected.contains(number);
        self.faults
            .iter()
            .enumerate()
            .filter(of_node)
            .filter_map(|(number, fault)| match fault.moment {
                FaultMoment::During { phase, checkpoint } => {
                    let agent_only = fault.action == FaultAction::KillAgent;
                    Some((number, FaultInjection { point: point(phase), checkpoint, agent_only }))
                }
                FaultMoment::After(_) | FaultMoment::AfterCheckpoint(_) => None,
            })
            .collect()
    }

    /// The fault that the agent of a node injected, after it died by itself. If any of its faults takes the node along,
    /// it was that one, and all faults of the node are done; otherwise it was the first one.
    pub fn agent_died(&mut self, node: &NodeName) -> Option<Fault> {
        let armed = self.armed(node);
        let (number, agent_only) = match armed.iter().find(|(_, fault)| !fault.agent_only) {
            Some((number, _)) => (*number, false),
            None => (armed.first()?.0, true),
        };
        if agent_only {
            self.injected.insert(number);
        } else {
            self.injected.extend(armed.iter().map(|(number, _)| *number));
        }
        Some(Fault { number, node: node.clone(), agent_only })
    }
}

fn point(phase: FaultPhase) -> FaultPoint {
    match phase {
        FaultPhase::Write => FaultPoint::Write,
        FaultPhase::Encode => FaultPoint::Encode,
        FaultPhase::Rebuild => FaultPoint::Rebuild,
        FaultPhase::Copy => FaultPoint::Copy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_model::CheckpointId;
    use std::time::Duration;

    fn fault(node: &str, moment: FaultMoment, action: FaultAction) -> InjectedFault {
        InjectedFault { node: node.into(), moment, action }
    }

    #[test]
    fn injects_a_fault_by_time_once() {
        let moment = FaultMoment::After(Duration::from_secs(2));
        let mut schedule = FaultSchedule::new(vec![fault("node1", moment, FaultAction::Kill)], BTreeSet::new());
        assert!(schedule.due(Observation::SinceLaunch(Duration::from_secs(1))).is_empty());
        let injected = schedule.due(Observation::SinceLaunch(Duration::from_secs(3)));
        assert_eq!(injected, [Fault { number: 0, node: "node1".into(), agent_only: false }]);
        assert!(schedule.due(Observation::SinceLaunch(Duration::from_secs(4))).is_empty());
    }

    #[test]
    fn injects_a_fault_after_the_next_checkpoint_if_its_own_was_lost() {
        let moment = FaultMoment::AfterCheckpoint(CheckpointId(3));
        let mut schedule = FaultSchedule::new(vec![fault("node0", moment, FaultAction::Kill)], BTreeSet::new());
        assert!(schedule.due(Observation::Checkpoint(CheckpointId(2))).is_empty());
        assert_eq!(schedule.due(Observation::Checkpoint(CheckpointId(4))).len(), 1);
    }

    #[test]
    fn does_not_repeat_a_fault_that_an_earlier_orchestrator_injected() {
        let moment = FaultMoment::After(Duration::ZERO);
        let all = vec![fault("node1", moment, FaultAction::Kill), fault("node2", moment, FaultAction::KillAgent)];
        let mut schedule = FaultSchedule::new(all, BTreeSet::from([0]));
        let injected = schedule.due(Observation::SinceLaunch(Duration::ZERO));
        assert_eq!(injected, [Fault { number: 1, node: "node2".into(), agent_only: true }]);
    }

    #[test]
    fn arms_an_agent_until_its_fault_was_injected() {
        let during = |phase| FaultMoment::During { phase, checkpoint: Some(CheckpointId(2)) };
        let all = vec![
            fault("node1", during(FaultPhase::Encode), FaultAction::KillAgent),
            fault("node1", during(FaultPhase::Copy), FaultAction::KillAgent),
            fault("node2", during(FaultPhase::Write), FaultAction::Kill),
        ];
        let mut schedule = FaultSchedule::new(all, BTreeSet::new());
        assert_eq!(schedule.armed(&"node1".into()).len(), 2);
        assert!(schedule.armed(&"node0".into()).is_empty());
        assert_eq!(schedule.agent_died(&"node1".into()).map(|fault| fault.number), Some(0));
        assert_eq!(schedule.armed(&"node1".into())[0].1.point, FaultPoint::Copy);
        let node = schedule.agent_died(&"node2".into()).unwrap();
        assert!(!node.agent_only);
        assert_eq!(schedule.agent_died(&"node2".into()), None);
    }
}
