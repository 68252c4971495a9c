//! Seeds of jobs with real files on all cores; each failing one is printed with the command that replays it.

use std::ops::Range;
use std::sync::Mutex;

use super::{FileRates, Tally};
use crate::scenario::Scenario;
use crate::seeds::{failure_of, range_of, run_all};
use crate::world::{Defect, World};

/// A minute of one processor.
const USUAL: Range<u64> = 0..1_000;

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
        all.lock().unwrap().add(&tally);
        code
    });
    println!("exit codes {:?}, slowest {:?}, {:?}", tally.codes, tally.slowest, all.lock().unwrap());
    tally.check("HOLDFAST_FILES_SEED", "files::seeds::replay");
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

/// Runs the seed of `HOLDFAST_FILES_SEED` and prints a trace: of a shorter job that fails, too, if it fails.
#[test]
fn replay() {
    let Ok(seed) = std::env::var("HOLDFAST_FILES_SEED") else { return };
    let seed = seed.parse().unwrap();
    let scenario = shorten(seed, Scenario::with_files(seed));
    println!("{scenario:#?}");
    println!("{:?}", run(seed, scenario, true));
}

/// A simpler scenario, or the same one if there is nothing to leave out.
type Simplify = fn(&mut Scenario);

const SIMPLIFICATIONS: &[Simplify] = &[
    |scenario| scenario.runs = 0,
    |scenario| scenario.faults.most /= 2,
    |scenario| scenario.faults.most = scenario.faults.most.saturating_sub(1),
    |scenario| scenario.iterations = (scenario.iterations - 1).max(1),
    |scenario| scenario.faults.takeovers = false,
    |scenario| scenario.faults.prefix_fails = false,
    |scenario| scenario.faults.interference = false,
    |scenario| (scenario.faults.dies_midway, scenario.faults.in_restarts, scenario.faults.lost_polls) = (0, 0, 0),
    |scenario| scenario.files = scenario.files.map(|rates| FileRates { kills: 0, ..rates }),
    |scenario| scenario.files = scenario.files.map(|rates| FileRates { errors: 0, ..rates }),
    |scenario| scenario.files = scenario.files.map(|rates| FileRates { power: 0, ..rates }),
];

/// Leaves out of a job that fails what it fails without, until nothing more can be left out.
fn shorten(seed: u64, mut scenario: Scenario) -> Scenario {
    let fails = |scenario: &Scenario| {
        failure_of(|| {
            run(seed, scenario.clone(), false);
        })
    };
    let Some(mut why) = fails(&scenario) else { return scenario };
    loop {
        let simpler = SIMPLIFICATIONS.iter().find_map(|simplify| {
            let mut simpler = scenario.clone();
            simplify(&mut simpler);
            let is_other = format!("{simpler:?}") != format!("{scenario:?}");
            fails(&simpler).filter(|_| is_other).map(|why| (simpler, why))
        });
        match simpler {
            Some(found) => (scenario, why) = found,
            None => break,
        }
    }
    println!("the shortest job of this seed that fails: {why}");
    scenario
}
