//! Thousands of seeds, and defects that they must detect.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::world::{Defect, Tally, World};

const REPLAY: &str = "cargo test -p holdfast --test simulation pairs::seeds::replay -- --nocapture";

fn run(seed: u64, traced: bool, defect: Option<Defect>) -> Tally {
    World::new(seed, traced, defect).run()
}

/// The seeds to run: 2,000, or the range in `HOLDFAST_PAIRS_SEEDS`.
fn seeds() -> Range<u64> {
    let Ok(range) = std::env::var("HOLDFAST_PAIRS_SEEDS") else { return 0..2_000 };
    let (first, end) = range.split_once("..").unwrap_or_else(|| panic!("HOLDFAST_PAIRS_SEEDS={range}: FIRST..END"));
    first.parse().unwrap()..end.parse().unwrap()
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[test]
fn two_thousand_seeds_of_pairs_violate_no_invariant() {
    let seeds = seeds();
    let (next, results) = (AtomicU64::new(seeds.start), Mutex::new((Tally::default(), Vec::new())));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let result = catch_unwind(AssertUnwindSafe(|| run(seed, false, None)));
                    let (total, failures) = &mut *results.lock().unwrap();
                    match result {
                        Ok(tally) => total.add(tally),
                        Err(panic) => failures.push((seed, message(&*panic))),
                    }
                }
            });
        }
    });
    let (total, failures) = results.into_inner().unwrap();
    for (seed, message) in &failures {
        println!("HOLDFAST_PAIRS_SEED={seed} {REPLAY}\n  {message}");
    }
    println!("{total:?}");
    assert!(failures.is_empty(), "{} seeds failed", failures.len());
    // The seeds reach what they are for.
    let count = seeds.end - seeds.start;
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
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let detected: Vec<_> = [
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
    ]
    .into_iter()
    .map(|(defect, expected)| {
        let texts = (0..2_000).filter_map(|seed| {
            let panic = catch_unwind(AssertUnwindSafe(|| run(seed, false, Some(defect)))).err()?;
            Some(message(&*panic))
        });
        // What a defect leads to may violate several invariants: this is the one for it.
        (defect, expected, texts.into_iter().find(|text| text.contains(expected)))
    })
    .collect();
    std::panic::set_hook(usual);
    for (defect, expected, text) in detected {
        assert!(text.is_some(), "{defect:?} is not detected by {expected:?}");
    }
}
