//! Thousands of seeds, and defects that they must detect.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::world::{Defect, Tally, World};

const REPLAY: &str = "cargo test -p holdfast --test simulation pairs::seeds::replay -- --nocapture";

fn run(seed: u64, traced: bool, defect: Option<Defect>) -> Tally {
    World::new(seed, traced, defect).run()
}

#[test]
fn two_thousand_seeds_of_pairs_violate_no_invariant() {
    let (next, total) = (AtomicU64::new(0), Mutex::new(Tally::default()));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= 2_000 {
                        return;
                    }
                    let result = catch_unwind(AssertUnwindSafe(|| run(seed, false, None)));
                    let tally = result.unwrap_or_else(|_| panic!("HOLDFAST_PAIRS_SEED={seed} {REPLAY}"));
                    total.lock().unwrap().add(tally);
                }
            });
        }
    });
    let total = total.into_inner().unwrap();
    println!("{total:?}");
    // The seeds reach what they are for.
    assert!(total.fail_overs > 5_000 && total.fail_backs > 5_000, "{total:?}");
    assert!(total.handed_over > 1_000 && total.fenced > 1_000 && total.finished > 100, "{total:?}");
}

#[test]
fn replay() {
    let Ok(seed) = std::env::var("HOLDFAST_PAIRS_SEED") else { return };
    println!("{:?}", run(seed.parse().unwrap(), true, None));
}

#[test]
fn each_defect_is_detected_within_a_few_hundred_seeds() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let detected: Vec<_> = [
        (Defect::NotFenced, "two copies"),
        (Defect::ClockOfSending, "two copies"),
        (Defect::NoWaitAfterRestart, "two copies"),
        (Defect::KilledLate, "two copies"),
        (Defect::MirrorByNumber, "goes on from"),
    ]
    .into_iter()
    .map(|(defect, message)| {
        let texts = (0..500).filter_map(|seed| {
            let panic = catch_unwind(AssertUnwindSafe(|| run(seed, false, Some(defect)))).err()?;
            Some(panic.downcast_ref::<String>().cloned().unwrap_or_default())
        });
        (defect, message, texts.into_iter().next())
    })
    .collect();
    std::panic::set_hook(usual);
    for (defect, message, text) in detected {
        let text = text.unwrap_or_else(|| panic!("{defect:?} is not detected"));
        assert!(text.contains(message), "{defect:?}: {text}");
    }
}
