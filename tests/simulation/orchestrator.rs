//! The orchestrator: the real machine of the relaunch loop, a driver that performs its actions in the simulation, and
//! take-overs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use holdfast::allocation::AgentPresence;
use holdfast::events::{GenerationProgress, LogEvent};
use holdfast::relaunch::explain::{Activity, NodeCondition};
use holdfast::relaunch::{Action, Changes, Event, HeldActions, Machine, ProgressFound, Snapshot};
use holdfast_core::control::halt::reason;
use holdfast_model::{Generation, NodeName, Placement};
use holdfast_wire::agent::{AgentEvent, PeersUpdate};
use holdfast_wire::run::RunPlan;

use crate::draining::Draining;
use crate::files::Files;
use crate::names::{NodeIndex, name, position, start_of};
use crate::queue::{MS, Time};
use crate::scenario::Scenario;
use crate::world::{Defect, Life, PrefixState, SimulatedEvent, World, trace};

pub struct Orchestrator {
    pub machine: Machine,
    /// Counts the take-overs.
    pub incarnation: u32,
    /// Events that are handed to the machine together.
    inbox: Vec<Event>,
    journal: Journal,
    /// The start of each node's agent that this orchestrator was notified of: its messages go there.
    starts: Vec<u16>,
    /// Numbers plans and addresses.
    issued: u64,
    pub draining: Option<Draining>,
    pub drains: u32,
    /// The process does not run until then.
    pub stalled_until: Time,
    /// The running time, and the time at which it was reported last.
    ran: Duration,
    reported: Time,
}

/// The decision journal: entries that are being written, and the state on disk.
struct Journal {
    on_disk: Snapshot,
    /// The last entry that was made, and the last that is on disk.
    made: u64,
    written: u64,
    /// Entries that are not on disk.
    open: VecDeque<(u64, Changes)>,
    /// The entries up to this one are being written.
    writing: Option<u64>,
    held: HeldActions,
}

impl Journal {
    fn new(machine: &Machine) -> Journal {
        let on_disk = machine.snapshot();
        let held = HeldActions::new(on_disk.generation());
        Journal { on_disk, made: 0, written: 0, open: VecDeque::new(), writing: None, held }
    }

    /// Checks what was `read` from the real journal: all entries that are `on_disk`, and perhaps some that were being
    /// written.
    fn read(&self, mut on_disk: Snapshot, read: Snapshot) -> Snapshot {
        for (_, changes) in &self.open {
            if on_disk == read {
                break;
            }
            on_disk.apply(changes).unwrap();
        }
        assert!(on_disk == read, "another orchestrator reads a state that was not written");
        read
    }
}

impl Orchestrator {
    pub fn new(scenario: &Scenario) -> Orchestrator {
        let machine = Machine::new(scenario.config.clone());
        let journal = Journal::new(&machine);
        let starts = vec![0; scenario.nodes as usize];
        Orchestrator {
            machine,
            incarnation: 0,
            inbox: Vec::new(),
            journal,
            starts,
            issued: 0,
            draining: None,
            drains: 0,
            stalled_until: 0,
            ran: Duration::ZERO,
            reported: 0,
        }
    }

    pub fn deadline(&self) -> Option<Time> {
        // Rounded up: a timer must not fire too early.
        self.machine.deadline().map(|due| due.as_nanos().div_ceil(1000) as Time)
    }

    pub fn phase(&self) -> Activity {
        self.machine.explain().phase
    }
}

impl World {
    pub fn begin_orchestrator(&mut self) {
        let actions = self.orchestrator.machine.begin(self.clock());
        (self.orchestrator.ran, self.orchestrator.reported) = (self.clock(), self.now);
        self.after(1, SimulatedEvent::PollRound(self.orchestrator.incarnation));
        self.after(1, SimulatedEvent::PollsRan(self.orchestrator.incarnation));
        self.decided(actions);
    }

    /// Sends an event to the orchestrator, where it arrives a little later.
    pub fn notify(&mut self, event: Event) {
        let delay = match self.dice.below(30) {
            0 => self.between(30 * MS, 200 * MS),
            _ => self.between(MS, 20 * MS),
        };
        self.after(delay, SimulatedEvent::ToOrchestrator(self.orchestrator.incarnation, Box::new(event)));
    }

    pub fn orchestrator_receives(&mut self, incarnation: u32, event: Event) {
        if incarnation != self.orchestrator.incarnation || self.oracle.finished.is_some() {
            return;
        }
        if self.traced && !matches!(event, Event::PollAnswered { .. }) {
            trace!(self, "orchestrator: {}", format!("{event:?}").chars().take(140).collect::<String>());
        }
        if self.orchestrator.inbox.is_empty() {
            let delay = self.between(0, 1500);
            self.after(delay, SimulatedEvent::Decide(incarnation));
        }
        self.orchestrator.inbox.push(event);
    }

    /// Passes all received events to the machine together.
    pub fn decide(&mut self, incarnation: u32) {
        if incarnation == self.orchestrator.incarnation && self.oracle.finished.is_none() {
            let events = std::mem::take(&mut self.orchestrator.inbox);
            self.hand_in(events);
        }
    }

    pub fn hand_in(&mut self, events: Vec<Event>) {
        for event in &events {
            if let Event::Superseded { .. } = event {
                self.oracle.superseding = false;
            }
            if let Event::AgentLost { node, .. } | Event::AgentStartFailed { node, .. } = event
                && let Some(at) = position(node)
            {
                self.nodes[at as usize].undisturbed = false;
            }
            if let Event::AgentReady { node, address, .. } | Event::AgentUnfit { node, address, .. } = event {
                if let Some(at) = position(node) {
                    self.orchestrator.starts[at as usize] = start_of(*address);
                    let node = &mut self.nodes[at as usize];
                    let is_current = node.agent.as_ref().is_some_and(|agent| agent.start == start_of(*address));
                    node.undisturbed = is_current && node.life == Life::Alive;
                }
                *self.oracle.reported.entry(node.clone()).or_default() += 1;
            }
        }
        let is_of_agents = |event: &&Event| matches!(event, Event::AgentReady { .. } | Event::AgentLost { .. });
        let of_agents: Vec<Event> = events.iter().filter(is_of_agents).cloned().collect();
        let actions = self.orchestrator.machine.handle_all(self.clock(), events);
        self.decided(actions);
        of_agents.iter().for_each(|event| self.drain_agent_event(event));
    }

    /// Writes a decision to the journal; actions that need not wait for that are performed at once.
    fn decided(&mut self, actions: Vec<Action>) {
        let changes = self.orchestrator.machine.take_changes();
        let journal = &mut self.orchestrator.journal;
        if !changes.is_empty() {
            journal.made += 1;
            journal.open.push_back((journal.made, changes));
        }
        let made = journal.made;
        let mut now = journal.held.admit(made, actions);
        if journal.written == made {
            now.extend(journal.held.release(made, &self.orchestrator.machine));
        }
        let dies = self.can_be_taken_over()
            && !now.is_empty()
            && self.injected_faults < self.scenario.faults.most
            && self.dice.below(150) == 0;
        if dies {
            let done = self.dice.below(now.len());
            now.truncate(done);
            self.perform(now);
            return self.orchestrator_dies();
        }
        self.perform(now);
        self.write_journal();
    }

    /// All pending entries are written together, in the background.
    fn write_journal(&mut self) {
        let journal = &mut self.orchestrator.journal;
        if journal.writing.is_some() || journal.written == journal.made {
            return;
        }
        let upto = journal.made;
        journal.writing = Some(upto);
        let mut delay = self.between(300, 4 * MS);
        if let PrefixState::Hangs(until) = self.prefix_state {
            delay += until.saturating_sub(self.now);
        }
        self.after(delay, SimulatedEvent::JournalWritten(self.orchestrator.incarnation, upto));
    }

    pub fn journal_written(&mut self, incarnation: u32, upto: u64) {
        if incarnation != self.orchestrator.incarnation || self.oracle.finished.is_some() {
            return;
        }
        let journal = &self.orchestrator.journal;
        let entries = journal.open.iter().take_while(|(entry, _)| *entry <= upto).map(|(_, changes)| changes.clone());
        if self.append_on_files(&entries.collect::<Vec<_>>()) {
            return self.orchestrator_dies();
        }
        let journal = &mut self.orchestrator.journal;
        (journal.writing, journal.written) = (None, upto);
        while let Some((_, changes)) = journal.open.pop_front_if(|(entry, _)| *entry <= upto) {
            journal.on_disk.apply(&changes).unwrap();
        }
        let released = journal.held.release(upto, &self.orchestrator.machine);
        self.perform(released);
        self.write_journal();
    }

    /// Another orchestrator can take over, now and in this job.
    pub fn can_be_taken_over(&self) -> bool {
        self.scenario.faults.takeovers && !self.files.as_ref().is_some_and(Files::state_is_behind)
    }

    /// The orchestrator is killed. Another one takes over with the state on disk.
    pub fn orchestrator_dies(&mut self) {
        self.injected_faults += 1;
        if self.oracle.finished.is_some() {
            return;
        }
        trace!(self, "the orchestrator dies, another one takes over");
        if let Some(files) = &mut self.files {
            files.orchestrator_ends();
        }
        let orchestrator = &mut self.orchestrator;
        orchestrator.incarnation += 1;
        orchestrator.draining = None;
        orchestrator.inbox.clear();
        let mut on_disk = orchestrator.journal.on_disk.clone();
        // The entry that was being written is on disk completely or not at all.
        if self.dice.percent(50)
            && self.files.is_none()
            && let Some(upto) = orchestrator.journal.writing
        {
            let written = orchestrator.journal.open.iter().take_while(|(entry, _)| *entry <= upto);
            written.for_each(|(_, changes)| on_disk.apply(changes).unwrap());
        }
        if let Some(files) = &self.files {
            on_disk = orchestrator.journal.read(on_disk, files.read_journal());
        }
        let config = orchestrator.machine.config().clone();
        orchestrator.machine = Machine::restore(config, on_disk).unwrap();
        orchestrator.journal = Journal::new(&orchestrator.machine);
        self.begin_journal();
        let orchestrator = &mut self.orchestrator;
        for (node, address) in orchestrator.machine.agents() {
            orchestrator.starts[position(node).unwrap() as usize] = start_of(address);
        }
        let nodes = self.orchestrator.machine.explain().nodes.into_iter();
        let down = nodes.filter(|node| matches!(node.condition, NodeCondition::Down(_)));
        self.oracle.taken_over(down.map(|node| node.node).collect());
        self.now += self.between(0, 2000 * MS);
        self.orchestrator.stalled_until = 0;
        for node in &mut self.nodes {
            // A start under way, or its report, may be lost.
            node.undisturbed = false;
            node.died = None;
        }
        self.begin_orchestrator();
    }

    /// Another run in the same allocation begins with the state of the last one.
    pub fn restart_orchestrator(&mut self) {
        let machine = &self.orchestrator.machine;
        let config = machine.config().clone();
        let snapshot = machine.snapshot().next_run(config.ranks, config.nodes_needed);
        let nodes = machine.explain().nodes.into_iter();
        let down = nodes.filter(|node| matches!(node.condition, NodeCondition::Down(_)));
        self.oracle.next_run(down.map(|node| node.node).collect(), config.nodes_needed as usize);
        let orchestrator = &mut self.orchestrator;
        orchestrator.incarnation += 1;
        orchestrator.draining = None;
        orchestrator.inbox.clear();
        orchestrator.stalled_until = 0;
        orchestrator.machine = Machine::restore(config, snapshot).unwrap();
        orchestrator.journal = Journal::new(&orchestrator.machine);
        self.begin_journal();
    }

    /// The orchestrator writes its complete state, in a job with real files.
    pub fn begin_journal(&mut self) {
        if let Some(files) = &mut self.files {
            files.begin_journal(self.orchestrator.machine.snapshot());
        }
    }

    pub fn poll_round(&mut self, incarnation: u32) {
        if incarnation != self.orchestrator.incarnation {
            return;
        }
        let agents: Vec<NodeIndex> =
            self.orchestrator.machine.agents().filter_map(|(node, _)| position(node)).collect();
        for at in agents {
            let delay = self.between(0, 20 * MS);
            let start = self.orchestrator.starts[at as usize];
            self.after(delay, SimulatedEvent::Poll(incarnation, at, start));
        }
        self.after(self.scenario.poll_every, SimulatedEvent::PollRound(incarnation));
    }

    pub fn poll(&mut self, incarnation: u32, at: NodeIndex, start: u16) {
        if incarnation != self.orchestrator.incarnation || self.dice.percent(self.scenario.faults.lost_polls) {
            return;
        }
        let slow = self.slowness(at);
        let node = &mut self.nodes[at as usize];
        match (node.life, &mut node.agent) {
            // It answers one poll after the other.
            (Life::Alive, Some(agent)) if agent.start == start && self.now < node.answering_until => {}
            (Life::Alive, Some(agent)) if agent.start == start => {
                let from = if agent.fetched.0 == incarnation { agent.fetched.1 } else { 0 };
                let events: Vec<Event> = agent.events[from..].to_vec();
                agent.fetched = (incarnation, agent.events.len());
                let fault = node.disk.fault.map(|fault| format!("{fault:?}"));
                // The health report of the leader's node has the halt condition, unless the application is finished.
                let condition = node.disk.halt_condition().filter(|reason| reason != reason::FINALIZE_CALLED);
                let serves = agent.part.as_ref().map(|part| part.plan.generation);
                let sent = self.clock();
                let delay = self.hop() + slow;
                self.nodes[at as usize].answering_until = self.now + delay;
                for event in events {
                    self.after(delay, SimulatedEvent::ToOrchestrator(incarnation, Box::new(event)));
                }
                let machine = &self.orchestrator.machine;
                let leads =
                    serves.is_some_and(|serves| machine.is_running(serves)) && machine.leader() == Some(name(at));
                if leads {
                    let halt = match condition {
                        Some(reason) => Event::HaltSet { reason, immediate: self.halt_immediately, ends: None },
                        None => Event::HaltCleared,
                    };
                    self.after(delay, SimulatedEvent::ToOrchestrator(incarnation, Box::new(halt)));
                }
                let answered = Event::PollAnswered { node: name(at), sent, fault };
                self.after(delay, SimulatedEvent::ToOrchestrator(incarnation, Box::new(answered)));
            }
            (Life::Frozen, _) => {}
            (Life::Dead, _) if node.unreachable || self.defect == Some(Defect::DeathsHidden) => {}
            _ => self.notify(Event::AgentLost { node: name(at), reason: "connection closed".to_owned() }),
        }
    }

    /// The poller wakes up: of the time since the last time only one interval counts if it did not run meanwhile.
    pub fn polls_ran(&mut self, incarnation: u32) {
        if incarnation != self.orchestrator.incarnation || self.oracle.finished.is_some() {
            return;
        }
        let every = (self.scenario.config.down_after / 10).as_micros() as Time;
        let mut gap = self.now - self.orchestrator.reported;
        if self.defect != Some(Defect::StallsCounted) {
            gap = gap.min(every);
        }
        self.orchestrator.reported = self.now;
        self.orchestrator.ran += Duration::from_micros(gap);
        let ran = self.orchestrator.ran;
        self.watch_deaths(ran);
        self.orchestrator_receives(incarnation, Event::PollsRan { ran });
        self.after(every, SimulatedEvent::PollsRan(incarnation));
    }

    /// The running time so far.
    pub fn running_time(&self) -> Duration {
        self.orchestrator.ran
    }

    /// Whether the process of a silent agent exists.
    pub fn check_agent(&mut self, incarnation: u32, at: NodeIndex) {
        let others = self.nodes.iter().zip(0..).filter(|(_, other)| *other != at);
        let others_run = others.map(|(node, _)| node).any(|node| node.life == Life::Alive && node.agent.is_some());
        let node = &self.nodes[at as usize];
        let presence = match node.life {
            Life::Dead if self.defect == Some(Defect::DeathsHidden) => AgentPresence::Present,
            Life::Dead | Life::Frozen if node.unreachable => AgentPresence::NoAnswer,
            Life::Frozen if others_run => AgentPresence::Stopped,
            Life::Frozen => AgentPresence::Present,
            Life::Alive if node.agent.is_some() => AgentPresence::Present,
            Life::Alive | Life::Dead => AgentPresence::Ended,
        };
        let delay = if presence == AgentPresence::Stopped { 750 * MS } else { MS };
        let checked = Event::AgentChecked { node: name(at), presence };
        self.after(delay, SimulatedEvent::ToOrchestrator(incarnation, Box::new(checked)));
    }

    /// The process of the orchestrator is stopped, or gets no processor.
    pub fn orchestrator_stalls(&mut self, lasts: Time) {
        trace!(self, "the orchestrator does not run for {} ms", lasts / MS);
        self.orchestrator.stalled_until = self.orchestrator.stalled_until.max(self.now + lasts);
        self.oracle.stalls += 1;
    }

    /// An agent reports an event: it answers the pending poll.
    pub fn agent_reports(&mut self, at: NodeIndex, event: AgentEvent) {
        self.watch_agent_event(at, &event);
        trace!(self, "n{at}: {}", format!("{event:?}").chars().take(160).collect::<String>());
        if matches!(event, AgentEvent::CheckpointComplete { .. }) {
            self.halts_at_checkpoint();
        }
        let Some(event) = Event::of_agent(event) else { return };
        let Some(agent) = &mut self.nodes[at as usize].agent else { return };
        agent.events.push(event);
        let start = agent.start;
        if self.orchestrator.starts[at as usize] == start {
            let delay = self.hop();
            self.after(delay, SimulatedEvent::Poll(self.orchestrator.incarnation, at, start));
        }
    }

    pub fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            self.watch(&action);
            if self.traced && !matches!(action, Action::PollNow { .. }) {
                trace!(self, "orchestrator does {}", format!("{action:?}").chars().take(180).collect::<String>());
            }
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::StartAgent { node } => {
                let delay = self.between(2 * MS, 60 * MS);
                self.after(delay, SimulatedEvent::StartAgent(position(&node).unwrap()));
            }
            // Its jobs have one step.
            Action::BorrowNodes { .. } => {}
            Action::AskHalt { except } => {
                let (mut met, mut silent) = (None, Vec::new());
                let agents: Vec<NodeName> = self.orchestrator.machine.agents().map(|(node, _)| node.clone()).collect();
                let agents = agents.into_iter().filter(|node| !except.contains(node));
                // One answer in ten rounds is lost: with one in a hundred answers, no round of a thousand would end.
                let lost = self.dice.percent(10).then(|| self.dice.below(self.scenario.nodes));
                for agent in agents {
                    let at = position(&agent).unwrap();
                    let node = &self.nodes[at as usize];
                    if node.life == Life::Alive && node.agent.is_some() && lost != Some(at) {
                        met = met.or_else(|| node.disk.halt_condition());
                    } else {
                        silent.push(agent);
                    }
                }
                let delay = if silent.is_empty() { 2 * MS } else { self.between(250 * MS, 2250 * MS) };
                let answered = Event::HaltAnswered { met, silent };
                self.after(delay, SimulatedEvent::ToOrchestrator(self.orchestrator.incarnation, Box::new(answered)));
            }
            // The scenarios have no commands of their own; they run in the relaunch machine's own tests.
            Action::RunBefore { .. } => self.notify(Event::BeforeEnded { failure: None }),
            Action::CancelBefore => {}
            Action::Prepare { generation, placement, to } => {
                let plan = Arc::new(self.plan(generation, &placement));
                let issued = self.issue();
                self.each(&to, |at, start| SimulatedEvent::Prepare(at, start, plan.clone(), issued));
            }
            Action::KillRanks { generation, to, .. } => {
                self.each(&to, |at, start| SimulatedEvent::Kill(at, start, generation))
            }
            Action::RequestHalt { generation, to, reason } => {
                self.each(&[to], |at, start| SimulatedEvent::HaltRanks(at, start, generation, reason.clone()));
            }
            Action::TerminateRanks { generation, to, .. } => {
                self.each(&to, |at, start| SimulatedEvent::Terminate(at, start, generation));
            }
            Action::FenceNode { node, .. } => self.each(&[node], |at, _| SimulatedEvent::Fence(at)),
            Action::SaveStacks { generation, .. } => self.notify(Event::StacksSaved { generation }),
            Action::PollNow { to } => {
                let incarnation = self.orchestrator.incarnation;
                self.each(&to, |at, start| SimulatedEvent::Poll(incarnation, at, start));
            }
            Action::CheckAgent { node } => {
                let (incarnation, at) = (self.orchestrator.incarnation, position(&node).unwrap());
                let delay = self.between(MS, 250 * MS);
                self.after(delay, SimulatedEvent::CheckAgent(incarnation, at));
                let start = self.orchestrator.starts[at as usize];
                self.after(MS, SimulatedEvent::Poll(incarnation, at, start));
            }
            Action::Launch { generation, placement } => {
                let delay = self.between(2 * MS, 40 * MS);
                let incarnation = self.orchestrator.incarnation;
                self.after(delay, SimulatedEvent::Launch(incarnation, generation, placement));
            }
            Action::FollowStep { generation, .. } => self.follow(generation),
            Action::CancelStep { generation } => {
                let delay = self.between(10 * MS, 2000 * MS);
                self.after(delay, SimulatedEvent::CancelStep(generation));
            }
            Action::CheckProgress { generation } => {
                let progress = GenerationProgress::Files { file: "state".into() };
                let found = match self.dice.below(3) {
                    0 => ProgressFound::Progress(progress),
                    1 => ProgressFound::NoProgress,
                    _ => ProgressFound::Unknown { reason: "no result in time".to_owned() },
                };
                let delay = match self.dice.below(20) {
                    0 => self.between(1000 * MS, 30_000 * MS),
                    _ => self.between(MS, 100 * MS),
                };
                let checked = Box::new(Event::ProgressChecked { generation, found });
                self.after(delay, SimulatedEvent::ToOrchestrator(self.orchestrator.incarnation, checked));
            }
            Action::CheckAllocation => {
                let delay = self.between(MS, 4000 * MS);
                let checked = Box::new(Event::AllocationChecked { denial: None });
                self.after(delay, SimulatedEvent::ToOrchestrator(self.orchestrator.incarnation, checked));
            }
            Action::UpdatePeers { generation, addresses, down, to } => {
                let update = Arc::new(PeersUpdate { generation, issued: self.issue(), addresses, down });
                self.each(&to, |at, start| SimulatedEvent::UpdatePeers(at, start, update.clone()));
            }
            Action::Supersede { from } => {
                let failure = self.dice.percent(10).then(|| "no space left".to_owned());
                let failure = failure.or_else(|| self.supersede_on_files(from));
                let delay = match self.dice.below(20) {
                    0 => self.between(1000 * MS, 60_000 * MS),
                    _ => self.between(MS, 100 * MS),
                };
                let ended = Box::new(Event::Superseded { from, failure });
                self.after(delay, SimulatedEvent::ToOrchestrator(self.orchestrator.incarnation, ended));
            }
            Action::Record(LogEvent::NodeDown { node, .. }) => self.drain_node_down(&node),
            Action::Record(_) => {}
            Action::Drain { .. } => self.begin_drain(),
            Action::StopAgents { to } => {
                self.orchestrator.draining = None;
                self.each(&to, |at, _| SimulatedEvent::StopAgent(at));
            }
            Action::Finish(_) => {}
        }
    }

    fn each(&mut self, to: &[NodeName], what: impl Fn(NodeIndex, u16) -> SimulatedEvent) {
        for node in to {
            let delay = self.between(MS, 20 * MS);
            let at = position(node).unwrap();
            self.after(delay, what(at, self.orchestrator.starts[at as usize]));
        }
    }

    /// A number larger than all before, also for a successor.
    fn issue(&mut self) -> u64 {
        self.orchestrator.issued += 1;
        self.orchestrator.issued
    }

    /// A successor follows the launcher of its predecessor, if that is possible.
    fn follow(&mut self, generation: Generation) {
        let Some(application) = self.applications.get_mut(&generation) else {
            return self.notify(Event::StepLost { generation, reason: "it was not started".to_owned() });
        };
        let reported = application.reported.clone();
        if self.dice.percent(10) {
            self.notify(Event::StepLost { generation, reason: "no launcher".to_owned() });
            return self.notify(Event::StepEnded { generation, end: holdfast_model::RankEnd::Unknown });
        }
        reported.into_iter().for_each(|event| self.notify(event));
    }

    fn plan(&self, generation: Generation, placement: &Placement) -> RunPlan {
        RunPlan {
            generation,
            nodes: placement.nodes.clone(),
            leader: placement.leader.clone(),
            settings: self.scenario.settings.clone(),
        }
    }
}
