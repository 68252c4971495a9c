//! What happened to each pair in this run.

use std::collections::BTreeMap;

use holdfast_model::pair::PairChange;

use crate::events::LogEvent;
use crate::events::report::{PairReport, PairSwitch};
use crate::pairs::Overview;

/// Fail-overs and fail-backs of a pair that the report lists one by one.
const MOST_LISTED: usize = 100;

#[derive(Debug, Default)]
pub(super) struct History {
    switches: BTreeMap<String, Vec<PairSwitch>>,
}

impl History {
    /// Notes the fail-overs and fail-backs.
    pub(super) fn note(&mut self, event: &LogEvent) {
        let LogEvent::Pair { name, at, change, .. } = event else { return };
        let (to, cause, micros) = match change {
            PairChange::FailOver { cause, micros, .. } => ("replica", Some(cause.to_string()), *micros),
            PairChange::FailBack { micros, .. } => ("main", None, *micros),
            _ => return,
        };
        let switches = self.switches.entry(name.clone()).or_default();
        if switches.len() < MOST_LISTED {
            switches.push(PairSwitch { at: *at, to, cause, micros });
        }
    }

    /// The pairs of the report.
    pub(super) fn report(&self, overview: &Overview) -> Vec<PairReport> {
        let pair = |pair: &crate::pairs::PairOverview| PairReport {
            name: pair.name.clone(),
            awake: pair.awake().map(|side| side.to_string()),
            finished: pair.is_finished(),
            given_up: pair.is_given_up(),
            checkpoint: pair.checkpoint,
            fail_overs: pair.fail_overs,
            fail_backs: pair.fail_backs,
            missed: pair.missed(),
            switches: self.switches.get(&pair.name).cloned().unwrap_or_default(),
        };
        overview.pairs.iter().map(pair).collect()
    }
}
