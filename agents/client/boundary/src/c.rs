//! Arguments of C functions.

use std::ffi::{CStr, c_char};

use crate::ArgumentError;

/// A text passed by a C program; `None` for a null pointer.
///
/// # Errors
/// It is not UTF-8.
///
/// # Safety
/// `text` is null, or points to a NUL-terminated string that is not changed during the call.
pub unsafe fn text(text: *const c_char) -> Result<Option<String>, ArgumentError> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null; the rest is guaranteed by the caller.
    let bytes = unsafe { CStr::from_ptr(text) };
    let text = bytes.to_str().map_err(|_| ArgumentError::NotUtf8)?;
    Ok(Some(text.to_owned()))
}

/// As [`text`], for a text that is required; `what` names it.
///
/// # Errors
/// The pointer is null, or the text is not UTF-8.
///
/// # Safety
/// As [`text`].
pub unsafe fn some_text(given: *const c_char, what: &'static str) -> Result<String, ArgumentError> {
    // SAFETY: the caller gives the same guarantee.
    unsafe { text(given) }?.ok_or(ArgumentError::Null(what))
}

/// Stores a value in the program's variable; `what` names it.
///
/// # Errors
/// The pointer is null.
///
/// # Safety
/// `to` is null, or points to a `T` that the program owns.
pub unsafe fn put<T>(to: *mut T, value: T, what: &'static str) -> Result<(), ArgumentError> {
    if to.is_null() {
        return Err(ArgumentError::Null(what));
    }
    // SAFETY: not null; the rest is guaranteed by the caller.
    unsafe { to.write(value) };
    Ok(())
}

/// Copies a text with its NUL into the program's buffer of `size` bytes; does nothing for a null pointer.
///
/// # Errors
/// It does not fit. The buffer then contains an empty text.
///
/// # Safety
/// `to` is null, or points to `size` bytes, at least one, that the program owns and that do not overlap `value`.
pub unsafe fn put_text(to: *mut c_char, size: usize, value: &str) -> Result<(), ArgumentError> {
    if to.is_null() {
        return Ok(());
    }
    let bytes = value.as_bytes();
    let fits = bytes.len() < size && !bytes.contains(&0);
    let bytes = if fits { bytes } else { b"" };
    // SAFETY: not null; at most `size - 1` bytes and the NUL are written, which the caller guarantees to be valid.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), bytes.len());
        to.add(bytes.len()).write(0);
    }
    if fits { Ok(()) } else { Err(ArgumentError::ShortBuffer { value: value.to_owned(), bytes: size }) }
}
