//! Rebuilding a lost member in cache: along the chain of survivors to the rank's new home (`SCR manual §11.4.6`).

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use holdfast_core::kvtree::{Tree, file as hash_file};
use holdfast_core::redundancy::RedundancyError;
use holdfast_core::redundancy::xor::encode::Member as Place;
use holdfast_core::redundancy::xor::header::{Header, Occasion, rebuilt};
use holdfast_core::redundancy::xor::name::XorName;
use holdfast_core::redundancy::xor::piece::Pool;
use holdfast_core::redundancy::xor::rebuild::{Survivor, rebuild_root, rebuild_survivor};
use holdfast_core::redundancy::xor::writer::LostMember;
use holdfast_model::RankDescriptor;
use holdfast_model::{CheckpointId, Rank};
use holdfast_wire::bytes::Base64;
use holdfast_wire::frame;
use holdfast_wire::peer::{GroupRebuild, OrderResult, Purpose, RingKey};
use holdfast_wire::run::RehearsalPoint;
use serde::{Deserialize, Serialize};

use super::encode::{misshapen, own, size};
use super::pieces::{FromLeft, ToRight};
use super::transfer::PATIENCE;
use super::{Result, Trouble, Work, rank_directory};
use crate::rehearsal;
use holdfast_core::redundancy::convert::from_model;

/// What a survivor tells the next in the chain before the first piece.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    /// Header of the lost member's right neighbour, where the chain begins, packed: it names the lost files.
    first: Base64,
    /// The sender's own header, packed: from the last survivor, the lost member's left neighbour, the root needs it.
    own: Base64,
    /// The sender's rank and descriptor: the lost member keeps its left neighbour's.
    rank: Rank,
    descriptor: RankDescriptor,
}

impl Work<'_> {
    pub(super) fn rebuild(&self, checkpoint: CheckpointId, groups: &[GroupRebuild]) -> Result<OrderResult> {
        self.in_parallel(groups, |rebuild| {
            if rebuild.missing == rebuild.group.member {
                self.rebuild_lost(checkpoint, rebuild)
            } else {
                self.pass_on(checkpoint, rebuild)
            }
        })?;
        Ok(OrderResult::Done)
    }

    /// A survivor: adds its part to what comes from the left, and passes it on.
    fn pass_on(&self, checkpoint: CheckpointId, rebuild: &GroupRebuild) -> Result<()> {
        let generation = self.run.plan.generation;
        let group = &rebuild.group;
        let members = size(group);
        let (rank, _) = own(group)?;
        let directory = rank_directory(self.agent, checkpoint, rank)?;
        let xor_name = XorName { group_id: group.group_id, members, index: group.member }.to_string();
        let mut survivor = Survivor::open(&directory, &xor_name, true)?;
        let chunk = survivor.xor.header().chunk;
        let header = Base64(hash_file::encode(survivor.xor.tree()));

        let to_member = (group.member + 1) % members;
        let (_, right_node) = group.members.get(to_member as usize).ok_or_else(|| misshapen(group))?;
        let purpose = Purpose::Ring(RingKey { order: self.order, group_id: group.group_id, to_member });
        let mut right = self.agent.streams.connect(generation, right_node, purpose)?;
        let begins = group.member == (rebuild.missing + 1) % members;
        let (left, first) = if begins {
            (None, header.clone())
        } else {
            let purpose =
                Purpose::Ring(RingKey { order: self.order, group_id: group.group_id, to_member: group.member });
            let mut left = self.agent.streams.claim(generation, &purpose, PATIENCE)?;
            let greeting: Greeting = frame::receive(&mut left)?;
            (Some(left), greeting.first)
        };
        let descriptor = self.descriptor_of(checkpoint, rank)?;
        frame::send(&mut right, &Greeting { first, own: header, rank, descriptor })?;

        let place = self.place(group.member, members, chunk);
        let working = self.agent.progress.begin(
            holdfast_model::Task::Rebuild,
            checkpoint,
            chunk.saturating_mul(u64::from(members)),
        );
        let mut progress = self.progress(checkpoint, &working, chunk.saturating_mul(u64::from(members)));
        let pool = place.pool.clone();
        std::thread::scope(|scope| {
            let mut left = left.map(|left| FromLeft::spawn(scope, left, pool.clone()));
            let mut to_right = ToRight::new(right, pool.clone());
            rebuild_survivor(&place, &mut survivor, left.as_mut(), &mut to_right, true, &mut progress)?;
            if let Some(left) = left {
                left.verdict().map_err(Trouble::connection)?;
            }
            to_right.sound().map_err(Trouble::connection)
        })
    }

    /// The lost rank's new home: writes what arrives, and installs it when all survivors were sound.
    fn rebuild_lost(&self, checkpoint: CheckpointId, rebuild: &GroupRebuild) -> Result<()> {
        let group = &rebuild.group;
        let members = size(group);
        let (rank, _) = own(group)?;
        let store = &self.agent.store;
        let descriptor =
            from_model(&rebuild.descriptor).map_err(|source| Trouble::Descriptor { rank, source })?.to_tree();
        if store.has(checkpoint, rank) {
            // Repeated after it was done; the survivors of the repetition are waiting for nobody.
            store.unset_expected(checkpoint, rank, rank)?;
        }
        store.delete_rank(checkpoint, rank)?;
        store.set_descriptor(checkpoint, rank, rank, &descriptor)?;
        let (_, directory) = store.make_directory(checkpoint, &descriptor)?;

        let purpose = Purpose::Ring(RingKey { order: self.order, group_id: group.group_id, to_member: group.member });
        let mut left = self.agent.streams.claim(self.run.plan.generation, &purpose, PATIENCE)?;
        let greeting: Greeting = frame::receive(&mut left)?;
        let header = rebuilt(&header_of(&greeting.first.0)?, &header_of(&greeting.own.0)?, Occasion::Restart)?;
        let parsed = Header::from_tree(&header, "the set's remaining members")?;
        if parsed.checkpoint != checkpoint {
            return Err(Trouble::OtherCheckpoint { expected: checkpoint, found: parsed.checkpoint });
        }
        if parsed.current.rank != rank {
            return Err(Trouble::OtherRank { expected: rank, found: parsed.current.rank });
        }
        let lost = LostMember::create(&directory, &header, group.group_id, &self.names_of_others(checkpoint, rank))?;
        let place = self.place(group.member, members, parsed.chunk);
        let working = self.agent.progress.begin(
            holdfast_model::Task::Rebuild,
            checkpoint,
            parsed.chunk.saturating_mul(u64::from(members)),
        );
        let mut progress = self.progress(checkpoint, &working, parsed.chunk.saturating_mul(u64::from(members)));
        let pool = place.pool.clone();
        let unconfirmed = std::thread::scope(|scope| {
            let mut left = FromLeft::spawn(scope, left, pool.clone());
            let unconfirmed = rebuild_root(&place, lost, &mut left, &mut progress)?;
            left.verdict().map_err(Trouble::connection)?;
            Ok::<_, Trouble>(unconfirmed)
        })?;
        let neighbour =
            from_model(&greeting.descriptor).map_err(|source| Trouble::Descriptor { rank: greeting.rank, source })?;
        store.set_descriptor(checkpoint, rank, greeting.rank, &neighbour.to_neighbour_tree())?;
        // Entries before files; the redundancy file first, as the library does.
        store.add_file(checkpoint, rank, rank, &unconfirmed.member().xor.file)?;
        for meta in &unconfirmed.member().files {
            store.add_file(checkpoint, rank, rank, &meta.file)?;
        }
        let files = unconfirmed.member().files.len() + 1;
        unconfirmed.install(self.run.plan.settings.crc.on_copy)?;
        store.set_expected(checkpoint, rank, rank, u32::try_from(files).unwrap_or(u32::MAX))?;
        Ok(())
    }

    fn place(&self, member: u32, members: u32, chunk: u64) -> Place {
        let mut place = Place::new(member, members, chunk);
        place.piece = self.run.plan.settings.piece_bytes;
        place.pool = Pool::new();
        place
    }

    fn progress<'w>(
        &'w self,
        checkpoint: CheckpointId,
        working: &'w crate::events::Working,
        total: u64,
    ) -> impl FnMut(u64) -> ControlFlow<()> + 'w {
        let mut told = 0;
        move |done: u64| {
            working.advance(done - told);
            told = done;
            if done.saturating_mul(2) >= total {
                rehearsal::point(self.agent, RehearsalPoint::Rebuild, checkpoint);
            }
            ControlFlow::Continue(())
        }
    }

    /// Files of other ranks in the same directory: a damaged header must not make us overwrite them.
    fn names_of_others(&self, checkpoint: CheckpointId, rank: Rank) -> BTreeSet<String> {
        let store = &self.agent.store;
        let others = store.ranks(checkpoint).into_iter().filter(|other| *other != rank);
        others.flat_map(|other| store.files(checkpoint, other)).collect()
    }
}

fn header_of(packed: &[u8]) -> Result<Tree> {
    hash_file::decode(packed).map(|(tree, _)| tree).map_err(|error| {
        Trouble::Redundancy(RedundancyError::Header { origin: "a survivor".to_owned(), why: error.to_string() })
    })
}
