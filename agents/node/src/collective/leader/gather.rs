//! Which calls have come in, and when a collective is complete.

use std::collections::BTreeMap;

use holdfast_model::Rank;
use holdfast_wire::rank::Call;

use crate::collective::CallError;

/// The calls of the collectives that have not begun, and how far the run is.
#[derive(Debug)]
pub(super) struct Gather {
    ranks: u32,
    /// The last collective that ended.
    ended: u64,
    /// The next one is being carried out: all its calls are known.
    under_way: bool,
    calls: BTreeMap<u64, BTreeMap<Rank, Call>>,
}

impl Gather {
    /// Nothing has come in since collective `ended`.
    pub(super) fn new(ranks: u32, ended: u64) -> Self {
        Gather { ranks, ended, under_way: false, calls: BTreeMap::new() }
    }

    /// Ranks make a call, or repeat it. True if that collective has ended already, and its results are to be sent
    /// again.
    pub(super) fn receive(&mut self, seq: u64, calls: Vec<(Rank, Call)>) -> bool {
        // A rank that has its answer never asks again, and no rank can be two collectives ahead of another: anything
        // else comes from a faulty program, and only costs the memory of what it sent.
        if seq <= self.ended {
            return seq == self.ended && !calls.is_empty();
        }
        let first = self.ended + 1 + u64::from(self.under_way);
        if (first..=self.ended + 2).contains(&seq) {
            let ranks = self.ranks;
            self.calls.entry(seq).or_default().extend(calls.into_iter().filter(|(rank, _)| rank.0 < ranks));
        }
        false
    }

    /// Hands over the calls of the next collective, if all ranks have made it and none is under way.
    pub(super) fn begin(&mut self) -> Option<(u64, BTreeMap<Rank, Call>)> {
        let seq = self.ended + 1;
        let complete = self.calls.get(&seq).is_some_and(|calls| calls.len() == self.ranks as usize);
        if self.under_way || !complete {
            return None;
        }
        self.under_way = true;
        self.calls.remove(&seq).map(|calls| (seq, calls))
    }

    /// The collective that is under way, or else the last one that ended.
    pub(super) fn current(&self) -> u64 {
        self.ended + u64::from(self.under_way)
    }

    /// The collective that is under way has ended.
    pub(super) fn end(&mut self) {
        self.ended += 1;
        self.under_way = false;
    }
}

/// The call that all ranks made: that of the first rank.
///
/// # Errors
/// When a rank made another one.
pub(super) fn agree(calls: &BTreeMap<Rank, Call>) -> Result<&Call, CallError> {
    let Some((first_rank, first)) = calls.first_key_value() else {
        return Err(CallError::NoRun);
    };
    match calls.iter().find(|(_, call)| call.name() != first.name()) {
        None => Ok(first),
        Some((rank, other)) => {
            Err(CallError::DifferentCalls { first: *first_rank, one: first.name(), second: *rank, other: other.name() })
        }
    }
}

/// The ranks whose call is like this.
pub(super) fn ranks_where(calls: &BTreeMap<Rank, Call>, wanted: impl Fn(&Call) -> bool) -> Vec<Rank> {
    calls.iter().filter(|(_, call)| wanted(call)).map(|(rank, _)| *rank).collect()
}
