//! The boundary to C: conversion of pointers, serialisation of calls, and containment of panics.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use crate::session::{Halt, Session, SessionError, SessionResult};

/// Bytes of a buffer for names and paths, including the NUL.
pub const MAX_FILENAME: usize = 1024;
/// The call succeeded.
pub const SUCCESS: c_int = 0;
/// The call failed; the reason is on standard error.
pub const FAILURE: c_int = 1;

/// Locked during a call: calls of several threads are serialised.
static SESSION: Mutex<Session> = Mutex::new(Session::new());

/// Makes a call. Errors are printed to standard error, and so are panics (bugs of this library), because unwinding into
/// C is undefined behaviour.
pub fn call<T>(function: &str, work: impl FnOnce(&mut Session) -> SessionResult<T>) -> Option<T> {
    let worked = catch_unwind(AssertUnwindSafe(|| {
        let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut session);
        result.map_err(|failure| (failure, session.rank()))
    }));
    let rank_label = |rank: Option<u32>| rank.map_or_else(String::new, |rank| format!(" rank {rank}:"));
    match worked {
        Ok(Ok(value)) => Some(value),
        Ok(Err((failure, rank))) => {
            report(format_args!("SCR:{} {function}: {failure}", rank_label(rank)));
            None
        }
        Err(_) => {
            report(format_args!("SCR: {function} failed inside the library: please report it"));
            None
        }
    }
}

/// As [`call`], with SCR's return code.
pub fn code(function: &str, work: impl FnOnce(&mut Session) -> SessionResult<()>) -> c_int {
    if call(function, work).is_some() { SUCCESS } else { FAILURE }
}

/// As [`code`], for calls after which the process may have to end. It ends outside of the call, so that functions that
/// the program registered with `atexit` can use the library.
pub fn code_or_exit(function: &str, work: impl FnOnce(&mut Session) -> SessionResult<Option<Halt>>) -> c_int {
    match call(function, work) {
        None => FAILURE,
        Some(None) => SUCCESS,
        Some(Some(halt)) => {
            if halt.reports {
                report(format_args!("SCR: the run ends here: {}", halt.reason));
            }
            std::process::exit(0)
        }
    }
}

/// Prints to standard error; errors are ignored, because it may be closed.
fn report(text: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A text passed by a C program; `None` for a null pointer.
///
/// # Errors
/// It is not UTF-8.
///
/// # Safety
/// `text` is null, or points to a NUL-terminated string that is not changed during the call.
pub unsafe fn text(text: *const c_char) -> SessionResult<Option<String>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null; the rest is guaranteed by the caller.
    let bytes = unsafe { CStr::from_ptr(text) };
    let text = bytes.to_str().map_err(|_| SessionError::Argument("names must be UTF-8"))?;
    Ok(Some(text.to_owned()))
}

/// As [`text`], for a text that is required.
///
/// # Errors
/// The pointer is null, or the text is not UTF-8.
///
/// # Safety
/// As [`text`].
pub unsafe fn some_text(given: *const c_char) -> SessionResult<String> {
    // SAFETY: the caller gives the same guarantee.
    unsafe { text(given) }?.ok_or(SessionError::Argument("the name is NULL"))
}

/// Stores a flag in the program's variable.
///
/// # Errors
/// The pointer is null.
///
/// # Safety
/// `to` is null, or points to an `int` that the program owns.
pub unsafe fn put_flag(to: *mut c_int, flag: bool) -> SessionResult<()> {
    if to.is_null() {
        return Err(SessionError::Argument("the pointer to the flag is NULL"));
    }
    // SAFETY: not null; the rest is guaranteed by the caller.
    unsafe { to.write(c_int::from(flag)) };
    Ok(())
}

/// Copies a text with its NUL into the program's buffer of [`MAX_FILENAME`] bytes; does nothing for a null pointer.
///
/// # Errors
/// It does not fit. The buffer then contains an empty text.
///
/// # Safety
/// `to` is null, or points to [`MAX_FILENAME`] bytes that the program owns and that do not overlap `value`.
pub unsafe fn put_text(to: *mut c_char, value: &str) -> SessionResult<()> {
    if to.is_null() {
        return Ok(());
    }
    let bytes = value.as_bytes();
    let fits = bytes.len() < MAX_FILENAME && !bytes.contains(&0);
    let bytes = if fits { bytes } else { b"" };
    // SAFETY: not null; at most MAX_FILENAME - 1 bytes and the NUL are written, which the caller guarantees to be
    // valid.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), bytes.len());
        to.add(bytes.len()).write(0);
    }
    if fits { Ok(()) } else { Err(SessionError::LongPath(value.into())) }
}
