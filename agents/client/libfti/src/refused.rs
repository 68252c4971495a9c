//! Functions of FTI 1.1 that only have an effect in HDF5 files, or inject errors. They fail, and say why.
//!
//! Safety of every `#[unsafe(no_mangle)]` here: the symbol is FTI's own, and a program links one FTI.

// The names are those of the C interface.
#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::c::{FAILURE, code};

/// Why a function fails.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(
        "groups are parts of HDF5 files, and checkpoints are FTI-FF files, which have none: remove the call; the \
         variables are saved without it"
    )]
    Groups,
    #[error(
        "groups are parts of HDF5 files, and checkpoints are FTI-FF files, which have none: pass NULL as the group"
    )]
    GroupOfType,
    #[error(
        "names and shapes of datasets are parts of HDF5 files, and checkpoints are FTI-FF files, which have none: \
         remove the call; the variable is saved without it"
    )]
    Datasets,
    #[error("no bits of variables are flipped; losses of nodes are injected by `allocation.faults` of the job spec")]
    BitFlips,
}

fn refused(function: &str, reason: Refused) -> c_int {
    code(function, |_| Err(reason.into()))
}

/// Fails: there are no groups.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_InitGroup(_: *mut c_void, _: *const c_char, _: *const c_void) -> c_int {
    refused("FTI_InitGroup", Refused::Groups)
}

/// Fails: there are no groups.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_RenameGroup(_: *mut c_void, _: *const c_char) -> c_int {
    refused("FTI_RenameGroup", Refused::Groups)
}

/// Fails: the file has neither names nor shapes.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_DefineDataset(_: c_int, _: c_int, _: *const c_int, _: *const c_char, _: *const c_void) -> c_int {
    refused("FTI_DefineDataset", Refused::Datasets)
}

/// Fails, as FTI's function does in each call that flips no bit. Programs make it in every step: it says why once.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_BitFlip(_: c_int) -> c_int {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    match REPORTED.swap(true, Ordering::Relaxed) {
        true => FAILURE,
        false => refused("FTI_BitFlip", Refused::BitFlips),
    }
}
