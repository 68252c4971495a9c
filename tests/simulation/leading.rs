//! The leader in the agent of its node: the real machine, and a driver that performs its actions in the simulation.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_agent::collective::leader::{
    FetchStage, HaltWork, LeaderAction, LeaderEvent, LeaderMachine, LeaderMemory, LeaderStart, LeaderWork,
    UnfinishedFlushes, WorkOutput, WorkResult,
};
use holdfast_agent::sources;
use holdfast_core::prefix::window::LeftOut;
use holdfast_core::store::DirectoryName;
use holdfast_model::{Failure, FailureKind, Generation, HaltState, Locations, NodeName};
use holdfast_wire::run::RunPlan;

use crate::names::{NodeIndex, position};
use crate::prefix::JOB;
use crate::queue::{MS, Time};
use crate::store::condition;
use crate::world::{Defect, PrefixState, SimulatedEvent, World, trace};

/// The leader's machine in an agent.
pub struct Leading {
    pub generation: Generation,
    pub machine: LeaderMachine,
    pub links: HashMap<NodeIndex, u64>,
    /// When its timer is due.
    timer: Option<Time>,
}

impl World {
    /// `machine` is the leader's, if it was made from real files.
    pub fn begin_leading(&mut self, at: NodeIndex, plan: Arc<RunPlan>, machine: Option<LeaderMachine>) {
        let generation = plan.generation;
        let node = &mut self.nodes[at as usize];
        let memory = node.disk.leader.clone().filter(|known| known.generation == generation);
        let flushes = node.disk.flushes.clone().filter(|known| known.generation == generation);
        let Some(agent) = &mut node.agent else { return };
        let start = LeaderStart {
            directories: plan.settings.descriptors.iter().map(|it| format!("/cache/index.{}", it.index)).collect(),
            instance: agent.instance,
            memory: memory.unwrap_or_else(|| LeaderMemory::fresh(generation)),
            flushes: flushes.unwrap_or_else(|| UnfinishedFlushes::fresh(generation)),
            policy: sources::open(&plan.settings).unwrap().policy(),
            plan,
        };
        let machine = machine.unwrap_or_else(|| LeaderMachine::new(start).unwrap());
        agent.leading = Some(Leading { generation, machine, links: HashMap::new(), timer: None });
        trace!(self, "n{at}: leads generation {generation}");
    }

    /// An agent is notified that a node without ranks is down.
    pub fn leader_node_down(&mut self, at: NodeIndex, generation: Generation, node: &NodeName) {
        let leading = self.nodes[at as usize].agent.as_ref().and_then(|agent| agent.leading.as_ref());
        if leading.is_some_and(|leading| leading.generation == generation) {
            self.leader_event(at, LeaderEvent::NodeDown { node: node.clone() });
        }
    }

    pub fn leader_tick(&mut self, at: NodeIndex, instance: u64) {
        let now = self.now;
        let Some(leading) = self.agent(at, instance).and_then(|agent| agent.leading.as_mut()) else { return };
        // Later than planned if the node was frozen.
        if leading.timer.is_some_and(|timer| timer <= now) {
            leading.timer = None;
            self.leader_event(at, LeaderEvent::Tick);
        }
    }

    pub fn leader_event(&mut self, at: NodeIndex, event: LeaderEvent) {
        let now = self.clock();
        let Some(agent) = &mut self.nodes[at as usize].agent else { return };
        let instance = agent.instance;
        let Some(leading) = &mut agent.leading else { return };
        match &event {
            LeaderEvent::LinkUp { node, link } => {
                leading.links.insert(position(node).unwrap(), *link);
            }
            LeaderEvent::LinkDown { node, link } => {
                let member = position(node).unwrap();
                if leading.links.get(&member) == Some(link) {
                    leading.links.remove(&member);
                }
            }
            _ => {}
        }
        let actions = leading.machine.handle(now, event);
        let due = leading.machine.deadline().map(|due| due.as_micros() as Time);
        let mut ring = None;
        if let Some(due) = due
            && leading.timer.is_none_or(|timer| timer > due.max(self.now + 1))
        {
            let due = due.max(self.now + 1);
            leading.timer = Some(due);
            ring = Some(due);
        }
        if let Some(due) = ring {
            self.queue.enter(due, SimulatedEvent::LeaderTick { at, instance });
        }
        for action in actions {
            self.leader_acts(at, instance, action);
        }
    }

    fn leader_acts(&mut self, at: NodeIndex, instance: u64, action: LeaderAction) {
        let Some(leading) = self.nodes[at as usize].agent.as_ref().and_then(|agent| agent.leading.as_ref()) else {
            return;
        };
        match action {
            LeaderAction::Send { node, message } => {
                let link = leading.links.get(&position(&node).unwrap()).copied();
                if let Some(link) = link {
                    self.send_to_member(link, message);
                }
            }
            LeaderAction::Answer { nodes, seq, outcome } => {
                let generation = leading.generation;
                let links: Vec<u64> =
                    nodes.iter().filter_map(|node| leading.links.get(&position(node)?).copied()).collect();
                let saved = self.nodes[at as usize].disk.leader.as_ref();
                let saved = saved.filter(|memory| memory.generation == generation).map(|memory| memory.seq);
                let disk_fails = self.disk_fails(at, true);
                self.oracle.answered(generation, seq, &outcome, saved, disk_fails);
                trace!(self, "n{at}: collective {generation}/{seq} ends with {}", brief(&outcome));
                for link in links {
                    self.send_results(link, seq, outcome.clone());
                }
            }
            LeaderAction::Emit(event) => self.agent_reports(at, event),
            LeaderAction::Perform { id, work } => {
                let mut delay = self.between(200, 4 * MS);
                if touches_prefix(&work)
                    && let PrefixState::Hangs(until) = self.prefix_state
                {
                    delay += until.saturating_sub(self.now);
                }
                self.after(delay, SimulatedEvent::Work { at, instance, id, work: Box::new(work) });
            }
        }
    }

    /// Performs file work; the machine gets the result a little later, unless the agent dies in between.
    pub fn leader_work(&mut self, at: NodeIndex, instance: u64, id: u64, work: LeaderWork) {
        if self.agent(at, instance).is_none_or(|agent| agent.leading.is_none()) {
            return;
        }
        let midway = self.files.is_none() && self.dies_midway(at);
        let Some(result) = self.do_leader_work(at, work, midway) else { return };
        if !midway {
            let delay = self.between(50, MS);
            self.after(delay, SimulatedEvent::WorkFinished { at, instance, id, result: Box::new(result) });
        }
    }

    pub fn work_finished(&mut self, at: NodeIndex, instance: u64, id: u64, result: WorkResult) {
        if self.agent(at, instance).is_some() {
            self.leader_event(at, LeaderEvent::WorkFinished { id, result });
        }
    }

    /// `None` if the agent was killed meanwhile, with real files.
    fn do_leader_work(&mut self, at: NodeIndex, work: LeaderWork, midway: bool) -> Option<WorkResult> {
        let failed = |what: &str| Some(Err(Failure::new(FailureKind::Io, what)));
        if touches_prefix(&work) && self.prefix_state == PrefixState::Fails {
            return failed("the prefix directory fails");
        }
        if !touches_prefix(&work) && self.disk_fails(at, writes(&work)) {
            return failed("the disk fails");
        }
        match work {
            work if self.files.is_some() => {
                let result = self.leader_work_on_files(at, work)?;
                Some(result.map(|output| match output {
                    WorkOutput::Halt(state) => WorkOutput::Halt(self.with_halt_request(at, state)),
                    output => output,
                }))
            }
            work => Some(self.model_leader_work(at, work, midway)),
        }
    }

    fn model_leader_work(&mut self, at: NodeIndex, work: LeaderWork, midway: bool) -> WorkResult {
        // The replacement of a file is atomic.
        if midway && self.dice.percent(50) && !matches!(work, LeaderWork::Publish { .. }) {
            return Err(Failure::new(FailureKind::Io, "killed before"));
        }
        let world = self.scenario.world();
        let disk = &mut self.nodes[at as usize].disk;
        let prefix = &mut self.prefix;
        Ok(match work {
            LeaderWork::SaveMemory(memory) => {
                if self.defect != Some(Defect::MemoryNotSaved) {
                    disk.leader = Some(*memory);
                }
                WorkOutput::Done
            }
            LeaderWork::SaveFlushes(flushes) => {
                disk.flushes = Some(flushes);
                WorkOutput::Done
            }
            LeaderWork::Halt(work) => {
                change_halt(&mut disk.halt, work);
                let state = HaltState { met: condition(&disk.halt), ..disk.halt.clone() };
                WorkOutput::Halt(self.with_halt_request(at, state))
            }
            LeaderWork::DatasetsHere { base: None } => WorkOutput::Datasets(disk.checkpoints()),
            LeaderWork::DatasetsHere { base: Some(base) } => WorkOutput::Datasets(disk.checkpoints_in(&base)),
            LeaderWork::LocationsHere { checkpoint } => {
                WorkOutput::Locations(disk.flush.get(&checkpoint).copied().unwrap_or(Locations::default()))
            }
            LeaderWork::MakeDirectory { checkpoint, resume, .. } => {
                let known = resume.filter(|name| prefix.directories.contains_key(name));
                WorkOutput::Directory(known.unwrap_or_else(|| prefix.make_directory(checkpoint)))
            }
            // No container is configured.
            LeaderWork::CreateContainer { .. } => WorkOutput::Container(Err("no container is configured".to_owned())),
            LeaderWork::CommitContainer { .. } => WorkOutput::Done,
            LeaderWork::EnterIndex { checkpoint, directory, dataset } => {
                prefix.enter_index(checkpoint, &directory, &dataset);
                if self.scenario.settings.flush.keep > 0 {
                    prefix.index.mark_of_window(&directory, JOB);
                }
                WorkOutput::Done
            }
            LeaderWork::Publish { directory, summary, make_current } => {
                let steps = if midway { self.dice.below(4_usize) } else { usize::MAX };
                let complete = self.prefix.publish(&directory, summary.as_deref(), make_current, steps);
                self.check_published(&directory, complete, world);
                WorkOutput::Published(None)
            }
            LeaderWork::Unverified { checkpoint } => {
                let unverified = prefix.unverified(checkpoint);
                WorkOutput::Unverified(unverified.map(|(directory, summary)| (directory, Box::new(summary))))
            }
            LeaderWork::KeepWindow { verified, keep } => {
                prefix.index.mark_verified(&verified);
                let left_out = prefix.keep_window(keep).into_iter();
                let left_out = left_out.map(|(id, directory)| LeftOut { id, directory, failure: None });
                WorkOutput::LeftOut(left_out.collect())
            }
            LeaderWork::MarkRestarted { checkpoint } => {
                prefix.mark_restarted(checkpoint);
                WorkOutput::Done
            }
            LeaderWork::ReadDataset { directory } => WorkOutput::Dataset(prefix.dataset(&directory)),
            LeaderWork::FindDataset { name } => WorkOutput::Found(prefix.find(&name)),
            LeaderWork::MakeCurrent { directory } => {
                let usable = prefix.index.entry(&directory).is_some_and(|entry| entry.is_usable());
                if usable {
                    prefix.current = Some(directory);
                }
                WorkOutput::Usable(usable)
            }
            LeaderWork::Withdraw { directory } => {
                prefix.withdraw(&directory);
                WorkOutput::Done
            }
            LeaderWork::UnfinishedFlushes => WorkOutput::UnfinishedFlushes(prefix.unfinished_flushes()),
            LeaderWork::AbandonFlush { directory } => WorkOutput::Removed(prefix.abandon(&directory)),
            LeaderWork::DeleteDirectory { directory } => {
                prefix.directories.remove(&directory);
                WorkOutput::Done
            }
            LeaderWork::Candidates => WorkOutput::Candidates(prefix.candidates()),
            LeaderWork::LookUp { directory } => {
                WorkOutput::Usable(prefix.index.entry(&directory).is_some_and(|entry| entry.is_usable()))
            }
            LeaderWork::ReadSummary { directory } => match self.summary(&directory) {
                Some(summary) => WorkOutput::Summary(Box::new(summary)),
                None => return Err(Failure::new(FailureKind::NotFound, "no summary")),
            },
            LeaderWork::IsPacked { .. } => WorkOutput::Packed(false),
            LeaderWork::MarkFetch { directory, stage } => {
                match stage {
                    FetchStage::Begun => prefix.fetch_begun(&directory),
                    FetchStage::Failed { .. } => prefix.fetch_failed(&directory),
                    FetchStage::Succeeded => {
                        prefix.current.get_or_insert(directory);
                    }
                }
                WorkOutput::Done
            }
        })
    }

    /// The orchestrator's request to halt is a condition that holds.
    fn with_halt_request(&self, at: NodeIndex, mut state: HaltState) -> HaltState {
        let agent = self.nodes[at as usize].agent.as_ref();
        let request = agent.and_then(|agent| {
            let leads = agent.leading.as_ref().map(|leading| leading.generation);
            agent.halt_request.as_ref().filter(|request| Some(request.0) == leads)
        });
        state.met = state.met.or_else(|| request.map(|(_, reason)| reason.clone()));
        state
    }

    fn summary(&self, directory: &DirectoryName) -> Option<holdfast_core::prefix::Summary> {
        self.prefix.directories.get(directory)?.summary.clone()
    }
}

fn change_halt(halt: &mut HaltState, work: HaltWork) {
    match work {
        HaltWork::Read => {}
        HaltWork::Begin { seconds } => {
            if seconds > 0 {
                halt.seconds.get_or_insert(seconds as i64);
            }
        }
        HaltWork::CountCheckpoint => halt.checkpoints_left = halt.checkpoints_left.map(|left| left - 1),
        HaltWork::SetReason(text) => halt.reason = Some(text),
    }
}

fn touches_prefix(work: &LeaderWork) -> bool {
    !matches!(
        work,
        LeaderWork::SaveMemory(_)
            | LeaderWork::SaveFlushes(_)
            | LeaderWork::Halt(_)
            | LeaderWork::DatasetsHere { .. }
            | LeaderWork::LocationsHere { .. }
    )
}

fn writes(work: &LeaderWork) -> bool {
    match work {
        LeaderWork::SaveMemory(_) | LeaderWork::SaveFlushes(_) => true,
        LeaderWork::Halt(work) => *work != HaltWork::Read,
        _ => false,
    }
}

fn brief(outcome: &holdfast_wire::peer::Outcome) -> String {
    let text = format!("{outcome:?}");
    text.chars().take(160).collect()
}
