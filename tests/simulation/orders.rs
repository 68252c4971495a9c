//! Orders that a member's agent carries out on its store, also partly, if it is killed meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::{CheckpointId, Failure, FailureKind, Generation, HaltState, Rank};
use holdfast_wire::peer::{DatasetFile, FetchRank, Member, Order, OrderResult, SealedFiles, ToLeader};

use crate::agent::Running;
use crate::content::FileName;
use crate::exchange::damaged_file;
use crate::names::NodeIndex;
use crate::prefix::{PrefixFile, directory_of};
use crate::queue::MS;
use crate::store::{Disk, File};
use crate::world::{Defect, PrefixState, SimulatedEvent, World, trace};

pub type OrderOutcome = Result<OrderResult, Failure>;

impl World {
    /// The leader's order is received.
    pub fn order_arrives(&mut self, at: NodeIndex, instance: u64, link: u64, order: u64, what: Order) {
        let delay = self.between(100, 3 * MS) + self.prefix_delay(&what);
        let Some(part) = self.agent(at, instance).and_then(|agent| agent.part.as_mut()) else { return };
        let generation = part.plan.generation;
        part.running.insert(
            order,
            Running { joints: Vec::new(), link, open: 0, failure: None, cancelled: false, what: what.clone() },
        );
        self.after(delay, SimulatedEvent::Perform { at, instance, generation, order, what: Box::new(what) });
    }

    fn prefix_delay(&self, what: &Order) -> u64 {
        match self.prefix_state {
            PrefixState::Hangs(until) if matches!(what, Order::Fetch { .. } | Order::Flush { .. }) => {
                until.saturating_sub(self.now)
            }
            _ => 0,
        }
    }

    /// The leader cancels an order; it is answered nevertheless.
    pub fn cancel_order(&mut self, at: NodeIndex, instance: u64, order: u64) {
        let Some(part) = self.agent(at, instance).and_then(|agent| agent.part.as_mut()) else { return };
        if let Some(running) = part.running.get_mut(&order) {
            running.cancelled = true;
            if running.open > 0 {
                self.leave_joints(at, instance, order);
            }
        }
    }

    pub fn perform_order(&mut self, at: NodeIndex, instance: u64, generation: Generation, order: u64, mut what: Order) {
        if self.serving(at) != Some(generation) {
            return;
        }
        let Some(part) = self.agent(at, instance).and_then(|agent| agent.part.as_mut()) else { return };
        let Some(running) = part.running.get(&order) else { return };
        if running.cancelled {
            return self.order_done(at, instance, order, Err(cancelled()));
        }
        trace!(self, "n{at}: order {} {}", order % 100_000, brief(&what));
        if let Order::Prepare { checkpoint, delete, .. } = &mut what {
            let older = || self.nodes[at as usize].disk.checkpoints().into_iter().filter(|id| id < checkpoint);
            match self.defect {
                Some(Defect::OldestEvicted) => *delete = older().take(delete.len()).collect(),
                Some(Defect::RestartedEvicted) if generation > Generation(1) => *delete = older().collect(),
                _ => {}
            }
            self.evict(delete);
        }
        match what {
            Order::Encode { checkpoint, groups, only, .. } => {
                self.join_encode(at, instance, order, checkpoint, groups, only)
            }
            Order::Rebuild { checkpoint, groups } => self.join_rebuild(at, instance, order, checkpoint, groups),
            Order::Transfer { checkpoint, outgoing, incoming } => {
                self.join_transfer(at, instance, order, checkpoint, outgoing, incoming);
            }
            Order::Halt { .. } if self.files.is_none() => {
                let result = self.carry_out(at, what, false);
                self.order_done(at, instance, order, result);
            }
            what if self.files.is_some() => self.perform_on_files(at, instance, order, what),
            what => {
                let midway = self.dies_midway_but_perform(at, &what);
                if !midway {
                    let result = self.carry_out(at, what, false);
                    self.order_done(at, instance, order, result);
                }
            }
        }
    }

    /// The agent dies during an order, which may be carried out in part.
    fn dies_midway_but_perform(&mut self, at: NodeIndex, what: &Order) -> bool {
        if !self.is_to_die_midway() {
            return false;
        }
        trace!(self, "n{at}: its agent dies in the middle of this order");
        if self.dice.percent(70) {
            let half = self.dice.percent(70);
            drop(self.carry_out(at, what.clone(), half));
        }
        self.agent_dies(at);
        self.notice_agent_loss(at, "killed");
        true
    }

    /// Sends the result of an order to the leader, if the link of the order is still up.
    pub fn order_done(&mut self, at: NodeIndex, instance: u64, order: u64, result: OrderOutcome) {
        let Some(part) = self.agent(at, instance).and_then(|agent| agent.part.as_mut()) else { return };
        let Some(running) = part.running.remove(&order) else { return };
        if let Err(failure) = &result {
            trace!(self, "n{at}: order {} failed: {failure}", order % 100_000);
        }
        let known = part_link(self.nodes[at as usize].agent.as_ref());
        if known == Some(running.link) {
            self.send_to_leader(running.link, ToLeader::Done { order, result });
        }
    }

    /// Carries out an order on this node's store, one `half` of it if the agent is killed meanwhile.
    fn carry_out(&mut self, at: NodeIndex, what: Order, half: bool) -> OrderOutcome {
        if self.disk_fails(at, what != Order::Inventory) && !matches!(what, Order::Inventory) {
            self.oracle.disk_failures += 1;
            return Err(Failure::new(FailureKind::Io, "the disk fails"));
        }
        let (world, verified) = (self.scenario.world(), self.scenario.has_checksums());
        let part = self.nodes[at as usize].agent.as_ref().and_then(|agent| agent.part.as_ref());
        let local = part.map(|part| part.local.clone()).unwrap_or_default();
        let upto = if half { local.len() / 2 } else { local.len() };
        let defect = self.defect;
        let disk = &mut self.nodes[at as usize].disk;
        match what {
            Order::Inventory => return Ok(OrderResult::Inventory(disk.inventory(at, world))),
            Order::Delete { checkpoints, all_but } => delete(disk, &checkpoints, all_but.as_ref(), half),
            Order::Prepare { checkpoint, delete: first, members } => {
                delete(disk, &first, None, false);
                let upto = if half { members.len() / 2 } else { members.len() };
                for Member { rank, descriptor } in members.into_iter().take(upto) {
                    disk.held(checkpoint, rank).descriptor = Some(descriptor.into());
                }
                if let Some(memory) = disk.member.as_mut().filter(|_| !half) {
                    (memory.open, memory.restart, memory.direct) = (Some(checkpoint), None, None);
                }
            }
            Order::Seal { checkpoint, .. } => return seal(disk, checkpoint, &local[..upto]),
            Order::Commit { checkpoint } => {
                for rank in &local[..upto] {
                    let held = disk.held(checkpoint, *rank);
                    held.expected = Some(held.files.len() as u32);
                }
                if let Some(memory) = disk.member.as_mut().filter(|_| !half) {
                    memory.open = memory.open.filter(|open| *open != checkpoint);
                    memory.remember_restart(checkpoint);
                }
            }
            Order::Discard { checkpoint, ranks } => {
                let upto = if half { ranks.len() / 2 } else { ranks.len() };
                ranks[..upto].iter().for_each(|rank| disk.delete_rank(checkpoint, *rank));
            }
            Order::Adopt { checkpoint, members, restart } => {
                let upto = if half { members.len() / 2 } else { members.len() };
                for Member { rank, descriptor } in members.into_iter().take(upto) {
                    let held = disk.held(checkpoint, rank);
                    held.partner_of = None;
                    held.descriptor = Some(descriptor.into());
                }
                if let Some(memory) = disk.member.as_mut().filter(|_| restart && !half) {
                    memory.remember_restart(checkpoint);
                }
            }
            Order::Fetch { checkpoint, directory, ranks, .. } => {
                return self.fetch(at, checkpoint, &directory, &ranks, half);
            }
            Order::Flush { checkpoint, directory, .. } => {
                return self.flush(at, checkpoint, &directory, &local[..upto]);
            }
            Order::Describe { checkpoint, dataset } => drop(disk.datasets.insert(checkpoint, dataset)),
            Order::OpenDirect { checkpoint, directory } => {
                if let Some(memory) = &mut disk.member {
                    // A repeated order must keep the names that were routed since.
                    let directory = directory_of(&directory).to_string();
                    let known = memory.direct.as_ref().is_some_and(|(known, _)| *known == directory);
                    if memory.open != Some(checkpoint) || !known {
                        memory.direct = Some((directory, BTreeMap::new()));
                    }
                    (memory.open, memory.restart) = (Some(checkpoint), None);
                }
            }
            Order::SealDirect { checkpoint } => return self.seal_direct(at, checkpoint),
            Order::CloseDirect { checkpoint } => {
                if let Some(memory) = &mut disk.member {
                    memory.forget(checkpoint);
                }
            }
            Order::ReadDirect { checkpoint, directory, mut files, .. } => {
                files.retain(|rank, _| local.contains(rank));
                if let Some(memory) = &mut disk.member {
                    memory.open = None;
                    memory.restart = Some(checkpoint);
                    let names = |files: Vec<DatasetFile>| files.into_iter().map(|file| file.name).collect();
                    let files = files.into_iter().map(|(rank, files)| (rank, names(files))).collect();
                    memory.direct = Some((directory_of(&directory).to_string(), files));
                }
            }
            Order::Verify { checkpoint, ranks } => {
                let is_damaged = |rank: &Rank| {
                    let held = disk.get(checkpoint, *rank);
                    held.is_none_or(|held| held.application().any(|file| !file.can_be_read(verified)))
                };
                let damaged = ranks.into_iter().filter(is_damaged);
                return Ok(OrderResult::Verified(damaged.map(|rank| (rank, damaged_file().message)).collect()));
            }
            Order::VerifyStored { .. } => return Ok(OrderResult::Verified(BTreeMap::new())),
            Order::Note { checkpoint, locations } => drop(disk.flush.insert(checkpoint, locations)),
            Order::Halt { state } => {
                let leader = HaltState { met: None, ..state };
                let conditions = match defect {
                    Some(Defect::HaltReplaced) => leader.clone(),
                    _ => disk.halt.updated(&disk.halt_received, &leader),
                };
                assert!(!disk.halted_by_user || conditions.reason.is_some(), "n{at}: the halt of a user is lost");
                (disk.halt, disk.halt_received) = (conditions, leader);
            }
            Order::Encode { .. } | Order::Rebuild { .. } | Order::Transfer { .. } => unreachable!("joint orders"),
        }
        Ok(OrderResult::Done)
    }

    fn fetch(
        &mut self,
        at: NodeIndex,
        checkpoint: CheckpointId,
        directory: &std::path::Path,
        ranks: &[FetchRank],
        half: bool,
    ) -> OrderOutcome {
        if self.prefix_state == PrefixState::Fails {
            return Err(Failure::new(FailureKind::Io, "the prefix directory fails"));
        }
        let missing = |name: &str| Err(Failure::new(FailureKind::NotFound, format!("{name} is missing")));
        let disk = &mut self.nodes[at as usize].disk;
        disk.delete(checkpoint, false);
        let Some(source) = self.prefix.directories.get(&directory_of(directory)) else { return missing("directory") };
        let mut copied = 0;
        let total: usize = ranks.iter().map(|rank| rank.files.len()).sum();
        for FetchRank { member, files } in ranks {
            let held = disk.held(checkpoint, member.rank);
            held.descriptor = Some(member.descriptor.clone().into());
            for DatasetFile { name, .. } in files {
                copied += 1;
                let there = !half || copied * 2 <= total;
                let file = FileName::parse(name);
                let Some(found) = source.files.get(&file) else { return missing(name) };
                held.put(File { name: file, content: found.content.clone(), sealed: there, there });
            }
        }
        if let Some(memory) = disk.member.as_mut().filter(|_| !half) {
            memory.remember_restart(checkpoint);
        }
        Ok(OrderResult::Files(BTreeMap::new()))
    }

    fn flush(
        &mut self,
        at: NodeIndex,
        checkpoint: CheckpointId,
        directory: &std::path::Path,
        local: &[Rank],
    ) -> OrderOutcome {
        if self.prefix_state == PrefixState::Fails {
            return Err(Failure::new(FailureKind::Io, "the prefix directory fails"));
        }
        let lost = |what: String| Err(Failure::new(FailureKind::Io, what));
        let verified = self.scenario.has_checksums();
        let disk = &self.nodes[at as usize].disk;
        let Some(target) = self.prefix.directories.get_mut(&directory_of(directory)) else {
            return lost("the directory was deleted".to_owned());
        };
        let mut flushed = BTreeMap::new();
        for rank in local {
            let mut files = Vec::new();
            let held = disk.get(checkpoint, *rank).filter(|held| held.is_complete());
            let Some(held) = held else { return lost(format!("the files of rank {rank} are not all here")) };
            for file in held.application() {
                if !file.can_be_read(verified) {
                    return lost(format!("{} cannot be read", file.name));
                }
                target.files.insert(file.name, PrefixFile { rank: *rank, content: file.content.clone() });
                files.push(dataset_file(file.name.to_string(), file.name.size()));
            }
            flushed.insert(*rank, files);
        }
        Ok(OrderResult::Flushed(flushed))
    }

    fn seal_direct(&self, at: NodeIndex, checkpoint: CheckpointId) -> OrderOutcome {
        let disk = &self.nodes[at as usize].disk;
        let memory = disk.member.as_ref().filter(|memory| memory.open == Some(checkpoint));
        let Some((directory, files)) = memory.and_then(|memory| memory.direct.as_ref()) else {
            return Err(Failure::new(FailureKind::NotFound, "not opened here"));
        };
        let name = holdfast_core::store::DirectoryName::new(directory.as_str()).unwrap();
        let there = self.prefix.directories.get(&name);
        let mut sealed = BTreeMap::new();
        for (rank, names) in files {
            let mut of_rank = Vec::new();
            for name in names {
                let file = FileName::parse(name);
                if there.is_none_or(|directory| !directory.files.contains_key(&file)) {
                    return Err(Failure::new(FailureKind::NotFound, format!("{name} was not written")));
                }
                of_rank.push(dataset_file(name.clone(), file.size()));
            }
            sealed.insert(*rank, of_rank);
        }
        Ok(OrderResult::Flushed(sealed))
    }
}

fn part_link(agent: Option<&crate::agent::Agent>) -> Option<u64> {
    agent?.part.as_ref()?.link
}

fn delete(disk: &mut Disk, checkpoints: &[CheckpointId], all_but: Option<&BTreeSet<CheckpointId>>, half: bool) {
    let others = all_but.map(|keep| disk.checkpoints().into_iter().filter(|id| !keep.contains(id)).collect::<Vec<_>>());
    let ids: Vec<CheckpointId> = checkpoints.iter().copied().chain(others.into_iter().flatten()).collect();
    let middle = ids.len() / 2;
    for (place, id) in ids.into_iter().enumerate() {
        if half && place > middle {
            return;
        }
        let half = half && place == middle;
        disk.delete(id, half);
        if let Some(memory) = disk.member.as_mut().filter(|_| !half) {
            memory.forget(id);
        }
    }
}

/// Every routed file must be there; its meta file records that it is complete.
fn seal(disk: &mut Disk, checkpoint: CheckpointId, local: &[Rank]) -> OrderOutcome {
    let mut sealed = BTreeMap::new();
    for rank in local {
        let mut files = SealedFiles::default();
        for file in &mut disk.held(checkpoint, *rank).files {
            if !file.name.is_application() {
                continue;
            }
            if !file.there {
                return Err(Failure::new(FailureKind::NotFound, format!("{} was not written", file.name)));
            }
            file.sealed = true;
            files.names.push(file.name.to_string());
            files.bytes += file.name.size();
        }
        sealed.insert(*rank, files);
    }
    Ok(OrderResult::Sealed(sealed))
}

pub fn cancelled() -> Failure {
    let mut failure = Failure::new(FailureKind::Cancelled, "cancelled");
    failure.retryable = true;
    failure
}

pub fn lost_peer() -> Failure {
    Failure::new(FailureKind::LostPeer, "a peer was lost")
}

fn dataset_file(name: String, size: u64) -> DatasetFile {
    DatasetFile { name, size, crc: None, output_path: None }
}

fn brief(what: &Order) -> String {
    let text = format!("{what:?}");
    text.chars().take(120).collect()
}
