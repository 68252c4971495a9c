//! The boundary to C: the session of the process, and SCR's return codes.

use std::ffi::{c_char, c_int};

use holdfast_boundary::{ArgumentError, Boundary, Halt, c};

use crate::session::{Session, SessionError, SessionResult};

/// Bytes of a buffer for names and paths, including the NUL.
pub const MAX_FILENAME: usize = 1024;
pub const SUCCESS: c_int = 0;
/// The call failed; the reason is on standard error.
pub const FAILURE: c_int = 1;

static BOUNDARY: Boundary<Session> = Boundary::new("SCR", Session::new());

/// Makes a call; see [`Boundary::call`].
pub fn call<T>(function: &str, work: impl FnOnce(&mut Session) -> SessionResult<T>) -> Option<T> {
    BOUNDARY.call(function, work)
}

/// As [`call`], with SCR's return code.
pub fn code(function: &str, work: impl FnOnce(&mut Session) -> SessionResult<()>) -> c_int {
    if call(function, work).is_some() { SUCCESS } else { FAILURE }
}

/// As [`code`], for a question: the answer no is a failure, of which nothing is printed.
pub fn code_if(function: &str, work: impl FnOnce(&mut Session) -> SessionResult<bool>) -> c_int {
    if call(function, work) == Some(true) { SUCCESS } else { FAILURE }
}

/// As [`code`], for the end of the run; see [`Boundary::finalize`].
pub fn finalize(function: &str, work: impl FnOnce(&mut Session) -> SessionResult<()>) -> c_int {
    if BOUNDARY.finalize(function, work).is_some() { SUCCESS } else { FAILURE }
}

/// As [`code`], for calls after which the process may have to end.
pub fn code_or_exit(function: &str, work: impl FnOnce(&mut Session) -> SessionResult<Option<Halt>>) -> c_int {
    match call(function, work) {
        None => FAILURE,
        Some(None) => SUCCESS,
        Some(Some(halt)) => BOUNDARY.exit(&halt),
    }
}

/// The name of a file or dataset, which is required.
///
/// # Errors
/// The pointer is null, or the text is not UTF-8.
///
/// # Safety
/// As [`c::text`].
pub unsafe fn some_name(name: *const c_char) -> SessionResult<String> {
    // SAFETY: the caller gives the same guarantee.
    Ok(unsafe { c::some_text(name, "the name") }?)
}

/// Stores a flag in the program's variable.
///
/// # Errors
/// The pointer is null.
///
/// # Safety
/// `to` is null, or points to an `int` that the program owns.
pub unsafe fn put_flag(to: *mut c_int, flag: bool) -> SessionResult<()> {
    // SAFETY: the caller gives the same guarantee.
    Ok(unsafe { c::put(to, c_int::from(flag), "the pointer to the flag") }?)
}

/// Copies a text with its NUL into the program's buffer of [`MAX_FILENAME`] bytes; does nothing for a null pointer.
///
/// # Errors
/// It does not fit. The buffer then contains an empty text.
///
/// # Safety
/// `to` is null, or points to [`MAX_FILENAME`] bytes that the program owns and that do not overlap `value`.
pub unsafe fn put_text(to: *mut c_char, value: &str) -> SessionResult<()> {
    // SAFETY: the caller gives the same guarantee.
    unsafe { c::put_text(to, MAX_FILENAME, value) }.map_err(|error| match error {
        ArgumentError::ShortBuffer { value, .. } => SessionError::LongPath(value.into()),
        other => other.into(),
    })
}
