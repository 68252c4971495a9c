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
    Granter::new(2, ms(TTL), Duration::ZERO, [(0, split)], &BTreeSet::new())
}

/// The agent of a node answers at this time, to a request that was sent 10 ms before.
fn answers(granter: &mut Granter, at: u64, node: u32, state: CopyState, held: Option<Term>) {
    reports(granter, at, node, state, LeaseStatus { held, ..LeaseStatus::default() });
}

/// The same, with all that the node reports of the lease. Without another term, its own checkpoints are of that under
/// which its copy works, or worked last.
fn reports(granter: &mut Granter, at: u64, node: u32, state: CopyState, lease: LeaseStatus) {
    agent_reports(granter, at, node, 7, state, lease);
}

/// The same of an agent with this number.
fn agent_reports(granter: &mut Granter, at: u64, node: u32, instance: u64, state: CopyState, mut lease: LeaseStatus) {
    if lease.own_newest > 0 && lease.own_term == Term::default() {
        lease.own_term = lease.held.unwrap_or(lease.released);
    }
    let copy = CopyStatus { state, ..CopyStatus::default() };
    let (main, replica) = if node == 0 { (Some(copy), None) } else { (None, Some(copy)) };
    let checkpoint = lease.own_newest.max(lease.mirrored.sequence);
    let status = PairStatus { main, replica, checkpoint, lease: Some(lease), ..PairStatus::default() };
    let answer = Answer { instance, clock: agent_clock(at), asked: ms(at - 10), pairs: &[status] };
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

/// The replica works under the first term, by a report at 30, and the main is asleep on a node without checkpoints.
fn replica_works(own_newest: u64) -> Granter {
    let mut granter = granter();
    answers(&mut granter, 20, 0, CopyState::GivenUp, None);
    answers(&mut granter, 20, 1, CopyState::Asleep, None);
    granter.confirmed(ms(25), ms(22));
    assert_eq!(granted(&mut granter, 26, 1).map(|(term, _)| term), Some(term(2, 1)));
    let held = Some(term(2, 1));
    reports(&mut granter, 30, 1, CopyState::Awake, LeaseStatus { held, own_newest, ..LeaseStatus::default() });
    answers(&mut granter, 40, 0, CopyState::Asleep, None);
    granter
}

fn is_revoked(granter: &mut Granter, at: u64) -> bool {
    !granter.orders(ms(at), 1).revoked.is_empty()
}

fn mirrored(number: u64, sequence: u64) -> LeaseStatus {
    let mirrored = MirroredCheckpoint { term: term(2, number), sequence };
    LeaseStatus { mirrored, ..LeaseStatus::default() }
}

#[test]
fn main_takes_over_again_when_its_node_has_a_checkpoint_of_the_replica() {
    let mut granter = replica_works(90);
    assert!(!is_revoked(&mut granter, 41));
    // Also on request.
    granter.command(ms(42), 0, PairCommand::FailBack);
    assert!(!is_revoked(&mut granter, 43));
    // One of an earlier term does not help, whatever its number.
    reports(&mut granter, 50, 0, CopyState::Asleep, mirrored(0, 100));
    assert!(!is_revoked(&mut granter, 51));
    reports(&mut granter, 60, 0, CopyState::Asleep, mirrored(1, 89));
    assert!(is_revoked(&mut granter, 61));
}

#[test]
fn main_takes_over_again_at_once_from_a_replica_without_checkpoints_and_is_not_told_to_wait_for_one() {
    let mut granter = replica_works(0);
    assert!(is_revoked(&mut granter, 41));
    let released = LeaseStatus { released: term(2, 1), ..LeaseStatus::default() };
    reports(&mut granter, 50, 1, CopyState::Absent, released);
    granter.confirmed(ms(55), ms(52));
    let grants = granter.orders(ms(56), 0).grants;
    assert_eq!(grants.iter().map(|grant| grant.after).collect::<Vec<_>>(), [None]);
}

#[test]
fn main_does_not_take_over_from_a_replica_that_has_an_older_checkpoint_from_before_and_stored_none() {
    let mut granter = granter();
    answers(&mut granter, 20, 0, CopyState::GivenUp, None);
    answers(&mut granter, 20, 1, CopyState::Asleep, None);
    granter.confirmed(ms(25), ms(22));
    granted(&mut granter, 26, 1);
    // It goes on from a checkpoint that the main had stored before its node was started again.
    let lease = LeaseStatus { held: Some(term(2, 1)), ..mirrored(0, 70) };
    reports(&mut granter, 30, 1, CopyState::Awake, lease);
    answers(&mut granter, 40, 0, CopyState::Asleep, None);
    assert!(!is_revoked(&mut granter, 41));
}

#[test]
fn main_without_the_checkpoint_waits_for_it_when_the_replica_fails() {
    for arrives in [true, false] {
        let mut granter = replica_works(90);
        let released = LeaseStatus { released: term(2, 1), own_newest: 90, ..LeaseStatus::default() };
        reports(&mut granter, 50, 1, CopyState::Absent, released.clone());
        answers(&mut granter, 50, 0, CopyState::Asleep, None);
        granter.confirmed(ms(55), ms(52));
        assert_eq!(granted(&mut granter, 56, 0), None);
        if !arrives {
            // Longer than a copy may take to be started again.
            answers(&mut granter, 600, 0, CopyState::Asleep, None);
            granter.confirmed(ms(602), ms(601));
        } else {
            reports(&mut granter, 60, 0, CopyState::Asleep, mirrored(1, 90));
        }
        assert_eq!(granted(&mut granter, 603, 0).map(|(term, _)| term), Some(term(2, 2)), "arrives: {arrives}");
    }
}

#[test]
fn replica_that_failed_goes_on_when_the_main_has_not_its_checkpoint() {
    let mut granter = replica_works(90);
    let released = LeaseStatus { released: term(2, 1), own_newest: 90, ..LeaseStatus::default() };
    reports(&mut granter, 50, 1, CopyState::Asleep, released);
    answers(&mut granter, 50, 0, CopyState::Asleep, None);
    granter.confirmed(ms(55), ms(52));
    assert_eq!(granted(&mut granter, 56, 0), None);
    assert_eq!(granted(&mut granter, 57, 1).map(|(term, _)| term), Some(term(2, 2)));
}

#[test]
fn next_orchestrator_keeps_the_preferred_replica_awake() {
    let split = SplitPair { nodes: [0, 1], start_within: ms(500) };
    for preferred in [BTreeSet::new(), BTreeSet::from([0])] {
        let mut granter = Granter::new(2, ms(TTL), Duration::ZERO, [(0, split)], &preferred);
        answers(&mut granter, 20, 0, CopyState::Asleep, None);
        answers(&mut granter, 20, 1, CopyState::Awake, Some(term(1, 5)));
        granter.confirmed(ms(30), ms(25));
        assert_eq!(is_revoked(&mut granter, 31), preferred.is_empty());
        assert_eq!(granter.replica_preferred(), preferred);
    }
}

/// The report of a node that was started again without its memory.
fn empty() -> LeaseStatus {
    LeaseStatus::default()
}

/// A node that has let go of its lease, and has checkpoints that its copy stored under it.
fn released(epoch: u64, number: u64, own_newest: u64) -> LeaseStatus {
    LeaseStatus { released: term(epoch, number), own_newest, ..LeaseStatus::default() }
}

/// Checkpoints of the other node, of an orchestrator's term.
fn received(epoch: u64, number: u64, sequence: u64) -> LeaseStatus {
    let mirrored = MirroredCheckpoint { term: term(epoch, number), sequence };
    LeaseStatus { mirrored, ..LeaseStatus::default() }
}

#[test]
fn new_orchestrator_wakes_the_copy_whose_node_has_the_checkpoints() {
    // The main's node has lost its memory, or its checkpoints are of an earlier term, and more of them.
    for main in [empty(), received(1, 4, 900), released(1, 4, 900)] {
        for replica in [received(1, 5, 90), released(1, 5, 90)] {
            for state in [CopyState::Starting, CopyState::Asleep] {
                let mut granter = granter();
                reports(&mut granter, 20, 0, state, main.clone());
                reports(&mut granter, 20, 1, CopyState::Asleep, replica.clone());
                granter.confirmed(ms(25), ms(22));
                assert_eq!(granted(&mut granter, 26, 0), None);
                assert_eq!(
                    granted(&mut granter, 27, 1).map(|(term, _)| term),
                    Some(term(2, 1)),
                    "{main:?} {replica:?}"
                );
            }
        }
    }
}

#[test]
fn new_orchestrator_wakes_the_main_that_has_checkpoints_of_the_same_or_a_later_term() {
    for main in [released(1, 5, 90), received(1, 5, 80), released(1, 6, 10)] {
        let mut granter = granter();
        reports(&mut granter, 20, 0, CopyState::Asleep, main.clone());
        reports(&mut granter, 20, 1, CopyState::Asleep, released(1, 5, 90));
        granter.confirmed(ms(25), ms(22));
        assert_eq!(granted(&mut granter, 26, 0).map(|(term, _)| term), Some(term(2, 1)), "{main:?}");
    }
}

#[test]
fn copy_without_the_checkpoints_waits_while_the_other_node_may_go_on_from_them() {
    let kept = || received(1, 5, 90);
    let mut granter = granter();
    // The job has run for long.
    for at in [5_000, 5_400] {
        answers(&mut granter, at, 0, CopyState::Asleep, None);
        reports(&mut granter, at, 1, CopyState::Absent, kept());
        granter.confirmed(ms(at + 2), ms(at + 1));
        assert_eq!(granted(&mut granter, at + 3, 0), None, "at {at}");
    }
    // The checkpoint arrives, the other copy takes too long, is given up, or its node does not answer any more.
    let mut arrived = granter.clone();
    reports(&mut arrived, 5_420, 0, CopyState::Asleep, kept());
    let mut late = granter.clone();
    answers(&mut late, 5_520, 0, CopyState::Asleep, None);
    reports(&mut late, 5_520, 1, CopyState::Absent, kept());
    let mut given_up = granter.clone();
    reports(&mut given_up, 5_420, 1, CopyState::GivenUp, kept());
    answers(&mut granter, 5_410 + TTL, 0, CopyState::Asleep, None);
    for (what, granter, at) in [
        ("arrived", &mut arrived, 5_430),
        ("late", &mut late, 5_530),
        ("given up", &mut given_up, 5_430),
        ("lost", &mut granter, 5_420 + TTL),
    ] {
        granter.confirmed(ms(at - 2), ms(at - 4));
        assert_eq!(granted(granter, at, 0).map(|(term, _)| term), Some(term(2, 1)), "{what}");
    }
}

/// The main works under the first term, and the replica's node has its checkpoints.
fn main_works() -> Granter {
    let mut granter = granter();
    answers(&mut granter, 20, 0, CopyState::Asleep, None);
    answers(&mut granter, 20, 1, CopyState::Asleep, None);
    granter.confirmed(ms(25), ms(22));
    assert_eq!(granted(&mut granter, 26, 0).map(|(term, _)| term), Some(term(2, 1)));
    let held = Some(term(2, 1));
    reports(&mut granter, 30, 0, CopyState::Awake, LeaseStatus { held, own_newest: 90, ..LeaseStatus::default() });
    reports(&mut granter, 30, 1, CopyState::Asleep, mirrored(1, 90));
    granter
}

#[test]
fn lease_is_not_renewed_for_a_new_agent_that_does_not_know_it() {
    let mut granter = main_works();
    // The node was started again, without its memory.
    agent_reports(&mut granter, 500, 0, 8, CopyState::Starting, empty());
    granter.confirmed(ms(502), ms(501));
    assert_eq!(granted(&mut granter, 503, 0), None);
    // It is over by time: whatever the new agent says, it knows nothing of what its predecessor has woken.
    let over = 20 + TTL + TTL / 10;
    for at in (600..over).step_by(200) {
        let lease = LeaseStatus { released: term(2, 1), ..LeaseStatus::default() };
        agent_reports(&mut granter, at, 0, 8, CopyState::Asleep, lease);
        reports(&mut granter, at, 1, CopyState::Asleep, mirrored(1, 90));
        granter.confirmed(ms(at + 2), ms(at + 1));
        assert_eq!((granted(&mut granter, at + 3, 0), granted(&mut granter, at + 3, 1)), (None, None), "at {at}");
    }
    // Then the copy that has the checkpoints goes on from them.
    let over = over + 30;
    agent_reports(&mut granter, over, 0, 8, CopyState::Asleep, empty());
    reports(&mut granter, over, 1, CopyState::Asleep, mirrored(1, 90));
    granter.confirmed(ms(over + 2), ms(over + 1));
    assert_eq!(granted(&mut granter, over + 3, 0), None);
    assert_eq!(granted(&mut granter, over + 3, 1).map(|(term, _)| term), Some(term(2, 2)));
}

#[test]
fn lease_is_renewed_for_a_new_agent_that_has_adopted_the_copy() {
    let mut granter = main_works();
    let held = Some(term(2, 1));
    let lease = LeaseStatus { held, own_newest: 90, ..LeaseStatus::default() };
    agent_reports(&mut granter, 500, 0, 8, CopyState::Awake, lease);
    granter.confirmed(ms(502), ms(501));
    assert_eq!(granted(&mut granter, 503, 0).map(|(term, _)| term), held);
}

#[test]
fn node_without_checkpoints_waits_for_the_first_answer_of_the_other_one_after_a_takeover() {
    let split = SplitPair { nodes: [0, 1], start_within: ms(9_000) };
    for (took_over, lease, waits) in [(true, empty(), true), (false, empty(), false), (true, received(1, 5, 90), false)]
    {
        let mut granter = Granter::new(2, ms(TTL), Duration::ZERO, [(0, split)], &BTreeSet::new());
        if took_over {
            granter.takes_over();
        }
        for (at, is_granted) in [(20, false), (4_000, !waits), (9_100, true)] {
            reports(&mut granter, at, 0, CopyState::Asleep, lease.clone());
            granter.confirmed(ms(at + 2), ms(at + 1));
            assert_eq!(granted(&mut granter, at + 3, 0).is_some(), is_granted, "{took_over} {lease:?} at {at}");
        }
    }
}
