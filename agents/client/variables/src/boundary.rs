//! The session of the process, and the return codes of `holdfast.h`.

use std::ffi::c_int;

use holdfast_boundary::Boundary;

use crate::session::{Saved, Session, SessionResult};

pub const SUCCESS: c_int = 0;
pub const FAILURE: c_int = 1;
/// There is no checkpoint that could be recovered.
pub const NO_CHECKPOINT: c_int = 2;
/// The checkpoint was dropped on all ranks; one of level 4 could not be flushed.
pub const NOT_KEPT: c_int = 3;

/// The session of the process; that of `libfti`, too.
pub static BOUNDARY: Boundary<Session> = Boundary::new("holdfast", Session::new());

/// Makes a call that returns nothing.
pub fn code(function: &str, work: impl FnOnce(&mut Session) -> SessionResult<()>) -> c_int {
    if BOUNDARY.call(function, work).is_some() { SUCCESS } else { FAILURE }
}

/// Ends the process if a halt condition holds. To be called outside of a call. True if the checkpoint was kept.
pub fn kept_or_exit(function: &str, saved: &Saved) -> bool {
    match saved {
        Saved::Kept => true,
        Saved::Dropped { checkpoint, reason } => {
            let elsewhere = "another rank could not write its file, or it could not be protected, or flushed at level \
                             4 (the reason is in the job's events)";
            let reason = reason.as_deref().unwrap_or(elsewhere);
            BOUNDARY.note(&format!("{function}: checkpoint {checkpoint} was not kept: {reason}"));
            false
        }
        Saved::Halted(halt) => BOUNDARY.exit(halt),
    }
}
