//! Which calls were received, and when a collective is complete.

use std::collections::BTreeMap;

use holdfast_model::Rank;
use holdfast_wire::rank::{Call, LARGEST_GATHERED, Reply};

use crate::collective::error::CallError;

/// The calls of the collectives that have not begun.
#[derive(Debug)]
pub(super) struct Gather {
    ranks: u32,
    /// The last collective that ended.
    ended: u64,
    /// The next one is being carried out.
    under_way: bool,
    calls: BTreeMap<u64, Calls>,
}

/// The calls of one collective, by rank.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) by_rank: BTreeMap<Rank, Call>,
    /// Bytes of their payloads.
    payload: usize,
    /// The payloads are larger than can be sent to every rank, and are not kept.
    too_large: bool,
    /// A rank may have made its call because it was sent SIGTERM.
    pub(super) after_sigterm: bool,
}

impl Calls {
    fn add(&mut self, rank: Rank, mut call: Call) {
        if self.too_large {
            call.drop_payload();
        }
        self.payload += call.payload_bytes();
        if let Some(repeated) = self.by_rank.insert(rank, call) {
            self.payload -= repeated.payload_bytes();
        }
        if self.payload > LARGEST_GATHERED {
            // The collective is still gathered, so that all ranks get the error; memory must not grow meanwhile.
            self.too_large = true;
            self.by_rank.values_mut().for_each(Call::drop_payload);
            self.payload = 0;
        }
    }

    /// The results, by rank, of calls that give bytes to every rank.
    ///
    /// # Errors
    /// When they are more than can be sent to every rank.
    pub(super) fn into_gathered(self) -> Result<Reply, CallError> {
        if self.too_large {
            return Err(CallError::GatheredTooLarge { limit: LARGEST_GATHERED });
        }
        let data = self.by_rank.into_values().filter_map(|call| match call {
            Call::Allgather { data } => Some(data),
            _ => None,
        });
        Ok(Reply::Gathered(data.collect()))
    }
}

impl Gather {
    pub(super) fn new(ranks: u32, ended: u64) -> Self {
        Gather { ranks, ended, under_way: false, calls: BTreeMap::new() }
    }

    /// Adds calls, which may be repeated. True if their collective has ended already and its results must be sent
    /// again.
    pub(super) fn receive(&mut self, seq: u64, calls: Vec<(Rank, Call)>) -> bool {
        // A rank that has its answer never asks again. A rank can be one collective ahead of one that is repeated:
        // anything else comes from a faulty program, and only costs the memory of what it sent.
        if seq <= self.ended {
            return seq == self.ended && !calls.is_empty();
        }
        let first = self.ended + 1 + u64::from(self.under_way);
        if (first..=self.ended + 2).contains(&seq) {
            let ranks = self.ranks;
            let known = self.calls.entry(seq).or_default();
            calls.into_iter().filter(|(rank, _)| rank.0 < ranks).for_each(|(rank, call)| known.add(rank, call));
        }
        false
    }

    /// Ranks made a call of this collective after they were sent SIGTERM.
    pub(super) fn note_sigterm(&mut self, seq: u64) {
        if let Some(calls) = self.calls.get_mut(&seq) {
            calls.after_sigterm = true;
        }
    }

    /// True if all ranks have made a later call than this, so that the caller is another process of its rank.
    pub(super) fn is_past(&self, seq: u64) -> bool {
        seq < self.ended
    }

    /// True if ranks that make this call have results that were not saved: those of a collective that has not ended
    /// here. It cannot be repeated, because they do not call it again.
    pub(super) fn is_ahead(&self, seq: u64) -> bool {
        !self.under_way && seq > self.ended + 1
    }

    /// Takes the calls of the next collective, if all ranks have made it and none is under way.
    pub(super) fn begin(&mut self) -> Option<(u64, Calls)> {
        let seq = self.ended + 1;
        let complete = self.calls.get(&seq).is_some_and(|calls| calls.by_rank.len() == self.ranks as usize);
        if self.under_way || !complete {
            return None;
        }
        self.under_way = true;
        self.calls.remove(&seq).map(|calls| (seq, calls))
    }

    /// True if this collective is being carried out.
    pub(super) fn is_under_way(&self, seq: u64) -> bool {
        self.under_way && seq == self.ended + 1
    }

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

/// The ranks whose call matches.
pub(super) fn ranks_where(calls: &BTreeMap<Rank, Call>, matches: impl Fn(&Call) -> bool) -> Vec<Rank> {
    calls.iter().filter(|(_, call)| matches(call)).map(|(rank, _)| *rank).collect()
}
