//! Ten thousand seeds on all cores; each failing one is printed with the command that replays it.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use crate::files::FileRates;
use crate::scenario::{PATTERN, Scenario};
use crate::world::{Defect, World};

/// The run ends after this many failing seeds.
const MOST_FAILURES: usize = 10;

fn run(seed: u64, defect: Option<Defect>) -> u8 {
    World::new(seed, Scenario::of(seed), false, defect).run().exit_code()
}

thread_local! {
    /// Panics of this thread are reported by the test.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Suppresses the messages of panics in this thread.
fn suppress_panic_messages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
    QUIET.set(true);
}

/// The results of many seeds.
#[derive(Debug, Default)]
pub struct Tally {
    pub codes: BTreeMap<u8, u64>,
    pub failures: Vec<(u64, String)>,
    pub slowest: Option<(Duration, u64)>,
}

impl Tally {
    /// Fails with the command that repeats each seed that failed: its variable, and the test that replays it.
    pub fn check(&self, variable: &str, replay: &str) {
        let commands = self.failures.iter().map(|(seed, why)| {
            format!("{variable}={seed} cargo test -p holdfast --test simulation -- {replay} --nocapture\n    {why}")
        });
        let commands: Vec<String> = commands.collect();
        assert!(commands.is_empty(), "{} seeds failed:\n{}", commands.len(), commands.join("\n"));
    }
}

/// Runs seeds on all cores; `run` returns the exit code of one.
pub fn run_all(seeds: Range<u64>, run: impl Fn(u64) -> u8 + Sync) -> Tally {
    let next = AtomicU64::new(seeds.start);
    let tally = Mutex::new(Tally::default());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                suppress_panic_messages();
                loop {
                    // The largest allocations have the last seeds: they are run first, so that no thread runs one
                    // alone at the end.
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= seeds.end {
                        return;
                    }
                    let seed = seeds.end - 1 - (number - seeds.start);
                    let begun = Instant::now();
                    let result = catch_unwind(AssertUnwindSafe(|| run(seed)));
                    let took = begun.elapsed();
                    let mut tally = tally.lock().unwrap();
                    tally.slowest = tally.slowest.max(Some((took, seed)));
                    match result {
                        Ok(code) => *tally.codes.entry(code).or_default() += 1,
                        Err(panic) => tally.failures.push((seed, text_of(&*panic))),
                    }
                    if tally.failures.len() >= MOST_FAILURES {
                        return;
                    }
                }
            });
        }
    });
    tally.into_inner().unwrap()
}

/// Why `run` panics, if it does.
pub fn failure_of(run: impl FnOnce() + Send) -> Option<String> {
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            suppress_panic_messages();
            catch_unwind(AssertUnwindSafe(run)).err().map(|panic| text_of(&*panic))
        });
        running.join().unwrap()
    })
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// The seeds from a variable of the environment.
pub fn range_of(variable: &str, usual: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var(variable) else { return usual };
    let range = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.unwrap_or_else(|| panic!("{variable}={text}: expected FROM..TO"))
}

#[test]
fn ten_thousand_jobs_end_and_violate_no_invariant() {
    let range = range_of("HOLDFAST_SEEDS", 0..PATTERN);
    let usual = std::env::var("HOLDFAST_SEEDS").is_err();
    let begun = Instant::now();
    let tally = run_all(range, |seed| run(seed, None));
    println!("exit codes {:?}, {:?}, slowest {:?}", tally.codes, begun.elapsed(), tally.slowest);
    tally.check("HOLDFAST_SEED", "seeds::replay");
    if usual {
        for code in [
            holdfast::exit::FINISHED,
            holdfast::exit::NOT_FINISHED,
            holdfast::exit::NO_PROGRESS,
            holdfast::exit::APPLICATION_ERROR,
        ] {
            let reached = tally.codes.get(&code).copied().unwrap_or(0);
            assert!(reached > 50, "too few seeds end with code {code}: {:?}", tally.codes);
        }
    }
}

/// Runs the seed of `HOLDFAST_SEED` and prints a trace: of a shorter job that fails, too, if it fails.
#[test]
fn replay() {
    let Ok(seed) = std::env::var("HOLDFAST_SEED") else { return };
    let seed = seed.parse().unwrap();
    let scenario = shorten(Scenario::of(seed), |scenario| drop(World::new(seed, scenario, false, None).run()));
    println!("{scenario:#?}");
    println!("exit code {}", World::new(seed, scenario, true, None).run().exit_code());
}

/// A simpler scenario, or the same one if there is nothing to leave out.
type Simplify = fn(&mut Scenario);

const SIMPLIFICATIONS: &[Simplify] = &[
    |scenario| scenario.runs = 0,
    |scenario| scenario.limit_nodes(scenario.nodes / 2),
    |scenario| scenario.limit_nodes(scenario.nodes - 1),
    |scenario| scenario.faults.most /= 2,
    |scenario| scenario.faults.most = scenario.faults.most.saturating_sub(1),
    |scenario| scenario.iterations = (scenario.iterations - 1).max(1),
    |scenario| scenario.faults.takeovers = false,
    |scenario| scenario.faults.prefix_fails = false,
    |scenario| scenario.faults.interference = false,
    |scenario| (scenario.faults.dies_midway, scenario.faults.in_restarts, scenario.faults.lost_polls) = (0, 0, 0),
    |scenario| scenario.files = scenario.files.map(|rates| FileRates { kills: 0, ..rates }),
    |scenario| scenario.files = scenario.files.map(|rates| FileRates { errors: 0, ..rates }),
    |scenario| scenario.files = scenario.files.map(|rates| FileRates { short_writes: 0, ..rates }),
    |scenario| scenario.files = scenario.files.map(|rates| FileRates { power: 0, ..rates }),
    |scenario| scenario.files = scenario.files.map(|rates| FileRates { outputs: false, ..rates }),
    |scenario| (scenario.container, scenario.settings.flush.container) = (None, None),
];

/// Leaves out of a job that fails what it fails without, until nothing more can be left out.
pub fn shorten(mut scenario: Scenario, run: impl Fn(Scenario) + Sync) -> Scenario {
    let fails = |scenario: &Scenario| failure_of(|| run(scenario.clone()));
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

/// The first of these seeds whose violated invariant is this one, with the message.
fn detected(defect: Defect, message: &str, seeds: Range<u64>) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| {
        let why = failure_of(|| {
            run(seed, Some(defect));
        })?;
        why.contains(message).then_some((seed, why))
    })
}

#[test]
fn detects_each_injected_defect_within_a_few_hundred_seeds() {
    for (defect, message) in [
        (Defect::EncodingNotMade, "reported as protected"),
        (Defect::MemoryNotSaved, "before its result is on disk"),
        (Defect::AllPublishedAsComplete, "indexed as complete"),
        (Defect::OldFilesKept, "reported as protected"),
        (Defect::OldestEvicted, "is the last that survives"),
        (Defect::RestartedEvicted, "is the last that survives"),
        (Defect::RanksNotKilled, "ranks of an older generation are alive"),
        (Defect::HaltReplaced, "the halt of a user is lost"),
        (Defect::StallsCounted, "was not disturbed is restarted"),
        (Defect::DeathsHidden, "and counts as up"),
    ] {
        let (seed, why) = detected(defect, message, 0..600).unwrap_or_else(|| panic!("{defect:?} is not detected"));
        println!("{defect:?}: seed {seed}: {why}");
    }
}
