//! The datasets to drain in their order, and the report of the drain.

use std::collections::VecDeque;

use super::plan::{Candidate, DrainPlan};
use super::report::DrainReport;
use crate::events::DrainResult;

/// A dataset that is to be drained.
#[derive(Clone, Debug)]
pub(super) struct DrainTarget {
    pub(super) candidate: Candidate,
    purpose: Purpose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The application marked it as output. It is older than the checkpoint to restart from, or no checkpoint.
    Output,
    /// A candidate for a restart: the drain is over when it is complete.
    Newest,
}

impl DrainTarget {
    /// Applications are to restart from the dataset.
    pub(super) fn make_current(&self) -> bool {
        self.purpose == Purpose::Newest && self.candidate.checkpoint_data
    }
}

/// The datasets that are still to be drained: output first, then the candidates from the newest to the oldest.
#[derive(Clone, Debug, Default)]
pub(super) struct Agenda {
    targets: VecDeque<DrainTarget>,
    /// The report of the newest candidate, if it could not be completed.
    first_failure: Option<DrainReport>,
}

impl Agenda {
    /// The datasets of a plan.
    pub(super) fn of(plan: DrainPlan) -> Agenda {
        let remnant = if plan.candidates.is_empty() { plan.remnant } else { None };
        let target = |purpose| move |candidate| DrainTarget { candidate, purpose };
        let output = plan.output.into_iter().map(target(Purpose::Output));
        let newest = plan.candidates.into_iter().chain(remnant).map(target(Purpose::Newest));
        Agenda { targets: output.chain(newest).collect(), first_failure: None }
    }

    pub(super) fn next(&mut self) -> Option<DrainTarget> {
        self.targets.pop_front()
    }

    /// The report of the drain if no dataset could be completed.
    pub(super) fn report(&mut self) -> DrainReport {
        self.first_failure.take().unwrap_or_default()
    }

    /// A dataset was drained as completely as possible. Returns the report if the drain is over with it.
    pub(super) fn drained(&mut self, target: &DrainTarget, report: DrainReport) -> Option<DrainReport> {
        match (target.purpose, &report.result) {
            (Purpose::Output, _) => None,
            (Purpose::Newest, DrainResult::Complete { .. }) => Some(report),
            (Purpose::Newest, _) => {
                self.first_failure.get_or_insert(report);
                None
            }
        }
    }
}
