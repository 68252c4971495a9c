//! Read, write and seek.

use std::ffi::{c_int, c_longlong, c_void};

use super::{
    ABSOLUTE_POSITION, CURRENT_CHUNK, CURRENT_POSITION, CURRENT_RANK, END_POSITION, INVALID, NOT_SUCCESS, buffer,
    bytes_of, given, success,
};
use crate::error::{CallError, Result};
use crate::files::{BOUNDARY, Files, OpenFile};
use crate::reading::Target;

/// Writes items to one chunk of the current task. Returns their number, or 0.
///
/// # Safety
/// `data` is null, or points to the items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_fwrite(data: *const c_void, size: usize, count: usize, handle: c_int) -> usize {
    let written = BOUNDARY.call("sion_fwrite", |open| {
        let file = open.writing(handle)?;
        // SAFETY: the caller's promise.
        file.write(unsafe { given(data, bytes_of(size, count)?) }?)
    });
    if written.is_some() && size > 0 { count } else { 0 }
}

/// Reads items from one chunk of the current task. Returns their number.
///
/// # Safety
/// `data` is null, or points to memory for the items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_fread(data: *mut c_void, size: usize, count: usize, handle: c_int) -> usize {
    let read = BOUNDARY.call("sion_fread", |open| {
        let file = open.reading(handle)?;
        // SAFETY: the caller's promise.
        file.read(unsafe { buffer(data, bytes_of(size, count)?) }?)
    });
    read.unwrap_or(0).checked_div(size).unwrap_or(0)
}

/// As [`sion_fwrite`]: each task writes by itself, also in a file of the collective mode.
///
/// # Safety
/// As [`sion_fwrite`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_coll_fwrite(data: *const c_void, size: usize, count: usize, handle: c_int) -> usize {
    // SAFETY: the caller's promise.
    unsafe { sion_fwrite(data, size, count, handle) }
}

/// As [`sion_fread`]: each task reads by itself, also from a file of the collective mode.
///
/// # Safety
/// As [`sion_fread`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_coll_fread(data: *mut c_void, size: usize, count: usize, handle: c_int) -> usize {
    // SAFETY: the caller's promise.
    unsafe { sion_fread(data, size, count, handle) }
}

/// Makes room in a chunk before the program writes to its `FILE`.
#[unsafe(no_mangle)]
pub extern "C" fn sion_ensure_free_space(handle: c_int, bytes: c_longlong) -> c_int {
    success(BOUNDARY.call("sion_ensure_free_space", |open| {
        let file = open.writing(handle)?;
        let wrong = |_| CallError::Number { what: "the number of bytes", value: bytes, remedy: "give 0 or more" };
        file.ensure(u64::try_from(bytes).map_err(wrong)?)
    }))
}

/// 1 at the end of the current task's stream, else 0; -1 if there is no such file.
#[unsafe(no_mangle)]
pub extern "C" fn sion_feof(handle: c_int) -> c_int {
    let end = BOUNDARY.call("sion_feof", |open| match open.get(handle)? {
        OpenFile::Reading(file) => file.at_end(),
        OpenFile::Writing(_) => Ok(true),
    });
    end.map_or(INVALID, c_int::from)
}

/// The bytes of the current chunk that are not read; -1 if there is no such file.
#[unsafe(no_mangle)]
pub extern "C" fn sion_bytes_avail_in_chunk(handle: c_int) -> c_longlong {
    let left = BOUNDARY.call("sion_bytes_avail_in_chunk", |open| match open.get(handle)? {
        OpenFile::Reading(file) => file.left_in_chunk(),
        OpenFile::Writing(_) => Ok(0),
    });
    left.unwrap_or(INVALID.into())
}

/// As [`sion_bytes_avail_in_chunk`].
#[unsafe(no_mangle)]
pub extern "C" fn sion_bytes_avail_in_block(handle: c_int) -> c_longlong {
    sion_bytes_avail_in_chunk(handle)
}

/// Passes what was written to the system. 0 if the current chunk is empty.
#[unsafe(no_mangle)]
pub extern "C" fn sion_flush(handle: c_int) -> c_int {
    let inside = BOUNDARY.call("sion_flush", |open| {
        let file = open.writing(handle)?;
        file.stream.flush()?;
        file.account()
    });
    if inside.unwrap_or(0) > 0 { super::SUCCESS } else { NOT_SUCCESS }
}

/// Goes to a task, and when reading to a place in its stream.
#[unsafe(no_mangle)]
pub extern "C" fn sion_seek(handle: c_int, rank: c_int, chunk: c_int, position: c_longlong) -> c_int {
    success(BOUNDARY.call("sion_seek", |open| seek(open, handle, rank, chunk, position)))
}

/// As [`sion_seek`]. Sets the `FILE` of the physical file, also after an error.
///
/// # Safety
/// `file_pointer` is null, or points to a variable of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_seek_fp(
    handle: c_int,
    rank: c_int,
    chunk: c_int,
    position: c_longlong,
    file_pointer: *mut *mut libc::FILE,
) -> c_int {
    success(BOUNDARY.call("sion_seek_fp", |open| {
        let moved = seek(open, handle, rank, chunk, position);
        let pointer = match open.get(handle)? {
            OpenFile::Reading(file) => file.stream()?.file_pointer(),
            OpenFile::Writing(file) => file.stream.file_pointer(),
        };
        if !file_pointer.is_null() {
            // SAFETY: not null; the rest is the caller's promise.
            unsafe { file_pointer.write(pointer) };
        }
        moved
    }))
}

fn seek(open: &mut Files, handle: c_int, rank: c_int, chunk: c_int, position: c_longlong) -> Result<()> {
    let rank = open.go_to(handle, (rank != CURRENT_RANK).then_some(i64::from(rank)))?;
    match open.get(handle)? {
        OpenFile::Reading(file) => {
            let target = match chunk {
                ABSOLUTE_POSITION => Target::Absolute(position),
                END_POSITION => Target::FromEnd(position),
                _ => Target::Chunk(
                    (chunk != CURRENT_CHUNK).then_some(i64::from(chunk)),
                    (position != CURRENT_POSITION).then_some(position),
                ),
            };
            file.seek(rank, target)
        }
        OpenFile::Writing(file) => {
            if chunk != CURRENT_CHUNK || position != CURRENT_POSITION {
                return Err(CallError::SeekInWriting);
            }
            let rank = rank.unwrap_or(file.task as i64);
            let last = file.tasks().saturating_sub(1);
            let task = usize::try_from(rank).ok().filter(|task| *task <= last);
            file.go_to(task.ok_or(CallError::Rank { rank, last })?)
        }
    }
}
