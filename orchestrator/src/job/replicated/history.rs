//! What happened to each pair in this run.

use std::collections::BTreeMap;
use std::path::Path;

use holdfast_model::pair::{PairChange, Side};
use holdfast_wire::agent::AgentEvent;

use crate::events::LogEvent;
use crate::events::reader::Reader;
use crate::events::report::{LastOutput, PairReport, PairSwitch};
use crate::host::log::last_lines;
use crate::pairs::Overview;

/// Fail-overs and fail-backs of a pair that the report lists one by one.
const MOST_LISTED: usize = 100;

/// Pairs whose output the report quotes.
const MOST_QUOTED: usize = 4;

/// Adds the last output of the copies that were given up. Blocks.
pub(super) fn quote_output(pairs: &mut [PairReport], directory: &Path) {
    for pair in pairs.iter_mut().filter(|pair| pair.given_up && !pair.finished).take(MOST_QUOTED) {
        for side in Side::BOTH {
            let file = directory.join(format!("{}.{side}.log", pair.name));
            // A copy that could not be started has none.
            let lines = last_lines(&file).unwrap_or_default();
            if !lines.is_empty() {
                pair.last_output.push(LastOutput { copy: side.to_string(), file, lines });
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct History {
    switches: BTreeMap<String, Vec<PairSwitch>>,
}

impl History {
    /// What the event log has of the job so far, without records that cannot be read. Blocks.
    pub(super) fn of_log(directory: &Path) -> Self {
        let mut history = History::default();
        let records = Reader::open(directory).ok().flatten();
        for record in records.into_iter().flatten().flatten() {
            match record.event {
                LogEvent::JobStarted { .. } => history = History::default(),
                event => history.note(&event),
            }
        }
        history
    }

    /// Notes the fail-overs and fail-backs.
    pub(super) fn note(&mut self, event: &LogEvent) {
        let Some(AgentEvent::Pair { name, at, change }) = event.agent_event() else { return };
        let (to, cause, micros) = match change {
            PairChange::FailOver { cause, micros, .. } => ("replica", Some(cause.to_string()), *micros),
            PairChange::FailBack { micros, .. } => ("main", None, *micros),
            _ => return,
        };
        let switches = self.switches.entry(name.clone()).or_default();
        // After a takeover, agents report again what the earlier orchestrator had not saved as received.
        let is_known = switches.iter().any(|switch| (switch.at, switch.to) == (*at, to));
        if switches.len() < MOST_LISTED && !is_known {
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
            missed: pair.missed,
            last_output: Vec::new(),
            switches: self.switches.get(&pair.name).cloned().unwrap_or_default(),
        };
        overview.pairs.iter().map(pair).collect()
    }
}
