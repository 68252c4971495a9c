//! Arguments of Fortran functions: passed by reference, and the length of every CHARACTER argument by value after all
//! others. Texts are padded with blanks and have no NUL.
//!
//! Lengths are `size_t`, as in gfortran since version 8, ifx and flang. Compilers that pass an `int` are not supported:
//! the upper half of the argument would be undefined.

use std::ffi::{c_char, c_int};

use crate::ArgumentError;

/// A CHARACTER argument, without the blanks at its end.
///
/// # Errors
/// It is missing, or not UTF-8.
///
/// # Safety
/// `text` is null or points to `length` bytes.
pub unsafe fn text(text: *const c_char, length: usize) -> Result<String, ArgumentError> {
    if text.is_null() {
        return Err(ArgumentError::NoCharacter);
    }
    // SAFETY: not null; the rest is the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    // Some programs append a NUL to names, as in C.
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(bytes).map_err(|_| ArgumentError::NotUtf8)?;
    Ok(text.trim_end_matches(' ').to_owned())
}

/// Fills a CHARACTER argument with the value and blanks. If the value does not fit, fills it with blanks and returns an
/// error.
///
/// # Errors
/// It is missing, or too short.
///
/// # Safety
/// `to` is null or points to `length` bytes that the program owns.
pub unsafe fn put(to: *mut c_char, length: usize, value: &str) -> Result<(), ArgumentError> {
    if to.is_null() {
        return Err(ArgumentError::NoCharacter);
    }
    let fits = value.len() <= length;
    let value = if fits { value } else { "" };
    // SAFETY: not null; `length` bytes, of which the value takes no more, are guaranteed by the caller.
    unsafe {
        std::ptr::copy_nonoverlapping(value.as_ptr(), to.cast::<u8>(), value.len());
        to.cast::<u8>().add(value.len()).write_bytes(b' ', length - value.len());
    }
    if fits { Ok(()) } else { Err(ArgumentError::ShortCharacter) }
}

/// Fills an INTEGER argument.
///
/// # Safety
/// `to` is null or points to an INTEGER.
pub unsafe fn put_number(to: *mut c_int, value: c_int) {
    if !to.is_null() {
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { to.write(value) }
    }
}

/// An INTEGER argument; one that is missing is 0.
///
/// # Safety
/// `from` is null or points to an INTEGER.
pub unsafe fn number(from: *const c_int) -> c_int {
    // SAFETY: not null; the rest is the caller's promise.
    if from.is_null() { 0 } else { unsafe { from.read() } }
}
