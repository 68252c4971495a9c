//! Fault injection: which faults of the spec are due, and which have been injected.
//!
//! Pure. A fault is injected once in a job: the state of the job has the numbers of those that were. One that is due
//! waits until the agents that inject it are up.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_model::{CheckpointId, NodeName, Rank};
use holdfast_wire::agent::NodeFault;

use crate::events::FaultReport;
use crate::spec::quantity::whole_millis;
use crate::spec::{FaultAction, FaultMoment, InjectedFault};

/// Progress of the job on which the moment of a fault depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Observation {
    /// The time since the first launch in the job, and in the step.
    SinceLaunch { job: Duration, step: Option<Duration> },
    /// A checkpoint is complete, and protected if its scheme protects it.
    Checkpoint(CheckpointId),
    /// A rank printed a line for which the fault of this number waits.
    Output(usize),
}

/// Where agents are up.
pub(super) trait AgentPlaces {
    /// The nodes whose agents are up.
    fn nodes_up(&self) -> Vec<NodeName>;

    /// The node on which a rank runs now.
    fn node_of(&self, rank: Rank) -> Option<NodeName>;
}

/// A fault whose moment has come, and the agents that inject it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DueFault {
    /// Its index in the spec.
    pub(super) number: usize,
    pub(super) action: FaultAction,
    pub(super) nodes: Vec<NodeName>,
    pub(super) fault: NodeFault,
}

impl DueFault {
    /// True if it is injected although the agent does not answer: that was killed or stopped, or is still writing.
    pub(super) fn may_be_unanswered(&self) -> bool {
        !matches!(self.fault, NodeFault::KillRank { .. } | NodeFault::StallPrefix { .. })
    }
}

/// The faults of a job.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultSchedule {
    faults: Vec<ScheduledFault>,
    nodes: Vec<NodeName>,
    /// When something was first launched in the job, milliseconds since it began.
    first_launch_ms: Option<u64>,
}

#[derive(Clone, Debug)]
struct ScheduledFault {
    fault: InjectedFault,
    state: FaultState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FaultState {
    Waiting,
    Due,
    Injected,
    Failed { reason: String },
}

impl FaultSchedule {
    /// The faults of a spec on these nodes, of which some have been injected already.
    pub(super) fn new(faults: &[InjectedFault], nodes: &[NodeName], injected: &BTreeSet<usize>) -> Self {
        let scheduled = faults.iter().enumerate().map(|(number, fault)| {
            let missing = fault.action.node().filter(|node| node.find(nodes).is_none());
            let state = match missing {
                _ if injected.contains(&number) => FaultState::Injected,
                Some(node) => FaultState::Failed { reason: format!("there is no {} here", node.in_allocation()) },
                None => FaultState::Waiting,
            };
            ScheduledFault { fault: fault.clone(), state }
        });
        FaultSchedule { faults: scheduled.collect(), nodes: nodes.to_owned(), first_launch_ms: None }
    }

    /// Takes note of what the state of another step that is continued has: faults that were injected, the first launch.
    pub(super) fn note_earlier(&mut self, injected: &BTreeSet<usize>, first_launch_ms: Option<u64>) {
        for number in injected {
            if let Some(scheduled) = self.faults.get_mut(*number) {
                scheduled.state = FaultState::Injected;
            }
        }
        self.first_launch_ms = self.first_launch_ms.into_iter().chain(first_launch_ms).min();
    }

    /// Something was launched then; returns when it was for the first time.
    pub(super) fn launched(&mut self, at_ms: u64) -> u64 {
        *self.first_launch_ms.get_or_insert(at_ms)
    }

    pub(super) fn first_launch_ms(&self) -> Option<u64> {
        self.first_launch_ms
    }

    /// Takes note of the progress of a step.
    pub(super) fn observe(&mut self, step: &str, observation: &Observation) {
        let waiting = |scheduled: &&mut ScheduledFault| scheduled.state == FaultState::Waiting;
        for (number, scheduled) in self.faults.iter_mut().enumerate() {
            let is_due = match (&scheduled.fault.moment, observation) {
                (FaultMoment::After(delay), Observation::SinceLaunch { job, step }) => match scheduled.fault.step {
                    Some(_) => step.is_some_and(|passed| passed >= *delay),
                    None => job >= delay,
                },
                // A later checkpoint counts too, because the one in the spec may have been lost.
                (FaultMoment::AfterCheckpoint(id), Observation::Checkpoint(complete)) => complete >= id,
                (FaultMoment::AfterOutput(_), Observation::Output(of)) => *of == number,
                _ => false,
            };
            if waiting(&scheduled) && is_due && scheduled.fault.is_of(step) {
                scheduled.state = FaultState::Due;
            }
        }
    }

    /// The faults that are due and whose agents a step has, up; from now on they count as injected.
    pub(super) fn take_due(&mut self, step: &str, agents: &impl AgentPlaces) -> Vec<DueFault> {
        if self.faults.iter().all(|scheduled| scheduled.state != FaultState::Due) {
            return Vec::new();
        }
        let up = agents.nodes_up();
        let (mut taken, nodes) = (Vec::new(), &self.nodes);
        for (number, scheduled) in self.faults.iter_mut().enumerate() {
            if scheduled.state != FaultState::Due || !scheduled.fault.is_of(step) {
                continue;
            }
            let action = scheduled.fault.action.clone();
            let places = match &action {
                FaultAction::KillRank(rank) => agents.node_of(*rank).into_iter().collect(),
                FaultAction::StallPrefix(_) => up.clone(),
                FaultAction::Kill(_)
                | FaultAction::KillAgent(_)
                | FaultAction::Pause(..)
                | FaultAction::FillCache(..) => {
                    action.node().and_then(|node| node.find(nodes)).cloned().into_iter().collect::<Vec<_>>()
                }
            };
            if places.is_empty() || places.iter().any(|node| !up.contains(node)) {
                continue;
            }
            scheduled.state = FaultState::Injected;
            taken.push(DueFault { number, nodes: places, fault: node_fault(&action), action });
        }
        taken
    }

    /// A fault that counted as injected was not.
    pub(super) fn failed(&mut self, number: usize, reason: String) {
        if let Some(scheduled) = self.faults.get_mut(number) {
            scheduled.state = FaultState::Failed { reason };
        }
    }

    /// Agents have injected these faults themselves. Returns those of which that was not known, with their nodes.
    pub(super) fn injected_by_agents(&mut self, numbers: &BTreeSet<usize>) -> Vec<(NodeName, FaultAction)> {
        let mut found = Vec::new();
        for number in numbers {
            let Some(scheduled) = self.faults.get_mut(*number) else { continue };
            if std::mem::replace(&mut scheduled.state, FaultState::Injected) != FaultState::Injected {
                let action = &scheduled.fault.action;
                let node = action.node().and_then(|node| node.find(&self.nodes));
                found.extend(node.map(|node| (node.clone(), action.clone())));
            }
        }
        found
    }

    /// The numbers of the injected faults.
    pub(super) fn injected(&self) -> BTreeSet<usize> {
        let is_injected = |(_, scheduled): &(usize, &ScheduledFault)| scheduled.state == FaultState::Injected;
        self.faults.iter().enumerate().filter(is_injected).map(|(number, _)| number).collect()
    }

    /// The nodes that injected faults took along.
    pub(super) fn lost_nodes(&self) -> Vec<NodeName> {
        let lost = self.faults.iter().filter(|scheduled| scheduled.state == FaultState::Injected);
        let node = |scheduled: &ScheduledFault| match &scheduled.fault.action {
            FaultAction::Kill(node) => node.find(&self.nodes).cloned(),
            _ => None,
        };
        lost.filter_map(node).collect()
    }

    /// The regular expressions of the faults that wait for a line of a step, with their numbers.
    pub(super) fn awaited_lines(&self, step: &str) -> Vec<(usize, String)> {
        let awaited = |(number, scheduled): (usize, &ScheduledFault)| match &scheduled.fault.moment {
            FaultMoment::AfterOutput(line) if scheduled.state == FaultState::Waiting && scheduled.fault.is_of(step) => {
                Some((number, line.clone()))
            }
            _ => None,
        };
        self.faults.iter().enumerate().filter_map(awaited).collect()
    }

    /// What became of each fault.
    pub(super) fn report(&self) -> Vec<FaultReport> {
        let report = |scheduled: &ScheduledFault| {
            let reason = match &scheduled.state {
                FaultState::Waiting => Some("its moment did not come".to_owned()),
                FaultState::Due => Some("the agent that was to inject it was not up".to_owned()),
                FaultState::Injected => None,
                FaultState::Failed { reason } => Some(reason.clone()),
            };
            FaultReport { fault: scheduled.fault.to_string(), injected: reason.is_none(), reason }
        };
        self.faults.iter().map(report).collect()
    }
}

fn node_fault(action: &FaultAction) -> NodeFault {
    match action {
        FaultAction::Kill(_) => NodeFault::LoseNode,
        FaultAction::KillAgent(_) => NodeFault::KillAgent,
        FaultAction::KillRank(rank) => NodeFault::KillRank { rank: *rank },
        FaultAction::Pause(_, time) => NodeFault::Pause { millis: whole_millis(*time) },
        FaultAction::FillCache(_, bytes) => NodeFault::FillCache { bytes: *bytes },
        FaultAction::StallPrefix(time) => NodeFault::StallPrefix { millis: whole_millis(*time) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::NodeReference;

    struct Up(&'static [&'static str]);

    impl AgentPlaces for Up {
        fn nodes_up(&self) -> Vec<NodeName> {
            self.0.iter().map(|node| NodeName::from(*node)).collect()
        }

        fn node_of(&self, rank: Rank) -> Option<NodeName> {
            Some(NodeName::new(format!("node{rank}")))
        }
    }

    const ALL_UP: Up = Up(&["node0", "node1", "node2"]);

    fn schedule(faults: Vec<(FaultMoment, FaultAction)>, injected: &[usize]) -> FaultSchedule {
        let faults: Vec<_> =
            faults.into_iter().map(|(moment, action)| InjectedFault { moment, action, step: None }).collect();
        FaultSchedule::new(&faults, &ALL_UP.nodes_up(), &injected.iter().copied().collect())
    }

    fn loss_of(number: u32) -> FaultAction {
        FaultAction::Kill(NodeReference::Position(number))
    }

    #[test]
    fn injects_a_fault_by_time_once() {
        let mut schedule = schedule(vec![(FaultMoment::After(Duration::from_secs(2)), loss_of(1))], &[]);
        schedule.observe("job", &Observation::SinceLaunch { job: Duration::from_secs(1), step: None });
        assert!(schedule.take_due("job", &ALL_UP).is_empty());
        schedule.observe("job", &Observation::SinceLaunch { job: Duration::from_secs(3), step: None });
        let [due] = &schedule.take_due("job", &ALL_UP)[..] else { panic!("one fault is due") };
        assert_eq!((&due.nodes, due.fault), (&vec!["node1".into()], NodeFault::LoseNode));
        assert_eq!(schedule.lost_nodes(), ["node1".into()]);
        schedule.observe("job", &Observation::SinceLaunch { job: Duration::from_secs(4), step: None });
        assert!(schedule.take_due("job", &ALL_UP).is_empty());
    }

    #[test]
    fn injects_a_fault_after_the_next_checkpoint_if_its_own_was_lost() {
        let moment = FaultMoment::AfterCheckpoint(CheckpointId(3));
        let mut schedule = schedule(vec![(moment, FaultAction::KillRank(Rank(2)))], &[]);
        schedule.observe("job", &Observation::Checkpoint(CheckpointId(2)));
        assert!(schedule.take_due("job", &ALL_UP).is_empty());
        schedule.observe("job", &Observation::Checkpoint(CheckpointId(4)));
        assert_eq!(schedule.take_due("job", &ALL_UP)[0].nodes, ["node2".into()]);
    }

    #[test]
    fn a_fault_that_is_due_waits_until_its_agent_is_up() {
        let moment = FaultMoment::AfterOutput("step".to_owned());
        let mut schedule = schedule(vec![(moment, FaultAction::KillAgent(NodeReference::Name("node1".into())))], &[]);
        assert_eq!(schedule.awaited_lines("job"), [(0, "step".to_owned())]);
        schedule.observe("job", &Observation::Output(0));
        assert!(schedule.awaited_lines("job").is_empty());
        assert!(schedule.take_due("job", &Up(&["node0"])).is_empty());
        assert!(!schedule.report()[0].injected);
        assert_eq!(schedule.take_due("job", &ALL_UP).len(), 1);
        assert!(schedule.report()[0].injected);
    }

    #[test]
    fn does_not_repeat_a_fault_that_an_earlier_orchestrator_injected() {
        let now = || FaultMoment::After(Duration::ZERO);
        let mut schedule = schedule(vec![(now(), loss_of(1)), (now(), loss_of(2))], &[0]);
        schedule.observe("job", &Observation::SinceLaunch { job: Duration::ZERO, step: None });
        let taken: Vec<usize> = schedule.take_due("job", &ALL_UP).iter().map(|due| due.number).collect();
        assert_eq!(taken, [1]);
    }

    #[test]
    fn reports_faults_that_were_not_injected_with_the_reason() {
        let first = (FaultMoment::AfterCheckpoint(CheckpointId(9)), FaultAction::StallPrefix(Duration::from_secs(1)));
        let mut schedule = schedule(vec![first, (FaultMoment::After(Duration::ZERO), loss_of(7))], &[]);
        schedule.observe("job", &Observation::SinceLaunch { job: Duration::ZERO, step: None });
        assert!(schedule.take_due("job", &ALL_UP).is_empty());
        let report = schedule.report();
        assert_eq!(report[0].fault, "`stall-prefix` for 1s after checkpoint 9");
        assert_eq!(report[0].reason.as_deref(), Some("its moment did not come"));
        assert_eq!(report[1].reason.as_deref(), Some("there is no node 7 of the allocation here"));
    }

    #[test]
    fn a_fault_of_a_step_waits_for_that_step() {
        let after = FaultMoment::After(Duration::from_secs(2));
        let fault = InjectedFault { moment: after, action: loss_of(1), step: Some("second".to_owned()) };
        let mut schedule = FaultSchedule::new(&[fault], &ALL_UP.nodes_up(), &BTreeSet::new());
        let since =
            |step: u64| Observation::SinceLaunch { job: Duration::from_secs(9), step: Some(Duration::from_secs(step)) };
        schedule.observe("first", &since(9));
        schedule.observe("second", &since(1));
        assert!(schedule.take_due("second", &ALL_UP).is_empty());
        schedule.observe("second", &since(2));
        assert!(schedule.take_due("first", &ALL_UP).is_empty());
        assert_eq!(schedule.take_due("second", &ALL_UP).len(), 1);
    }
}
