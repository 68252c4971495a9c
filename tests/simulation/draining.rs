//! The drain: the real machine, and a driver that performs its requests on the simulated nodes and prefix directory.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use holdfast::drain::{
    AgentAt, Answer, DrainAction, DrainConfig, DrainEnd, DrainEvent, DrainMachine, DrainRequest, Findings,
    LOST_AGENT_WAIT, RequestId, rounds,
};
use holdfast::events::DrainResult;
use holdfast::fleet::roster::RosterChange;
use holdfast::relaunch::Event;
use holdfast::relaunch::explain::NodeCondition;
use holdfast_core::prefix::Summary;
use holdfast_core::prefix::flushed::FlushedCopy;
use holdfast_core::prefix::inspect::summary_of;
use holdfast_core::prefix::window::LeftOut;
use holdfast_core::store::DirectoryName;
use holdfast_model::{CheckpointId, ContainerPlaces, ContainerRequest, NodeName, PackedRank, Rank, RankPlace};
use holdfast_wire::agent::CopyReply;

use crate::content::FileName;
use crate::names::{NodeIndex, position, start_of};
use crate::prefix::{JOB, PrefixFile};
use crate::queue::{MS, Time};
use crate::store::File;
use crate::world::{Defect, Life, PrefixState, SimulatedEvent, World, trace};

/// What is written to the places of a container: by rank and first chunk, the files and the file map. It is lost with
/// the orchestrator that created the container.
type Container = BTreeMap<(Rank, u64), (BTreeMap<FileName, PrefixFile>, (Vec<FileName>, u32))>;

/// A drain under way.
pub struct Draining {
    number: u32,
    machine: DrainMachine,
    timer: Option<Time>,
    cancelled: BTreeSet<RequestId>,
    /// What the agents have written to the container that is not complete.
    container: Option<Container>,
    /// The number of faults when the drain began, and the checkpoint that was protected then.
    injected_faults: u32,
    protected: Option<CheckpointId>,
}

impl World {
    /// The nodes are classified by the driver's own list at this time: the decision may have waited for the journal.
    pub fn begin_drain(&mut self) {
        let machine = &self.orchestrator.machine;
        let agents: BTreeMap<NodeName, SocketAddr> =
            machine.agents().map(|(node, address)| (node.clone(), address)).collect();
        let (mut down, mut lost) = (BTreeSet::new(), BTreeSet::new());
        for known in machine.explain().nodes {
            match known.condition {
                NodeCondition::Down(_) => down.insert(known.node),
                _ if agents.contains_key(&known.node) => false,
                _ => lost.insert(known.node),
            };
        }
        trace!(self, "the drain begins on {} nodes, {} are down", agents.len(), down.len());
        self.oracle.drains += 1;
        let config = DrainConfig {
            agents,
            down,
            lost,
            requested: None,
            crc: true,
            container: self.scenario.container,
            keep: self.scenario.settings.flush.keep,
            requests_at_once: 64,
            lost_agent_wait: LOST_AGENT_WAIT,
            survey_only: false,
        };
        self.orchestrator.drains += 1;
        let number = self.orchestrator.drains;
        let mut machine = DrainMachine::new(config);
        let actions = machine.begin(self.clock());
        let injected_faults = if self.prefix_state == PrefixState::Works { self.injected_faults } else { u32::MAX };
        let cancelled = BTreeSet::new();
        let protected = self.oracle.protected.as_ref().map(|known| known.checkpoint);
        self.orchestrator.draining =
            Some(Draining { number, machine, timer: None, cancelled, container: None, injected_faults, protected });
        self.drain_acts(number, actions);
    }

    pub fn drain_event(&mut self, number: u32, event: DrainEvent) {
        let now = self.clock();
        let Some(draining) = self.orchestrator.draining.as_mut().filter(|it| it.number == number) else { return };
        let actions = draining.machine.handle(now, event);
        self.drain_acts(number, actions);
    }

    /// An agent has started or was lost.
    pub fn drain_agent_event(&mut self, event: &Event) {
        let Some(number) = self.orchestrator.draining.as_ref().map(|draining| draining.number) else { return };
        match event {
            Event::AgentReady { node, address, .. } if position(node).is_some() && !self.oracle.down.contains(node) => {
                self.drain_event(
                    number,
                    DrainEvent::Roster(RosterChange::Up { node: node.clone(), address: *address }),
                );
            }
            Event::AgentLost { node, .. } => {
                self.drain_event(number, DrainEvent::Roster(RosterChange::Lost { node: node.clone() }));
            }
            _ => {}
        }
    }

    pub fn drain_node_down(&mut self, node: &NodeName) {
        let Some(number) = self.orchestrator.draining.as_ref().map(|draining| draining.number) else { return };
        self.drain_event(number, DrainEvent::Roster(RosterChange::Down { node: node.clone() }));
    }

    fn drain_acts(&mut self, number: u32, actions: Vec<DrainAction>) {
        for action in actions {
            match action {
                DrainAction::Cancel { request } => {
                    if let Some(draining) = &mut self.orchestrator.draining {
                        draining.cancelled.insert(request);
                    }
                }
                DrainAction::Emit(event) => {
                    trace!(self, "drain: {event:?}");
                }
                DrainAction::Finish(end) => return self.drain_ends(*end),
                action => {
                    let delay = self.between(MS, 15 * MS);
                    self.after(delay, SimulatedEvent::Drain(number, Box::new(action)));
                }
            }
        }
        let Some(draining) = self.orchestrator.draining.as_mut().filter(|it| it.number == number) else { return };
        let due = draining.machine.deadline().map(|due| (due.as_nanos().div_ceil(1000) as Time).max(self.now + 1));
        if let Some(due) = due
            && draining.timer.is_none_or(|timer| timer > due || timer <= self.now)
        {
            draining.timer = Some(due);
            self.queue.enter(due, SimulatedEvent::DrainTick(number));
        }
    }

    fn drain_ends(&mut self, end: DrainEnd) {
        trace!(self, "the drain ends: {}", format!("{end:?}").chars().take(300).collect::<String>());
        let draining = self.orchestrator.draining.take();
        let protected = self.oracle.protected.as_ref().map(|known| known.checkpoint);
        // A leader may complete the collective that was under way when its ranks were killed.
        let undisturbed = draining.is_some_and(|draining| {
            draining.injected_faults == self.injected_faults && draining.protected == protected
        });
        let result = match end {
            DrainEnd::Drained(report) => report.result,
            DrainEnd::Surveyed(_) => panic!("only a survey"),
            DrainEnd::Failed(error) => DrainResult::from(&error),
        };
        self.check_drain(&result, undisturbed);
        self.notify(Event::Drained { result, unplaced: Vec::new() });
    }

    /// A request of the drain is performed, whether or not its orchestrator is still alive.
    pub fn perform_drain_action(&mut self, number: u32, action: DrainAction) {
        let DrainAction::Request(request, _) = action else { return };
        let hangs = match self.prefix_state {
            PrefixState::Hangs(until) if until > self.now => Some(until),
            _ => None,
        };
        if let Some(until) = hangs {
            return self.queue.enter(until, SimulatedEvent::Drain(number, Box::new(action)));
        }
        let Some(action) = self.wait_for_thaw(number, action) else { return };
        let result = self.carry_out_request(number, action);
        let known = self.orchestrator.draining.as_ref().filter(|draining| draining.number == number);
        if known.is_none_or(|draining| draining.cancelled.contains(&request)) {
            return;
        }
        let event = match result {
            Some(Ok(answer)) => DrainEvent::Answered { request, answer },
            Some(Err(reason)) => DrainEvent::Failed { request, failure: reason.into() },
            // There is no answer: the loss of the agent ends the request.
            None => return,
        };
        let delay = self.between(MS, 5 * MS);
        self.after(delay, SimulatedEvent::DrainAnswer(number, Box::new(event)));
    }

    /// Delays requests to a frozen node; others are returned.
    fn wait_for_thaw(&mut self, number: u32, action: DrainAction) -> Option<DrainAction> {
        let at = agent_of(&action).and_then(|agent| position(&agent.node));
        if at.is_some_and(|at| self.nodes[at as usize].life == Life::Frozen) {
            self.after(50 * MS, SimulatedEvent::Drain(number, Box::new(action)));
            return None;
        }
        Some(action)
    }

    /// The node of an agent that still has this address.
    fn reach(&self, agent: &AgentAt) -> Result<NodeIndex, String> {
        let at = position(&agent.node).unwrap();
        let node = &self.nodes[at as usize];
        match &node.agent {
            Some(running) if node.life == Life::Alive && running.start == start_of(agent.address) => Ok(at),
            _ => Err("connection refused".to_owned()),
        }
    }

    fn carry_out_request(&mut self, number: u32, action: DrainAction) -> Option<Result<Answer, String>> {
        let world = self.scenario.world();
        let needs_prefix = !matches!(
            action,
            DrainAction::Request(_, DrainRequest::TakeInventory { .. })
                | DrainAction::Request(_, DrainRequest::NoteFlushed { .. })
        );
        if needs_prefix && self.prefix_state == PrefixState::Fails {
            return Some(Err("the prefix directory fails".to_owned()));
        }
        let at = match agent_of(&action).map(|agent| self.reach(agent)) {
            Some(Err(reason)) => return Some(Err(reason)),
            Some(Ok(at)) => Some(at),
            None => None,
        };
        if self.files.is_some() {
            return self.drain_on_files(number, at, action);
        }
        let answer = match action {
            DrainAction::Request(_, DrainRequest::TakeInventory { end_run, .. }) => {
                if end_run {
                    self.end_run(at?);
                }
                let inventory = self.nodes[at? as usize].disk.inventory(at?, world);
                Answer::Inventory(Box::new(inventory))
            }
            DrainAction::Request(_, DrainRequest::ExamineFlushed { checkpoint, .. }) => {
                let usable = self.prefix.has_usable(checkpoint);
                let copy = match usable {
                    true => FlushedCopy::Complete,
                    false => FlushedCopy::Damaged("it is not there".to_owned()),
                };
                Answer::FlushedExamined { copy }
            }
            DrainAction::Request(_, DrainRequest::OpenDirectory { checkpoint, container, .. }) => {
                let known = self.prefix.interrupted(checkpoint);
                let resumed = known.is_some();
                let directory = known.unwrap_or_else(|| self.prefix.make_directory(checkpoint));
                self.prefix.drain = Some((checkpoint, directory.clone()));
                if let Some(staged) = self.staged(number) {
                    *staged = container.as_ref().map(|_| Container::new());
                }
                let places = |request: &ContainerRequest| {
                    let place = RankPlace { file: 0, offset: 0, chunk_bytes: 1, stride: 1, first_chunk: 0 };
                    let ranks = request.streams.keys().map(|rank| (*rank, place)).collect();
                    Arc::new(ContainerPlaces { files: vec!["container".to_owned()], ranks })
                };
                let container = container.as_deref().map(|request| Ok(places(request)));
                Answer::DirectoryOpened { directory, resumed, container }
            }
            DrainAction::Request(_, DrainRequest::CommitContainer { directory, packed, .. }) => {
                let Some(staged) = self.staged(number).and_then(Option::take) else {
                    return Some(Err("the container is not under way".to_owned()));
                };
                let Some(target) = self.prefix.directories.get_mut(&directory) else {
                    return Some(Err("no such directory".to_owned()));
                };
                for (place, (files, filemap)) in staged {
                    if packed.get(&place.0).is_some_and(|packed| packed.first_chunk == place.1) {
                        // A plain file of an earlier drain replaces a packed one.
                        for (name, file) in files {
                            target.files.entry(name).or_insert(file);
                        }
                        target.filemaps.entry(place.0).or_insert(filemap);
                    }
                }
                Answer::ContainerCommitted
            }
            // Packed and plain files are not distinguished.
            DrainAction::Request(_, DrainRequest::Repack { .. }) => Answer::ContainerCommitted,
            DrainAction::Request(_, DrainRequest::Copy { checkpoint, directory, order, container, .. }) => {
                match self.drain_copies(number, at?, checkpoint, &directory, &order, container.as_deref())? {
                    Ok(reply) => Answer::Copied(reply),
                    Err(reason) => return Some(Err(reason)),
                }
            }
            DrainAction::Request(_, DrainRequest::Scan { directory, .. }) => {
                match self.prefix.directories.get(&directory) {
                    Some(known) => Answer::Scanned(Box::new(known.scan(&directory, world))),
                    None => return Some(Err("no such directory".to_owned())),
                }
            }
            DrainAction::Request(_, DrainRequest::Verify { .. }) => Answer::Verified { damaged: BTreeMap::new() },
            DrainAction::Request(_, DrainRequest::Rebuild { directory, set, .. }) => {
                if let Some(at) = at
                    && self.dies_midway(at)
                {
                    return None;
                }
                let known = self.prefix.directories.get_mut(&directory);
                let rebuilt = known.and_then(|known| known.rebuild(set.set, &set.missing, &set.ranks));
                match rebuilt {
                    Some(()) => Answer::Rebuilt,
                    None => return Some(Err("it cannot be rebuilt".to_owned())),
                }
            }
            DrainAction::Request(_, DrainRequest::Publish { findings, .. }) => {
                let Findings { directory, scan, inspection, make_current } = *findings;
                let mut summary = summary_of(&scan, &inspection);
                if self.defect == Some(Defect::AllPublishedAsComplete) {
                    summary = summary.map(|summary| Summary { complete: true, ..summary });
                }
                let complete = self.prefix.publish(&directory, summary.as_ref(), make_current, usize::MAX);
                self.check_published(&directory, complete, world);
                if complete && make_current && self.scenario.settings.flush.keep > 0 {
                    self.prefix.index.mark_of_window(&directory, JOB);
                    self.prefix.index.mark_verified(&directory);
                }
                Answer::Published { refused: None, unplaced: None }
            }
            DrainAction::Request(_, DrainRequest::CloseDirectory) => {
                self.prefix.drain = None;
                Answer::DirectoryClosed
            }
            DrainAction::Request(_, DrainRequest::FindOlder) => {
                let checkpoint = self.prefix.candidates().into_iter().find_map(|candidate| candidate.id);
                Answer::OlderFound { checkpoint }
            }
            DrainAction::Request(_, DrainRequest::KeepWindow { keep }) => {
                let left_out = self.prefix.keep_window(keep).into_iter();
                let left_out = left_out.map(|(id, directory)| LeftOut { id, directory, failure: None });
                Answer::WindowKept { left_out: left_out.collect() }
            }
            DrainAction::Request(_, DrainRequest::AbandonFlushes) => {
                Answer::FlushesAbandoned { directories: self.prefix.abandon_all() }
            }
            DrainAction::Request(_, DrainRequest::NoteFlushed { checkpoint, .. }) => {
                let locations = self.nodes[at? as usize].disk.flush.entry(checkpoint).or_default();
                (locations.pfs, locations.flushing) = (true, false);
                Answer::FlushNoted
            }
            DrainAction::Cancel { .. } | DrainAction::Emit(_) | DrainAction::Finish(_) => return None,
        };
        Some(Ok(answer))
    }

    /// The container of a drain; `None` if its orchestrator is dead, so that what is written is lost.
    fn staged(&mut self, number: u32) -> Option<&mut Option<Container>> {
        let draining = self.orchestrator.draining.as_mut().filter(|draining| draining.number == number);
        draining.map(|draining| &mut draining.container)
    }

    /// An agent copies what it holds: its own ranks' files, and copies on behalf of others.
    fn drain_copies(
        &mut self,
        number: u32,
        at: NodeIndex,
        checkpoint: CheckpointId,
        directory: &DirectoryName,
        order: &rounds::CopyOrder,
        container: Option<&ContainerPlaces>,
    ) -> Option<Result<CopyReply, String>> {
        let midway = self.dies_midway(at);
        let broken = self.disk_fails(at, false);
        let verified = self.scenario.has_checksums();
        let disk = &self.nodes[at as usize].disk;
        let Some(target) = self.prefix.directories.get_mut(directory) else {
            return Some(Err("no such directory".to_owned()));
        };
        let mut staged = Container::new();
        let mut reply = CopyReply::default();
        let range = (checkpoint, Rank(0))..=(checkpoint, Rank(u32::MAX));
        let mut left = if midway { disk.held.range(range.clone()).count() / 2 } else { usize::MAX };
        for ((_, rank), held) in disk.held.range(range) {
            if held.expected.is_none() && held.files.is_empty() {
                continue;
            }
            let owner = held.partner_of.map(crate::names::name);
            let requested = match &owner {
                Some(owner) => order.on_behalf_of.contains(owner),
                None => !order.partners_only,
            };
            if let Some(owner) = owner {
                reply.partners.insert(*rank, owner);
            }
            if !requested {
                continue;
            }
            if left == 0 {
                break;
            }
            left -= 1;
            let readable = |file: &&File| file.can_be_read(verified) && !broken;
            let copied: BTreeMap<FileName, PrefixFile> = held
                .files
                .iter()
                .filter(readable)
                .map(|file| (file.name, PrefixFile { rank: *rank, content: file.content.clone() }))
                .collect();
            let names: Vec<FileName> = held.files.iter().filter(readable).map(|file| file.name).collect();
            let bytes = names.iter().map(|name| name.size()).sum();
            let listed = held.files.len() as u32;
            let filemap = (names, held.expected.unwrap_or(listed + 1));
            match container.and_then(|places| places.ranks.get(rank)) {
                Some(RankPlace { first_chunk, .. }) => {
                    staged.insert((*rank, *first_chunk), (copied, filemap));
                    let packed = PackedRank { first_chunk: *first_chunk, files: Vec::new() };
                    reply.packed.insert(*rank, packed);
                }
                None => {
                    target.files.extend(copied);
                    target.filemaps.insert(*rank, filemap);
                }
            }
            if held.is_complete() && held.files.iter().all(|file| readable(&file)) {
                reply.copied.insert(*rank, bytes);
            } else {
                reply.failed.insert(*rank, "not complete".to_owned());
            }
        }
        if let Some(Some(container)) = self.staged(number) {
            container.append(&mut staged);
        }
        if midway { None } else { Some(Ok(reply)) }
    }
}

/// The agent that a request goes to.
fn agent_of(action: &DrainAction) -> Option<&AgentAt> {
    match action {
        DrainAction::Request(_, DrainRequest::TakeInventory { agent, .. })
        | DrainAction::Request(_, DrainRequest::Copy { agent, .. })
        | DrainAction::Request(_, DrainRequest::NoteFlushed { agent, .. }) => Some(agent),
        DrainAction::Request(_, DrainRequest::Verify { agent, .. })
        | DrainAction::Request(_, DrainRequest::Rebuild { agent, .. }) => agent.as_ref(),
        _ => None,
    }
}
