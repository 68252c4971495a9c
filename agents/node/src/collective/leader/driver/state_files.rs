//! The leader's state files in the control directory.

use std::io;
use std::path::Path;

use holdfast_model::Generation;

use super::super::memory::{LeaderMemory, UnfinishedFlushes};
use crate::state::state_file;

const LEADER: &str = "holdfast.leader";
const FLUSHES: &str = "holdfast.flushes";

/// What an earlier leader of the generation saved in the control directory.
#[derive(Debug)]
pub(crate) struct SavedState {
    pub(super) memory: LeaderMemory,
    pub(super) flushes: UnfinishedFlushes,
}

impl SavedState {
    /// Reads it. Blocks.
    ///
    /// # Errors
    /// When descriptors or memory are exhausted.
    pub(crate) fn read(control: &Path, generation: Generation) -> io::Result<SavedState> {
        Ok(SavedState { memory: read_memory(control, generation)?, flushes: read_flushes(control, generation)? })
    }
}

/// What an earlier leader of this generation saved, or a fresh start.
fn read_memory(control: &Path, generation: Generation) -> io::Result<LeaderMemory> {
    let known = state_file::read::<LeaderMemory>(&control.join(LEADER))?;
    let known = known.filter(|memory| memory.generation == generation);
    Ok(known.unwrap_or_else(|| LeaderMemory::fresh(generation)))
}

pub(super) fn write_memory(control: &Path, memory: &LeaderMemory) -> io::Result<()> {
    state_file::write(&control.join(LEADER), memory)
}

/// The flushes that the leader of this generation did not finish.
fn read_flushes(control: &Path, generation: Generation) -> io::Result<UnfinishedFlushes> {
    let known = state_file::read::<UnfinishedFlushes>(&control.join(FLUSHES))?;
    let known = known.filter(|flushes| flushes.generation == generation);
    Ok(known.unwrap_or_else(|| UnfinishedFlushes::fresh(generation)))
}

pub(super) fn write_flushes(control: &Path, flushes: &UnfinishedFlushes) -> io::Result<()> {
    state_file::write(&control.join(FLUSHES), flushes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::Arc;

    use holdfast_model::CheckpointId;
    use holdfast_wire::rank::Reply;

    #[test]
    fn a_damaged_state_file_counts_as_absent() {
        let control = tempfile::tempdir().unwrap();
        fs::write(control.path().join(LEADER), b"{\"generation\":1,").unwrap();
        assert_eq!(read_memory(control.path(), Generation(1)).unwrap(), LeaderMemory::fresh(Generation(1)));
    }

    #[test]
    fn unfinished_flushes_are_read_by_the_next_leader_of_the_same_generation_only() {
        let control = tempfile::tempdir().unwrap();
        let mut flushes = UnfinishedFlushes::fresh(Generation(2));
        flushes.directories.insert(CheckpointId(5), "five".to_owned());
        write_flushes(control.path(), &flushes).unwrap();
        assert_eq!(read_flushes(control.path(), Generation(2)).unwrap(), flushes);
        assert_eq!(read_flushes(control.path(), Generation(3)).unwrap(), UnfinishedFlushes::fresh(Generation(3)));
    }

    #[test]
    fn the_last_results_survive() {
        let control = tempfile::tempdir().unwrap();
        let mut memory = LeaderMemory::fresh(Generation(1));
        memory.seq = 4;
        memory.outcome = Arc::new(Ok(Reply::Flag(true)));
        write_memory(control.path(), &memory).unwrap();
        assert_eq!(read_memory(control.path(), Generation(1)).unwrap(), memory);
    }
}
