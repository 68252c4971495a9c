//! Encoding and rebuilding: calls the redundancy scheme of each group, and provides what it needs of this node: files,
//! filemap, links to the other members.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::control::meta::Meta;
use holdfast_core::redundancy::files::MemberFiles;
use holdfast_core::redundancy::link;
use holdfast_core::redundancy::member::{GroupMember, MemberTask};
use holdfast_core::redundancy::piece::BufferPool;
use holdfast_core::redundancy::registry::{self, is_redundancy_file};
use holdfast_core::redundancy::{RedundancyError, RedundancyScheme, descriptor};
use holdfast_model::{CheckpointId, CrcOnCopy, NodeName, Rank, RankDescriptor, Scheme, Task};
use holdfast_wire::peer::{CopyLimits, FilesKey, GroupKey, GroupRebuild, GroupWork, Member, OrderResult, Purpose};
use holdfast_wire::run::FaultPoint;
use parking_lot::Mutex;

use super::context::{OrderContext, Result, rank_directory};
use super::error::OrderError;
use super::files::KeepAs;
use super::links::{FromMember, SMALL, ToMember};
use crate::agent::fault_injection;
use crate::copy::pipeline::{Checksum, Pipeline};
use crate::copy::processor_share::PieceBegin;
use crate::report::events::ProgressGuard;
use crate::stream;

impl OrderContext<'_> {
    pub(super) fn encode(
        &self,
        checkpoint: CheckpointId,
        groups: &[GroupWork],
        crc: bool,
        only: Option<&[Rank]>,
        limits: CopyLimits,
    ) -> Result<OrderResult> {
        // All groups share the limits, which are those of the node.
        let pipeline = self.pipeline().limited(limits);
        self.at_once(groups, |group| {
            self.as_member(group, || {
                let task = self.task(checkpoint, group, only);
                let node = OwnMember::new(self, &pipeline, checkpoint, group, crc, Task::Encode)?;
                Ok(scheme(group.scheme)?.encode(&task, &node)?)
            })
        })?;
        Ok(OrderResult::Done)
    }

    pub(super) fn rebuild(&self, checkpoint: CheckpointId, groups: &[GroupRebuild]) -> Result<OrderResult> {
        let pipeline = self.pipeline();
        self.at_once(groups, |rebuild| {
            self.as_member(&rebuild.group, || self.rebuild_one(checkpoint, rebuild, &pipeline))
        })?;
        self.agent.store.fold_logs()?;
        Ok(OrderResult::Done)
    }

    fn rebuild_one(&self, checkpoint: CheckpointId, rebuild: &GroupRebuild, pipeline: &Pipeline) -> Result<()> {
        let GroupRebuild { group, missing, descriptor } = rebuild;
        let (rank, _) = own(group)?;
        let is_lost = missing.contains(&group.member);
        if is_lost {
            self.prepare_lost_rank(checkpoint, rank, descriptor)?;
        }
        let task = self.task(checkpoint, group, None);
        let crc = self.run.plan.settings.crc.on_copy != CrcOnCopy::Never;
        let node = OwnMember::new(self, pipeline, checkpoint, group, crc, Task::Rebuild)?;
        scheme(group.scheme)?.rebuild(&task, missing, &node)?;
        if is_lost {
            let files = self.agent.store.files(checkpoint, rank).len();
            self.agent.store.set_expected(checkpoint, rank, rank, u32::try_from(files).unwrap_or(u32::MAX))?;
        }
        Ok(())
    }

    /// Does the work of the member on this node. In a simulation, members on the same node that wait for it learn of
    /// its end.
    fn as_member<R>(&self, group: &GroupWork, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let done = work();
        #[cfg(feature = "simulation")]
        if let Some(network) = self.agent.streams.network.get() {
            network.end_member(group.group_id, group.member, own(group).ok().map(|(rank, _)| rank));
        }
        #[cfg(not(feature = "simulation"))]
        let _ = group;
        done
    }

    /// Prepares directory and entries for the files of a lost rank that now runs on this node.
    fn prepare_lost_rank(&self, checkpoint: CheckpointId, rank: Rank, descriptor: &RankDescriptor) -> Result<()> {
        let store = &self.agent.store;
        if store.has(checkpoint, rank)? {
            // The order is repeated after it was done: the files are rebuilt again, as the other members expect.
            store.unset_expected(checkpoint, rank, rank)?;
        }
        store.delete_rank(checkpoint, rank)?;
        let tree = descriptor::to_tree(descriptor);
        store.set_descriptor(checkpoint, rank, rank, &tree)?;
        store.make_directory(checkpoint, &tree)?;
        Ok(())
    }

    fn task(&self, checkpoint: CheckpointId, group: &GroupWork, only: Option<&[Rank]>) -> MemberTask {
        let indices = |only: &[Rank]| {
            let members = (0u32..).zip(&group.members);
            members.filter(|(_, (rank, _))| only.contains(rank)).map(|(index, _)| index).collect()
        };
        MemberTask {
            checkpoint,
            ranks: self.run.plan.ranks,
            group_id: group.group_id,
            members: group.members.iter().map(|(rank, _)| *rank).collect(),
            index: group.member,
            left: group.left,
            right: group.right,
            largest: group.largest,
            only: only.map(indices),
        }
    }

    /// The application's files of a rank, in filemap order, from their meta files.
    fn member_files(&self, checkpoint: CheckpointId, rank: Rank) -> Result<MemberFiles> {
        let directory = rank_directory(self.agent, checkpoint, rank)?;
        let names = self.agent.store.files(checkpoint, rank).into_iter().filter(|name| !is_redundancy_file(name));
        let files = names.map(|name| Meta::read(&directory.join(name))).collect::<Result<_, _>>()?;
        Ok(MemberFiles { rank, files })
    }

    fn descriptor_of(&self, checkpoint: CheckpointId, rank: Rank) -> Result<RankDescriptor> {
        let tree = self.agent.store.descriptor(checkpoint, rank).unwrap_or_default();
        descriptor::from_tree(&tree).map_err(|source| OrderError::Descriptor { rank, source })
    }
}

fn scheme(name: Scheme) -> Result<&'static dyn RedundancyScheme> {
    registry::get(name).ok_or(OrderError::UnknownScheme(name))
}

fn own(group: &GroupWork) -> Result<(Rank, NodeName)> {
    member(group, group.member).cloned()
}

fn member(group: &GroupWork, index: u32) -> Result<&(Rank, NodeName)> {
    let missing = OrderError::NoSuchMember { group_id: group.group_id, member: index };
    group.members.get(index as usize).ok_or(missing)
}

/// The bytes of a list of files for each file, in addition to its name.
const FILE_ENTRY: usize = 160;

/// The member of a group on this node.
struct OwnMember<'a> {
    order: &'a OrderContext<'a>,
    /// For its copies, with the limits of the order.
    pipeline: &'a Pipeline,
    checkpoint: CheckpointId,
    group: &'a GroupWork,
    rank: Rank,
    directory: PathBuf,
    crc: bool,
    step: Task,
    working: Mutex<Working>,
}

/// How far a step is.
struct Working {
    /// Reports it; from the first piece on.
    progress: Option<ProgressGuard>,
    /// The bytes of a chunk that are done.
    done: u64,
    /// The piece that is being made.
    piece: PieceBegin,
}

impl<'a> OwnMember<'a> {
    fn new(
        order: &'a OrderContext<'a>,
        pipeline: &'a Pipeline,
        checkpoint: CheckpointId,
        group: &'a GroupWork,
        crc: bool,
        step: Task,
    ) -> Result<OwnMember<'a>> {
        let (rank, _) = own(group)?;
        let directory = rank_directory(order.agent, checkpoint, rank)?;
        let working = Mutex::new(Working { progress: None, done: 0, piece: pipeline.pace().begin_piece() });
        Ok(OwnMember { order, pipeline, checkpoint, group, rank, directory, crc, step, working })
    }

    fn key(&self, from_member: u32, to_member: u32) -> Purpose {
        let (order, group_id) = (self.order.order, self.group.group_id);
        Purpose::Group(GroupKey { order, group_id, from_member, to_member })
    }

    /// True if no message is longer than [`SMALL`]: neither a piece nor the list of the own files. Never in a rebuild,
    /// whose messages contain the lists of other members.
    fn has_small_messages(&self) -> bool {
        let names: usize =
            self.order.agent.store.files(self.checkpoint, self.rank).iter().map(|name| name.len() + FILE_ENTRY).sum();
        let pieces = usize::try_from(self.group.largest).is_ok_and(|largest| largest <= SMALL);
        let own_lists = registry::get(self.group.scheme).is_none_or(|scheme| !scheme.passes_lists_on());
        self.step == Task::Encode && own_lists && pieces && names <= SMALL / 2
    }

    fn reach_fault_point(&self) {
        let point = if self.step == Task::Encode { FaultPoint::Encode } else { FaultPoint::Rebuild };
        fault_injection::reach(self.order.agent, point, self.checkpoint);
    }

    fn send_copy_to(&self, to: u32) -> Result<()> {
        let OrderContext { agent, order, .. } = self.order;
        let files = self.order.member_files(self.checkpoint, self.rank)?;
        let working = agent.progress.begin(self.step, self.checkpoint, files.total_bytes().unwrap_or(0));
        self.reach_fault_point();
        let (_, node) = member(self.group, to)?;
        let purpose = Purpose::Files(FilesKey { order: *order, rank: self.rank });
        let mut stream = self.order.connect(node, purpose)?;
        let owner = Member { rank: self.rank, descriptor: self.order.descriptor_of(self.checkpoint, self.rank)? };
        let checksum = Checksum::of(self.crc);
        let sent = self.order.send_files(self.pipeline, &mut stream, self.checkpoint, &owner, checksum, &working)?;
        // Both nodes now have the same bytes under this checksum.
        for (meta, crc) in sent.iter().filter(|(meta, crc)| meta.crc != *crc) {
            Meta { crc: *crc, ..meta.clone() }.write_unsynced(&self.directory.join(&meta.file))?;
        }
        Ok(())
    }

    fn keep_copy_of(&self, of: u32) -> Result<()> {
        let (owner, node) = member(self.group, of)?;
        let purpose = Purpose::Files(FilesKey { order: self.order.order, rank: *owner });
        let mut stream = self.order.claim(&purpose)?;
        let keep = KeepAs::Copy { slot: self.rank, owner: node };
        self.order.receive_files(&mut stream, self.checkpoint, *owner, &keep)
    }

    fn connect(&self, to: u32) -> Result<stream::OutgoingStream> {
        let (_, node) = member(self.group, to)?;
        let purpose = self.key(self.group.member, to);
        self.order.connect(node, purpose)
    }

    fn claim(&self, from: u32) -> Result<stream::IncomingStream> {
        let purpose = self.key(from, self.group.member);
        self.order.claim(&purpose)
    }
}

impl GroupMember for OwnMember<'_> {
    fn directory(&self) -> &Path {
        &self.directory
    }

    fn files(&self) -> Result<MemberFiles, RedundancyError> {
        self.order.member_files(self.checkpoint, self.rank).map_err(failed)
    }

    fn descriptor(&self, of: Rank) -> Result<RankDescriptor, RedundancyError> {
        self.order.descriptor_of(self.checkpoint, of).map_err(failed)
    }

    fn keep_descriptor(&self, owner: Rank, kept: &RankDescriptor) -> Result<(), RedundancyError> {
        let tree = descriptor::to_neighbour_tree(kept);
        let store = &self.order.agent.store;
        store.set_descriptor(self.checkpoint, self.rank, owner, &tree).map_err(|error| failed(error.into()))
    }

    fn add_file(&self, name: &str) -> Result<PathBuf, RedundancyError> {
        let store = &self.order.agent.store;
        store.add_file(self.checkpoint, self.rank, self.rank, name).map_err(|error| failed(error.into()))
    }

    fn names_of_others(&self) -> BTreeSet<String> {
        let store = &self.order.agent.store;
        let others = store.ranks(self.checkpoint).into_iter().filter(|other| *other != self.rank);
        others.flat_map(|other| store.files(self.checkpoint, other)).collect()
    }

    fn link_to(&self, to: u32, pool: &BufferPool) -> Result<Box<dyn link::LinkSender>, RedundancyError> {
        let OrderContext { agent, run, .. } = self.order;
        let stream = self.connect(to).map_err(failed)?;
        Ok(Box::new(ToMember::new(Arc::clone(agent), run.plan.generation, stream, pool.clone())))
    }

    fn link_from(&self, from: u32, pool: &BufferPool) -> Result<Box<dyn link::LinkReceiver>, RedundancyError> {
        let stream = self.claim(from).map_err(failed)?;
        let pool = pool.clone();
        Ok(Box::new(match self.has_small_messages() {
            true => FromMember::of_small_messages(stream, pool),
            false => FromMember::reading_ahead(stream, pool).map_err(RedundancyError::Thread)?,
        }))
    }

    fn send_copy(&self, to: u32) -> Result<(), RedundancyError> {
        self.send_copy_to(to).map_err(failed)
    }

    fn keep_copy(&self, of: u32) -> Result<(), RedundancyError> {
        self.keep_copy_of(of).map_err(failed)
    }

    fn piece_bytes(&self) -> usize {
        self.order.run.plan.settings.piece_bytes
    }

    fn with_crc(&self) -> bool {
        self.crc
    }

    fn progress(&self, done: u64, total: u64) -> ControlFlow<()> {
        let pace = self.pipeline.pace();
        let pause = {
            let mut working = self.working.lock();
            let more = done.saturating_sub(working.done);
            working.done = done;
            let begin = || self.order.agent.progress.begin(self.step, self.checkpoint, total);
            working.progress.get_or_insert_with(begin).advance(more);
            // Of a chunk: the member reads as many bytes of each chunk of its files.
            let read = u128::from(self.group.largest) * u128::from(more) / u128::from(total.max(1));
            let pause = pace.end_piece(working.piece, u64::try_from(read).unwrap_or(u64::MAX));
            working.piece = pace.begin_piece();
            pause
        };
        if done.saturating_mul(2) >= total {
            self.reach_fault_point();
        }
        if done < total {
            // The other members wait meanwhile, but not for longer than a stream may carry nothing.
            pace.wait(pause.min(self.order.run.plan.settings.stream_timeout / 4));
        }
        // The streams of a cancelled order fail, in a way that another attempt may mend.
        ControlFlow::Continue(())
    }
}

fn failed(error: OrderError) -> RedundancyError {
    match error {
        OrderError::Redundancy(error) => error,
        error => RedundancyError::Node(Box::new(error.into())),
    }
}
