//! Errors of a container as damages, for the result of a verification.

use std::path::Path;

use super::error::SionError;
use super::fault::Fault;
use super::slot::place;
use crate::file_check::{Damage, FileCheck};

/// A damage of a set, with the name of the physical file that cannot be used because of it.
pub(super) struct SetDamage {
    pub part: String,
    pub damage: Damage,
}

/// Adds a damage to a result; any other error is returned.
pub(super) fn add_error(check: &mut FileCheck, error: SionError) -> Result<(), SionError> {
    match error {
        SionError::Damaged { path, fault } => check.damage(damage(&path, &fault)),
        SionError::NotSion { path } => {
            check.damage(Damage::new("magic", place(&path), "it does not begin with \"sion\"").at(0));
        }
        SionError::NeverClosed { path } => {
            let what = "it was never closed: the byte counts of its chunks were not written";
            check.damage(Damage::new("never-closed", place(&path), what));
        }
        other => return Err(other),
    }
    Ok(())
}

pub(super) fn damage(path: &Path, fault: &Fault) -> Damage {
    Damage::new(fault.kind(), place(path), fault.to_string())
}
