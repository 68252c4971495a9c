//! Simulated nodes and a simulated prefix directory. Every node has one rank; `node0` has rank 0.
//!
//! The world answers every request of the machine, except those that a test withholds, and checks the invariants at
//! every step.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::control::meta::FileKind;
use holdfast_core::prefix::flushed::FlushedCopy;
use holdfast_core::prefix::inspect::Completeness;
use holdfast_core::prefix::scan::{
    CheckpointIdentity, ExpectationSource, ExpectedFiles, FileDamage, PresentFile, RankScan, RedundancySet, Scan,
};
use holdfast_core::prefix::window::LeftOut;
use holdfast_core::redundancy::files::SetId;
use holdfast_core::store::DirectoryName;
use holdfast_core::store::{DatasetFiles, FoundFile, ListedFile, OpenDataset, PosixDataset, StoredFile};
use holdfast_model::{
    CheckpointId, ContainerPlaces, ContainerRequest, Dataset, Descriptor, HeldFile, Holding, Inventory, Locations,
    NodeName, OutputPath, PackedRank, Protection, Rank, RankDescriptor, RankPlace, Scheme,
};
use holdfast_wire::agent::{AgentEvent, CopyReply};

use crate::drain::*;
use crate::events::{AgentReport, DrainResult, LogEvent};
use crate::fleet::roster::RosterChange;

pub(super) const XOR: Scheme = Scheme::new("XOR");
pub(super) const PARTNER: Scheme = Scheme::new("PARTNER");

pub(super) fn name(node: u32) -> NodeName {
    NodeName::new(format!("node{node}"))
}

pub(super) fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn file(rank: Rank) -> String {
    format!("rank_{rank}.ckpt")
}

/// A dataset in the caches.
#[derive(Clone, Debug, Default)]
pub(super) struct Cached {
    /// The application declared it as output.
    pub(super) output: bool,
    /// It is a checkpoint.
    pub(super) checkpoint: bool,
    /// It is in the prefix directory.
    pub(super) flushed: bool,
    /// Ranks whose files cannot be read on the node of the rank.
    pub(super) unreadable: BTreeSet<Rank>,
}

/// A directory below the prefix: for each rank, whether its file is intact.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    pub(super) files: BTreeMap<Rank, bool>,
    /// Ranks whose files are in a container.
    pub(super) packed: BTreeSet<Rank>,
    /// Whether it was indexed as complete.
    pub(super) indexed: Option<bool>,
}

/// Names of files, of which those of some ranks are in a container.
#[derive(Debug)]
struct PackedNames(BTreeSet<String>);

impl DatasetFiles for PackedNames {
    fn location(&self) -> &Path {
        Path::new("/pfs/directory")
    }

    fn stored(&self) -> Arc<dyn OpenDataset> {
        Arc::new(PosixDataset::at(self.location()).unwrap())
    }

    fn list(&self) -> io::Result<Vec<ListedFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn examine(&self, _: &str, _: Option<&OutputPath>) -> io::Result<FoundFile> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn open(&self, _: &str, _: Option<&OutputPath>) -> io::Result<Box<dyn StoredFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn is_packed(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

/// Whether a request is to be left open.
type Withhold = Box<dyn Fn(&DrainAction) -> bool>;

pub(super) struct World {
    pub(super) machine: DrainMachine,
    pub(super) nodes: u32,
    pub(super) scheme: Scheme,
    pub(super) datasets: BTreeMap<CheckpointId, Cached>,
    pub(super) prefix: BTreeMap<CheckpointId, Directory>,
    /// Directories that an earlier drain left.
    pub(super) resumable: BTreeSet<CheckpointId>,
    /// Flushed datasets whose copies in the prefix directory are damaged.
    pub(super) lost_flushes: BTreeSet<CheckpointId>,
    /// Flushed datasets that the index of the prefix directory does not list.
    pub(super) flushed_elsewhere: BTreeSet<CheckpointId>,
    /// Flushes that did not end.
    pub(super) unfinished_flushes: BTreeSet<CheckpointId>,
    /// The checkpoints that the window leaves out.
    pub(super) left_out: BTreeSet<u64>,
    /// Outputs whose paths belong to other datasets.
    pub(super) refused: BTreeSet<CheckpointId>,
    /// Containers cannot be created.
    pub(super) no_container: bool,
    /// Ranks whose plain files are damaged when they are to be moved into a container.
    pub(super) damaged_later: BTreeSet<Rank>,
    /// Nodes that were not requested to end the run: their flushes write to the prefix directory.
    running: BTreeSet<NodeName>,
    /// Ranks whose files arrive damaged in the prefix directory.
    pub(super) corrupted: BTreeSet<Rank>,
    /// The agents that are up according to the events so far.
    pub(super) up: BTreeMap<NodeName, SocketAddr>,
    pub(super) now: Duration,
    pub(super) at_once: usize,
    pub(super) withhold: Withhold,
    /// Requests that are under way.
    pub(super) open: BTreeMap<RequestId, DrainAction>,
    /// All actions so far.
    pub(super) log: Vec<DrainAction>,
    pub(super) end: Option<DrainEnd>,
    /// What is written to the container, by rank and first chunk: the node, and whether it arrived intact.
    packing: BTreeMap<(Rank, u64), (NodeName, bool)>,
    current: Option<CheckpointId>,
    last_port: u16,
}

impl World {
    /// Nodes that hold these datasets, as checkpoints, and a drain that has not begun.
    pub(super) fn new(nodes: u32, scheme: Scheme, ids: &[u64]) -> Self {
        let dataset = |id: &u64| (CheckpointId(*id), Cached { checkpoint: true, ..Cached::default() });
        let up = (0..nodes).map(|node| (name(node), address(1))).collect();
        let mut world = World {
            machine: DrainMachine::new(World::config(&BTreeMap::new())),
            nodes,
            scheme,
            datasets: ids.iter().map(dataset).collect(),
            prefix: BTreeMap::new(),
            resumable: BTreeSet::new(),
            lost_flushes: BTreeSet::new(),
            flushed_elsewhere: BTreeSet::new(),
            unfinished_flushes: BTreeSet::new(),
            left_out: BTreeSet::new(),
            refused: BTreeSet::new(),
            no_container: false,
            damaged_later: BTreeSet::new(),
            running: (0..nodes).map(name).collect(),
            corrupted: BTreeSet::new(),
            up,
            now: Duration::ZERO,
            at_once: 3,
            withhold: Box::new(|_| false),
            open: BTreeMap::new(),
            log: Vec::new(),
            end: None,
            packing: BTreeMap::new(),
            current: None,
            last_port: 1,
        };
        world.configure(|_| {});
        world
    }

    fn config(up: &BTreeMap<NodeName, SocketAddr>) -> DrainConfig {
        DrainConfig {
            agents: up.clone(),
            lost: BTreeSet::new(),
            down: BTreeSet::new(),
            requested: None,
            crc: true,
            container: None,
            keep: 0,
            requests_at_once: 3,
            lost_agent_wait: LOST_AGENT_WAIT,
            survey_only: false,
        }
    }

    /// Another drain. Nodes without agent are down.
    pub(super) fn configure(&mut self, change: impl FnOnce(&mut DrainConfig)) {
        let mut config = World::config(&self.up);
        config.down = (0..self.nodes).map(name).filter(|node| !self.up.contains_key(node)).collect();
        change(&mut config);
        (self.up, self.at_once) = (config.agents.clone(), config.requests_at_once);
        self.machine = DrainMachine::new(config);
        (self.log, self.end) = (Vec::new(), None);
    }

    /// Nodes without agent from the beginning.
    pub(super) fn without(&mut self, nodes: &[u32]) {
        let down: BTreeSet<NodeName> = nodes.iter().map(|node| name(*node)).collect();
        self.up.retain(|node, _| !down.contains(node));
        self.configure(|_| {});
    }

    /// Begins, and answers all requests that are not withheld.
    pub(super) fn run(&mut self, withhold: impl Fn(&DrainAction) -> bool + 'static) {
        self.withhold = Box::new(withhold);
        self.begin();
        self.answer_all();
    }

    pub(super) fn begin(&mut self) {
        let actions = self.machine.begin(self.now);
        self.take_in(actions);
    }

    /// Answers the requests that were withheld, and all after them.
    pub(super) fn release(&mut self) {
        self.withhold = Box::new(|_| false);
        self.answer_all();
    }

    pub(super) fn lose(&mut self, node: u32) {
        self.up.remove(&name(node));
        self.feed(DrainEvent::Roster(RosterChange::Lost { node: name(node) }));
        self.answer_all();
    }

    pub(super) fn bring_down(&mut self, node: u32) {
        self.up.remove(&name(node));
        self.feed(DrainEvent::Roster(RosterChange::Down { node: name(node) }));
        self.answer_all();
    }

    pub(super) fn restart(&mut self, node: u32) {
        self.last_port += 1;
        self.up.insert(name(node), address(self.last_port));
        self.feed(DrainEvent::Roster(RosterChange::Up { node: name(node), address: address(self.last_port) }));
        self.answer_all();
    }

    /// Advances the time to the deadline.
    pub(super) fn wait(&mut self) {
        self.now = self.machine.deadline().unwrap();
        self.feed(DrainEvent::Tick);
        self.answer_all();
    }

    /// Lets the open request that the predicate selects fail.
    pub(super) fn fail(&mut self, select: impl Fn(&DrainAction) -> bool) {
        let request = *self.open.iter().find(|(_, action)| select(action)).unwrap().0;
        self.feed(DrainEvent::Failed { request, failure: "disk error".into() });
        self.answer_all();
    }

    pub(super) fn report(&self) -> &DrainReport {
        match self.end.as_ref().unwrap() {
            DrainEnd::Drained(report) => report,
            other => panic!("{other:?}"),
        }
    }

    /// The events so far as short texts.
    pub(super) fn events(&self) -> Vec<String> {
        found!(self.log, DrainAction::Emit(event) => text(event))
    }

    /// The orders of copies so far, as short texts.
    pub(super) fn copies(&self) -> Vec<String> {
        found!(self.log, DrainAction::Request(_, DrainRequest::Copy { checkpoint, order, .. }) => {
            let others = order.on_behalf_of.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let only = if order.partners_only { " only" } else { "" };
            format!("{checkpoint} round {} {}{only} for [{others}]", order.round, order.node)
        })
    }

    pub(super) fn answer_all(&mut self) {
        while let Some(request) =
            self.open.iter().find(|(_, action)| !(self.withhold)(action)).map(|(request, _)| *request)
        {
            self.answer(request);
        }
    }

    /// Answers an open request.
    pub(super) fn answer(&mut self, request: RequestId) {
        let action = self.open[&request].clone();
        let answer = self.carry_out(&action);
        self.feed(DrainEvent::Answered { request, answer });
    }

    pub(super) fn feed(&mut self, event: DrainEvent) {
        if let DrainEvent::Answered { request, .. } | DrainEvent::Failed { request, .. } = &event {
            self.open.remove(request);
        }
        let actions = self.machine.handle(self.now, event);
        self.take_in(actions);
    }

    /// The invariants of every action.
    fn take_in(&mut self, actions: Vec<DrainAction>) {
        for action in actions {
            assert!(self.end.is_none(), "{action:?} after the end");
            if let Some(agent) = agent_of(&action) {
                assert_eq!(self.up.get(&agent.node), Some(&agent.address), "{action:?} to an agent that is not up");
            }
            match &action {
                DrainAction::Request(_, DrainRequest::TakeInventory { agent, end_run: true, .. }) => {
                    self.running.remove(&agent.node);
                }
                DrainAction::Request(_, DrainRequest::OpenDirectory { checkpoint, .. }) => {
                    let flushing: Vec<_> = self.running.iter().filter(|node| self.up.contains_key(*node)).collect();
                    assert!(flushing.is_empty(), "a directory is opened while {flushing:?} may flush");
                    self.current = Some(*checkpoint);
                }
                DrainAction::Request(_, DrainRequest::Copy { order, .. }) => {
                    let node = &order.node;
                    let same = |open: &DrainAction| match open {
                        DrainAction::Request(_, DrainRequest::Copy { order, .. }) => order.node == *node,
                        _ => false,
                    };
                    assert!(!self.open.values().any(same), "{order:?} is under way");
                }
                DrainAction::Cancel { request } => assert!(self.open.remove(request).is_some()),
                DrainAction::Finish(end) => {
                    assert!(self.open.is_empty(), "{:?} are open at the end", self.open);
                    self.check(end);
                    self.end = Some((**end).clone());
                }
                _ => {}
            }
            if let DrainAction::Request(request, _) = &action {
                let unknown =
                    |known: &DrainAction| !matches!(known, DrainAction::Request(known, _) if known == request);
                assert!(self.log.iter().rev().take(100).all(unknown), "{request:?} twice");
                self.open.insert(*request, action.clone());
                assert!(self.open.len() <= self.at_once, "{} requests at once", self.open.len());
            }
            self.log.push(action);
        }
    }

    /// A dataset is only reported as complete if the files of all ranks are intact and it is indexed as complete.
    fn check(&self, end: &DrainEnd) {
        if let DrainEnd::Drained(DrainReport { result: DrainResult::Complete { checkpoint }, .. }) = end {
            let directory = &self.prefix[checkpoint];
            assert_eq!(directory.indexed, Some(true));
            let intact = directory.files.values().filter(|intact| **intact).count();
            assert_eq!(intact, self.nodes as usize, "{directory:?}");
        }
    }

    pub(super) fn carry_out(&mut self, action: &DrainAction) -> Answer {
        match action {
            DrainAction::Request(_, DrainRequest::TakeInventory { agent, .. }) => {
                Answer::Inventory(Box::new(self.inventory(&agent.node)))
            }
            DrainAction::Request(_, DrainRequest::ExamineFlushed { checkpoint, .. }) => {
                let copy = match self.lost_flushes.contains(checkpoint) {
                    true => FlushedCopy::Damaged("a file does not exist".to_owned()),
                    false if self.flushed_elsewhere.contains(checkpoint) => FlushedCopy::Unlisted,
                    false => FlushedCopy::Complete,
                };
                Answer::FlushedExamined { copy }
            }
            DrainAction::Request(_, DrainRequest::OpenDirectory { checkpoint, container, .. }) => {
                self.prefix.entry(*checkpoint).or_default();
                self.packing.clear();
                let directory = DirectoryName::new(format!("directory.{checkpoint}")).unwrap();
                let place = RankPlace { file: 0, offset: 4096, chunk_bytes: 1, stride: 1, first_chunk: 0 };
                let places = |request: &ContainerRequest| {
                    let ranks = request.streams.keys().map(|rank| (*rank, place)).collect();
                    Arc::new(ContainerPlaces { files: vec!["container".to_owned()], ranks })
                };
                let refused = self.no_container.then(|| "no space".to_owned());
                let container = container.as_deref().map(|request| refused.map_or_else(|| Ok(places(request)), Err));
                Answer::DirectoryOpened { directory, resumed: self.resumable.contains(checkpoint), container }
            }
            DrainAction::Request(_, DrainRequest::Copy { checkpoint, order, container, .. }) => {
                let left = self.prefix[checkpoint].files.clone();
                let mut reply = self.copy(*checkpoint, order.node.as_str(), order);
                for (rank, place) in container.iter().flat_map(|places| &places.ranks) {
                    if reply.copied.contains_key(rank) {
                        // It counts when the container is complete.
                        let files = &mut self.prefix.get_mut(checkpoint).unwrap().files;
                        let intact = files.remove(rank).unwrap();
                        files.extend(left.get(rank).map(|left| (*rank, *left)));
                        let place = (*rank, place.first_chunk);
                        let (writer, _) = self.packing.entry(place).or_insert((order.node.clone(), intact));
                        assert_eq!(*writer, order.node, "two nodes write the files of rank {rank} to one place");
                        let packed = PackedRank { first_chunk: place.1, files: Vec::new() };
                        reply.packed.insert(*rank, packed);
                    }
                }
                Answer::Copied(reply)
            }
            DrainAction::Request(_, DrainRequest::CommitContainer { packed, .. }) => {
                let directory = self.prefix.get_mut(&self.current.unwrap()).unwrap();
                for (rank, PackedRank { first_chunk, .. }) in packed {
                    // A plain file replaces a packed one.
                    if !directory.files.contains_key(rank) || directory.packed.contains(rank) {
                        directory.files.insert(*rank, self.packing[&(*rank, *first_chunk)].1);
                        directory.packed.insert(*rank);
                    }
                }
                Answer::ContainerCommitted
            }
            DrainAction::Request(_, DrainRequest::Repack { container, files, .. }) => {
                let directory = self.prefix.get_mut(&self.current.unwrap()).unwrap();
                assert!(files.keys().all(|rank| directory.files[rank] && !directory.packed.contains(rank)));
                assert!(files.keys().eq(container.streams.keys()));
                if let Some(rank) = files.keys().find(|rank| self.damaged_later.remove(rank)).copied() {
                    directory.files.insert(rank, false);
                    return Answer::RepackFoundDamage { rank: Some(rank), reason: format!("{rank} is damaged") };
                }
                directory.packed.extend(files.keys());
                Answer::ContainerCommitted
            }
            DrainAction::Request(_, DrainRequest::Scan { .. }) => Answer::Scanned(Box::new(self.scan())),
            DrainAction::Request(_, DrainRequest::Verify { files, .. }) => {
                let directory = &self.prefix[&self.current.unwrap()];
                let damaged = files.iter().filter(|unit| directory.files.get(&unit.rank) == Some(&false));
                let damage = FileDamage::Crc { expected: 1, found: 2 };
                Answer::Verified { damaged: damaged.map(|unit| (unit.name.clone(), damage.clone())).collect() }
            }
            DrainAction::Request(_, DrainRequest::Rebuild { checkpoint, set, .. }) => {
                let directory = self.prefix.get_mut(checkpoint).unwrap();
                directory.files.extend(set.ranks.iter().map(|rank| (*rank, true)));
                directory.packed.retain(|rank| !set.ranks.contains(rank));
                Answer::Rebuilt
            }
            DrainAction::Request(_, DrainRequest::Publish { findings, .. }) => {
                let current = self.current.unwrap();
                let refused = self.refused.contains(&current).then(|| "its path is taken".to_owned());
                let complete = findings.inspection.completeness == Completeness::Complete && refused.is_none();
                self.prefix.get_mut(&current).unwrap().indexed = Some(complete);
                Answer::Published { refused, unplaced: None }
            }
            DrainAction::Request(_, DrainRequest::CloseDirectory) => Answer::DirectoryClosed,
            DrainAction::Request(_, DrainRequest::AbandonFlushes) => {
                let directory = |id| DirectoryName::new(format!("directory.{id}")).unwrap();
                let ids = std::mem::take(&mut self.unfinished_flushes).into_iter();
                Answer::FlushesAbandoned { directories: ids.map(directory).collect() }
            }
            DrainAction::Request(_, DrainRequest::KeepWindow { .. }) => {
                let directory = |id| DirectoryName::new(format!("directory.{id}")).unwrap();
                let left_out = |id| LeftOut { id: CheckpointId(id), directory: directory(id), failure: None };
                Answer::WindowKept { left_out: std::mem::take(&mut self.left_out).into_iter().map(left_out).collect() }
            }
            DrainAction::Request(_, DrainRequest::FindOlder) => {
                let flushed = self.datasets.iter().filter(|(id, it)| it.flushed && !self.lost_flushes.contains(id));
                Answer::OlderFound { checkpoint: flushed.map(|(id, _)| *id).max() }
            }
            DrainAction::Request(_, DrainRequest::NoteFlushed { .. }) => Answer::FlushNoted,
            other => panic!("{other:?} is no request"),
        }
    }

    fn rank_of(&self, node: &str) -> Rank {
        Rank(node.trim_start_matches("node").parse().unwrap())
    }

    /// The rank whose partner copy a node holds.
    fn partner_of(&self, node: &str) -> Option<Rank> {
        let rank = self.rank_of(node).0;
        (self.scheme == PARTNER).then_some(Rank((rank + self.nodes - 1) % self.nodes))
    }

    fn copy(&mut self, checkpoint: CheckpointId, node: &str, order: &crate::drain::rounds::CopyOrder) -> CopyReply {
        let (own, partner) = (self.rank_of(node), self.partner_of(node));
        let mut reply = CopyReply::default();
        let owner = partner.map(|rank| (rank, name(rank.0)));
        reply.partners.extend(owner.clone());
        let on_behalf = owner.filter(|(_, owner)| order.on_behalf_of.contains(owner)).map(|(rank, _)| rank);
        let own = (!order.partners_only).then_some(own);
        for rank in own.into_iter().chain(on_behalf) {
            if own == Some(rank) && self.datasets[&checkpoint].unreadable.contains(&rank) {
                reply.failed.insert(rank, format!("{}: input/output error", file(rank)));
            } else {
                let intact = !self.corrupted.contains(&rank);
                self.prefix.get_mut(&checkpoint).unwrap().files.insert(rank, intact);
                reply.copied.insert(rank, 10);
            }
        }
        reply
    }

    fn inventory(&self, node: &NodeName) -> Inventory {
        let (own, partner) = (self.rank_of(node.as_str()), self.partner_of(node.as_str()));
        let ids = self.datasets.keys();
        let holdings = ids.flat_map(|id| {
            let copy = partner.map(|rank| self.holding(*id, rank, Some(name(rank.0))));
            [self.holding(*id, own, None)].into_iter().chain(copy)
        });
        let flush = self
            .datasets
            .iter()
            .map(|(id, cached)| (*id, Locations { cache: true, pfs: cached.flushed, flushing: false }));
        let dataset =
            |cached: &Cached| Dataset { output: cached.output, checkpoint: cached.checkpoint, ..Dataset::default() };
        Inventory {
            node: None,
            holdings: holdings.collect(),
            flush: flush.collect(),
            datasets: self.datasets.iter().map(|(id, cached)| (*id, dataset(cached))).collect(),
            nodes: Some(self.nodes),
            faults: Vec::new(),
        }
    }

    fn holding(&self, checkpoint: CheckpointId, rank: Rank, partner_of: Option<NodeName>) -> Holding {
        Holding {
            checkpoint,
            rank,
            ranks: Some(self.nodes),
            complete: true,
            expected: Some(1),
            fault: None,
            protection: Protection::Scheme(self.scheme),
            partner_of,
            descriptor: Some(RankDescriptor {
                groups: 1,
                group_size: self.nodes,
                group_rank: rank.0,
                ..RankDescriptor::unplaced(Descriptor::new(0, self.scheme, "/tmp"), "/tmp/u/scr.1/index.0")
            }),
            files: vec![HeldFile { name: file(rank), size: 10 }],
        }
    }

    /// The directory of the dataset that is being drained. Damage is only visible in checksums.
    fn scan(&self) -> Scan {
        let id = self.current.unwrap();
        let ranks: BTreeMap<Rank, RankScan> =
            self.prefix[&id].files.keys().map(|rank| (*rank, scanned(*rank))).collect();
        let set = RedundancySet {
            id: SetId { scheme: XOR, group_id: 0, members: self.nodes },
            present: ranks.keys().map(|rank| (rank.0, *rank)).collect(),
            ranks: (0..self.nodes).map(|rank| (rank, Rank(rank))).collect(),
            tolerance: Some(1),
        };
        let identity = (!ranks.is_empty()).then_some(CheckpointIdentity { id, ranks: self.nodes });
        let sets = if self.scheme == XOR && !ranks.is_empty() { vec![set] } else { Vec::new() };
        let files = Arc::new(PackedNames(self.prefix[&id].packed.iter().map(|rank| file(*rank)).collect()));
        Scan { files, identity, ranks, sets, damaged: Vec::new(), leftovers: Vec::new() }
    }
}

fn scanned(rank: Rank) -> RankScan {
    let present = PresentFile { kind: FileKind::Full, size: 10, crc: Some(1), output_path: None };
    RankScan {
        expected: Some(ExpectedFiles { count: 1, names: vec![file(rank)], source: ExpectationSource::Filemap }),
        present: BTreeMap::from([(file(rank), present)]),
    }
}

pub(super) fn agent_of(action: &DrainAction) -> Option<&AgentAt> {
    match action {
        DrainAction::Request(_, DrainRequest::TakeInventory { agent, .. })
        | DrainAction::Request(_, DrainRequest::Copy { agent, .. })
        | DrainAction::Request(_, DrainRequest::NoteFlushed { agent, .. }) => Some(agent),
        DrainAction::Request(_, DrainRequest::Verify { agent, .. })
        | DrainAction::Request(_, DrainRequest::Rebuild { agent, .. }) => agent.as_ref(),
        _ => None,
    }
}

fn text(event: &LogEvent) -> String {
    match event {
        LogEvent::DrainSkipped { checkpoint, .. } => format!("skipped {checkpoint}"),
        LogEvent::DrainStarted { checkpoint, resumed, .. } => {
            format!("{} {checkpoint}", if *resumed { "resumed" } else { "started" })
        }
        LogEvent::Copied { round, node, ranks, failure, .. } => {
            let ranks = ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            format!("copied {round} {node} [{ranks}]{}", if failure.is_some() { " failure" } else { "" })
        }
        LogEvent::DamagedInPrefix { file, .. } => format!("damaged {}", file.split(':').next().unwrap()),
        LogEvent::RebuiltInPrefix { rank, .. } => format!("rebuilt {rank}"),
        LogEvent::Indexed { checkpoint, complete, .. } => format!("indexed {checkpoint} {complete}"),
        LogEvent::Agent(AgentReport { event: AgentEvent::PlainFilesKept { checkpoint, .. }, .. }) => {
            format!("plain files {checkpoint}")
        }
        LogEvent::FlushedCopyDamaged { checkpoint, .. } => format!("flushed copy damaged {checkpoint}"),
        LogEvent::Agent(AgentReport { event: AgentEvent::PrefixDeleted { checkpoint, directory, .. }, .. }) => {
            format!("deleted {checkpoint} in {directory}")
        }
        LogEvent::FlushAbandoned { directory } => format!("abandoned {directory}"),
        LogEvent::InventoryFault { node, .. } => format!("inventory fault {node}"),
        other => panic!("{other:?} is no event of a drain"),
    }
}
