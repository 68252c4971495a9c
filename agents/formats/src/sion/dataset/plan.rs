//! The places of the ranks' streams in the physical files.

use std::collections::BTreeMap;

use holdfast_model::{Rank, RankPlace};

use super::super::byte_order::ByteOrder;
use super::super::header::KeyValue;
use super::super::key_value::RECORD_HEADER;
use super::super::limits::MOST_TASKS;
use super::super::plan::{FileDistribution, Plan, PlanOptions, TaskPlan};
use super::super::plan_error::PlanError;

/// The byte order of all that is written: all writers of a container must agree.
pub(super) const BYTE_ORDER: ByteOrder = ByteOrder::Little;

/// A meta file has about 250 bytes, and the name of its file. If a stream is longer than planned, it continues in
/// another chunk.
const META_BYTES: u64 = 512;
/// A file map lists the names of the rank's files.
const FILEMAP_BYTES: u64 = 256;
const FILEMAP_ENTRY_BYTES: u64 = 64;
/// The table of contents: a name and a size.
const CONTENTS_BYTES: u64 = 256;
const CONTENTS_OF_RANK: u64 = 640;

/// The bytes to plan for the stream of a rank with files of these sizes, meta files and file map included.
pub fn stream_bytes(files: impl IntoIterator<Item = u64>) -> u64 {
    let of_file = |bytes: u64| bytes.saturating_add(2 * RECORD_HEADER + META_BYTES + FILEMAP_ENTRY_BYTES);
    files.into_iter().map(of_file).fold(RECORD_HEADER + FILEMAP_BYTES, u64::saturating_add)
}

/// The layout of a container for a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DatasetPlan {
    pub plan: Plan,
    pub ranks: u32,
}

/// Plans a container of at most `files` physical files for a dataset of so many ranks, of which `streams` gives the
/// bytes of the streams. A rank without bytes gets no place. Chunks begin at multiples of `block_size`.
///
/// # Errors
/// When there is no rank, or the container would be larger than a file can be.
pub(super) fn plan_dataset(
    ranks: u32,
    streams: &BTreeMap<Rank, u64>,
    files: u32,
    block_size: u32,
    name: &str,
) -> Result<DatasetPlan, PlanError> {
    if u64::from(ranks) >= MOST_TASKS {
        return Err(PlanError::TooManyTasks(usize::try_from(ranks).unwrap_or(usize::MAX)));
    }
    let task = |rank: u32| {
        let chunk_bytes = streams.get(&Rank(rank)).copied().unwrap_or(0);
        TaskPlan { global_rank: rank.into(), chunk_bytes }
    };
    let contents = u64::from(ranks).saturating_mul(CONTENTS_OF_RANK).saturating_add(CONTENTS_BYTES);
    let contents = TaskPlan { global_rank: ranks.into(), chunk_bytes: contents };
    let tasks: Vec<TaskPlan> = (0..ranks).map(task).chain([contents]).collect();
    let distribution = FileDistribution::Parallel { files: files.clamp(1, ranks.max(1)) };
    let options = PlanOptions {
        key_value: KeyValue::Inline,
        byte_order: BYTE_ORDER,
        user_order: BYTE_ORDER,
        ..PlanOptions::new(distribution, block_size, name)
    };
    Ok(DatasetPlan { plan: Plan::new(&tasks, &options)?, ranks })
}

impl DatasetPlan {
    /// The places of all ranks that have one.
    pub fn places(&self) -> BTreeMap<Rank, RankPlace> {
        (0..self.ranks).filter_map(|rank| Some((Rank(rank), self.place(rank)?))).collect()
    }

    fn place(&self, rank: u32) -> Option<RankPlace> {
        let slot = self.plan.slot(usize::try_from(rank).ok()?)?;
        let layout = &self.plan.parts.get(slot.part)?.layout;
        let chunk_bytes = layout.chunk_size(slot.local);
        let offset = layout.chunk_position(slot.local, 0)?;
        let (file, stride) = (u32::try_from(slot.part).ok()?, layout.block_skip);
        (chunk_bytes > 0).then_some(RankPlace { file, offset, chunk_bytes, stride, first_chunk: 0 })
    }

    /// The chunk size of a task.
    pub(super) fn chunk_bytes(&self, task: usize) -> u64 {
        let layout = self.plan.slot(task).and_then(|slot| Some((self.plan.parts.get(slot.part)?, slot.local)));
        layout.map_or(0, |(part, local)| part.layout.chunk_size(local))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(ranks: u32, streams: &[(u32, u64)], files: u32, block: u32) -> BTreeMap<Rank, RankPlace> {
        let streams = streams.iter().map(|(rank, bytes)| (Rank(*rank), *bytes)).collect();
        plan_dataset(ranks, &streams, files, block, "x").unwrap().places()
    }

    #[test]
    fn chunks_are_aligned_and_overlap_no_others() {
        let streams: Vec<(u32, u64)> = (0..10).map(|rank| (rank, u64::from(rank) * 1000 + 1)).collect();
        for (files, block) in [(1, 512), (3, 4096), (10, 4096), (50, 65_536)] {
            let places = planned(10, &streams, files, block);
            let mut taken: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
            for (rank, place) in &places {
                assert_eq!((place.offset % u64::from(block), place.stride % u64::from(block)), (0, 0));
                assert!(place.chunk_bytes > u64::from(rank.0) * 1000 && place.stride >= place.chunk_bytes);
                taken.entry(place.file).or_default().push((place.offset, place.offset + place.chunk_bytes));
            }
            assert_eq!((places.len(), taken.len() as u32), (10, files.min(10)));
            for mut chunks in taken.into_values() {
                chunks.sort_unstable();
                assert!(chunks.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{chunks:?}");
            }
        }
    }

    #[test]
    fn a_rank_without_files_has_no_place_and_equal_input_gives_equal_plans() {
        let one = planned(4, &[(0, 10), (2, 10)], 2, 4096);
        assert_eq!(one.keys().collect::<Vec<_>>(), [&Rank(0), &Rank(2)]);
        assert_eq!(one, planned(4, &[(0, 10), (2, 10)], 2, 4096));
    }

    #[test]
    fn a_stream_includes_what_is_written_beside_each_file() {
        assert!(stream_bytes([]) > 0);
        assert!(stream_bytes([1000, 2000]) > 3000 + 4 * RECORD_HEADER + 2 * META_BYTES);
        assert_eq!(stream_bytes([u64::MAX, 1]), u64::MAX);
        assert!(plan_dataset(2, &BTreeMap::from([(Rank(0), u64::MAX)]), 1, 4096, "x").is_err());
    }
}
