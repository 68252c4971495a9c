//! The state of all pairs and jobs, from the newest reports of their nodes.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_failover::CommandRefused;
use holdfast_model::NodeName;
use holdfast_model::pair::{CopyState, CopyStatus, JobStatus, PairCommand, PairStatus, Side};
use serde::Serialize;

use super::placement::PairPlace;
use crate::events::PairsView;

/// A copy and its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CopyOverview {
    pub node: NodeName,
    /// `None` if its node has not answered.
    #[serde(flatten)]
    pub status: Option<CopyStatus>,
}

/// Why a user's request for a pair cannot be obeyed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefused {
    #[error(transparent)]
    Command(#[from] CommandRefused),
    #[error("its node {0} does not answer")]
    Silent(NodeName),
}

/// A pair as its nodes report it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PairOverview {
    pub pair: u32,
    pub name: String,
    pub main: CopyOverview,
    pub replica: CopyOverview,
    /// By the orchestrator's record; the node on which it has finished may not answer any more.
    pub finished: bool,
    /// The newest checkpoint; 0: none.
    pub checkpoint: u64,
    /// Milliseconds since it was stored; `None`: there is none.
    pub checkpoint_age_ms: Option<u64>,
    /// Periods without a heartbeat, of all copies, as far as the present agents have watched them.
    pub missed: u64,
    pub fail_overs: u64,
    pub fail_backs: u64,
}

impl PairOverview {
    pub fn copy(&self, side: Side) -> &CopyOverview {
        side.select(&self.main, &self.replica)
    }

    fn is(&self, side: Side, state: CopyState) -> bool {
        self.copy(side).status.is_some_and(|copy| copy.state == state)
    }

    /// The copy that is awake.
    pub fn awake(&self) -> Option<Side> {
        Side::BOTH.into_iter().find(|side| self.is(*side, CopyState::Awake))
    }

    /// Heartbeats of the copies since each was woken last.
    pub fn beats(&self) -> u64 {
        Side::BOTH.into_iter().filter_map(|side| self.copy(side).status).map(|copy| copy.beats).sum()
    }

    /// Whether a user's request can be obeyed, as far as the nodes' reports show it.
    pub fn check(&self, command: PairCommand) -> Result<(), RequestRefused> {
        let state = |side| self.copy(side).status.map(|copy| copy.state);
        let asked = match command {
            PairCommand::FailOver => Some(Side::Replica),
            // The main of another node takes over when that has returned.
            PairCommand::FailBack => Some(Side::Main).filter(|_| self.main.node == self.replica.node),
            PairCommand::Restart(side) => Some(side),
        };
        match asked.filter(|side| !self.is_finished() && state(*side).is_none()) {
            Some(silent) => Err(RequestRefused::Silent(self.copy(silent).node.clone())),
            None => Ok(CommandRefused::check(command, self.is_finished(), state)?),
        }
    }

    /// True if a copy has ended with success.
    pub fn is_finished(&self) -> bool {
        self.finished || self.shows_its_end()
    }

    /// True if a node reports that its copy has ended with success.
    pub fn shows_its_end(&self) -> bool {
        Side::BOTH.into_iter().any(|side| self.is(side, CopyState::Finished))
    }

    /// True if both copies failed too often.
    pub fn is_given_up(&self) -> bool {
        Side::BOTH.into_iter().all(|side| self.is(side, CopyState::GivenUp))
    }
}

/// A non-critical job and its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobOverview {
    pub node: NodeName,
    #[serde(flatten)]
    pub status: JobStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Overview {
    pub pairs: Vec<PairOverview>,
    pub jobs: Vec<JobOverview>,
}

impl Overview {
    /// The numbers of the live view.
    pub fn summary(&self) -> PairsView {
        let mut view = PairsView::default();
        for pair in &self.pairs {
            match pair.awake() {
                _ if pair.is_finished() => view.finished += 1,
                Some(Side::Main) => view.mains += 1,
                Some(Side::Replica) => view.replicas += 1,
                None => view.asleep += 1,
            }
            view.fail_overs += pair.fail_overs;
            view.missed += pair.missed;
        }
        view
    }

    /// The overview of pairs whose nodes reported these states; the numbers of those that have finished are recorded.
    pub fn new(
        places: &[PairPlace],
        finished: &BTreeSet<u32>,
        reports: &BTreeMap<NodeName, (Vec<PairStatus>, Vec<JobStatus>)>,
    ) -> Self {
        let by_number: BTreeMap<&NodeName, BTreeMap<u32, &PairStatus>> = reports
            .iter()
            .map(|(node, (pairs, _))| (node, pairs.iter().map(|pair| (pair.pair, pair)).collect()))
            .collect();
        let status = |node: &NodeName, pair: u32| by_number.get(node).and_then(|pairs| pairs.get(&pair)).copied();
        let pairs = (0..).zip(places).map(|(pair, place)| {
            let copy = |side: Side| {
                let node = place.node(side).clone();
                let status = status(&node, pair).and_then(|status| status.copy(side).copied());
                CopyOverview { node, status }
            };
            let main = status(&place.main, pair);
            let replica = status(&place.replica, pair).filter(|_| place.is_split());
            let of_both = |number: fn(&PairStatus) -> u64| main.into_iter().chain(replica).map(number);
            // On the node that has it from the other one, it is a little younger.
            let newest = main.into_iter().chain(replica).max_by_key(|it| (it.checkpoint, it.checkpoint_age_ms));
            PairOverview {
                pair,
                name: place.name.clone(),
                main: copy(Side::Main),
                replica: copy(Side::Replica),
                finished: finished.contains(&pair),
                checkpoint: newest.map_or(0, |status| status.checkpoint),
                checkpoint_age_ms: newest.and_then(|status| status.checkpoint_age_ms),
                missed: of_both(|status| status.missed).sum(),
                fail_overs: of_both(|status| status.fail_overs).sum(),
                fail_backs: of_both(|status| status.fail_backs).sum(),
            }
        });
        let jobs = reports.iter().flat_map(|(node, (_, jobs))| {
            jobs.iter().map(|job| JobOverview { node: node.clone(), status: job.clone() })
        });
        Overview { pairs: pairs.collect(), jobs: jobs.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_is_recorded_as_finished_is_so_while_its_nodes_are_silent() {
        let node = |name: &str| NodeName::from(name);
        let place = |name: &str| PairPlace { name: name.to_owned(), main: node("n0"), replica: node("n1") };
        let places = [place("done"), place("other")];
        let overview = Overview::new(&places, &[0].into(), &BTreeMap::new());
        assert_eq!([0, 1].map(|pair| overview.pairs[pair].is_finished()), [true, false]);
        assert!(!overview.pairs[0].shows_its_end());
        assert_eq!((overview.summary().finished, overview.summary().asleep), (1, 1));
        assert!(overview.pairs[0].check(PairCommand::FailBack).is_err());
        assert_eq!(overview.pairs[1].check(PairCommand::FailBack), Ok(()));
    }
}
