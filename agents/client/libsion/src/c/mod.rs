//! The C functions, as declared in `include/sion.h`. Each documents the requirements on its pointers, which a C program
//! must guarantee.
//!
//! * [`open`]: open and close;
//! * [`data`]: read, write and seek;
//! * [`keys`]: key-value records;
//! * [`inquiry`]: what a file contains, and where a task is;
//! * [`parallel`], [`mapped`]: for `include/sion_mpi.h`.
//!
//! Safety of every `#[unsafe(no_mangle)]` here: the symbol is SIONlib's own, and a program links one SIONlib.

pub mod data;
pub mod inquiry;
pub mod keys;
pub mod mapped;
pub mod open;
pub mod parallel;

pub use data::*;
pub use inquiry::*;
pub use keys::*;
pub use mapped::*;
pub use open::*;
pub use parallel::*;

use std::ffi::{c_int, c_void};

use holdfast_boundary::ArgumentError;

use crate::error::{CallError, Result};

const SUCCESS: c_int = 1;
const NOT_SUCCESS: c_int = 0;
/// `SION_ID_UNDEF`, and `SION_SIZE_NOT_VALID`.
const INVALID: c_int = -1;

const CURRENT_RANK: c_int = -101;
const CURRENT_CHUNK: c_int = -102;
const CURRENT_POSITION: i64 = -103;
const ABSOLUTE_POSITION: c_int = -104;
const END_POSITION: c_int = -105;

/// `SION_SUCCESS` for a call that did its work, else `SION_NOT_SUCCESS`.
fn success(done: Option<()>) -> c_int {
    if done.is_some() { SUCCESS } else { NOT_SUCCESS }
}

/// A number for the program, at most the largest that fits.
fn int(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

/// The bytes of `count` items.
fn bytes_of(size: usize, count: usize) -> Result<usize> {
    let bytes = size.checked_mul(count).filter(|bytes| isize::try_from(*bytes).is_ok());
    bytes.ok_or(CallError::TooManyBytes { size, count })
}

/// The program's data to write.
///
/// # Safety
/// `data` is null, or points to so many bytes, which are not changed during the call.
unsafe fn given<'a>(data: *const c_void, bytes: usize) -> Result<&'a [u8]> {
    match (data.is_null(), bytes) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(ArgumentError::Null("the pointer to the data").into()),
        // SAFETY: not null; the rest is guaranteed by the caller.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), bytes) }),
    }
}

/// The program's buffer to read to.
///
/// # Safety
/// `data` is null, or points to so many bytes, which the program does not use during the call.
unsafe fn buffer<'a>(data: *mut c_void, bytes: usize) -> Result<&'a mut [u8]> {
    match (data.is_null(), bytes) {
        (true, _) => Err(ArgumentError::Null("the pointer to the data").into()),
        (false, 0) => Ok(&mut []),
        // SAFETY: not null; the rest is guaranteed by the caller.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(data.cast(), bytes) }),
    }
}
