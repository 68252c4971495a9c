//! `every: auto` against fixed intervals, over many histories of failures: jobs in time alone, with the policy of the
//! agents that decides when a checkpoint is due.

use std::time::Duration;

use holdfast_agent::sources;
use holdfast_model::interval;
use holdfast_testkit::Dice;
use holdfast_wire::fixtures;
use holdfast_wire::run::{CheckpointSchedule, Settings, SourceName};

/// Histories for each kind of job.
const HISTORIES: u64 = 1000;

/// A kind of job; all in seconds.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// What a checkpoint costs, give or take a fifth.
    cost: f64,
    /// The mean time between failures.
    mtbf: f64,
    /// From a failure to the next launch.
    restart: f64,
    work: f64,
}

#[derive(Clone, Copy, Debug)]
enum Chosen {
    Fixed(f64),
    /// `auto`, with `health.mtbf`.
    Given,
    /// `auto`, with the failures of the job.
    Observed,
}

/// The times between failures are exponentially distributed; of a history they are the same for all intervals.
struct History(Dice);

impl History {
    fn next(&mut self, mtbf: f64) -> f64 {
        let uniform = (self.0.roll() >> 11) as f64 / (1_u64 << 53) as f64;
        -mtbf * (1.0 - uniform).ln()
    }
}

/// How long the job takes.
fn run(kind: Kind, chosen: Chosen, seed: u64) -> f64 {
    let (mut failures_of, mut costs) = (History(Dice(seed)), Dice(seed ^ 0x5eed));
    let (mut now, mut saved, mut failures) = (0.0, 0.0, 0_u32);
    let mut next_failure = failures_of.next(kind.mtbf);
    let at = Duration::from_secs_f64;
    loop {
        let mtbf = match chosen {
            Chosen::Given => Some(at(kind.mtbf)),
            Chosen::Observed => interval::observed(failures, at(now)),
            Chosen::Fixed(_) => None,
        };
        let schedule = match chosen {
            Chosen::Fixed(interval) => CheckpointSchedule::Every(at(interval)),
            Chosen::Given | Chosen::Observed => CheckpointSchedule::Share(5),
        };
        let settings = Settings {
            schedule: Some(schedule),
            mtbf,
            source: SourceName("command".to_owned()),
            ..fixtures::settings("/prefix", "/cache", 1, holdfast_core::redundancy::local::NAME)
        };
        let mut policy = sources::open(&settings).unwrap().policy();
        policy.computing_begins(at(now));
        let mut work = saved;
        // Until the next failure, or the end.
        loop {
            let due = policy.due_at(false).unwrap().as_secs_f64().max(now);
            let end = now + (kind.work - work);
            if end.min(due) >= next_failure {
                break;
            }
            if end <= due {
                return end;
            }
            work += due - now;
            let cost = kind.cost * (0.8 + 0.4 * f64::from(costs.below(1000_u32)) / 1000.0);
            if due + cost >= next_failure {
                break;
            }
            policy.checkpoint_begins(at(due));
            now = due + cost;
            policy.checkpoint_complete(at(now));
            policy.ranks_go_on(at(now));
            saved = work;
        }
        failures += 1;
        now = next_failure + kind.restart;
        next_failure = now + failures_of.next(kind.mtbf);
    }
}

fn mean(kind: Kind, chosen: Chosen) -> f64 {
    (0..HISTORIES).map(|seed| run(kind, chosen, seed)).sum::<f64>() / HISTORIES as f64
}

#[test]
fn auto_is_within_5_percent_of_the_best_fixed_interval() {
    // Checkpoints from a ten thousandth to a hundredth of the time between failures.
    for (cost, mtbf) in [(8.0, 86_400.0), (30.0, 43_200.0), (60.0, 14_400.0), (60.0, 6000.0)] {
        let kind = Kind { cost, mtbf, restart: 120.0, work: 4.0 * mtbf };
        let optimum = (2.0 * cost * mtbf).sqrt();
        let fixed = (-6..=6).map(|step| optimum * 1.25_f64.powi(step));
        let best = fixed.map(|interval| mean(kind, Chosen::Fixed(interval))).fold(f64::INFINITY, f64::min);
        for chosen in [Chosen::Given, Chosen::Observed] {
            let auto = mean(kind, chosen);
            assert!(auto <= best * 1.05, "{kind:?}, {chosen:?}: {auto:.0} s, and {best:.0} s at best");
        }
    }
}
