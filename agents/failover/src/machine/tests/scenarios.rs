//! One node, both copies.

use holdfast_model::pair::{CopyState, PairCommand};

use super::*;
use crate::CommandRefused;

#[test]
fn the_main_is_woken_first_and_the_replica_sleeps() {
    let (mut pair, started) = Pair::new(LocalSides::Both);
    assert_eq!(started, "start:main1 start:replica1");
    assert_eq!(pair.on(Event::Started { side: MAIN, incarnation: 1, pid: 77 }), "[main started]");
    assert_eq!(pair.registers(REPLICA, 1), "[replica asleep]");
    assert_eq!(pair.registers(MAIN, 1), "wake:main1 watch:main1 [main asleep] [main awake]");
    assert_eq!(pair.states(), "awake / asleep");
    assert_eq!(pair.machine.status(4).main.unwrap().pid, Some(77));
    assert_eq!(pair.deadline(), None);
}

#[test]
fn a_main_that_exits_is_replaced_at_once_and_started_again_after_the_pause() {
    let mut pair = Pair::running();
    pair.at = ms(500);
    let actions = pair.machine.on(pair.at, Event::Exited { side: MAIN, incarnation: 1, end: KILLED, finished: false });
    assert_eq!(
        line(&actions),
        "unwatch:main1 wake:replica1 watch:replica1 [main failed awake: signal 9] [fail-over 0: signal 9]"
    );
    assert_eq!(cause_of(&actions), Some(FailureCause::Exit { end: KILLED }));
    assert_eq!(pair.deadline(), Some(1500));
    assert_eq!(pair.at(1499), "");
    assert_eq!(pair.at(1500), "start:main2");
}

#[test]
fn a_main_that_hangs_is_killed_before_the_replica_is_woken() {
    let mut pair = Pair::running();
    assert_eq!(
        pair.on(hang(1, MAIN)),
        "kill:main1 unwatch:main1 wake:replica1 watch:replica1 [main failed awake: 3 heartbeats missed] \
         [fail-over 0: 3 heartbeats missed]"
    );
    // Its slot is not used again before the process is gone.
    assert_eq!(pair.at(5000), "");
    assert_eq!(pair.exits(MAIN, 1, KILLED), "start:main2");
}

#[test]
fn a_failure_without_a_replica_wakes_it_as_soon_as_it_registers() {
    let (mut pair, _) = Pair::new(LocalSides::Both);
    pair.registers(MAIN, 1);
    assert_eq!(pair.exits(MAIN, 1, RankEnd::Code(1)), "unwatch:main1 [main failed awake: exit code 1]");
    pair.at = ms(20);
    assert_eq!(
        pair.registers(REPLICA, 1),
        "wake:replica1 watch:replica1 [replica asleep] [fail-over 20000: exit code 1]"
    );
}

#[test]
fn without_a_replica_the_main_goes_on_by_itself() {
    let (mut pair, _) = Pair::new(LocalSides::Both);
    pair.registers(MAIN, 1);
    pair.exits(REPLICA, 1, RankEnd::Code(3));
    pair.exits(MAIN, 1, KILLED);
    assert_eq!(pair.at(1000), "start:main2 start:replica2");
    assert_eq!(pair.registers(MAIN, 2), "wake:main2 watch:main2 [main asleep] [main awake]");
}

#[test]
fn a_main_that_is_back_takes_over_when_the_replica_is_gone() {
    let mut pair = Pair::failed_over();
    pair.at(1000);
    pair.at = ms(1100);
    assert_eq!(pair.registers(MAIN, 2), "stop:replica1 unwatch:replica1 [main asleep]");
    assert_eq!(pair.states(), "asleep / ending");
    assert_eq!(pair.deadline(), Some(1150));
    pair.at = ms(1110);
    assert_eq!(pair.exits(REPLICA, 1, RankEnd::Signal(15)), "wake:main2 watch:main2 start:replica2 [fail-back 10000]");
    assert_eq!(pair.registers(REPLICA, 2), "[replica asleep]");
    let status = pair.machine.status(0);
    assert_eq!((status.fail_overs, status.fail_backs, status.replica.unwrap().failures), (1, 1, 0));
}

#[test]
fn a_replica_that_does_not_end_is_killed_after_the_grace() {
    let mut pair = Pair::failed_over();
    pair.at(1000);
    pair.registers(MAIN, 2);
    assert_eq!(pair.at(1049), "");
    assert_eq!(pair.at(1050), "kill:replica1");
    assert_eq!(pair.at(9000), "");
    assert_eq!(pair.states(), "asleep / ending");
    assert_eq!(pair.exits(REPLICA, 1, KILLED), "wake:main2 watch:main2 start:replica2 [fail-back 8000000]");
}

#[test]
fn a_main_that_fails_while_the_replica_ends_is_replaced_by_the_next_replica() {
    let mut pair = Pair::failed_over();
    pair.at(1000);
    pair.registers(MAIN, 2);
    assert_eq!(pair.exits(MAIN, 2, KILLED), "[main failed asleep: signal 9]");
    assert_eq!(pair.exits(REPLICA, 1, KILLED), "start:replica2");
    assert_eq!(pair.registers(REPLICA, 2), "wake:replica2 watch:replica2 [replica asleep] [replica awake]");
}

#[test]
fn a_replica_that_is_lost_asleep_is_started_again() {
    let mut pair = Pair::running();
    assert_eq!(pair.exits(REPLICA, 1, KILLED), "[replica failed asleep: signal 9]");
    assert_eq!(pair.states(), "awake / absent");
    assert_eq!(pair.at(1000), "start:replica2");
    assert_eq!(pair.registers(REPLICA, 2), "[replica asleep]");
    // The pause doubles.
    pair.exits(REPLICA, 2, KILLED);
    assert_eq!(pair.deadline(), Some(3000));
}

#[test]
fn a_replica_that_is_lost_as_it_is_woken_leaves_the_pair_to_the_main() {
    let mut pair = Pair::failed_over();
    pair.at = ms(300);
    assert_eq!(pair.exits(REPLICA, 1, KILLED), "unwatch:replica1 [replica failed awake: signal 9]");
    assert_eq!(pair.at(1000), "start:main2");
    pair.at = ms(1100);
    assert_eq!(pair.registers(MAIN, 2), "wake:main2 watch:main2 [main asleep] [fail-back 800000]");
    assert_eq!(pair.at(1300), "start:replica2");
}

#[test]
fn after_the_loss_of_both_the_replica_waits_shortly_for_the_main() {
    let mut pair = Pair::failed_over();
    pair.exits(REPLICA, 1, KILLED);
    assert_eq!(pair.at(1000), "start:main2 start:replica2");
    assert_eq!(pair.registers(REPLICA, 2), "[replica asleep]");
    assert_eq!(pair.deadline(), Some(1200));
    assert_eq!(pair.at(1200), "wake:replica2 watch:replica2 [replica awake]");
    assert_eq!(pair.registers(MAIN, 2), "stop:replica2 unwatch:replica2 [main asleep]");
}

#[test]
fn success_of_the_awake_copy_ends_the_pair() {
    let mut pair = Pair::running();
    assert_eq!(pair.done(MAIN, 1), "unwatch:main1 stop:replica1 [main finished]");
    assert!(pair.machine.is_over() && !pair.machine.is_gone());
    assert_eq!(pair.exits(REPLICA, 1, RankEnd::Signal(15)), "");
    assert!(pair.machine.is_gone());
    assert_eq!(pair.states(), "finished / absent");
    assert_eq!(pair.deadline(), None);
    assert_eq!(pair.machine.check(PairCommand::Restart(MAIN)), Err(CommandRefused::Finished));
}

#[test]
fn a_copy_has_finished_the_pair_only_if_it_said_so_and_ended_with_success() {
    for (end, finished, failure) in [
        (RankEnd::SUCCESS, false, "exit code 0 without tag_job_end"),
        (RankEnd::Unknown, false, "unknown exit status"),
        (RankEnd::Code(1), true, "exit code 1"),
        (KILLED, true, "signal 9"),
    ] {
        let mut pair = Pair::running();
        let actions = pair.on(Event::Exited { side: MAIN, incarnation: 1, end, finished });
        assert!(actions.starts_with("unwatch:main1 wake:replica1"), "{actions}");
        assert!(actions.contains(&format!("[main failed awake: {failure}")), "{actions}");
        assert!(!pair.machine.is_over());
    }
}

#[test]
fn a_replica_finishes_the_pair_as_a_main_does_even_while_it_is_told_to_end() {
    let mut pair = Pair::failed_over();
    pair.at(1000);
    pair.registers(MAIN, 2);
    let done = Event::Exited { side: REPLICA, incarnation: 1, end: RankEnd::SUCCESS, finished: true };
    assert_eq!(pair.on(done), "stop:main2 [replica finished]");
}

#[test]
fn a_replica_that_obeys_a_request_to_end_has_not_finished_the_pair() {
    let mut pair = Pair::failed_over();
    pair.at(1000);
    pair.registers(MAIN, 2);
    assert_eq!(pair.exits(REPLICA, 1, RankEnd::SUCCESS), "wake:main2 watch:main2 start:replica2 [fail-back 0]");
}

#[test]
fn a_copy_that_ends_with_success_before_its_turn_has_failed() {
    let mut pair = Pair::running();
    assert_eq!(pair.exits(REPLICA, 1, RankEnd::SUCCESS), "[replica failed asleep: exit code 0 without tag_job_end]");
}

#[test]
fn a_copy_that_said_it_is_done_needs_no_heartbeats_but_must_end() {
    let mut pair = Pair::running();
    assert_eq!(pair.on(Event::Finishing { side: MAIN, incarnation: 1 }), "unwatch:main1");
    assert_eq!(pair.on(hang(1, MAIN)), "");
    assert_eq!(pair.deadline(), Some(30_000));
    assert_eq!(pair.at(30_000), "kill:main1");
    let gone = Event::Exited { side: MAIN, incarnation: 1, end: KILLED, finished: true };
    assert_eq!(pair.on(gone), "stop:replica1 [main finished]");
}

#[test]
fn a_copy_that_has_more_work_after_all_is_watched_again() {
    let mut pair = Pair::running();
    pair.on(Event::Finishing { side: MAIN, incarnation: 1 });
    assert_eq!(pair.on(Event::Resumed { side: MAIN, incarnation: 1 }), "watch:main1");
    assert_eq!(pair.deadline(), None);
    assert_eq!(pair.at(30_000), "");
    assert_eq!(pair.on(Event::Resumed { side: MAIN, incarnation: 1 }), "");
    assert!(pair.on(hang(1, MAIN)).starts_with("kill:main1 unwatch:main1 wake:replica1"));
}

#[test]
fn a_copy_that_was_killed_as_it_had_more_work_after_all_is_started_again() {
    let mut pair = Pair::running();
    pair.on(Event::Finishing { side: MAIN, incarnation: 1 });
    assert_eq!(pair.at(30_000), "kill:main1");
    assert_eq!(
        pair.exits(MAIN, 1, KILLED),
        "unwatch:main1 wake:replica1 watch:replica1 [main failed awake: signal 9] [fail-over 0: signal 9]"
    );
    assert_eq!(pair.at(31_000), "start:main2");
}

#[test]
fn a_copy_is_given_up_after_its_attempts_and_returns_by_command() {
    let mut pair = Pair::running();
    let mut at = 0;
    for (incarnation, pause) in [(1, 1000), (2, 2000), (3, 4000), (4, 8000)] {
        assert_eq!(pair.exits(REPLICA, incarnation, KILLED), "[replica failed asleep: signal 9]");
        at += pause;
        assert_eq!(pair.at(at), format!("start:replica{}", incarnation + 1));
        pair.registers(REPLICA, incarnation + 1);
    }
    assert_eq!(pair.exits(REPLICA, 5, KILLED), "[replica failed asleep: signal 9] [replica given up after 5]");
    assert_eq!(pair.at(99_000_000), "");
    assert_eq!(pair.states(), "awake / given up");
    let refused = pair.machine.check(PairCommand::FailOver);
    assert_eq!(refused, Err(CommandRefused::ReplicaNotAsleep(CopyState::GivenUp)));
    assert_eq!(pair.on(Event::Command(PairCommand::Restart(REPLICA))), "start:replica6");
    assert_eq!(pair.machine.status(0).replica.unwrap().failures, 0);
}

#[test]
fn a_copy_that_never_registers_is_killed_and_counts_as_failed() {
    let (mut pair, _) = Pair::new(LocalSides::Both);
    pair.registers(REPLICA, 1);
    assert_eq!(pair.deadline(), Some(30_000));
    assert_eq!(
        pair.at(30_000),
        "kill:main1 wake:replica1 watch:replica1 [main failed starting: not registered in time] [replica awake]"
    );
    assert_eq!(pair.at(40_000), "");
    assert_eq!(pair.exits(MAIN, 1, KILLED), "start:main2");
}

#[test]
fn a_copy_that_cannot_be_started_counts_as_failed() {
    let (mut pair, _) = Pair::new(LocalSides::Both);
    let reason = "./dnn: not found".to_owned();
    assert_eq!(
        pair.on(Event::StartFailed { side: MAIN, incarnation: 1, reason }),
        "[main failed starting: not started: ./dnn: not found]"
    );
    assert_eq!(pair.registers(REPLICA, 1), "wake:replica1 watch:replica1 [replica asleep] [replica awake]");
}

#[test]
fn a_user_moves_the_work_to_the_replica_and_back() {
    let mut pair = Pair::running();
    assert_eq!(pair.on(Event::Command(PairCommand::FailOver)), "stop:main1 unwatch:main1");
    pair.at = ms(8);
    assert_eq!(
        pair.exits(MAIN, 1, RankEnd::Signal(15)),
        "wake:replica1 watch:replica1 start:main2 [fail-over 8000: requested]"
    );
    // The main waits until it is told.
    assert_eq!(pair.registers(MAIN, 2), "[main asleep]");
    assert_eq!(pair.on(Event::Command(PairCommand::FailBack)), "stop:replica1 unwatch:replica1");
    assert_eq!(pair.exits(REPLICA, 1, KILLED), "wake:main2 watch:main2 start:replica2 [fail-back 0]");
}

#[test]
fn a_preferred_replica_that_fails_is_replaced_by_the_main() {
    let mut pair = Pair::running();
    pair.on(Event::Command(PairCommand::FailOver));
    pair.exits(MAIN, 1, KILLED);
    pair.registers(MAIN, 2);
    assert_eq!(
        pair.exits(REPLICA, 1, KILLED),
        "unwatch:replica1 wake:main2 watch:main2 [replica failed awake: signal 9] [fail-back 0]"
    );
    pair.at(1000);
    assert_eq!(pair.registers(REPLICA, 2), "[replica asleep]");
    assert_eq!(pair.states(), "awake / asleep");
}

#[test]
fn a_main_that_is_restarted_hands_over_to_the_replica() {
    let mut pair = Pair::running();
    assert_eq!(
        pair.on(Event::Command(PairCommand::Restart(MAIN))),
        "kill:main1 unwatch:main1 wake:replica1 watch:replica1 [main failed awake: requested] \
         [fail-over 0: requested]"
    );
    assert_eq!(pair.exits(MAIN, 1, KILLED), "start:main2");
}

#[test]
fn events_of_older_incarnations_are_ignored() {
    let mut pair = Pair::failed_over();
    pair.at(1000);
    assert_eq!(pair.exits(MAIN, 1, KILLED), "");
    assert_eq!(pair.registers(MAIN, 1), "");
    assert_eq!(pair.on(hang(1, MAIN)), "");
    assert_eq!(pair.on(Event::Finishing { side: MAIN, incarnation: 1 }), "");
    assert_eq!(pair.states(), "starting / awake");
}

#[test]
fn the_end_of_the_job_ends_both_copies_and_starts_none() {
    let mut pair = Pair::failed_over();
    assert_eq!(pair.on(Event::End), "stop:replica1 unwatch:replica1");
    assert_eq!(pair.at(50), "kill:replica1");
    assert_eq!(pair.exits(REPLICA, 1, KILLED), "");
    assert!(pair.machine.is_gone() && pair.machine.is_over());
    assert_eq!(pair.at(100_000), "");
}
