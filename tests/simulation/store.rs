//! The cache and control directory of one node.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_agent::collective::leader::{LeaderMemory, UnfinishedFlushes};
use holdfast_core::redundancy::protection::protection;
use holdfast_model::{
    CheckpointId, Dataset, Generation, HaltState, HeldFile, Holding, Inventory, Locations, Protection, Rank,
    RankDescriptor,
};
use holdfast_wire::run::RunPlan;

use crate::content::{Content, FileName};
use crate::names::{NodeIndex, name};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// Nothing can be written.
    Full,
    /// Nothing can be read or written.
    Broken,
}

/// A file in cache.
#[derive(Clone, Debug)]
pub struct File {
    pub name: FileName,
    pub content: Content,
    /// It has a meta file that marks it as complete.
    pub sealed: bool,
    /// The file exists; an entry may have no file.
    pub there: bool,
}

impl File {
    /// True if it can be copied; `verified` against its checksum.
    pub fn can_be_read(&self, verified: bool) -> bool {
        self.there && self.sealed && !(verified && matches!(self.content, Content::Damaged))
    }
}

/// The files of one rank of one checkpoint on one node, and their records.
#[derive(Clone, Debug, Default)]
pub struct Held {
    pub descriptor: Option<Arc<RankDescriptor>>,
    pub expected: Option<u32>,
    /// Set for partner copies: the node of the owner when the copy was made.
    pub partner_of: Option<NodeIndex>,
    pub files: Vec<File>,
}

impl Held {
    pub fn is_complete(&self) -> bool {
        self.expected == Some(self.files.len() as u32) && self.files.iter().all(|file| file.sealed && file.there)
    }

    /// The application's files are complete, whatever protects them.
    pub fn is_sealed(&self) -> bool {
        self.application().all(|file| file.sealed && file.there)
    }

    pub fn application(&self) -> impl Iterator<Item = &File> + Clone {
        self.files.iter().filter(|file| file.name.is_application())
    }

    pub fn written(&self) -> Vec<(FileName, Content)> {
        self.application().filter(|file| file.there).map(|file| (file.name, file.content.clone())).collect()
    }

    pub fn parity(&self) -> Option<&File> {
        self.files.iter().find(|file| !file.name.is_application())
    }

    /// Adds a file, or replaces the one of this name.
    pub fn put(&mut self, file: File) {
        match self.files.iter_mut().find(|known| known.name == file.name) {
            Some(known) => *known = file,
            None => self.files.push(file),
        }
    }
}

/// An agent's record of the run's checkpoints, which survives its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberMemory {
    pub generation: Generation,
    pub open: Option<CheckpointId>,
    pub restart: Option<CheckpointId>,
    /// The directory below the prefix with the files of that checkpoint, and the routed names.
    pub direct: Option<(String, BTreeMap<Rank, Vec<String>>)>,
}

impl MemberMemory {
    pub fn fresh(generation: Generation) -> Self {
        MemberMemory { generation, open: None, restart: None, direct: None }
    }

    pub fn forget(&mut self, checkpoint: CheckpointId) {
        if self.open.or(self.restart) == Some(checkpoint) {
            self.direct = None;
        }
        self.open = self.open.filter(|open| *open != checkpoint);
        self.restart = self.restart.filter(|restart| *restart != checkpoint);
    }

    pub fn remember_restart(&mut self, checkpoint: CheckpointId) {
        if self.open.is_none() {
            self.restart = Some(checkpoint);
            self.direct = None;
        }
    }
}

/// The files that survive the agent's process.
#[derive(Default)]
pub struct Disk {
    pub fault: Option<DiskFault>,
    pub held: BTreeMap<(CheckpointId, Rank), Held>,
    pub flush: BTreeMap<CheckpointId, Locations>,
    pub datasets: BTreeMap<CheckpointId, Dataset>,
    /// The plan, with the number under which it was issued.
    pub plan: Option<(Arc<RunPlan>, u64)>,
    pub member: Option<MemberMemory>,
    pub leader: Option<LeaderMemory>,
    pub flushes: Option<UnfinishedFlushes>,
    /// The generation that was ended for a drain.
    pub ended: Option<Generation>,
    pub halt: HaltState,
    /// The conditions of the leader's node that the agent received last.
    pub halt_received: HaltState,
    /// A user has set a reason here, and has not withdrawn it.
    pub halted_by_user: bool,
}

impl Disk {
    pub fn checkpoints(&self) -> Vec<CheckpointId> {
        let mut ids: Vec<CheckpointId> = self.held.keys().map(|(id, _)| *id).collect();
        ids.dedup();
        ids
    }

    pub fn checkpoints_in(&self, base: &str) -> Vec<CheckpointId> {
        let in_base = |held: &Held| held.descriptor.as_ref().is_some_and(|known| known.descriptor.base == base);
        let mut ids: Vec<CheckpointId> =
            self.held.iter().filter(|(_, held)| in_base(held)).map(|((id, _), _)| *id).collect();
        ids.dedup();
        ids
    }

    pub fn held(&mut self, checkpoint: CheckpointId, rank: Rank) -> &mut Held {
        self.held.entry((checkpoint, rank)).or_default()
    }

    pub fn get(&self, checkpoint: CheckpointId, rank: Rank) -> Option<&Held> {
        self.held.get(&(checkpoint, rank))
    }

    /// Deletes a checkpoint; if the agent is killed meanwhile, only the files are deleted and the entries remain.
    pub fn delete(&mut self, checkpoint: CheckpointId, half: bool) {
        let range = (checkpoint, Rank(0))..=(checkpoint, Rank(u32::MAX));
        if half {
            self.held.range_mut(range).flat_map(|(_, held)| &mut held.files).for_each(|file| file.there = false);
            return;
        }
        let ranks: Vec<Rank> = self.held.range(range).map(|((_, rank), _)| *rank).collect();
        for rank in ranks {
            self.held.remove(&(checkpoint, rank));
        }
        self.datasets.remove(&checkpoint);
        self.flush.remove(&checkpoint);
    }

    pub fn delete_rank(&mut self, checkpoint: CheckpointId, rank: Rank) {
        self.held.remove(&(checkpoint, rank));
    }

    /// A run begins with these local ranks: copies of their files are their own files now.
    pub fn begin_run(&mut self, local: &[Rank]) {
        for ((_, rank), held) in &mut self.held {
            if local.contains(rank) {
                held.partner_of = None;
            }
        }
    }

    pub fn inventory(&self, at: NodeIndex, world: u32) -> Inventory {
        let broken = self.fault == Some(DiskFault::Broken);
        let holding = |((checkpoint, rank), held): (&(CheckpointId, Rank), &Held)| {
            let complete = held.is_complete() && !broken;
            let sealed = held.files.iter().any(|file| file.sealed && file.there);
            let files = held.files.iter();
            let files = files.map(|file| HeldFile { name: file.name.to_string(), size: file.name.size() });
            let names: Vec<String> = held.files.iter().map(|file| file.name.to_string()).collect();
            let descriptor = held.descriptor.as_deref();
            let of = |descriptor| protection(descriptor, complete, names.iter().map(String::as_str));
            Holding {
                protection: descriptor.map_or(Protection::Nothing, of),
                checkpoint: *checkpoint,
                rank: *rank,
                ranks: (sealed && !broken).then_some(world),
                expected: held.expected,
                complete,
                fault: (!complete && !held.files.is_empty()).then(|| "not complete".to_owned()),
                partner_of: held.partner_of.map(name),
                descriptor: held.descriptor.as_deref().cloned(),
                files: files.collect(),
            }
        };
        Inventory {
            node: Some(name(at)),
            holdings: self.held.iter().map(holding).collect(),
            flush: self.flush.clone(),
            datasets: self.datasets.clone(),
            nodes: None,
            faults: if broken { vec!["the disk is broken".to_owned()] } else { Vec::new() },
        }
    }

    /// The halt condition that is met.
    pub fn halt_condition(&self) -> Option<String> {
        condition(&self.halt)
    }
}

/// The halt condition that is met.
pub fn condition(halt: &HaltState) -> Option<String> {
    let reached = || "the requested number of checkpoints is reached".to_owned();
    halt.reason.clone().or_else(|| halt.checkpoints_left.filter(|left| *left <= 0).map(|_| reached()))
}
