//! The changes of the machine's state that are written, and the actions that wait for them.

use std::time::Duration;

use holdfast_model::{Generation, Rank, RankEnd};
use holdfast_testkit::Dice;
use proptest::prelude::*;

use super::arbitrary::anything;
use super::world::{World, address, config, ms, name};
use crate::events::{DownReason, EndCause};
use crate::relaunch::*;

/// The changes as they are read back from disk.
fn written(changes: &Changes) -> Changes {
    serde_json::from_slice(&serde_json::to_vec(changes).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn all_changes_applied_to_the_first_snapshot_are_the_last_snapshot(seed: u64) {
        let mut dice = Dice(seed);
        let mut machine = Machine::new(Config { min_nodes: 2, settle: ms(dice.below(2) * 500), ..config(6, 4) });
        let mut snapshot = machine.snapshot();
        let mut now = Duration::ZERO;
        machine.begin(now);
        for _ in 0..200 {
            for _ in 0..dice.below(4) {
                now += ms(dice.below(60));
                let events: Vec<Event> = (0..dice.below(4)).map(|_| anything(&mut dice, &machine, now)).collect();
                machine.handle_all(now, events);
            }
            snapshot.apply(&written(&machine.take_changes())).unwrap();
            prop_assert_eq!(&snapshot, &machine.snapshot());
            prop_assert!(machine.take_changes().is_empty());
            if dice.percent(5) {
                machine = Machine::restore(machine.config().clone(), snapshot.clone()).unwrap();
                machine.begin(now);
            }
        }
    }
}

#[test]
fn a_signal_is_handled_before_other_events_of_the_batch() {
    let mut world = World::running_with(Config { halt_grace: ms(0), ..config(6, 4) });
    let generation = world.generation();
    let events = [
        Event::RankExited { generation, rank: Rank(1), end: RankEnd::Code(3) },
        Event::Signal { name: "SIGTERM".into() },
    ];
    let actions = world.machine.handle_all(world.now, events);
    world.perform(actions);
    assert_eq!(world.causes(), [EndCause::Halted { reason: "SIGTERM".into() }]);
}

#[test]
fn routine_polls_change_nothing_on_disk() {
    let mut world = World::running();
    world.machine.take_changes();
    world.passes(ms(5000));
    assert!(world.machine.take_changes().is_empty());
}

#[test]
fn the_size_of_changes_does_not_depend_on_the_size_of_the_job() {
    let mut world = World::running_with(Config { ranks: 8000, ranks_per_node: 8, ..config(1010, 1000) });
    world.machine.take_changes();
    let bytes = |world: &mut World| serde_json::to_vec(&world.machine.take_changes()).unwrap().len();
    let all = serde_json::to_vec(&world.machine.snapshot()).unwrap().len();
    assert!(all > 100_000, "{all}");
    world.checkpoint(1);
    assert!(bytes(&mut world) < 600);
    let generation = world.generation();
    world.only(Event::RankExited { generation, rank: Rank(7), end: RankEnd::SUCCESS });
    assert!(bytes(&mut world) < 600);
    world.only(Event::NodeDown { node: name(1005), reason: DownReason::ResourceManager { state: "drained".into() } });
    assert!(bytes(&mut world) < 600, "a spare");
    world.only(Event::AgentLost { node: name(3), reason: "killed".into() });
    assert!(bytes(&mut world) < 700);
    // A relaunch contains every node a few times, and only those ranks that move.
    world.happens(Event::AgentStartFailed { node: name(3), reason: "gone".into(), node_lost: true });
    assert_eq!(world.launches().len(), 2);
    let relaunch = bytes(&mut world);
    assert!(relaunch < 3000, "{relaunch}");
}

#[test]
fn changes_of_another_job_are_refused() {
    let mut large = World::running_with(config(20, 18));
    let changes = large.machine.take_changes();
    large.machine.take_changes();
    let mut small = World::running().machine.snapshot();
    large.only(Event::AgentLost { node: name(19), reason: "killed".into() });
    assert!(small.apply(&large.machine.take_changes()).is_err());
    assert!(!changes.is_empty());
}

/// The actions of a machine that is about to prepare its first generation, and the machine.
fn about_to_prepare() -> (World, Vec<Action>) {
    let mut world = World::new(config(4, 3));
    world.machine.begin(ms(0));
    for node in (0..4).map(name) {
        world.only(Event::AgentReady { address: address(&node, 1), node, adopted: None });
    }
    let actions = world.only(Event::HaltAnswered { met: None, silent: Vec::new() });
    (world, actions)
}

#[test]
fn a_new_generation_is_sent_to_no_agent_before_it_is_on_disk() {
    let (mut world, actions) = about_to_prepare();
    let mut held = HeldActions::new(Generation::NONE);
    let now = held.admit(1, actions);
    assert!(now.iter().all(|action| matches!(action, Action::Record(_))), "{now:?}");
    // An agent that is restarted meanwhile also gets the generation after the journal, and the others its address after
    // that.
    world.only(Event::AgentLost { node: name(1), reason: "killed".into() });
    let again = world.only(Event::AgentReady { node: name(1), address: address(&name(1), 2), adopted: None });
    assert_eq!(held.admit(2, again).len(), 1, "the line of the event log");
    assert_eq!(held.release(0, &world.machine), []);
    let released = held.release(1, &world.machine);
    assert!(matches!(&released[..], [Action::Prepare { to, .. }] if to.len() == 4), "{released:?}");
    let released = held.release(2, &world.machine);
    assert!(matches!(&released[..], [Action::Prepare { to, .. }, Action::UpdatePeers { .. }] if to.len() == 1));
    assert!(!held.waits());
}

#[test]
fn a_waiting_launch_is_dropped_when_its_generation_ends() {
    let mut world = World::running_with(Config { halt_grace: ms(0), ..config(6, 4) });
    let launch = world.actions.iter().find(|action| matches!(action, Action::Launch { .. })).cloned().unwrap();
    let mut held = HeldActions::new(Generation(1));
    assert_eq!(held.admit(1, vec![launch.clone()]), []);
    let mut twin = held.clone();
    assert_eq!(twin.release(1, &world.machine), [launch]);
    let ending = world.only(Event::Signal { name: "SIGTERM".into() });
    let now = held.admit(2, ending.clone());
    assert_eq!(now, ending, "killing ranks waits for nothing");
    assert_eq!(held.release(2, &world.machine), []);
}

#[test]
fn an_agent_that_lost_a_generation_on_disk_gets_it_again_at_once() {
    let mut world = World::running();
    let mut held = HeldActions::new(world.generation());
    world.only(Event::AgentLost { node: name(1), reason: "killed".into() });
    let again = world.only(Event::AgentReady { node: name(1), address: address(&name(1), 2), adopted: None });
    assert!(again.iter().any(|action| matches!(action, Action::Prepare { .. })));
    assert_eq!(held.admit(1, again.clone()), again);
}

#[test]
fn agents_that_come_up_together_cost_one_message_for_all() {
    let mut world = World::running();
    for node in 0..4 {
        world.only(Event::AgentLost { node: name(node), reason: "killed".into() });
    }
    let ready = |node| Event::AgentReady {
        node: name(node),
        address: address(&name(node), 2),
        adopted: (node != 3).then_some(Generation(1)),
    };
    let updates = |actions: &[Action]| -> Vec<(usize, usize)> {
        found!(actions, Action::UpdatePeers { addresses, to, .. } => (addresses.len(), to.len()))
    };
    let actions = world.machine.handle_all(world.now, [2, 3].map(ready));
    assert_eq!(updates(&actions), [], "the leader is not up, and its last address is out of date");
    let prepared = actions.iter().filter(|action| matches!(action, Action::Prepare { to, .. } if *to == [name(3)]));
    assert_eq!(prepared.count(), 1);
    let actions = world.machine.handle_all(world.now, [0, 1].map(ready));
    assert_eq!(updates(&actions), [(6, 1), (1, 5)], "all addresses to the leader, its own to all others");
}

#[test]
fn a_waiting_drain_is_updated_with_nodes_that_went_down_meanwhile() {
    let mut world = World::running_with(Config { halt_grace: ms(0), ..config(6, 4) });
    world.only(Event::Signal { name: "SIGTERM".into() });
    world.all_ranks_are_killed();
    let drain = world.actions.iter().find(|action| matches!(action, Action::Drain { .. })).cloned().unwrap();
    let mut held = HeldActions::new(Generation(1));
    held.admit(1, vec![drain]);
    world.only(Event::NodeDown { node: name(2), reason: DownReason::ResourceManager { state: "gone".into() } });
    let released = held.release(1, &world.machine);
    let [Action::Drain { healthy, down, .. }] = &released[..] else { panic!("{released:?}") };
    assert_eq!((healthy.len(), &down[..]), (5, &[name(2)][..]));
}
