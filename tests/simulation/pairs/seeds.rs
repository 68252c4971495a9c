//! Thousands of seeds, and defects that they must detect.

use std::sync::Mutex;

use super::world::{Defect, Tally, World};
use crate::seeds::{failure_of, range_of, run_all};

fn run(seed: u64, traced: bool, defect: Option<Defect>) -> Tally {
    World::new(seed, traced, defect).run()
}

#[test]
fn two_thousand_seeds_of_pairs_violate_no_invariant() {
    let seeds = range_of("HOLDFAST_PAIRS_SEEDS", 0..2_000);
    let count = seeds.end - seeds.start;
    let total = Mutex::new(Tally::default());
    let results = run_all(seeds, |seed| {
        let tally = run(seed, false, None);
        total.lock().unwrap().add(tally);
        0
    });
    let total = total.into_inner().unwrap();
    println!("{total:?}");
    results.check("HOLDFAST_PAIRS_SEED", "pairs::seeds::replay");
    // The seeds reach what they are for.
    let reached = |happened: u64, of_two_thousand: u64| happened * 2_000 >= count * of_two_thousand;
    assert!(reached(total.fail_overs, 5_000) && reached(total.fail_backs, 5_000), "{total:?}");
    assert!(reached(total.handed_over, 1_000) && reached(total.fenced, 1_000), "{total:?}");
    assert!(reached(total.finished, 100) && reached(total.replaced, 1_000), "{total:?}");
}

#[test]
fn replay() {
    let Ok(seed) = std::env::var("HOLDFAST_PAIRS_SEED") else { return };
    println!("{:?}", run(seed.parse().unwrap(), true, None));
}

#[test]
fn each_defect_is_detected_within_two_thousand_seeds() {
    for (defect, expected) in [
        (Defect::NotFenced, "two copies"),
        (Defect::ClockOfSending, "two copies"),
        (Defect::NoWaitAfterRestart, "two copies"),
        (Defect::KilledLate, "two copies"),
        (Defect::MirrorByNumber, "goes on from"),
        (Defect::EpochIgnored, "two copies"),
        (Defect::ClaimNotRead, "two copies"),
        (Defect::RestartsForgotten, "two copies"),
        (Defect::NotReplaced, "still run"),
        (Defect::FinishedForgotten, "has finished"),
        (Defect::HandedOverWithout, "the main has"),
        (Defect::CheckpointsUnknown, "of which this node has none"),
    ] {
        // What a defect leads to may violate several invariants: this is the one for it.
        let why = |seed| {
            failure_of(|| {
                run(seed, false, Some(defect));
            })
        };
        let fails = |seed| why(seed).is_some_and(|why| why.contains(expected));
        assert!((0..2_000).any(fails), "{defect:?} is not detected by {expected:?}");
    }
}
