//! The errors of the variables API.

use std::path::PathBuf;

use holdfast_formats::FormatsError;
use holdfast_model::{CheckpointId, Rank};

use super::types::VariableId;
use crate::error::ClientError;

/// Why a call of the variables API failed. The message contains the remedy.
#[derive(Debug, thiserror::Error)]
pub enum VariablesError {
    /// A call to the agent failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// More bytes than the address space has.
    #[error("protect: {count} elements of {bytes} bytes of variable {id} exceed the address space; check the count")]
    TooLarge {
        /// The variable.
        id: VariableId,
        /// Number of elements.
        count: usize,
        /// Bytes of an element.
        bytes: usize,
    },
    /// A null address with a size.
    #[error("protect: the address of variable {id} is null; allocate it first, or protect it with 0 elements")]
    Null {
        /// The variable.
        id: VariableId,
    },
    /// The id is not in use.
    #[error("{call}: no variable {id} is protected; call protect first")]
    Unprotected {
        /// The call.
        call: &'static str,
        /// The variable.
        id: VariableId,
    },
    /// A checkpoint without variables.
    #[error("checkpoint: no variable is protected; call protect first")]
    NoVariables,
    /// The id does not fit into the file.
    #[error(
        "checkpoint: id {id} is larger than {}, the largest that a file of FTI-FF can have; pass a smaller one",
        i32::MAX
    )]
    CheckpointId {
        /// The id.
        id: u32,
    },
    /// The file could not be written. The checkpoint is then dropped.
    #[error("checkpoint: {source}")]
    Writing {
        /// What failed, and the file.
        source: FormatsError,
    },
    /// `recover` without a checkpoint.
    #[error("recover: there is no checkpoint to recover from; call status first")]
    NothingToRecover,
    /// The size of a variable in memory is not its size in the checkpoint.
    #[error(
        "recover: variable {id} has {protected} bytes in memory and {stored} bytes in checkpoint {checkpoint}; get the \
         size with stored_size, reallocate, and call protect again before recover"
    )]
    Size {
        /// The variable.
        id: VariableId,
        /// Its bytes in memory.
        protected: usize,
        /// Its bytes in the checkpoint.
        stored: u64,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The size of a variable differs on another rank; see [`VariablesError::Size`].
    #[error(
        "recover: on rank {rank} a variable does not have its size in checkpoint {checkpoint}; that rank's message \
         names it"
    )]
    SizeOnOtherRank {
        /// The first such rank.
        rank: Rank,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The variables in memory are not those of the checkpoint, where they must be.
    #[error(
        "recover: the variables of checkpoint {checkpoint} are not those that are protected: {}; nothing was loaded: \
         protect the same variables, and call recover again",
        differences(absent, unclaimed)
    )]
    Different {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Protected, and not in the checkpoint.
        absent: Vec<VariableId>,
        /// In the checkpoint, and not protected.
        unclaimed: Vec<VariableId>,
    },
    /// The variables differ on another rank; see [`VariablesError::Different`].
    #[error(
        "recover: on rank {rank} the protected variables are not those of checkpoint {checkpoint}; that rank's message \
         names them; nothing was loaded"
    )]
    DifferentOnOtherRank {
        /// The first such rank.
        rank: Rank,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// A file that was intact when it was verified cannot be read any more. Variables may be partly loaded.
    #[error(
        "recover: {} changed while it was read: {source}; end the program, so that it is launched again",
        path.display()
    )]
    Reading {
        /// The file.
        path: PathBuf,
        /// What failed.
        source: FormatsError,
    },
}

fn differences(absent: &[VariableId], unclaimed: &[VariableId]) -> String {
    let list = |ids: &[VariableId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match (absent, unclaimed) {
        (absent, []) => format!("{} not in the checkpoint", list(absent)),
        ([], unclaimed) => format!("{} not protected", list(unclaimed)),
        _ => format!("{} not in the checkpoint, {} not protected", list(absent), list(unclaimed)),
    }
}
