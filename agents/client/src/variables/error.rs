//! The errors of the variables API.

use std::path::PathBuf;

use holdfast_formats::FormatsError;
use holdfast_model::{CheckpointId, Rank};

use super::descriptions::{LONGEST_NAME, MOST_DIMENSIONS};
use super::types::VariableId;
use crate::error::ClientError;

pub(super) type Result<T, E = VariablesError> = std::result::Result<T, E>;

/// Why a call of the variables API failed. The message contains the remedy.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum VariablesError {
    /// A call to the agent failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("protect: {count} elements of {bytes} bytes of variable {id} exceed the address space; check the count")]
    TooLarge { id: VariableId, count: usize, bytes: usize },
    #[error("protect: the address of variable {id} is null; allocate it first, or protect it with 0 elements")]
    Null { id: VariableId },
    #[error("{call}: no variable {id} is protected; call protect first")]
    Unprotected { call: &'static str, id: VariableId },
    #[error("checkpoint: no variable is protected; call protect first")]
    NoVariables,
    /// The id does not fit into the file.
    #[error(
        "checkpoint: id {id} is larger than {}, the largest that a file of FTI-FF can have; pass a smaller one",
        i32::MAX
    )]
    CheckpointId { id: u32 },
    /// The file could not be written. The checkpoint is then dropped.
    #[error("checkpoint: {source}")]
    Writing { source: FormatsError },
    /// The descriptions of the variables could not be written. The checkpoint is then dropped.
    #[error("checkpoint: the names of the variables cannot be written to {}: {reason}", path.display())]
    Describing { path: PathBuf, reason: String },
    #[error("checkpoint {checkpoint} was started and is not complete: add its variables, and complete it first")]
    Incomplete { checkpoint: u32 },
    #[error("{call}: no checkpoint was started: start one first, on all ranks")]
    NotStarted { call: &'static str },
    /// The file of a checkpoint that was started has no room for the variable.
    #[error(
        "variable {id} was protected after checkpoint {checkpoint} was started: protect it before, and add it to the \
         next one"
    )]
    ProtectedSince { id: VariableId, checkpoint: u32 },
    #[error(
        "variable {id} has {bytes} bytes, and had {room} when checkpoint {checkpoint} was started: change sizes before \
         that, or after the checkpoint was completed"
    )]
    SizeSince { id: VariableId, checkpoint: u32, bytes: u64, room: u64 },
    #[error("variable {id} was already added to checkpoint {checkpoint}: add each variable once")]
    AddedTwice { id: VariableId, checkpoint: u32 },
    /// A checkpoint was completed without all variables. It is then dropped.
    #[error(
        "checkpoint {checkpoint} was completed without the variables {}: add all that are protected",
        list(missing)
    )]
    NotAdded { missing: Vec<VariableId>, checkpoint: u32 },
    /// The file could not be written before.
    #[error("checkpoint {checkpoint} cannot be written, and is dropped when it is completed: {reason}")]
    NotWritten { checkpoint: u32, reason: String },
    #[error("the {what} of a variable has {bytes} bytes: it has 1 to {LONGEST_NAME}")]
    NameLength { what: &'static str, bytes: usize },
    #[error("variable {id}: {given} dimensions: a shape has 1 to {MOST_DIMENSIONS}")]
    Dimensions { id: VariableId, given: usize },
    #[error("all ids of variables are in use: protect fewer variables")]
    NoFreeId,
    #[error("recover: there is no checkpoint to recover from; call status first")]
    NothingToRecover,
    /// A single variable cannot be put together from the files of other ranks.
    #[error(
        "recover_variable: {written} ranks wrote checkpoint {checkpoint}, and this run has {running}: variable {id} \
         cannot be loaded alone; run with {written} ranks, or load all variables with recover"
    )]
    OneOfOtherRanks { id: VariableId, checkpoint: CheckpointId, written: u32, running: u32 },
    /// The file of this rank is damaged.
    #[error(
        "recover_variable: checkpoint {checkpoint} cannot be used: {reason}; call recover on all ranks, which takes an \
         older one"
    )]
    NotIntact { checkpoint: CheckpointId, reason: String },
    #[error("recover_variable: variable {id} is not in checkpoint {checkpoint}; load only those that were saved")]
    NotStored { id: VariableId, checkpoint: CheckpointId },
    /// The size of a variable in memory is not its size in the checkpoint.
    #[error(
        "recover: variable {id} has {protected} bytes in memory and {stored} bytes in checkpoint {checkpoint}; get the \
         size with stored_size, reallocate, and call protect again before recover"
    )]
    Size { id: VariableId, protected: usize, stored: u64, checkpoint: CheckpointId },
    /// The size of a variable differs on another rank; see [`VariablesError::Size`].
    #[error(
        "recover: on rank {rank} a variable does not have its size in checkpoint {checkpoint}; that rank's message \
         names it"
    )]
    SizeOnOtherRank { rank: Rank, checkpoint: CheckpointId },
    /// The variables in memory are not those of the checkpoint, where they must be.
    #[error(
        "recover: the variables of checkpoint {checkpoint} are not those that are protected: {}; nothing was loaded: \
         protect the same variables, and call recover again",
        differences(absent, unclaimed)
    )]
    Different { checkpoint: CheckpointId, absent: Vec<VariableId>, unclaimed: Vec<VariableId> },
    /// The variables differ on another rank; see [`VariablesError::Different`].
    #[error(
        "recover: on rank {rank} the protected variables are not those of checkpoint {checkpoint}; that rank's message \
         names them; nothing was loaded"
    )]
    DifferentOnOtherRank { rank: Rank, checkpoint: CheckpointId },
    /// Another number of ranks wrote the checkpoint, and the variable is not declared for that.
    #[error(
        "recover: variable {id} has a value of its own on each of the {written} ranks that wrote checkpoint \
         {checkpoint}, and this run has {running}; if it is a block of an array, or equal on all ranks, declare that \
         (distribute, uniform), else unprotect it, or run with {written} ranks"
    )]
    OfOneRank { id: VariableId, checkpoint: CheckpointId, written: usize, running: u32 },
    /// A variable that was declared as equal on all ranks is not.
    #[error(
        "recover: variable {id} was declared as equal on all ranks (uniform), but its values on the ranks 0 and {rank} \
         differ in checkpoint {checkpoint}, which another number of ranks wrote; unprotect it, or run with as many"
    )]
    NotUniform { id: VariableId, rank: usize, checkpoint: CheckpointId },
    /// The size of a variable is not that of a block of the declared shape.
    #[error(
        "recover: the {bytes} bytes of variable {id} {place} are not a block of the declared shape, which has {step} \
         bytes for each index of the distributed dimension; checkpoint {checkpoint} was written by another number of \
         ranks: pass the shape that the array had then"
    )]
    NoBlock { id: VariableId, bytes: u64, step: u64, place: String, checkpoint: CheckpointId },
    #[error(
        "recover: variable {id} has another shape on rank {rank}; apart from the distributed dimension, pass the same \
         shape on all ranks; nothing was loaded from checkpoint {checkpoint}"
    )]
    OtherShape { id: VariableId, rank: usize, checkpoint: CheckpointId },
    /// The blocks of the ranks are not those of the same array.
    #[error(
        "recover: the blocks of variable {id} have {protected} elements along the distributed dimension in all, and \
         {stored} in checkpoint {checkpoint}; protect blocks of the same array: stored_size is that of equally long \
         ones"
    )]
    OtherLength { id: VariableId, stored: u64, protected: u64, checkpoint: CheckpointId },
    /// The shape of an array is impossible.
    #[error("distribute: variable {id}: {reason}")]
    Shape { id: VariableId, reason: String },
    /// A file that was intact when it was verified cannot be read any more. Variables may be partly loaded.
    #[error(
        "recover: {} changed while it was read: {source}; end the program, so that it is launched again",
        path.display()
    )]
    Reading { path: PathBuf, source: FormatsError },
}

impl VariablesError {
    /// True if this rank cannot write its files, and the checkpoint must be dropped on all ranks.
    pub(super) fn drops_checkpoint(&self) -> bool {
        matches!(
            self,
            VariablesError::Writing { .. }
                | VariablesError::Describing { .. }
                | VariablesError::Client(ClientError::Failed { .. })
        )
    }

    /// Why a file could not be written, without the name of the call.
    pub(super) fn reason(&self) -> String {
        match self {
            VariablesError::Writing { source } => source.to_string(),
            other => other.to_string(),
        }
    }
}

fn list(ids: &[VariableId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn differences(absent: &[VariableId], unclaimed: &[VariableId]) -> String {
    match (absent, unclaimed) {
        (absent, []) => format!("{} not in the checkpoint", list(absent)),
        ([], unclaimed) => format!("{} not protected", list(unclaimed)),
        _ => format!("{} not in the checkpoint, {} not protected", list(absent), list(unclaimed)),
    }
}
