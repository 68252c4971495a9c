//! The ids of variables, and the result of a recovery.

use std::fmt;

use holdfast_model::{CheckpointId, Level};

/// The id that the program gives to a variable: any number, unique in the process. It is stored in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariableId(pub i32);

impl fmt::Display for VariableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<i32> for VariableId {
    fn from(id: i32) -> Self {
        VariableId(id)
    }
}

/// The result of [`Variables::recover`](super::Variables::recover); checkpoint and `skipped` are equal on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoverOutcome {
    /// The checkpoint that was loaded. `None` if no checkpoint is usable: start from the beginning, with the variables
    /// as they are.
    pub checkpoint: Option<CheckpointId>,
    /// The program's own id of this checkpoint.
    pub id: Option<u32>,
    /// The level at which it was taken.
    pub level: Option<Level>,
    /// Checkpoints that were newer, and not intact on all ranks.
    pub skipped: Vec<CheckpointId>,
    /// Protected variables of this rank that the checkpoint does not contain. They are unchanged.
    pub absent: Vec<VariableId>,
    /// Variables of the checkpoint that are not protected on this rank. They were not loaded.
    pub unclaimed: Vec<VariableId>,
}
