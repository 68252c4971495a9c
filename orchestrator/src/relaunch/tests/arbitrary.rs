//! Events in arbitrary order, also orders that no driver sends.

use crate::events::{DownReason, DrainResult, GenerationProgress, LogEvent};
use holdfast_model::{CheckpointId, Generation, NodeName, Rank, RankEnd};
use std::time::Duration;

use proptest::prelude::*;

use super::world::{address, config, ms, name};
use crate::allocation::AgentPresence;
use crate::launch::Obstacle;
use crate::relaunch::*;
use holdfast_testkit::Dice;
use holdfast_wire::agent::WaitingRanks;

pub(super) fn anything(dice: &mut Dice, machine: &Machine, now: Duration) -> Event {
    let node = match dice.below(30) {
        0 => NodeName::new("unknown"),
        _ => name(dice.below(6) as usize),
    };
    let at = match node.as_str() {
        "unknown" => address(&name(7), 1),
        _ => address(&node, dice.below(2) as u16),
    };
    let current = machine.generation();
    let generation = if dice.percent(85) { current } else { Generation(dice.below(5)) };
    let rank = Rank(dice.below(5) as u32);
    let reason = String::from("because");
    let end = [RankEnd::SUCCESS, RankEnd::SUCCESS, RankEnd::Code(3), RankEnd::Signal(9), RankEnd::Unknown];
    let end = end[dice.below(5) as usize];
    match dice.below(66) {
        0..=11 => Event::AgentReady { node, address: at, adopted: dice.percent(50).then_some(generation) },
        _ if dice.percent(15) => Event::PollsRan { ran: now },
        _ if dice.percent(3) => {
            let presence =
                [AgentPresence::Present, AgentPresence::Stopped, AgentPresence::Ended, AgentPresence::NoAnswer];
            Event::AgentChecked { node, presence: presence[dice.below(4) as usize].clone() }
        }
        12 => Event::AgentStartFailed { node, reason, node_lost: dice.percent(30) },
        13 => Event::AgentLost { node, reason },
        14..=21 => Event::PollAnswered { node, sent: now, fault: dice.percent(2).then_some(reason) },
        22 if dice.percent(20) => Event::NodeDown { node, reason: DownReason::ResourceManager { state: reason } },
        23 if dice.percent(20) => Event::HealthFault { node, fault: reason },
        24..=27 => {
            let silent = if dice.percent(20) { vec![node] } else { Vec::new() };
            Event::HaltAnswered { met: dice.percent(3).then_some(reason), silent }
        }
        28 if dice.percent(30) => {
            let ends = dice.percent(50).then(|| dice.below(20_i64));
            Event::HaltSet { reason, immediate: dice.percent(20), ends }
        }
        29 => Event::HaltCleared,
        30..=38 => Event::RunPrepared { node, generation },
        39 if dice.percent(10) => Event::RunRefused { node, generation, reason },
        40..=47 => Event::RanksKilled { node, generation, may_halt: dice.percent(10) },
        48 => Event::StepStarted { generation },
        49 if dice.percent(30) => {
            let obstacles = [Obstacle::Job, Obstacle::Manager, Obstacle::UnknownAllocation];
            Event::LaunchFailed { generation, reason, obstacle: obstacles[dice.below(3) as usize] }
        }
        50 | 51 => Event::RankExited { generation, rank, end },
        52 => Event::StepEnded { generation, end },
        53 if dice.percent(30) => Event::StepLost { generation, reason },
        53 if dice.percent(30) => {
            let ranks = vec![rank; dice.below(3) as usize];
            let waiting = WaitingRanks { call: reason, ranks, waits_for: ms(dice.below(90_000)) };
            Event::RanksWait { node, generation, waiting: dice.percent(70).then_some(waiting) }
        }
        54 => Event::Restarted {
            generation,
            from: dice.percent(50).then_some(CheckpointId(dice.below(9))),
            protected: dice.percent(50),
            fetched_in: dice.percent(30).then_some(now),
            written_by: dice.percent(10).then_some(3),
        },
        55 => Event::CheckpointComplete {
            generation,
            checkpoint: CheckpointId(dice.below(9)),
            protected: dice.percent(50),
            bytes: dice.below(1 << 40),
        },
        56 if dice.percent(50) => Event::CheckpointProtected { generation, checkpoint: CheckpointId(dice.below(9)) },
        56 if dice.percent(20) => Event::Finalized { generation },
        57 if dice.percent(20) => Event::Halting { generation, reason },
        58 if dice.percent(10) => Event::Signal { name: reason },
        58 if dice.percent(10) => Event::AllocationEnd { end: dice.percent(50).then(|| dice.below(30_i64)) },
        58 if dice.percent(30) => Event::DatasetDropped { generation, checkpoint: CheckpointId(dice.below(9)), reason },
        58 if dice.percent(30) => Event::AllocationChecked { denial: dice.percent(50).then_some(reason) },
        58 => Event::Flushed { generation, took: ms(dice.below(5000)) },
        59 if dice.percent(70) => {
            let progress = GenerationProgress::Files { file: "state".into() };
            let found =
                [ProgressFound::Progress(progress), ProgressFound::NoProgress, ProgressFound::Unknown { reason }];
            Event::ProgressChecked { generation, found: found[dice.below(3) as usize].clone() }
        }
        59 if dice.percent(60) => Event::Superseded {
            from: dice.percent(50).then_some(CheckpointId(dice.below(9))),
            failure: dice.percent(30).then_some(reason),
        },
        59 => Event::Drained { result: DrainResult::Nothing, unplaced: Vec::new() },
        60..=62 => {
            let failure = BeforeFailure { nodes: vec![node; dice.below(2) as usize], reason };
            Event::BeforeEnded { failure: dice.percent(30).then_some(failure) }
        }
        63 if dice.percent(20) => {
            Event::RestartPrevented { generation, faulty: dice.percent(80).then_some(node), reason }
        }
        64 => Event::RankLeft { generation, rank },
        65 => Event::RankConnected { generation, rank },
        _ if dice.percent(20) => {
            Event::NodesLent { nodes: vec![node; dice.below(2) as usize], more_later: dice.percent(50) }
        }
        _ if dice.percent(50) => {
            let exclusion = |dice: &mut Dice| Exclusion { reason: "because".into(), now: dice.percent(50) };
            let nodes = (0..dice.below(3)).map(|_| name(dice.below(6) as usize)).collect::<Vec<_>>();
            Event::ExclusionsChanged { excluded: nodes.into_iter().map(|node| (node, exclusion(dice))).collect() }
        }
        _ => Event::Tick,
    }
}

fn restored(machine: &Machine) -> Machine {
    let text = serde_json::to_string(&machine.snapshot()).unwrap();
    let mut twin = Machine::restore(machine.config().clone(), serde_json::from_str(&text).unwrap()).unwrap();
    // Not in the snapshot.
    twin.contacts.clone_from(&machine.contacts);
    twin
}

/// A machine that takes over asks all agents for the halt conditions: it does not know what they have reported.
fn asking_all(mut actions: Vec<Action>) -> Vec<Action> {
    for action in &mut actions {
        if let Action::AskHalt { except } = action {
            except.clear();
        }
    }
    actions
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_restored_machine_behaves_as_the_original(seed: u64) {
        let mut dice = Dice(seed);
        let mut machine = Machine::new(Config {
            min_nodes: 2,
            settle: ms(dice.below(2) * 500),
            checks_progress: dice.percent(50),
            lent: dice.percent(50).then(|| (0..5).map(name).collect()),
            ..config(6, 4)
        });
        let mut twin = machine.clone();
        let mut now = Duration::ZERO;
        prop_assert_eq!(machine.begin(now), twin.begin(now));
        for _ in 0..400 {
            now += ms(dice.below(60));
            let event = anything(&mut dice, &machine, now);
            let actions = machine.handle(now, event.clone());
            prop_assert_eq!(asking_all(actions), asking_all(twin.handle(now, event)));
            prop_assert_eq!(machine.snapshot(), twin.snapshot());
            prop_assert_eq!(machine.explain(), twin.explain());
            if dice.percent(10) {
                twin = restored(&machine);
            }
        }
    }

    #[test]
    fn no_order_of_events_launches_two_generations_at_once_or_finishes_twice(seed: u64) {
        let mut dice = Dice(seed);
        let mut machine = Machine::new(Config {
            min_nodes: 2,
            checks_progress: dice.percent(50),
            lent: dice.percent(50).then(|| (0..5).map(name).collect()),
            ..config(6, 4)
        });
        let mut now = Duration::ZERO;
        let (mut ends, mut open) = (0, false);
        let mut actions = machine.begin(now);
        for _ in 0..600 {
            for action in &actions {
                match action {
                    Action::Launch { .. } => prop_assert!(!std::mem::replace(&mut open, true)),
                    Action::Record(LogEvent::GenerationEnded { .. }) => open = false,
                    Action::Finish(_) => ends += 1,
                    _ => {}
                }
            }
            now += ms(dice.below(60));
            let event = anything(&mut dice, &machine, now);
            actions = machine.handle(now, event);
        }
        prop_assert!(ends <= 1);
    }
}
