//! Halt files compared with those of `scr_halt`, `scr_retries_halt` and the library.

// Helpers of tests report as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod originals;

use std::fs;
use std::path::Path;

use chrono::Utc;
use holdfast_core::control::halt::{HaltFile, HaltReason, local_time, reason};
use holdfast_core::kvtree::Tree;
use holdfast_model::HaltCondition;
use originals::{bytes, node, scr};

/// The time at which the fixtures ran `scr_retries_halt`: 2026-11-20 10:26:03.
const ASKED: i64 = 1_795_170_363;

fn time(text: &str) -> i64 {
    chrono::NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S").unwrap().and_utc().timestamp()
}

/// Carries out a command line of `scr_halt` in its order: checkpoints, before, after, seconds.
fn scr_halt(halt: &mut HaltFile, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |option: &str| words.iter().position(|word| *word == option).map(|at| words[at + 1]);
    if let Some(count) = after("-c") {
        halt.set_number(HaltCondition::CheckpointsLeft, count.parse().unwrap());
    }
    if let Some(at) = after("-b") {
        halt.set_number(HaltCondition::Before, time(at));
    }
    if let Some(at) = after("-a") {
        halt.set_number(HaltCondition::After, time(at));
    }
    if let Some(seconds) = after("-s") {
        halt.set_number(HaltCondition::Seconds, seconds.parse().unwrap());
    }
    if words.len() == 1 || words.contains(&"-i") {
        halt.set_reason(reason::JOB_HALTED);
    }
    if line.contains("--unset") {
        assert!(
            halt.unset(HaltCondition::CheckpointsLeft)
                && halt.unset(HaltCondition::Before)
                && halt.unset(HaltCondition::After)
        );
        assert!(halt.unset(HaltCondition::Seconds) && halt.unset(HaltCondition::Reason));
    }
}

/// The sentence of `scr_retries_halt` for a condition.
fn printed(reason: &HaltReason) -> String {
    let now = local_time(ASKED, &Utc);
    match reason {
        HaltReason::TimeLimit { remaining, halt_seconds } => {
            format!("Remaining time ({remaining} seconds) is not more than HaltSeconds ({halt_seconds}).")
        }
        HaltReason::Recorded(reason) => format!("Reason: {reason}."),
        HaltReason::NoCheckpointsLeft => "No checkpoints remaining.".to_owned(),
        HaltReason::ExitBefore { time } => {
            format!("Current time ({now}) is past ExitBefore-HaltSeconds time ({}).", local_time(*time, &Utc))
        }
        HaltReason::ExitAfter { time } => {
            format!("Current time ({now}) is past ExitAfter time ({}).", local_time(*time, &Utc))
        }
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn conditions_of_scr_halt_have_its_bytes_and_the_result_of_scr_retries_halt() {
    let mut cases = 0;
    for entry in fs::read_dir(scr("h-control-files/halt")).unwrap() {
        let case = entry.unwrap().path();
        let (file, commands) = (case.join("halt.scrinfo"), case.join("command.txt"));
        if !commands.exists() || !file.exists() {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let ours = directory.path().join("halt.scrinfo");
        for line in fs::read_to_string(commands).unwrap().lines().filter(|line| !line.ends_with("-l")) {
            HaltFile::update(&ours, |halt| scr_halt(halt, line)).unwrap();
        }
        assert_eq!(bytes(&ours), bytes(&file), "{}", case.display());

        let halt = HaltFile::read(&file).unwrap().unwrap();
        let reasons = halt.check(ASKED, None, None);
        let output = fs::read_to_string(case.join("scr_retries_halt.out")).unwrap();
        let mut expected: Vec<&str> = output.lines().collect();
        let code = expected.pop().unwrap();
        assert_eq!(code, if reasons.is_empty() { "rc=1" } else { "rc=0" }, "{}", case.display());
        // The fixtures ran it within two seconds: the second is removed.
        let without_now =
            |text: &str| text.replace("10:26:01", "now").replace("10:26:02", "now").replace("10:26:03", "now");
        let messages: Vec<String> = reasons
            .iter()
            .map(|reason| without_now(&format!("scr_retries_halt: HALT RUN: {}", printed(reason))))
            .collect();
        assert_eq!(messages, expected.iter().map(|line| without_now(line)).collect::<Vec<_>>());
        cases += 1;
    }
    assert!(cases >= 13, "{cases}");
}

#[test]
fn a_damaged_halt_file_is_an_error() {
    // SCR's tool continues with both.
    let read = |case: &str| HaltFile::read(&scr("h-control-files/halt").join(case).join("halt.scrinfo"));
    let error = read("corrupt").unwrap_err();
    assert!(error.to_string().contains("halt.scrinfo"), "{error}");
    assert_eq!(read("zero-byte").unwrap(), None);
    assert_eq!(HaltFile::read(Path::new("/nonexistent/halt.scrinfo")).unwrap(), None);
    let mut tree = Tree::new();
    tree.put("ExitBefore", "tomorrow");
    assert!(HaltFile::from_tree(tree).is_err());
}

#[test]
fn a_run_limited_to_two_checkpoints_leaves_the_library_s_halt_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("halt.scrinfo");
    HaltFile::update(&path, |halt| halt.set_number(HaltCondition::CheckpointsLeft, 2)).unwrap();
    let settle = |after_checkpoint| HaltFile::settle(&path, ASKED, None, None, after_checkpoint).unwrap();
    assert_eq!(settle(false), []);
    assert_eq!(settle(true), []);
    assert_eq!(settle(true), [HaltReason::NoCheckpointsLeft]);
    assert_eq!(bytes(&path), bytes(&node("h-control-files/library-halts-after-2", 0).join("halt.scrinfo")));
    // The next run stops when it starts, for the recorded reason.
    let reasons = settle(false);
    assert_eq!(reasons[0], HaltReason::Recorded(reason::NO_CHECKPOINTS_LEFT.to_owned()));
    assert_eq!(bytes(&path), bytes(&node("h-control-files/library-halts-after-2-second-run", 0).join("halt.scrinfo")));
}

#[test]
fn every_run_leaves_a_halt_file_with_the_default_seconds_if_it_has_some() {
    let directory = tempfile::tempdir().unwrap();
    let (plain, timed) = (directory.path().join("plain.scrinfo"), directory.path().join("timed.scrinfo"));
    assert_eq!(HaltFile::settle(&plain, ASKED, None, None, false).unwrap(), []);
    assert_eq!(bytes(&plain), bytes(&node("a-xor4/killed-after-flush", 0).join("halt.scrinfo")));
    let reasons = HaltFile::settle(&timed, ASKED, Some(1200), Some(1200), false).unwrap();
    assert_eq!(reasons, [HaltReason::TimeLimit { remaining: 1200, halt_seconds: 1200 }]);
    let halt = HaltFile::read(&timed).unwrap().unwrap();
    assert_eq!((halt.number(HaltCondition::Seconds), halt.reason()), (Some(1200), Some(reason::TIME_LIMIT)));
}

#[test]
fn a_counter_at_zero_stays_there_and_a_negative_one_is_no_limit() {
    let mut halt = HaltFile::new();
    halt.set_number(HaltCondition::CheckpointsLeft, 0);
    halt.decrement();
    assert_eq!(halt.check(0, None, None), [HaltReason::NoCheckpointsLeft]);
    halt.set_number(HaltCondition::CheckpointsLeft, -1);
    halt.decrement();
    assert_eq!((halt.number(HaltCondition::CheckpointsLeft), halt.check(0, None, None).len()), (Some(-1), 0));
}

#[test]
fn conditions_hold_from_their_second_on_and_are_listed_in_scr_s_order() {
    let mut halt = HaltFile::new();
    halt.set_number(HaltCondition::Before, 1000);
    assert!(halt.check(999, None, None).is_empty());
    assert_eq!(halt.check(1000, None, None), [HaltReason::ExitBefore { time: 1000 }]);
    assert_eq!(halt.check(900, None, Some(100)), [HaltReason::ExitBefore { time: 900 }]);
    halt.set_number(HaltCondition::Seconds, 50);
    assert!(halt.check(900, None, Some(100)).is_empty(), "the file's HaltSeconds come first");
    assert!(halt.check(0, Some(51), None).is_empty());
    assert_eq!(halt.check(0, Some(50), None)[0].as_str(), reason::TIME_LIMIT);
    halt.set_number(HaltCondition::After, 2000);
    halt.set_number(HaltCondition::CheckpointsLeft, 0);
    halt.set_reason(reason::FINALIZE_CALLED);
    let names: Vec<String> = halt.check(5000, Some(0), None).iter().map(|reason| reason.as_str().to_owned()).collect();
    let expected = ["TIME_LIMIT", "SCR_FINALIZE_CALLED", "NO_CHECKPOINTS_LEFT", "EXIT_BEFORE_TIME", "EXIT_AFTER_TIME"];
    assert_eq!(names, expected);
    assert!(halt.check(5000, None, None)[0].is_finished());
    halt.set_reason("");
    assert_eq!(halt.reason(), None);
    halt.set_number(HaltCondition::Before, i64::MIN);
    halt.set_number(HaltCondition::Seconds, i64::MAX);
    assert!(!halt.check(0, None, None).is_empty(), "no overflow");
}

#[test]
fn a_halt_file_can_be_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("halt.scrinfo");
    HaltFile::update(&path, |halt| halt.set_number(HaltCondition::CheckpointsLeft, 7)).unwrap();
    assert!(HaltFile::remove(&path).unwrap());
    assert!(!HaltFile::remove(&path).unwrap());
    assert_eq!(HaltFile::read(&path).unwrap(), None);
}
