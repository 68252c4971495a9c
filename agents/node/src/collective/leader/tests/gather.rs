use std::collections::BTreeMap;

use holdfast_model::Rank;
use holdfast_wire::payload::Payload;
use holdfast_wire::rank::{Call, LARGEST_CONTRIBUTION, LARGEST_GATHERED, Reply};

use super::super::gather::{Gather, agree};

fn one(rank: u32, call: Call) -> Vec<(Rank, Call)> {
    vec![(Rank(rank), call)]
}

#[test]
fn a_collective_begins_when_the_last_rank_has_called() {
    let mut gather = Gather::new(3, 0);
    assert!(!gather.receive(1, one(2, Call::Init)));
    assert!(!gather.receive(1, one(0, Call::Init)));
    assert!(gather.begin().is_none());
    gather.receive(1, one(1, Call::Init));
    let (seq, calls) = gather.begin().unwrap();
    assert_eq!((seq, calls.by_rank.len()), (1, 3));
    assert!(gather.begin().is_none(), "it is under way");
}

#[test]
fn a_call_that_is_repeated_counts_once() {
    let mut gather = Gather::new(2, 0);
    gather.receive(1, one(0, Call::Init));
    gather.receive(1, one(0, Call::Init));
    assert!(gather.begin().is_none());
}

#[test]
fn calls_repeated_while_their_collective_is_under_way_do_not_begin_it_again() {
    let mut gather = Gather::new(1, 0);
    gather.receive(1, one(0, Call::Init));
    gather.begin().unwrap();
    assert!(!gather.receive(1, one(0, Call::Init)));
    gather.end();
    assert!(gather.begin().is_none());
    assert!(gather.receive(1, one(0, Call::Init)), "its results are sent again");
}

#[test]
fn a_rank_that_missed_the_last_results_gets_them_again_and_a_fast_rank_waits_for_the_next_collective() {
    let mut gather = Gather::new(2, 0);
    gather.receive(1, vec![(Rank(0), Call::Init), (Rank(1), Call::Init)]);
    gather.begin().unwrap();
    gather.end();
    assert!(!gather.receive(2, one(0, Call::Need)));
    assert!(gather.receive(1, one(1, Call::Init)), "rank 1 repeats what has ended");
    assert!(gather.begin().is_none());
    gather.receive(2, one(1, Call::Need));
    assert_eq!(gather.begin().unwrap().0, 2);
}

#[test]
fn ranks_that_make_different_calls_are_named_with_them() {
    let calls = BTreeMap::from([(Rank(0), Call::Start), (Rank(1), Call::Start), (Rank(2), Call::Finalize)]);
    let message = agree(&calls).unwrap_err().to_string();
    assert!(message.contains("rank 0 called start_checkpoint"), "{message}");
    assert!(message.contains("rank 2 called finalize"), "{message}");
}

#[test]
fn impossible_sequence_numbers_and_ranks_are_ignored() {
    let mut gather = Gather::new(1, 0);
    gather.receive(1_000_000, one(0, Call::Init));
    gather.receive(1, one(7, Call::Init));
    assert!(gather.begin().is_none());
}

#[test]
fn a_gathering_over_the_limit_is_an_error_for_all_ranks_and_is_not_kept() {
    let ranks = u32::try_from(LARGEST_GATHERED / LARGEST_CONTRIBUTION).unwrap() + 1;
    // All share the same bytes: the test has them once.
    let data = Payload::from(vec![7; LARGEST_CONTRIBUTION]);
    let given = |ranks| (0..ranks).map(|rank| (Rank(rank), Call::Allgather { data: data.clone() })).collect();

    let mut gather = Gather::new(ranks - 1, 0);
    gather.receive(1, given(ranks - 1));
    gather.receive(1, given(1));
    let (_, just_enough) = gather.begin().unwrap();
    let Ok(Reply::Gathered(parts)) = just_enough.into_gathered() else { panic!("the limit itself is allowed") };
    assert_eq!(parts.len(), ranks as usize - 1);

    let mut gather = Gather::new(ranks + 1, 0);
    gather.receive(1, given(ranks));
    assert!(gather.begin().is_none(), "the others are still waited for");
    gather.receive(1, vec![(Rank(ranks), Call::Allgather { data })]);
    let (_, calls) = gather.begin().unwrap();
    assert!(calls.by_rank.values().all(|call| call.payload_bytes() == 0));
    let error = calls.into_gathered().unwrap_err().to_string();
    assert!(error.contains("more than 268435456 bytes together"), "{error}");
}
