//! Seeds of jobs with real files on all cores; each failing one is printed with the command that replays it.

use std::ops::Range;
use std::sync::Mutex;

use super::Tally;
use crate::scenario::Scenario;
use crate::seeds::{failure_of, range_of, run_all, shorten};
use crate::world::{Defect, World};

/// A minute of one processor.
const USUAL: Range<u64> = 0..1_000;

/// Seeds outside the usual ones that have found a defect: files of a restart that were moved before the checkpoint was
/// recorded; ranks that wrote over the files of an earlier output.
const HAVE_FAILED: [u64; 2] = [93_895, 102_332];

fn run(seed: u64, scenario: Scenario, traced: bool) -> (u8, Tally) {
    let (outcome, tally, ..) = World::with_files(seed, scenario, traced, None).run_counted();
    (outcome.exit_code(), tally)
}

#[test]
fn the_same_seed_gives_the_same_job_with_files() {
    for seed in 0..40 {
        let job = || World::with_files(seed, Scenario::with_files(seed), false, None).run_counted();
        let [(_, one, one_end, one_throw), (_, other, other_end, other_throw)] = [job(), job()];
        assert_eq!((one, one_end, one_throw), (other, other_end, other_throw), "seed {seed}");
    }
}

#[test]
fn jobs_with_real_files_end_and_violate_no_invariant() {
    let all = Mutex::new(Tally::default());
    let tally = run_all(range_of("HOLDFAST_FILES_SEEDS", USUAL), |seed| {
        let (code, tally) = run(seed, Scenario::with_files(seed), false);
        all.lock().unwrap().add(tally);
        code
    });
    let happened = *all.lock().unwrap();
    println!("exit codes {:?}, slowest {:?}, {happened:?}", tally.codes, tally.slowest);
    tally.check("HOLDFAST_FILES_SEED", "files::seeds::replay");
    if std::env::var("HOLDFAST_FILES_SEEDS").is_err() {
        assert_eq!(happened.missing(), [""; 0], "did not happen in any of the jobs");
    }
}

#[test]
fn seeds_that_have_failed_violate_no_invariant() {
    for seed in HAVE_FAILED {
        run(seed, Scenario::with_files(seed), false);
    }
}

#[test]
fn detects_each_injected_defect_of_files() {
    for (defect, message) in [
        (Defect::RedundancyWrong, "reported as protected"),
        (Defect::FlushedByHalf, "indexed as complete"),
        (Defect::JournalNotWritten, "reads a state that was not written"),
    ] {
        let run =
            |seed| failure_of(|| drop(World::with_files(seed, Scenario::with_files(seed), false, Some(defect)).run()));
        let found = (0..100).find_map(|seed| run(seed).filter(|why| why.contains(message)).map(|why| (seed, why)));
        let (seed, why) = found.unwrap_or_else(|| panic!("{defect:?} is not detected"));
        println!("{defect:?}: seed {seed}: {why}");
    }
}

#[test]
fn a_job_with_files_that_fails_becomes_short() {
    let run = |seed, scenario| drop(World::with_files(seed, scenario, false, Some(Defect::FlushedByHalf)).run());
    let fails = |seed: &u64| {
        let scenario = Scenario::with_files(*seed);
        let is_long = scenario.world() < 5 && scenario.faults.most > 3 && scenario.iterations > 2 && scenario.runs > 0;
        is_long && failure_of(|| run(*seed, scenario)).is_some()
    };
    let seed = (0..1000).find(fails).unwrap();
    let short = shorten(Scenario::with_files(seed), |scenario| run(seed, scenario));
    let why = failure_of(|| run(seed, short.clone())).unwrap();
    assert!(why.contains("indexed as complete"), "{why}");
    assert_eq!((short.runs, short.faults.most), (0, 0), "the defect needs no faults");
    let whole = Scenario::with_files(seed);
    assert!(short.iterations < whole.iterations && short.nodes < whole.nodes, "{short:?}");
}

/// Runs the seed of `HOLDFAST_FILES_SEED` and prints a trace: of a shorter job that fails, too, if it fails.
#[test]
fn replay() {
    let Ok(seed) = std::env::var("HOLDFAST_FILES_SEED") else { return };
    let seed = seed.parse().unwrap();
    let scenario = shorten(Scenario::with_files(seed), |scenario| {
        run(seed, scenario, false);
    });
    println!("{scenario:#?}");
    println!("{:?}", run(seed, scenario, true));
}
