//! A new agent takes over the copies of another one.

use holdfast_model::pair::{CopyState, Term};

use super::*;
use crate::{Found, HeldLease, Snapshot};

fn found(side: Side, incarnation: u64, state: CopyState) -> Found {
    Found { side, incarnation, pid: Some(70 + incarnation as u32), state, finished: false }
}

fn gone(side: Side, incarnation: u64, state: CopyState, finished: bool) -> Found {
    Found { side, incarnation, pid: None, state, finished }
}

fn adopt(snapshot: &Snapshot, found: &[Found]) -> (Pair, String) {
    let at = ms(50_000);
    // As it is read from the disk.
    let snapshot = serde_json::from_str(&serde_json::to_string(snapshot).unwrap()).unwrap();
    let (machine, actions) = PairMachine::restore(&config(), LocalSides::Both, &snapshot, found, None, at);
    (Pair { machine, at }, line(&actions))
}

#[test]
fn copies_that_run_go_on() {
    let snapshot = Pair::running().machine.snapshot();
    let copies = [found(MAIN, 1, CopyState::Awake), found(REPLICA, 1, CopyState::Asleep)];
    let (mut pair, actions) = adopt(&snapshot, &copies);
    assert_eq!(actions, "watch:main1 [main adopted awake] [replica adopted asleep]");
    assert_eq!(
        pair.exits(MAIN, 1, RankEnd::Unknown),
        "unwatch:main1 wake:replica1 watch:replica1 [main failed awake: unknown exit status] \
         [fail-over 0: unknown exit status]"
    );
}

#[test]
fn a_main_that_ended_without_an_agent_is_replaced_at_once() {
    let snapshot = Pair::running().machine.snapshot();
    let copies = [gone(MAIN, 1, CopyState::Awake, false), found(REPLICA, 1, CopyState::Asleep)];
    let (_, actions) = adopt(&snapshot, &copies);
    assert_eq!(
        actions,
        "unwatch:main1 wake:replica1 watch:replica1 [replica adopted asleep] \
         [main failed awake: unknown exit status] [fail-over 0: unknown exit status]"
    );
}

#[test]
fn a_pair_that_finished_without_an_agent_is_not_run_again() {
    let snapshot = Pair::running().machine.snapshot();
    let copies = [gone(MAIN, 1, CopyState::Awake, true), found(REPLICA, 1, CopyState::Asleep)];
    let (pair, actions) = adopt(&snapshot, &copies);
    assert_eq!(actions, "unwatch:main1 stop:replica1 [replica adopted asleep] [main finished]");
    let (pair, actions) = adopt(&pair.machine.snapshot(), &[gone(REPLICA, 1, CopyState::Asleep, false)]);
    assert_eq!((actions.as_str(), pair.machine.is_over(), pair.machine.is_gone()), ("", true, true));
}

#[test]
fn a_fail_back_that_was_under_way_goes_on() {
    let mut before = Pair::failed_over();
    before.at(1000);
    before.registers(MAIN, 2);
    let copies = [found(MAIN, 2, CopyState::Asleep), found(REPLICA, 1, CopyState::Ending)];
    let (mut pair, actions) = adopt(&before.machine.snapshot(), &copies);
    assert_eq!(actions, "stop:replica1 [main adopted asleep] [replica adopted ending]");
    assert_eq!(pair.at(50_050), "kill:replica1");
    assert_eq!(pair.exits(REPLICA, 1, RankEnd::Unknown), "wake:main2 watch:main2 start:replica2 [fail-back 0]");
}

#[test]
fn of_two_that_are_awake_the_main_was_killed() {
    let mut before = Pair::running();
    before.on(hang(1, MAIN));
    let copies = [found(MAIN, 1, CopyState::Awake), found(REPLICA, 1, CopyState::Awake)];
    let (pair, actions) = adopt(&before.machine.snapshot(), &copies);
    assert!(actions.contains("kill:main1"), "{actions}");
    assert!(!actions.contains(" wake:"), "{actions}");
    assert_eq!(pair.states(), "ending / awake");
}

#[test]
fn without_a_snapshot_nothing_is_started_twice() {
    let copies = [found(MAIN, 7, CopyState::Awake), found(REPLICA, 3, CopyState::Starting)];
    let (mut pair, actions) = adopt(&Snapshot::default(), &copies);
    assert_eq!(actions, "watch:main7 [main adopted awake] [replica adopted starting]");
    assert_eq!(pair.registers(REPLICA, 3), "[replica asleep]");
}

#[test]
fn every_combination_leaves_at_most_one_awake_and_none_asleep_for_nothing() {
    let states = [CopyState::Starting, CopyState::Asleep, CopyState::Awake, CopyState::Ending, CopyState::Absent];
    for (main, replica) in states.iter().flat_map(|main| states.iter().map(move |replica| (*main, *replica))) {
        for (kept_main, kept_replica) in states.iter().flat_map(|a| states.iter().map(move |b| (*a, *b))) {
            let copy = |state| Some(crate::CopySnapshot { state, incarnation: 4, ..Default::default() });
            let snapshot = Snapshot { main: copy(kept_main), replica: copy(kept_replica), ..Snapshot::default() };
            let copies: Vec<Found> = [(MAIN, main), (REPLICA, replica)]
                .into_iter()
                .filter(|(_, state)| *state != CopyState::Absent)
                .map(|(side, state)| found(side, 4, state))
                .collect();
            let (pair, actions) = adopt(&snapshot, &copies);
            let status = pair.machine.status(0);
            let case = format!("{main} {replica}, kept {kept_main} {kept_replica}: {actions}");
            let awake = Side::BOTH.into_iter().filter(|side| status.copy(*side).unwrap().state == CopyState::Awake);
            assert!(awake.count() <= 1, "{case}");
            for (side, state) in [(MAIN, main), (REPLICA, replica)] {
                let started = actions.contains(&format!("start:{side}"));
                assert!(!started || state == CopyState::Absent, "{case}");
            }
            let asleep = Side::BOTH.into_iter().any(|side| status.copy(side).unwrap().state == CopyState::Asleep);
            let ending = [main, replica].contains(&CopyState::Ending);
            assert!(!asleep || status.awake().is_some() || ending || pair.deadline().is_some(), "{case}");
        }
    }
}

#[test]
fn what_the_other_node_has_sent_is_still_known() {
    let mut before = Pair::new(LocalSides::Only(MAIN)).0;
    let mirrored = holdfast_model::pair::MirroredCheckpoint { term: Term { epoch: 1, number: 2 }, sequence: 7 };
    before.on(Event::Mirrored(mirrored));
    let mut snapshot = before.machine.snapshot();
    assert_eq!(snapshot.mirrored.term, mirrored.term);
    // As the agent reads it from shared memory.
    snapshot.mirrored.sequence = 9;
    let (machine, _) = PairMachine::restore(&config(), LocalSides::Only(MAIN), &snapshot, &[], None, ms(5));
    assert_eq!(machine.status(0).lease.unwrap().mirrored, snapshot.mirrored);
}

#[test]
fn an_awake_copy_needs_a_lease_whose_end_is_known() {
    let sides = LocalSides::Only(MAIN);
    let copies = [found(MAIN, 1, CopyState::Awake)];
    let adopt = |lease| {
        let (machine, actions) =
            PairMachine::restore(&config(), sides, &Snapshot::default(), &copies, lease, ms(50_000));
        (machine.next_deadline(), line(&actions))
    };
    let term = Term { epoch: 1, number: 1 };
    let (deadline, actions) = adopt(Some(HeldLease { term, until: ms(50_700) }));
    assert_eq!((deadline, actions.as_str()), (Some(ms(50_700)), "watch:main1 [main adopted awake]"));
    for lease in [None, Some(HeldLease { term, until: ms(49_999) })] {
        let (_, actions) = adopt(lease);
        assert!(actions.contains("kill:main1") && actions.contains("[main lease expired]"), "{actions}");
    }
}
