//! Events in random order: agents come and go, requests fail, answers come late or never.

use std::time::Duration;

use holdfast_model::{CheckpointId, ContainerKind, ContainerPolicy, Rank};
use holdfast_testkit::Dice;
use proptest::prelude::*;

use super::world::*;
use crate::drain::*;
use crate::events::DrainResult;
use crate::fleet::roster::RosterChange;

/// More steps than a drain of so few nodes can take.
const LONGEST: usize = 20_000;

fn world(dice: &mut Dice) -> World {
    let nodes = 2 + dice.below(6_u32);
    let scheme = if dice.percent(50) { XOR } else { PARTNER };
    let ids: Vec<u64> = (1..=1 + dice.below(3_u64)).collect();
    let mut world = World::new(nodes, scheme, &ids);
    for (id, cached) in &mut world.datasets {
        cached.output = dice.percent(20);
        cached.checkpoint = !cached.output || dice.percent(50);
        cached.flushed = dice.percent(10) && id.0 == 1;
        cached.unreadable = (0..nodes).filter(|_| dice.percent(5)).map(Rank).collect();
    }
    world.lost_flushes = (1..4).filter(|_| dice.percent(50)).map(CheckpointId).collect();
    world.corrupted = (0..nodes).filter(|_| dice.percent(10)).map(Rank).collect();
    let down: Vec<u32> = (0..nodes).filter(|_| dice.percent(10)).collect();
    world.without(&down);
    let requested = dice.percent(20).then(|| CheckpointId(1 + dice.below(3_u64)));
    let restarting = dice.percent(20);
    let at_once = 1 + dice.below(4_usize);
    let container = dice.percent(50).then_some(ContainerPolicy { kind: ContainerKind::Sion, files: 2 });
    world.configure(|config| {
        config.requested = requested;
        config.requests_at_once = at_once;
        config.container = container;
        if restarting {
            config.lost = std::mem::take(&mut config.down);
        }
        // With checksums, damage during the copy is detected by the agent.
        config.crc = false;
    });
    world.withhold = Box::new(|_| true);
    world
}

/// One step: an answer, or with a probability of `failures` percent a failure or a change of the agents.
fn step(world: &mut World, dice: &mut Dice, failures: u64) {
    let node = dice.below(world.nodes);
    world.now += Duration::from_millis(dice.below(700));
    if dice.percent(failures) {
        match dice.below(3) {
            0 => world.lose(node),
            1 => world.restart(node),
            _ if dice.percent(20) => world.bring_down(node),
            _ => world.feed(DrainEvent::Tick),
        }
        return;
    }
    let open: Vec<RequestId> = world.open.keys().copied().collect();
    let Some(request) = open.get(dice.below(open.len())) else {
        assert!(world.machine.deadline().is_some(), "no request is open, and no node is waited for");
        return world.wait();
    };
    if dice.percent(failures / 2) {
        // It may have been carried out all the same.
        if dice.percent(50) {
            let action = world.open[request].clone();
            world.carry_out(&action);
        }
        world.feed(DrainEvent::Failed { request: *request, failure: "broken".into() });
    } else {
        world.answer(*request);
    }
}

fn drain(seed: u64) -> World {
    let mut dice = Dice(seed);
    let world = world(&mut dice);
    let failures = dice.below(40);
    run_to_end(world, dice, failures, seed)
}

fn run_to_end(mut world: World, mut dice: Dice, failures: u64, seed: u64) -> World {
    world.begin();
    for _ in 0..LONGEST {
        if world.end.is_some() {
            return world;
        }
        step(&mut world, &mut dice, failures);
    }
    panic!("seed {seed}: the drain goes on");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The world checks every action, and that a dataset that is reported as complete is complete.
    #[test]
    fn every_drain_ends_and_reports_what_is_there(seed in any::<u64>()) {
        let world = drain(seed);
        prop_assert!(world.machine.is_finished());
        prop_assert_eq!(world.machine.deadline(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn nothing_follows_from_events_after_the_end(seed in any::<u64>()) {
        let mut world = drain(seed);
        let mut dice = Dice(seed);
        for _ in 0..20 {
            let node = name(dice.below(world.nodes));
            let request = RequestId(dice.below(40));
            let event = match dice.below(4) {
                0 => DrainEvent::Roster(RosterChange::Up { node, address: address(99) }),
                1 => DrainEvent::Roster(RosterChange::Lost { node }),
                2 => DrainEvent::Answered { request, answer: Answer::Rebuilt },
                _ => DrainEvent::Tick,
            };
            prop_assert!(world.machine.handle(world.now, event).is_empty());
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_drain() {
    let log = |seed| drain(seed).log.iter().map(|action| format!("{action:?}")).collect::<Vec<_>>();
    for seed in 0..20 {
        assert_eq!(log(seed), log(seed));
    }
}

#[test]
fn without_failures_the_newest_dataset_that_can_be_completed_is_drained() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let mut world = world(&mut dice);
        world.corrupted.clear();
        world.datasets.values_mut().for_each(|cached| cached.unreadable.clear());
        world.configure(|config| config.survey_only = true);
        world.run(|_| false);
        let Some(DrainEnd::Surveyed(survey)) = world.end.take() else { continue };
        world.configure(|config| (config.survey_only, config.crc) = (false, false));
        let world = run_to_end(world, dice, 0, seed);
        let expected = survey.plan.candidates.first().map(|newest| newest.checkpoint);
        let complete = match world.report().result {
            DrainResult::Complete { checkpoint } => Some(checkpoint),
            _ => None,
        };
        assert_eq!(complete, expected, "seed {seed}");
    }
}

#[test]
fn ten_thousand_nodes_are_drained() {
    let mut world = World::new(10_000, XOR, &[1]);
    world.configure(|config| config.requests_at_once = 64);
    world.run(|_| false);
    assert_eq!(world.report().copied.len(), 10_000);
}
