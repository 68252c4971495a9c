//! Incremental checkpoints: the program writes its variables one by one, as soon as each is ready.
//!
//! As in FTI, calls between `FTI_InitICP` with `activate` false and `FTI_FinalizeICP` do nothing, and succeed.
//!
//! Safety of every `#[unsafe(no_mangle)]` here: the symbol is FTI's own, and a program links one FTI.

// The names are those of the C interface.
#![allow(non_snake_case)]

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_variables_c::boundary::BOUNDARY;
use holdfast_variables_c::session::{Saved, Session};

use crate::c::{FAILURE, FtiError, SUCCESS, code, is_kept};

/// The last `FTI_InitICP` has failed: what follows must not look like one that was not activated.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Starts a checkpoint, if `activate` is true.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_InitICP(id: c_int, level: c_int, activate: bool) -> c_int {
    let started = code("FTI_InitICP", |session| match activate {
        true => Ok(session.start_checkpoint(id, level)?),
        false => Ok(session.rank_and_size().map(drop)?),
    });
    FAILED.store(activate && started != SUCCESS, Ordering::Relaxed);
    started
}

/// Writes the current content of a variable into the checkpoint that was started. Not collective.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_AddVarICP(id: c_int) -> c_int {
    code("FTI_AddVarICP", |session| match is_started(session)? {
        true => Ok(session.add_variable(id)?),
        false => Ok(()),
    })
}

/// Completes the checkpoint that was started. May end the process.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_FinalizeICP() -> c_int {
    let completed = BOUNDARY.call("FTI_FinalizeICP", |session| {
        let started = is_started(session);
        FAILED.store(false, Ordering::Relaxed);
        match started? {
            true => Ok::<_, FtiError>(session.complete_checkpoint()?),
            false => Ok(Saved::Kept),
        }
    });
    match completed {
        Some(saved) if is_kept("FTI_FinalizeICP", &saved) => SUCCESS,
        _ => FAILURE,
    }
}

/// True if a checkpoint was started; false if it was not activated.
fn is_started(session: &mut Session) -> Result<bool, FtiError> {
    match session.started()? {
        Some(_) => Ok(true),
        None if FAILED.load(Ordering::Relaxed) => Err(FtiError::NothingStarted),
        None => Ok(false),
    }
}
