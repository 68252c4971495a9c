//! Ten thousand seeded storms: most on a few nodes, some on thousands.

use std::collections::BTreeMap;

use holdfast_testkit::Dice;

use crate::simulation::{Simulation, Weather};

fn storms(seeds: std::ops::Range<u64>, takeovers: bool) -> BTreeMap<u8, u32> {
    let mut codes = BTreeMap::new();
    for seed in seeds {
        let mut dice = Dice(seed ^ 0x5eed);
        let needed = 1 + dice.below(6) as u32;
        let nodes = needed as usize + dice.below(6) as usize;
        let weather = Weather {
            nodes,
            needed,
            min_nodes: 1 + dice.below(u64::from(needed)) as u32,
            misfortune_every: 50 + dice.below(3000),
            misfortunes: 1 + dice.below(20),
            takeovers,
        };
        let outcome = std::panic::catch_unwind(|| Simulation::new(seed, weather.clone()).run());
        let outcome = outcome.unwrap_or_else(|_| panic!("seed {seed}, {weather:?}"));
        *codes.entry(outcome.exit_code()).or_default() += 1;
    }
    codes
}

#[test]
fn in_no_storm_a_down_node_is_used_a_generation_overlaps_another_or_the_loop_does_not_end() {
    let codes = storms(0..7_000, false);
    for code in [
        holdfast::exit::FINISHED,
        holdfast::exit::NOT_FINISHED,
        holdfast::exit::NO_PROGRESS,
        holdfast::exit::APPLICATION_ERROR,
    ] {
        assert!(codes.get(&code).copied().unwrap_or(0) > 50, "the storms reach every kind of end: {codes:?}");
    }
}

#[test]
fn the_same_holds_when_the_orchestrator_is_killed_and_another_one_takes_over() {
    storms(7_000..10_000, true);
}

#[test]
fn the_same_holds_on_five_thousand_nodes() {
    for seed in 0..2 {
        let weather = Weather {
            nodes: 5_000,
            needed: 4_900,
            min_nodes: 4_900,
            misfortune_every: 300,
            misfortunes: 30,
            takeovers: false,
        };
        Simulation::new(seed, weather).run();
    }
}
