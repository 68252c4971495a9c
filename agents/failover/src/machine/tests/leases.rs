//! One copy on this node, the other one on another.

use holdfast_model::pair::{CopyState, Grant, MirroredCheckpoint, Term};

use super::*;

fn term(number: u64) -> Term {
    Term { epoch: 3, number }
}

fn grant(number: u64, until: u64) -> Grant {
    Grant { pair: 0, term: term(number), until: ms(until), after: None, cause: None }
}

fn asleep(side: Side) -> Pair {
    let (mut pair, _) = Pair::new(LocalSides::Only(side));
    pair.registers(side, 1);
    pair
}

#[test]
fn a_copy_sleeps_until_its_node_has_the_lease() {
    let (mut pair, started) = Pair::new(LocalSides::Only(MAIN));
    assert_eq!(started, "start:main1");
    assert_eq!(pair.registers(MAIN, 1), "[main asleep]");
    assert_eq!(pair.on(Event::Lease(grant(1, 2000))), "hold:2000 wake:main1 watch:main1 [main awake]");
    assert_eq!(pair.on(Event::Lease(grant(1, 2500))), "hold:2500");
    // A message that was late.
    pair.on(Event::Lease(grant(1, 1000)));
    assert_eq!(pair.deadline(), Some(2500));
}

#[test]
fn an_awake_copy_is_killed_when_the_lease_runs_out() {
    let mut pair = asleep(MAIN);
    pair.on(Event::Lease(grant(1, 2000)));
    assert_eq!(pair.at(1999), "");
    assert_eq!(pair.at(2000), "kill:main1 unwatch:main1 release [main lease expired]");
    let lease = pair.machine.status(0).lease.unwrap();
    assert_eq!((lease.held, lease.released), (None, term(1)));
    assert_eq!(pair.exits(MAIN, 1, KILLED), "flush start:main2");
    pair.registers(MAIN, 2);
    // The term is over for ever.
    assert_eq!(pair.on(Event::Lease(grant(1, 9000))), "");
    assert_eq!(pair.on(Event::Lease(grant(2, 9000))), "hold:9000 wake:main2 watch:main2 [main awake]");
}

#[test]
fn a_failed_copy_gives_the_lease_back_when_it_is_gone() {
    let mut pair = asleep(MAIN);
    pair.on(Event::Lease(grant(1, 2000)));
    assert_eq!(pair.on(hang(1, MAIN)), "kill:main1 unwatch:main1 [main failed awake: 3 heartbeats missed]");
    assert_eq!(pair.machine.status(0).lease.unwrap().held, Some(term(1)));
    assert_eq!(pair.exits(MAIN, 1, KILLED), "flush release");
    let lease = pair.machine.status(0).lease.unwrap();
    assert_eq!(lease.cause, Some(FailureCause::Hang { misses: 3 }));
    assert_eq!((lease.held, lease.released), (None, term(1)));
}

#[test]
fn a_revoked_copy_ends_and_its_checkpoint_is_sent_before_the_release() {
    let mut pair = asleep(REPLICA);
    assert_eq!(pair.on(Event::Lease(grant(1, 2000))), "hold:2000 wake:replica1 watch:replica1 suspend [replica awake]");
    assert_eq!(pair.on(Event::Revoke(term(1))), "stop:replica1 unwatch:replica1");
    assert_eq!(pair.on(Event::Revoke(term(1))), "");
    assert_eq!(pair.at(50), "kill:replica1");
    assert_eq!(pair.exits(REPLICA, 1, KILLED), "flush start:replica2 release resume");
}

#[test]
fn a_revocation_overtakes_its_grant() {
    let mut pair = asleep(MAIN);
    assert_eq!(pair.on(Event::Revoke(term(4))), "");
    assert_eq!(pair.on(Event::Lease(grant(4, 2000))), "");
    assert_eq!(pair.on(Event::Lease(grant(5, 2000))), "hold:2000 wake:main1 watch:main1 [main awake]");
    // A revocation of an older term.
    assert_eq!(pair.on(Event::Revoke(term(4))), "");
    assert_eq!(pair.states(), "awake / elsewhere");
}

#[test]
fn the_main_waits_for_the_last_checkpoint_of_the_replica_but_not_for_long() {
    let after = MirroredCheckpoint { term: term(1), sequence: 40 };
    let mirrored = |number, sequence| Event::Mirrored(MirroredCheckpoint { term: term(number), sequence });
    let second = Grant { after: Some(after), cause: Some(FailureCause::Command), ..grant(2, 5000) };
    let mut pair = asleep(MAIN);
    assert_eq!(pair.on(Event::Lease(second.clone())), "hold:5000");
    assert_eq!(pair.on(mirrored(0, 90)), "");
    assert_eq!(pair.on(mirrored(1, 39)), "");
    pair.at = ms(30);
    assert_eq!(pair.on(mirrored(1, 40)), "wake:main1 watch:main1 [fail-back 30000]");

    let mut pair = asleep(MAIN);
    pair.on(Event::Lease(second));
    assert_eq!(pair.deadline(), Some(1000));
    assert_eq!(pair.at(1000), "wake:main1 watch:main1 [fail-back 1000000]");
}

#[test]
fn a_lease_without_a_copy_that_could_use_it_is_given_back() {
    let (mut pair, _) = Pair::new(LocalSides::Only(REPLICA));
    assert_eq!(pair.on(Event::Lease(grant(1, 2000))), "hold:2000 release");
    assert_eq!(pair.machine.status(0).lease.unwrap().released, term(1));
}

#[test]
fn the_other_nodes_success_ends_this_copy() {
    let mut pair = asleep(REPLICA);
    assert_eq!(pair.on(Event::PeerFinished), "stop:replica1");
    assert_eq!(pair.exits(REPLICA, 1, RankEnd::Signal(15)), "");
    assert_eq!(pair.machine.status(0).replica.unwrap().state, CopyState::Absent);
    assert!(pair.machine.is_gone());
}

#[test]
fn a_replica_that_takes_over_reports_why() {
    let mut pair = asleep(REPLICA);
    let lost = Grant { cause: Some(FailureCause::NodeLost), ..grant(2, 2000) };
    let actions = pair.machine.on(ms(0), Event::Lease(lost));
    assert_eq!(cause_of(&actions), Some(FailureCause::NodeLost));
}
