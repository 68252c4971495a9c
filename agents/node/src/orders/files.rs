//! The files of one rank on one connection: a header that names them, their bytes, and an acknowledgement when the
//! receiver has all of them.

use std::io::{Read, Write};

use holdfast_core::control::content::RecordedContent;
use holdfast_core::control::meta::Meta;
use holdfast_core::kvtree::file as hash_file;
use holdfast_core::kvtree::limits::Limits;
use holdfast_core::redundancy::descriptor;
use holdfast_core::redundancy::registry::is_redundancy_file;
use holdfast_core::store::PosixDataset;
use holdfast_model::{CheckpointId, NodeName, Rank};
use holdfast_wire::bytes::Base64;
use holdfast_wire::frame;
use holdfast_wire::peer::{FILES, Member};
use serde::{Deserialize, Serialize};

use super::context::{OrderContext, Result, rank_directory};
use super::error::OrderError;
use crate::copy::CopyFault;
use crate::copy::pipeline::{Checksum, CopyTarget, Moved, Pipeline};
use crate::directories::paths::{PathError, base_name};
use crate::report::events::{ProgressGuard, total_bytes};
use crate::stream::{IncomingStream, OutgoingStream};

#[derive(Debug, Serialize, Deserialize)]
struct FilesHeader {
    /// The rank that owns the files, and its descriptor.
    owner: Member,
    /// Each file's meta data, as a hash file, in the order in which the receiver is to add them.
    files: Vec<Base64>,
    /// The sender computes the CRC32 of each file, and the receiver compares it with that of what it received.
    /// Otherwise only of those that have one in their meta data.
    checksums: bool,
}

/// The acknowledgement, one byte: all files were received and are on disk.
const RECEIVED: u8 = 0x06;

/// How the receiver keeps the files.
pub(super) enum KeepAs<'a> {
    /// As files of a rank that now runs on this node.
    Own,
    /// As copies for a neighbour: in the slot of this local rank, marked with the node of their owner.
    Copy { slot: Rank, owner: &'a NodeName },
}

impl OrderContext<'_> {
    /// Sends all files of a rank, redundancy files included, and waits until the receiver has them. Returns their meta
    /// data, each with the checksum of what was sent.
    pub(super) fn send_files(
        &self,
        pipeline: &Pipeline,
        stream: &mut OutgoingStream,
        checkpoint: CheckpointId,
        owner: &Member,
        checksum: Checksum,
        working: &ProgressGuard,
    ) -> Result<Vec<(Meta, Option<u32>)>> {
        let directory = rank_directory(self.agent, checkpoint, owner.rank)?;
        let mut metas = Vec::new();
        // The filemap lists the newest first; the receiver adds them in the order of their creation.
        for name in self.agent.store.files(checkpoint, owner.rank).into_iter().rev() {
            match Meta::read(&directory.join(&name)) {
                // It was not completed.
                Err(_) if is_redundancy_file(&name) => {}
                meta => metas.push(meta?),
            }
        }
        let files = metas.iter().map(|meta| Base64(hash_file::encode(&meta.to_tree()))).collect();
        let checksums = checksum == Checksum::Compute;
        frame::send(stream, &FilesHeader { owner: owner.clone(), files, checksums }, FILES)?;
        let mut lane = pipeline.lane();
        let mut sent = Vec::with_capacity(metas.len());
        for meta in metas {
            let (path, recorded) = (directory.join(&meta.file), RecordedContent::from(&meta));
            let crc = lane.send(&path, stream, Moved { recorded, checksum, working }).map_err(|fault| match fault {
                CopyFault::Mismatch { path, mismatch } => OrderError::Damaged { rank: owner.rank, path, mismatch },
                fault => fault.into(),
            })?;
            sent.push((meta, crc));
        }
        stream.flush().map_err(OrderError::file("send files of", &directory))?;
        let mut answer = [0];
        stream.read_exact(&mut answer).map_err(OrderError::connection)?;
        if answer[0] == RECEIVED { Ok(sent) } else { Err(OrderError::NotReceived(owner.rank)) }
    }

    /// Receives all files of a rank. Each entry is on disk before its file.
    pub(super) fn receive_files(
        &self,
        stream: &mut IncomingStream,
        checkpoint: CheckpointId,
        rank: Rank,
        keep: &KeepAs<'_>,
    ) -> Result<()> {
        let header: FilesHeader = frame::receive(stream, FILES)?;
        if header.owner.rank != rank {
            return Err(OrderError::OtherRank { expected: rank, found: header.owner.rank });
        }
        let metas =
            header.files.iter().map(|packed| meta_of(&packed.0, checkpoint, rank)).collect::<Result<Vec<Meta>>>()?;
        let total = total_bytes(metas.iter().map(|meta| meta.size));
        let working = self.agent.progress.begin(holdfast_model::Task::Transfer, checkpoint, total);
        let store = &self.agent.store;
        let owner = &header.owner.descriptor;
        let slot = match keep {
            KeepAs::Own => rank,
            KeepAs::Copy { slot, .. } => *slot,
        };
        store.delete_rank(checkpoint, rank)?;
        let tree = if slot == rank { descriptor::to_tree(owner) } else { descriptor::to_neighbour_tree(owner) };
        store.set_descriptor(checkpoint, slot, rank, &tree)?;
        store.make_directory(checkpoint, &tree)?;
        if let KeepAs::Copy { owner, .. } = keep {
            store.set_partner(checkpoint, slot, rank, owner)?;
        }
        store.set_expected(checkpoint, slot, rank, u32::try_from(metas.len()).unwrap_or(u32::MAX))?;
        let pipeline = self.pipeline();
        let mut lane = pipeline.lane();
        let checksum = Checksum::of(header.checksums);
        for meta in metas {
            let path = store.add_file(checkpoint, slot, rank, &meta.file)?;
            let directory = path.parent().unwrap_or(&path);
            let cache = PosixDataset::in_cache(directory).map_err(OrderError::file("open", directory))?;
            let target = CopyTarget { dataset: &cache, name: &meta.file };
            let moved = Moved { recorded: RecordedContent::from(&meta), checksum, working: &working };
            let crc = lane.receive(stream, target, moved)?;
            Meta { crc, ..meta }.write_unsynced(&path)?;
        }
        stream.write_all(&[RECEIVED]).and_then(|()| stream.flush()).map_err(OrderError::connection)
    }
}

fn meta_of(packed: &[u8], checkpoint: CheckpointId, rank: Rank) -> Result<Meta> {
    let what = "the meta data of a file";
    let decoded = hash_file::decode_within(packed, Limits::ONE);
    let (tree, _) = decoded.map_err(|source| OrderError::Undecodable { what, source })?;
    let meta = Meta::from_tree(&tree).map_err(|source| OrderError::Content { what, source })?;
    if base_name(&meta.file)? != meta.file {
        return Err(PathError { path: meta.file, fault: "is not a bare file name" }.into());
    }
    if meta.checkpoint != checkpoint {
        return Err(OrderError::OtherCheckpoint { expected: checkpoint, found: meta.checkpoint });
    }
    if meta.rank != rank {
        return Err(OrderError::OtherRank { expected: rank, found: meta.rank });
    }
    Ok(meta)
}

#[cfg(test)]
mod tests {
    use super::*;

    use holdfast_core::redundancy::registry;
    use holdfast_model::{Descriptor, RankDescriptor};
    use holdfast_testkit::mutation::{mutate_bytes, mutate_json};
    use holdfast_testkit::{Dice, mutation_rounds, mutation_seed};

    const CHECKPOINT: CheckpointId = CheckpointId(3);
    const RANK: Rank = Rank(1);

    fn meta(name: &str) -> Meta {
        Meta { crc: Some(7), ..Meta::of_application(name, 9, CHECKPOINT, RANK, 4) }
    }

    fn header(metas: &[Vec<u8>]) -> FilesHeader {
        let scheme = registry::DEFAULT;
        let descriptor = Descriptor::new(0, scheme, "/tmp");
        let directory = "/tmp/u/scr.17/index.0".to_owned();
        let descriptor = RankDescriptor { descriptor, directory, groups: 1, group_id: 0, group_size: 4, group_rank: 1 };
        let files = metas.iter().map(|packed| Base64(packed.clone())).collect();
        FilesHeader { owner: Member { rank: RANK, descriptor }, files, checksums: true }
    }

    #[test]
    fn mutated_headers_of_a_peer_are_refused_or_name_plain_files_of_the_rank() {
        let good: Vec<Vec<u8>> =
            ["a", "rank_1.ckpt"].iter().map(|name| hash_file::encode(&meta(name).to_tree())).collect();
        let (seed, mut accepted, mut refused) = (mutation_seed(), 0, 0);
        println!("seed {seed}");
        for round in mutation_rounds(3000) {
            let mut dice = Dice(seed.wrapping_add(round));
            let mut metas = good.clone();
            match dice.below(3) {
                0 => mutate_bytes(&mut dice, &mut metas[0]),
                // Well-formed, with a checksum that is right.
                1 => {
                    let names = ["../x", "", ".", "/etc/passwd", "a/b", "a\0b", "ok"];
                    let changed = Meta { size: dice.roll(), ..meta(names[dice.below(names.len())]) };
                    metas[1] = hash_file::encode(&changed.to_tree());
                }
                _ => {}
            }
            let mut message = serde_json::to_value(header(&metas)).unwrap();
            if dice.percent(50) {
                mutate_json(&mut dice, &mut message, &[]);
            }
            let mut bytes = Vec::new();
            frame::send(&mut bytes, &message, FILES).unwrap();
            if dice.percent(20) {
                mutate_bytes(&mut dice, &mut bytes);
            }
            let Ok(header) = frame::receive::<FilesHeader>(&mut bytes.as_slice(), FILES) else {
                refused += 1;
                continue;
            };
            for packed in &header.files {
                let Ok(meta) = meta_of(&packed.0, CHECKPOINT, RANK) else {
                    refused += 1;
                    continue;
                };
                accepted += 1;
                assert_eq!((meta.checkpoint, meta.rank), (CHECKPOINT, RANK), "round {round}");
                assert!(base_name(&meta.file).is_ok_and(|name| name == meta.file), "round {round}: {}", meta.file);
            }
        }
        assert!(accepted > 0 && refused > 0, "{accepted} and {refused}");
    }
}
