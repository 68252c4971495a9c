//! Faults that the agent of a virtual node injects itself, in the middle of a phase of its work: which an agent has,
//! and which it has injected when it died.
//!
//! Pure. A fault is injected once in a job: the owner saves the numbers of the injected faults.

use std::collections::BTreeSet;

use holdfast_model::NodeName;
use holdfast_wire::run::FaultInjection;

use crate::spec::{FaultAction, FaultMoment, InjectedFault};

/// The faults of a job that agents inject themselves.
#[derive(Clone, Debug, Default)]
pub(super) struct PhaseFaults {
    faults: Vec<PhaseFault>,
    injected: BTreeSet<usize>,
}

/// A fault, with its index in the spec.
#[derive(Clone, Debug)]
struct PhaseFault {
    number: usize,
    node: NodeName,
    injection: FaultInjection,
}

/// A fault that an agent has injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DiedBy {
    pub(super) number: usize,
    /// Only the agent was killed.
    pub(super) agent_only: bool,
}

impl PhaseFaults {
    /// Those of a spec, of which some have been injected already.
    pub(super) fn new(faults: &[InjectedFault], nodes: &[NodeName], injected: BTreeSet<usize>) -> Self {
        let in_phase = |(number, fault): (usize, &InjectedFault)| {
            let FaultMoment::During { phase, checkpoint } = fault.moment else { return None };
            let node = fault.action.node()?.find(nodes)?.clone();
            let agent_only = matches!(fault.action, FaultAction::KillAgent(_));
            Some(PhaseFault { number, node, injection: FaultInjection { point: phase, checkpoint, agent_only } })
        };
        PhaseFaults { faults: faults.iter().enumerate().filter_map(in_phase).collect(), injected }
    }

    /// The numbers of those that were injected.
    pub(super) fn injected(&self) -> &BTreeSet<usize> {
        &self.injected
    }

    /// What an agent of this node still injects.
    pub(super) fn armed(&self, node: &NodeName) -> Vec<FaultInjection> {
        self.left(node).map(|fault| fault.injection.clone()).collect()
    }

    fn left<'a>(&'a self, node: &'a NodeName) -> impl Iterator<Item = &'a PhaseFault> {
        self.faults.iter().filter(move |fault| fault.node == *node && !self.injected.contains(&fault.number))
    }

    /// The fault that the agent of a node injected, after it died by itself. If any of its faults takes the node along,
    /// it was that one, and all faults of the node are done; otherwise it was the first one.
    pub(super) fn agent_died(&mut self, node: &NodeName) -> Option<DiedBy> {
        let of_node = self.left(node).find(|fault| !fault.injection.agent_only);
        let found = of_node.or_else(|| self.left(node).next())?;
        let died = DiedBy { number: found.number, agent_only: found.injection.agent_only };
        let done: Vec<usize> = match died.agent_only {
            true => vec![died.number],
            false => self.left(node).map(|fault| fault.number).collect(),
        };
        self.injected.extend(done);
        Some(died)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::NodeReference;
    use holdfast_model::CheckpointId;
    use holdfast_wire::run::FaultPoint;
    use std::time::Duration;

    #[test]
    fn arms_an_agent_until_its_fault_was_injected() {
        let nodes: Vec<NodeName> = ["node0", "node1", "node2"].map(NodeName::from).to_vec();
        let during = |phase| FaultMoment::During { phase, checkpoint: Some(CheckpointId(2)) };
        let fault = |moment, action| InjectedFault { moment, action, step: None };
        let all = vec![
            fault(during(FaultPoint::Encode), FaultAction::KillAgent(NodeReference::Position(1))),
            fault(during(FaultPoint::Copy), FaultAction::KillAgent(NodeReference::Name("node1".into()))),
            fault(during(FaultPoint::Write), FaultAction::Kill(NodeReference::Position(2))),
            fault(FaultMoment::After(Duration::ZERO), FaultAction::Kill(NodeReference::Position(0))),
        ];
        let mut faults = PhaseFaults::new(&all, &nodes, BTreeSet::new());
        assert_eq!(faults.armed(&"node1".into()).len(), 2);
        assert!(faults.armed(&"node0".into()).is_empty());
        assert_eq!(faults.agent_died(&"node1".into()), Some(DiedBy { number: 0, agent_only: true }));
        assert_eq!(faults.armed(&"node1".into())[0].point, FaultPoint::Copy);
        assert_eq!(faults.agent_died(&"node2".into()), Some(DiedBy { number: 2, agent_only: false }));
        assert_eq!(faults.agent_died(&"node2".into()), None);
        assert_eq!(*faults.injected(), BTreeSet::from([0, 2]));
        let again = PhaseFaults::new(&all, &nodes, faults.injected().clone());
        assert!(again.armed(&"node2".into()).is_empty(), "an earlier orchestrator injected it");
    }
}
