//! Pairs on one node, by scenario.

mod adoption;
mod arbitrary;
mod leases;
mod scenarios;

use std::time::Duration;

use holdfast_model::pair::{FailureCause, PairChange, PairConfig, RestartBackOff, Side};
use holdfast_model::rank_end::RankEnd;

use super::{Action, Event, LocalSides, PairMachine};

const MAIN: Side = Side::Main;
const REPLICA: Side = Side::Replica;
const KILLED: RankEnd = RankEnd::Signal(9);

fn config() -> PairConfig {
    PairConfig {
        spec_index: 0,
        name: "dnn1".to_owned(),
        main: vec!["./dnn".to_owned()],
        replica: vec!["./dnn".to_owned()],
        period: Duration::from_millis(1),
        misses: 3,
        checkpoint_bytes: 400_000,
        checkpoint_period: Duration::from_millis(10),
        restart: RestartBackOff { first: ms(1000), most: ms(30_000), attempts: Some(5) },
        stop_grace: ms(50),
        start_within: ms(30_000),
        suspends: None,
    }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Actions as one line, reports in brackets.
fn line(actions: &[Action]) -> String {
    actions.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn one(action: &Action) -> String {
    match action {
        Action::Start { side, incarnation } => format!("start:{side}{incarnation}"),
        Action::Wake { side, incarnation } => format!("wake:{side}{incarnation}"),
        Action::Stop { side, incarnation } => format!("stop:{side}{incarnation}"),
        Action::Kill { side, incarnation } => format!("kill:{side}{incarnation}"),
        Action::Watch { side, incarnation } => format!("watch:{side}{incarnation}"),
        Action::Unwatch { side, incarnation } => format!("unwatch:{side}{incarnation}"),
        Action::SuspendJobs => "suspend".to_owned(),
        Action::ResumeJobs => "resume".to_owned(),
        Action::FlushMirror => "flush".to_owned(),
        Action::HoldUntil { until: Some(until), .. } => format!("hold:{}", until.as_millis()),
        Action::HoldUntil { until: None, .. } => "release".to_owned(),
        Action::Report(change) => format!("[{}]", report(change)),
    }
}

fn report(change: &PairChange) -> String {
    match change {
        PairChange::Started { side, .. } => format!("{side} started"),
        PairChange::Adopted { side, state, .. } => format!("{side} adopted {state}"),
        PairChange::Asleep { side } => format!("{side} asleep"),
        PairChange::Awake { side, .. } => format!("{side} awake"),
        PairChange::Failed { side, state, cause } => format!("{side} failed {state}: {cause}"),
        PairChange::FailOver { cause, micros, .. } => format!("fail-over {micros}: {cause}"),
        PairChange::FailBack { micros, .. } => format!("fail-back {micros}"),
        PairChange::GivenUp { side, failures } => format!("{side} given up after {failures}"),
        PairChange::Finished { side } => format!("{side} finished"),
        PairChange::LeaseExpired { side } => format!("{side} lease expired"),
        other => format!("{other:?}"),
    }
}

/// A machine, and the actions of each event as a line.
struct Pair {
    machine: PairMachine,
    at: Duration,
}

impl Pair {
    fn new(sides: LocalSides) -> (Pair, String) {
        let (machine, actions) = PairMachine::new(&config(), sides, Duration::ZERO);
        (Pair { machine, at: Duration::ZERO }, line(&actions))
    }

    /// Both started, the main awake, the replica asleep.
    fn running() -> Pair {
        let (mut pair, _) = Pair::new(LocalSides::Both);
        pair.registers(MAIN, 1);
        pair.registers(REPLICA, 1);
        pair
    }

    /// The main has failed, the replica is awake, the main due at 1000 ms.
    fn failed_over() -> Pair {
        let mut pair = Pair::running();
        pair.exits(MAIN, 1, KILLED);
        pair
    }

    fn on(&mut self, event: Event) -> String {
        line(&self.machine.on(self.at, event))
    }

    fn at(&mut self, millis: u64) -> String {
        self.at = ms(millis);
        self.on(Event::Tick)
    }

    fn registers(&mut self, side: Side, incarnation: u64) -> String {
        self.on(Event::Registered { side, incarnation })
    }

    fn exits(&mut self, side: Side, incarnation: u64, end: RankEnd) -> String {
        self.on(Event::Exited { side, incarnation, end, finished: false })
    }

    /// The copy reported that its work is done, and ended with exit code 0.
    fn done(&mut self, side: Side, incarnation: u64) -> String {
        self.on(Event::Exited { side, incarnation, end: RankEnd::SUCCESS, finished: true })
    }

    fn deadline(&self) -> Option<u64> {
        self.machine.next_deadline().map(|at| u64::try_from(at.as_millis()).unwrap())
    }

    fn states(&self) -> String {
        let status = self.machine.status(0);
        let of = |side| status.copy(side).map_or("elsewhere".to_owned(), |copy| copy.state.to_string());
        format!("{} / {}", of(MAIN), of(REPLICA))
    }
}

fn hang(incarnation: u64, side: Side) -> Event {
    Event::BeatsMissed { side, incarnation, misses: 3 }
}

fn cause_of(actions: &[Action]) -> Option<FailureCause> {
    actions.iter().find_map(|action| match action {
        Action::Report(PairChange::FailOver { cause, .. }) => Some(cause.clone()),
        _ => None,
    })
}
