//! Which calls have come in. Pure.

use std::collections::BTreeMap;

use holdfast_model::Rank;
use holdfast_wire::rank::Call;

use crate::collective::CallError;

/// The calls of the collectives that have not ended.
#[derive(Debug)]
pub(super) struct Gather {
    ranks: u32,
    /// The last collective that ended.
    ended: u64,
    calls: BTreeMap<u64, BTreeMap<Rank, Call>>,
}

impl Gather {
    /// Nothing has come in since collective `ended`.
    pub(super) fn new(ranks: u32, ended: u64) -> Self {
        Gather { ranks, ended, calls: BTreeMap::new() }
    }

    /// A rank makes a call, or repeats it. True if that collective has ended already, and its result is to be sent again.
    pub(super) fn hear(&mut self, seq: u64, rank: Rank, call: Call) -> bool {
        // A rank that has its answer never asks again, and nobody can be two collectives ahead of anybody: anything else
        // is a confused program, and only costs the memory of what it sent.
        if seq <= self.ended {
            return seq == self.ended;
        }
        if seq <= self.ended + 2 && rank.0 < self.ranks {
            self.calls.entry(seq).or_default().insert(rank, call);
        }
        false
    }

    /// The next collective, if all ranks have called.
    pub(super) fn next(&self) -> Option<(u64, BTreeMap<Rank, Call>)> {
        let seq = self.ended + 1;
        let calls = self.calls.get(&seq)?;
        (calls.len() == self.ranks as usize).then(|| (seq, calls.clone()))
    }

    /// A collective has ended.
    pub(super) fn ended(&mut self, seq: u64) {
        self.ended = seq;
        self.calls.remove(&seq);
    }
}

/// The call that all ranks made.
///
/// # Errors
/// When a rank made another one.
pub(super) fn agree(calls: &BTreeMap<Rank, Call>) -> Result<Call, CallError> {
    let Some((first_rank, first)) = calls.first_key_value() else {
        return Err(CallError::NoRun);
    };
    match calls.iter().find(|(_, call)| call.name() != first.name()) {
        None => Ok(first.clone()),
        Some((rank, other)) => {
            Err(CallError::DifferentCalls { first: *first_rank, one: first.name(), second: *rank, other: other.name() })
        }
    }
}

/// The ranks whose call is like this.
pub(super) fn ranks_where(calls: &BTreeMap<Rank, Call>, wanted: impl Fn(&Call) -> bool) -> Vec<Rank> {
    calls.iter().filter(|(_, call)| wanted(call)).map(|(rank, _)| *rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collective_is_ready_when_the_last_rank_has_called() {
        let mut gather = Gather::new(3, 0);
        assert!(!gather.hear(1, Rank(2), Call::Init));
        assert!(!gather.hear(1, Rank(0), Call::Init));
        assert!(gather.next().is_none());
        gather.hear(1, Rank(1), Call::Init);
        assert_eq!(gather.next().unwrap().0, 1);
    }

    #[test]
    fn a_call_that_is_repeated_counts_once() {
        let mut gather = Gather::new(2, 0);
        gather.hear(1, Rank(0), Call::Init);
        gather.hear(1, Rank(0), Call::Init);
        assert!(gather.next().is_none());
    }

    #[test]
    fn who_missed_the_last_results_gets_them_again_and_a_fast_rank_waits_for_the_next() {
        let mut gather = Gather::new(2, 0);
        gather.hear(1, Rank(0), Call::Init);
        gather.hear(1, Rank(1), Call::Init);
        gather.ended(1);
        assert!(!gather.hear(2, Rank(0), Call::Need));
        assert!(gather.hear(1, Rank(1), Call::Init), "rank 1 repeats what has ended");
        assert!(gather.next().is_none());
        gather.hear(2, Rank(1), Call::Need);
        assert_eq!(gather.next().unwrap().0, 2);
    }

    #[test]
    fn ranks_that_disagree_are_told_who_called_what() {
        let calls = BTreeMap::from([(Rank(0), Call::Start), (Rank(1), Call::Start), (Rank(2), Call::Finalize)]);
        let message = agree(&calls).unwrap_err();
        let message = message.to_string();
        assert!(message.contains("rank 0 called start_checkpoint"), "{message}");
        assert!(message.contains("rank 2 called finalize"), "{message}");
    }

    #[test]
    fn nonsense_numbers_and_ranks_cost_nothing() {
        let mut gather = Gather::new(2, 0);
        gather.hear(1_000_000, Rank(0), Call::Init);
        gather.hear(1, Rank(7), Call::Init);
        assert!(gather.calls.is_empty());
    }
}
