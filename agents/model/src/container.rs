//! Containers on the prefix directory: a few physical files with the files of all ranks of a dataset.
//!
//! One process plans a container and creates its physical files under temporary names. The nodes write the files of
//! their ranks to the places of the plan, and report what they wrote. Then the first process completes the container.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::Rank;

/// How datasets are packed on the prefix directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerPolicy {
    pub kind: ContainerKind,
    /// Physical files of a container; a container of fewer ranks has one a rank.
    pub files: u32,
}

/// The format of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerKind {
    /// SIONlib's.
    Sion,
}

/// What a container is planned from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRequest {
    /// Ranks of the dataset.
    pub ranks: u32,
    /// Bytes of the streams of the ranks that are packed.
    pub streams: BTreeMap<Rank, u64>,
    /// As in [`ContainerPolicy`].
    pub files: u32,
}

/// Where a node writes the files of its ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerPlaces {
    /// Base names of the physical files in the dataset's directory, temporary ones.
    pub files: Vec<String>,
    pub ranks: BTreeMap<Rank, RankPlace>,
}

impl ContainerPlaces {
    /// The same physical files with the places of these ranks only, from this chunk on.
    pub fn of(&self, ranks: impl IntoIterator<Item = Rank>, first_chunk: u64) -> ContainerPlaces {
        let place = |rank: Rank| Some((rank, RankPlace { first_chunk, ..self.ranks.get(&rank).copied()? }));
        ContainerPlaces { files: self.files.clone(), ranks: ranks.into_iter().filter_map(place).collect() }
    }
}

/// The chunks of one rank: chunk `n` begins at `offset + n * stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPlace {
    /// Index of the physical file.
    pub file: u32,
    /// Of chunk 0, in bytes.
    pub offset: u64,
    /// Bytes of a chunk; not 0.
    pub chunk_bytes: u64,
    /// Bytes between the beginnings of two chunks.
    pub stride: u64,
    /// The first chunk to write.
    pub first_chunk: u64,
}

/// What was written of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedRank {
    pub first_chunk: u64,
    /// In their order in the rank's stream.
    pub files: Vec<PackedFile>,
}

/// A file in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedFile {
    /// Base name.
    pub name: String,
    pub bytes: u64,
}
