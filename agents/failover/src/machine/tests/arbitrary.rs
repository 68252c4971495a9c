//! Random sequences of events against processes that obey.

use std::collections::BTreeMap;

use holdfast_model::pair::{CopyState, PairCommand};
use proptest::prelude::*;

use super::*;
use crate::Found;

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Registers(Side),
    Ends(Side, i32),
    Hangs(Side),
    StartFails(Side),
    Stale(Side),
    Command(PairCommand),
    NewAgent,
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(MAIN), Just(REPLICA)]
}

fn step() -> impl Strategy<Value = Step> {
    let commands =
        [PairCommand::FailOver, PairCommand::FailBack, PairCommand::Restart(MAIN), PairCommand::Restart(REPLICA)];
    prop_oneof![
        6 => (0..3000_u64).prop_map(Step::Wait),
        8 => side().prop_map(Step::Registers),
        6 => (side(), 1..3).prop_map(|(side, code)| Step::Ends(side, code)),
        1 => side().prop_map(|side| Step::Ends(side, 0)),
        3 => side().prop_map(Step::Hangs),
        1 => side().prop_map(Step::StartFails),
        1 => side().prop_map(Step::Stale),
        2 => prop::sample::select(commands.to_vec()).prop_map(Step::Command),
        1 => Just(Step::NewAgent),
    ]
}

/// Processes by side: incarnation and state. A process that was killed is dead, but not gone until it is reported.
struct World {
    machine: PairMachine,
    now: Duration,
    processes: BTreeMap<Side, (u64, CopyState)>,
    killed: BTreeMap<Side, u64>,
    started: u64,
    ended: u64,
}

impl World {
    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Start { side, incarnation } => {
                    assert!(!self.processes.contains_key(&side) && !self.killed.contains_key(&side), "started twice");
                    self.processes.insert(side, (incarnation, CopyState::Starting));
                    self.started += 1;
                }
                Action::Wake { side, incarnation } => {
                    assert_eq!(self.processes.get(&side), Some(&(incarnation, CopyState::Asleep)), "woken");
                    assert!(!self.works(side.other()), "two copies are awake");
                    self.processes.insert(side, (incarnation, CopyState::Awake));
                }
                Action::Kill { side, incarnation } if self.incarnation(side) == Some(incarnation) => {
                    self.processes.remove(&side);
                    self.killed.insert(side, incarnation);
                }
                _ => {}
            }
        }
        // One is woken as soon as that is possible.
        let status = self.machine.status(0);
        let is = |state| Side::BOTH.into_iter().any(|side| status.copy(side).unwrap().state == state);
        let waits = self.machine.next_deadline().is_some() || is(CopyState::Ending);
        let idle = is(CopyState::Asleep) && status.awake().is_none();
        assert!(!idle || waits, "a copy sleeps, and none is awake: {status:?}");
        if idle && !is(CopyState::Ending) {
            assert!(is(CopyState::Starting), "nothing is waited for: {status:?}");
        }
    }

    fn incarnation(&self, side: Side) -> Option<u64> {
        self.processes.get(&side).map(|(incarnation, _)| *incarnation)
    }

    fn works(&self, side: Side) -> bool {
        self.processes.get(&side).is_some_and(|(_, state)| *state == CopyState::Awake)
    }

    fn on(&mut self, event: Event) {
        let actions = self.machine.on(self.now, event);
        self.perform(actions);
    }

    fn gone(&mut self, side: Side, end: RankEnd) {
        let killed = self.killed.remove(&side);
        let Some(incarnation) = killed.or_else(|| self.processes.remove(&side).map(|(incarnation, _)| incarnation))
        else {
            return;
        };
        self.ended += 1;
        let end = if killed.is_some() { KILLED } else { end };
        self.on(Event::Exited { side, incarnation, end, finished: false });
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Wait(millis) => {
                let until = self.now + ms(*millis);
                while let Some(at) = self.machine.next_deadline().filter(|at| *at <= until) {
                    self.now = self.now.max(at);
                    self.on(Event::Tick);
                    assert!(self.machine.next_deadline() > Some(self.now) || self.machine.next_deadline().is_none());
                }
                self.now = until;
            }
            Step::Registers(side) => {
                if let Some((incarnation, state @ CopyState::Starting)) = self.processes.get_mut(side) {
                    *state = CopyState::Asleep;
                    let incarnation = *incarnation;
                    self.on(Event::Registered { side: *side, incarnation });
                }
            }
            Step::Ends(side, code) => self.gone(*side, RankEnd::Code(*code)),
            Step::Hangs(side) => {
                if let Some((incarnation, _)) = self.processes.get(side).copied() {
                    self.on(Event::BeatsMissed { side: *side, incarnation, misses: 3 });
                }
            }
            Step::StartFails(side) => {
                if let Some((incarnation, CopyState::Starting)) = self.processes.get(side).copied() {
                    self.processes.remove(side);
                    self.ended += 1;
                    self.on(Event::StartFailed { side: *side, incarnation, reason: "none".to_owned() });
                }
            }
            Step::Stale(side) => {
                let incarnation = self.machine.status(0).copy(*side).unwrap().incarnation.wrapping_sub(1);
                self.on(Event::Exited { side: *side, incarnation, end: RankEnd::SUCCESS, finished: true });
                self.on(Event::Registered { side: *side, incarnation });
            }
            Step::Command(command) => self.on(Event::Command(*command)),
            Step::NewAgent => {
                let alive = self.processes.iter().map(|(side, (incarnation, state))| Found {
                    side: *side,
                    incarnation: *incarnation,
                    pid: Some(7),
                    state: *state,
                    finished: false,
                });
                let found: Vec<_> = alive.collect();
                // What was killed is gone before the new agent looks.
                self.ended += self.killed.len() as u64;
                self.killed.clear();
                let snapshot = self.machine.snapshot();
                let (machine, actions) =
                    PairMachine::restore(&config(), LocalSides::Both, &snapshot, &found, None, self.now);
                self.machine = machine;
                self.perform(actions);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_two_are_awake_and_never_none_without_reason(steps in prop::collection::vec(step(), 1..80)) {
        let (machine, actions) = PairMachine::new(&config(), LocalSides::Both, Duration::ZERO);
        let mut world = World {
            machine,
            now: Duration::ZERO,
            processes: BTreeMap::new(),
            killed: BTreeMap::new(),
            started: 0,
            ended: 0,
        };
        world.perform(actions);
        for step in &steps {
            world.take(step);
        }
        // Every copy that was started is accounted for at the end.
        world.on(Event::End);
        world.take(&Step::Wait(1000));
        for side in Side::BOTH {
            world.gone(side, RankEnd::Signal(15));
        }
        prop_assert!(world.machine.is_gone(), "{:?}", world.machine.status(0));
        prop_assert_eq!(world.started, world.ended);
        prop_assert_eq!(world.machine.next_deadline(), None);
    }
}
