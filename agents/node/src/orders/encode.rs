//! Making redundancy: XOR files around a ring (`SCR manual §11.8.2`), or copies on the right neighbour's node (§11.8.1).

use std::fs::File;
use std::io::BufWriter;
use std::ops::ControlFlow;

use holdfast_core::control::meta::Meta;
use holdfast_core::kvtree::file as hash_file;
use holdfast_core::redundancy::xor::encode::{Member as Place, encode_member};
use holdfast_core::redundancy::xor::header::{Header, MemberFiles};
use holdfast_core::redundancy::xor::logical::LogicalFile;
use holdfast_core::redundancy::xor::name::XorName;
use holdfast_core::redundancy::xor::piece::Pool;
use holdfast_model::RankDescriptor;
use holdfast_model::{CheckpointId, NodeName, Rank};
use holdfast_wire::bytes::Base64;
use holdfast_wire::frame;
use holdfast_wire::peer::{FilesKey, GroupWork, Member, OrderResult, Purpose, RingKey};
use holdfast_wire::run::RehearsalPoint;
use serde::{Deserialize, Serialize};

use super::files::Keep;
use super::pieces::{FromLeft, ToRight};
use super::transfer::PATIENCE;
use super::{Result, Trouble, Work, rank_directory};
use crate::rehearsal;
use holdfast_core::redundancy::convert::{from_model, from_tree};

/// What a member tells its right neighbour before the first piece.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    /// The hash that says which files it has (CURRENT), packed.
    files: Base64,
    /// Its descriptor: the neighbour keeps a copy.
    descriptor: RankDescriptor,
}

impl Work<'_> {
    pub(super) fn encode(
        &self,
        checkpoint: CheckpointId,
        groups: &[GroupWork],
        crc: bool,
        only: Option<&[Rank]>,
    ) -> Result<OrderResult> {
        self.in_parallel(groups, |group| match group.scheme.as_str() {
            "XOR" => self.encode_xor(checkpoint, group, crc),
            "PARTNER" => self.encode_partner(checkpoint, group, only),
            other => Err(Trouble::Other(format!("the redundancy scheme {other} is not known to this agent"))),
        })?;
        Ok(OrderResult::Done)
    }

    fn encode_xor(&self, checkpoint: CheckpointId, group: &GroupWork, crc: bool) -> Result<()> {
        let generation = self.run.plan.generation;
        let (rank, _) = own(group)?;
        let directory = rank_directory(self.agent, checkpoint, rank)?;
        let store = &self.agent.store;
        let current = self.member_files(checkpoint, rank)?;
        let mut data = LogicalFile::open(&directory, group.member, &current)?;

        let (_, right_node) = group.right().ok_or_else(|| misshapen(group))?;
        let purpose = Purpose::Ring(RingKey { order: self.order, group_id: group.group_id, to_member: group.right });
        let mut right = self.agent.streams.connect(generation, right_node, purpose)?;
        let greeting = Greeting {
            files: Base64(hash_file::encode(&current.to_tree())),
            descriptor: self.descriptor_of(checkpoint, rank)?,
        };
        frame::send(&mut right, &greeting)?;
        let purpose = Purpose::Ring(RingKey { order: self.order, group_id: group.group_id, to_member: group.member });
        let mut left = self.agent.streams.claim(generation, &purpose, PATIENCE)?;
        let greeting: Greeting = frame::receive(&mut left)?;
        let (left_rank, _) = *group.left().ok_or_else(|| misshapen(group))?;
        let partner = files_of(&greeting.files.0)?;
        if partner.rank != left_rank {
            return Err(Trouble::OtherRank { expected: left_rank, found: partner.rank });
        }
        let neighbour =
            from_model(&greeting.descriptor).map_err(|source| Trouble::Descriptor { rank: left_rank, source })?;
        store.set_descriptor(checkpoint, rank, left_rank, &neighbour.to_neighbour_tree())?;

        let header = Header {
            chunk: group.chunk,
            checkpoint,
            ranks: self.run.plan.ranks(),
            members: group.members.iter().map(|(rank, _)| *rank).collect(),
            current,
            partner,
        };
        let name = XorName { group_id: group.group_id, members: size(group), index: group.member }.to_string();
        let path = store.add_file(checkpoint, rank, rank, &name)?;
        let file = File::create(&path).map_err(Trouble::file("create", &path))?;
        let mut out = BufWriter::with_capacity(1 << 20, &file);
        let mut place = Place::new(group.member, size(group), group.chunk);
        place.piece = self.run.plan.settings.piece_bytes;
        let working = self.agent.progress.begin(holdfast_model::Task::Encode, checkpoint, group.chunk);
        let mut told = 0;
        let mut progress = |done: u64| {
            working.advance(done - told);
            told = done;
            if done.saturating_mul(2) >= group.chunk {
                rehearsal::point(self.agent, RehearsalPoint::Encode, checkpoint);
            }
            ControlFlow::Continue(())
        };
        let pool = Pool::new();
        place.pool = pool.clone();
        let written = std::thread::scope(|scope| {
            let mut from_left = FromLeft::spawn(scope, left, pool.clone());
            let mut to_right = ToRight::new(right, pool.clone());
            let written =
                encode_member(&place, &header, &mut data, &mut from_left, &mut to_right, &mut out, &mut progress)?;
            to_right.sound().map_err(Trouble::connection)?;
            from_left.verdict().map_err(Trouble::connection)?;
            Ok::<_, Trouble>(written)
        })?;
        out.into_inner().map_err(|error| Trouble::File {
            doing: "write",
            path: path.clone(),
            source: error.into_error(),
        })?;
        file.sync_all().map_err(Trouble::file("bring to disk", &path))?;
        Ok(written.meta(&header, crc).write(&path)?)
    }

    fn encode_partner(&self, checkpoint: CheckpointId, group: &GroupWork, only: Option<&[Rank]>) -> Result<()> {
        let generation = self.run.plan.generation;
        let (rank, _) = own(group)?;
        let wanted = |rank: &Rank| only.is_none_or(|only| only.contains(rank));
        let (_, right_node) = group.right().ok_or_else(|| misshapen(group))?;
        let (left_rank, left_node) = group.left().ok_or_else(|| misshapen(group))?;
        let send = || -> Result<()> {
            let files = self.member_files(checkpoint, rank)?;
            let working =
                self.agent.progress.begin(holdfast_model::Task::Encode, checkpoint, files.total_bytes().unwrap_or(0));
            rehearsal::point(self.agent, RehearsalPoint::Encode, checkpoint);
            let purpose = Purpose::Files(FilesKey { order: self.order, rank });
            let mut stream = self.agent.streams.connect(generation, right_node, purpose)?;
            let owner = Member { rank, descriptor: self.descriptor_of(checkpoint, rank)? };
            self.send_files(&mut stream, checkpoint, &owner, &working)
        };
        std::thread::scope(|scope| {
            let sending = wanted(&rank).then(|| scope.spawn(send));
            let received =
                if wanted(left_rank) { self.receive_copy(checkpoint, rank, *left_rank, left_node) } else { Ok(()) };
            let sent = sending.map_or(Ok(()), |sending| sending.join().unwrap_or_else(|_| Err(Trouble::Crashed)));
            received.and(sent)
        })
    }

    fn receive_copy(&self, checkpoint: CheckpointId, slot: Rank, owner: Rank, node: &NodeName) -> Result<()> {
        let purpose = Purpose::Files(FilesKey { order: self.order, rank: owner });
        let mut stream = self.agent.streams.claim(self.run.plan.generation, &purpose, PATIENCE)?;
        self.receive_files(&mut stream, checkpoint, owner, &Keep::Copy { slot, owner: node })
    }

    /// The application's files of a rank, in filemap order, from their meta files.
    pub(super) fn member_files(&self, checkpoint: CheckpointId, rank: Rank) -> Result<MemberFiles> {
        let directory = rank_directory(self.agent, checkpoint, rank)?;
        let names = self.agent.store.files(checkpoint, rank).into_iter().filter(|name| XorName::parse(name).is_none());
        let files = names.map(|name| Ok(Meta::read(&directory.join(name))?));
        Ok(MemberFiles { rank, files: files.collect::<Result<_>>()? })
    }

    pub(super) fn descriptor_of(&self, checkpoint: CheckpointId, rank: Rank) -> Result<RankDescriptor> {
        let tree = self.agent.store.descriptor(checkpoint, rank).unwrap_or_default();
        from_tree(&tree).map_err(|source| Trouble::Descriptor { rank, source })
    }
}

pub(super) fn own(group: &GroupWork) -> Result<(Rank, NodeName)> {
    group.own().cloned().ok_or_else(|| misshapen(group))
}

pub(super) fn size(group: &GroupWork) -> u32 {
    u32::try_from(group.members.len()).unwrap_or(u32::MAX)
}

pub(super) fn misshapen(group: &GroupWork) -> Trouble {
    Trouble::Misshapen { group_id: group.group_id, member: group.member, right: group.right }
}

pub(super) fn files_of(packed: &[u8]) -> Result<MemberFiles> {
    let what = "a list of files";
    let (tree, _) = hash_file::decode(packed).map_err(|source| Trouble::Undecodable { what, source })?;
    Ok(MemberFiles::from_tree(&tree, "the left neighbour")?)
}
