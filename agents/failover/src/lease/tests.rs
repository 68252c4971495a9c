//! A pair on nodes 0 and 1, with leases of two seconds. Each agent's clock began 100 s before the orchestrator's.

use holdfast_model::pair::CopyStatus;

use super::*;

const TTL: u64 = 2_000;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn agent_clock(at: u64) -> Duration {
    ms(100_000 + at)
}

fn term(epoch: u64, number: u64) -> Term {
    Term { epoch, number }
}

/// An orchestrator that took over at 0.
fn granter() -> Granter {
    let split = SplitPair { nodes: [0, 1], start_within: ms(500) };
    Granter::new(2, ms(TTL), Duration::ZERO, [(0, split)])
}

/// The agent of a node answers at this time, to a request that was sent 10 ms before.
fn answers(granter: &mut Granter, at: u64, node: u32, state: CopyState, held: Option<Term>) {
    let copy = CopyStatus { state, ..CopyStatus::default() };
    let (main, replica) = if node == 0 { (Some(copy), None) } else { (None, Some(copy)) };
    let lease = Some(LeaseStatus { held, ..LeaseStatus::default() });
    let (name, checkpoint, fail_overs, fail_backs) = (String::new(), 0, 0, 0);
    let status = PairStatus {
        pair: 0,
        name,
        main,
        replica,
        checkpoint,
        checkpoint_age_ms: None,
        missed: 0,
        fail_overs,
        fail_backs,
        lease,
    };
    let answer = Answer { instance: 7, clock: agent_clock(at), asked: ms(at - 10), pairs: &[status] };
    granter.answered(ms(at), node, answer);
}

/// The term that the node is granted, and its end by the orchestrator's clock.
fn granted(granter: &mut Granter, at: u64, node: u32) -> Option<(Term, u64)> {
    let grants = granter.orders(ms(at), node).grants;
    let end = |until: Duration| u64::try_from((until - agent_clock(0)).as_millis()).unwrap();
    grants.first().map(|grant| (grant.term, end(grant.until)))
}

#[test]
fn lease_waits_until_this_orchestrator_is_known_to_be_the_newest_one() {
    let mut granter = granter();
    granter.confirmed(ms(5), ms(4));
    answers(&mut granter, 20, 0, CopyState::Asleep, None);
    answers(&mut granter, 20, 1, CopyState::Asleep, None);
    // The agents may have been started after the record was read.
    assert!(granter.awaits_confirmation());
    assert_eq!(granted(&mut granter, 21, 0), None);
    granter.confirmed(ms(30), ms(25));
    assert!(!granter.awaits_confirmation());
    assert_eq!(granter.urgent().collect::<Vec<_>>(), [0]);
    assert_eq!(granted(&mut granter, 31, 0), Some((term(2, 1), 20 + TTL)));
}

#[test]
fn lease_of_an_earlier_orchestrator_is_renewed_when_both_nodes_obey_this_one() {
    let mut granter = granter();
    answers(&mut granter, 20, 0, CopyState::Awake, Some(term(1, 5)));
    granter.confirmed(ms(30), ms(25));
    // The earlier orchestrator may reach node 1, and give it the next term when this one is over.
    assert_eq!(granted(&mut granter, 31, 0), None);
    answers(&mut granter, 40, 1, CopyState::Asleep, None);
    granter.confirmed(ms(50), ms(45));
    assert_eq!(granted(&mut granter, 51, 0), Some((term(1, 5), 20 + TTL)));
}

#[test]
fn later_one_of_two_terms_of_earlier_orchestrators_counts() {
    let mut granter = granter();
    answers(&mut granter, 20, 0, CopyState::Awake, Some(term(1, 5)));
    answers(&mut granter, 30, 1, CopyState::Awake, Some(term(1, 6)));
    granter.confirmed(ms(50), ms(45));
    assert_eq!(granted(&mut granter, 51, 0), None);
    assert_eq!(granted(&mut granter, 51, 1).map(|(term, _)| term), Some(term(1, 6)));
}

#[test]
fn node_that_alone_answers_gets_the_lease_when_earlier_grants_are_over() {
    let mut granter = granter();
    let over = 20 + TTL + TTL / 10;
    for at in (20..over).step_by(200) {
        answers(&mut granter, at, 1, CopyState::Asleep, None);
        granter.confirmed(ms(at + 2), ms(at + 1));
        assert_eq!(granted(&mut granter, at + 3, 1), None, "at {at}");
    }
    answers(&mut granter, over, 1, CopyState::Asleep, None);
    assert_eq!(granted(&mut granter, over + 3, 1).map(|(term, _)| term), Some(term(2, 1)));
}

#[test]
fn lease_ends_with_the_last_proof_that_no_other_orchestrator_has_the_job() {
    let mut granter = granter();
    for node in [0, 1] {
        answers(&mut granter, 20, node, CopyState::Asleep, None);
    }
    granter.confirmed(ms(30), ms(25));
    granted(&mut granter, 31, 0);
    // The record cannot be read any more. The answers of both nodes prove the same, as of their requests.
    for at in [500, 1_000, 3_000] {
        answers(&mut granter, at, 1, CopyState::Asleep, None);
        answers(&mut granter, at + 50, 0, CopyState::Awake, Some(term(2, 1)));
        assert_eq!(granted(&mut granter, at + 51, 0), Some((term(2, 1), at - 10 + TTL)));
    }
    // Node 1 may obey another orchestrator.
    answers(&mut granter, 4_000, 0, CopyState::Awake, Some(term(2, 1)));
    assert_eq!(granted(&mut granter, 4_001, 0), Some((term(2, 1), 2_990 + TTL)));
    answers(&mut granter, 5_000, 0, CopyState::Awake, Some(term(2, 1)));
    assert_eq!(granted(&mut granter, 5_001, 0), None);
    granter.confirmed(ms(5_010), ms(5_005));
    assert_eq!(granted(&mut granter, 5_011, 0), Some((term(2, 1), 5_000 + TTL)));
}
