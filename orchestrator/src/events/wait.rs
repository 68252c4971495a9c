//! Ranks that wait in a call for ranks that have not made it.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use holdfast_model::Rank;
use holdfast_wire::agent::WaitingRanks;
use serde::{Deserialize, Serialize};

use super::reason::ranks_text;
use crate::spec::quantity::format_duration;

/// So many of the ranks that are waited for are named.
const NAMED: usize = 16;

/// Some ranks wait for others in a call that all ranks make together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Of the rank that has waited longest.
    pub call: String,
    /// The lowest rank that waits.
    pub rank: Rank,
    /// The number of ranks that wait.
    pub waiting: u32,
    /// The lowest ranks, at most 16, that are waited for.
    pub missing: Vec<Rank>,
    /// The number of ranks that are waited for.
    pub missing_count: u32,
    /// All of these have ended: they will not make the call.
    pub have_ended: bool,
    /// How long the first rank has waited.
    pub millis: u64,
}

impl Wait {
    /// From the reports of the nodes, the one with the longest wait first. `None` if no rank waits, or all do: the
    /// agents work then.
    pub fn of<'a>(
        reports: impl IntoIterator<Item = &'a WaitingRanks>,
        lasts: Duration,
        ranks: u32,
        has_ended: impl Fn(Rank) -> bool,
    ) -> Option<Wait> {
        let mut reports = reports.into_iter().peekable();
        let call = reports.peek()?.call.clone();
        let waiting: BTreeSet<Rank> = reports.flat_map(|report| &report.ranks).copied().collect();
        let missing: Vec<Rank> = (0..ranks).map(Rank).filter(|rank| !waiting.contains(rank)).collect();
        let rank = *waiting.first()?;
        (!missing.is_empty()).then(|| Wait {
            call,
            rank,
            waiting: waiting.len() as u32,
            missing: missing.iter().take(NAMED).copied().collect(),
            missing_count: missing.len() as u32,
            have_ended: missing.into_iter().all(has_ended),
            millis: lasts.as_millis() as u64,
        })
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wait { call, rank, waiting, missing, missing_count, have_ended, millis } = self;
        write!(f, "rank {rank}")?;
        // The event may have been written by another program.
        match waiting.saturating_sub(1) {
            0 => write!(f, " waits")?,
            1 => write!(f, " and 1 other rank wait")?,
            others => write!(f, " and {others} other ranks wait")?,
        }
        write!(f, " in {call} for {}", ranks_text(missing))?;
        match missing_count.saturating_sub(missing.len() as u32) {
            0 => {}
            more => write!(f, " and {more} more")?,
        }
        if *have_ended {
            write!(f, ", which {} ended", if *missing_count == 1 { "has" } else { "have" })?;
        }
        write!(f, ", for {} so far", format_duration(Duration::from_secs(millis / 1000)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(ranks: &[u32], all: u32, has_ended: bool) -> Option<String> {
        let ranks = ranks.iter().map(|rank| Rank(*rank)).collect();
        let waiting = WaitingRanks { call: "init".to_owned(), ranks, waits_for: Duration::ZERO };
        Some(Wait::of([&waiting], Duration::from_millis(75_400), all, |_| has_ended)?.to_string())
    }

    #[test]
    fn a_wait_is_a_sentence_that_names_who_waits_for_whom() {
        let expect = |found: Option<String>, expected: &str| assert_eq!(found.as_deref(), Some(expected));
        expect(text(&[0], 4, false), "rank 0 waits in init for ranks 1-3, for 1min15s so far");
        expect(
            text(&[0, 2], 3, true),
            "rank 0 and 1 other rank wait in init for rank 1, which has ended, for 1min15s so far",
        );
        let last = "rank 99 waits in init for ranks 0-15 and 83 more, for 1min15s so far";
        expect(text(&[99], 100, false), last);
        assert_eq!(text(&[0, 1], 2, false), None);
        let event = r#"{"call": "init", "rank": 0, "waiting": 0, "missing": [1, 2], "missing_count": 1,
            "have_ended": false, "millis": 2000}"#;
        let written: Wait = serde_json::from_str(event).unwrap();
        assert_eq!(written.to_string(), "rank 0 waits in init for ranks 1-2, for 2s so far");
        assert_eq!(text(&[], 2, false), None);
    }
}
