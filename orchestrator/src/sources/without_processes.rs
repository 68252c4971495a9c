//! Parts of sources whose programs make the calls themselves.

use holdfast_rank::SaverSettings;
use holdfast_wire::run::CheckpointSchedule;

use crate::spec::{Checkpoint, StepCheck};

/// The keys express all that there is to check.
pub(super) fn no_further_check(_: &StepCheck<'_>) {}

pub(super) fn no_saver(_: &Checkpoint) -> Option<SaverSettings> {
    None
}

pub(super) fn no_schedule(_: &Checkpoint) -> Option<CheckpointSchedule> {
    None
}
