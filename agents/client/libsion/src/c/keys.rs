//! Key-value records.

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};

use holdfast_boundary::ArgumentError;
use holdfast_boundary::c::put;
use holdfast_formats::sion::KeyValue;

use super::{
    ABSOLUTE_POSITION, CURRENT_CHUNK, CURRENT_POSITION, NOT_SUCCESS, SUCCESS, buffer, bytes_of, given, success,
};
use crate::error::CallError;
use crate::files::{BOUNDARY, OpenFile};
use crate::keys::KeyPlace;

/// `SION_KEYVAL_UNKNOWN`.
const UNKNOWN: c_int = 54;

/// What is known of a key in a task.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct sion_key_stat_t {
    pub key: u64,
    /// Number of records.
    pub num_blocks: c_longlong,
    /// Bytes of all records.
    pub total_size: c_longlong,
}

/// Writes a record. Returns the number of items; after an error `(size_t) -1`, or 0 if there is no such file.
///
/// # Safety
/// `data` is null, or points to the items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_fwrite_key(
    data: *const c_void,
    key: u64,
    size: usize,
    count: usize,
    handle: c_int,
) -> usize {
    let mut is_open = false;
    let written = BOUNDARY.call("sion_fwrite_key", |open| {
        open.get(handle)?;
        is_open = true;
        if size == 0 {
            return Err(CallError::EmptyItems);
        }
        let file = open.writing(handle)?;
        // SAFETY: the caller's promise.
        file.record(key, unsafe { given(data, bytes_of(size, count)?) }?)
    });
    match (written, is_open) {
        (Some(()), _) => count,
        (None, true) => usize::MAX,
        (None, false) => 0,
    }
}

/// Reads items of the current record of a key. Returns their number.
///
/// # Safety
/// `data` is null, or points to memory for the items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_fread_key(
    data: *mut c_void,
    key: u64,
    size: usize,
    count: usize,
    handle: c_int,
) -> usize {
    let read = BOUNDARY.call("sion_fread_key", |open| {
        let file = open.reading(handle)?;
        if size == 0 {
            return Err(CallError::EmptyItems);
        }
        // SAFETY: the caller's promise.
        file.read_key(key, size, unsafe { buffer(data, bytes_of(size, count)?) }?)
    });
    read.unwrap_or(0).checked_div(size).unwrap_or(0)
}

/// Begins the records of the current task again.
#[unsafe(no_mangle)]
pub extern "C" fn sion_fread_key_iterator_reset(handle: c_int) -> c_int {
    success(BOUNDARY.call("sion_fread_key_iterator_reset", |open| {
        open.reading(handle)?.keys()?.reset_records();
        Ok::<_, CallError>(())
    }))
}

/// The next record of the current task, which becomes the current one of its key. 0 after the last.
///
/// # Safety
/// The pointers are null, or point to variables of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_fread_key_iterator_next(handle: c_int, key: *mut u64, size: *mut usize) -> c_int {
    found(BOUNDARY.call("sion_fread_key_iterator_next", |open| {
        let Some((its_key, bytes)) = open.reading(handle)?.next_record()? else { return Ok(false) };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the caller's promise.
        unsafe {
            put(key, its_key, "the pointer to the key")?;
            put(size, bytes, "the pointer to the size")?;
        }
        Ok::<_, CallError>(true)
    }))
}

/// Goes to a record of a key, and a position in it. 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn sion_seek_key(handle: c_int, key: u64, number: c_int, position: c_longlong) -> c_int {
    found(BOUNDARY.call("sion_seek_key", |open| {
        let file = open.reading(handle)?;
        if position == CURRENT_POSITION && number != CURRENT_CHUNK {
            return Err(CallError::KeyPosition);
        }
        let place = match (number, u64::try_from(position), usize::try_from(number)) {
            (CURRENT_CHUNK, ..) if position == CURRENT_POSITION => None,
            (CURRENT_CHUNK, Ok(position), _) => Some(KeyPlace::InCurrent(position)),
            (ABSOLUTE_POSITION, Ok(position), _) => Some(KeyPlace::InValue(position)),
            (_, Ok(position), Ok(number)) => Some(KeyPlace::InRecord { number, position }),
            _ => {
                file.keys()?;
                return Ok(false);
            }
        };
        file.seek_key(key, place)
    }))
}

/// Reads the heads of all records of the current task.
#[unsafe(no_mangle)]
pub extern "C" fn sion_key_full_scan(handle: c_int) -> c_int {
    success(BOUNDARY.call("sion_key_full_scan", |open| open.reading(handle)?.keys().map(drop)))
}

/// Begins the keys of the current task again.
#[unsafe(no_mangle)]
pub extern "C" fn sion_key_list_iterator_reset(handle: c_int) -> c_int {
    success(BOUNDARY.call("sion_key_list_iterator_reset", |open| {
        open.reading(handle)?.keys()?.reset_keys();
        Ok::<_, CallError>(())
    }))
}

/// The next key of the current task. 0 after the last; `*key` is 0 then.
///
/// # Safety
/// `key` is null, or points to a variable of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_key_list_iterator_next(handle: c_int, key: *mut u64) -> c_int {
    found(BOUNDARY.call("sion_key_list_iterator_next", |open| {
        let next = open.reading(handle)?.keys()?.next_key();
        // SAFETY: the caller's promise.
        unsafe { put(key, next.unwrap_or(0), "the pointer to the key") }?;
        Ok::<_, CallError>(next.is_some())
    }))
}

/// Numbers of a key. 0 if the current task does not have it.
///
/// # Safety
/// `statistics` is null, or points to a variable of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_key_get_stat(handle: c_int, key: u64, statistics: *mut sion_key_stat_t) -> c_int {
    found(BOUNDARY.call("sion_key_get_stat", |open| {
        let Some((records, bytes)) = open.reading(handle)?.keys()?.statistics(key) else { return Ok(false) };
        let known = sion_key_stat_t { key, num_blocks: records as c_longlong, total_size: bytes.cast_signed() };
        if statistics.is_null() {
            return Err(CallError::Argument(ArgumentError::Null("the pointer to the statistics")));
        }
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { statistics.write(known) };
        Ok(true)
    }))
}

/// `SION_KEYVAL_NONE` or `SION_KEYVAL_INLINE`; `SION_KEYVAL_UNKNOWN` if there is no such file.
#[unsafe(no_mangle)]
pub extern "C" fn sion_get_keyval_mode(handle: c_int) -> c_int {
    let mode: Option<KeyValue> = BOUNDARY.call("sion_get_keyval_mode", |open| {
        Ok::<_, CallError>(match open.get(handle)? {
            OpenFile::Reading(file) => file.key_value(),
            OpenFile::Writing(file) => file.declared.key_value,
        })
    });
    mode.map_or(UNKNOWN, KeyValue::code)
}

/// The name of a key-value mode, as a C string that is always valid.
#[unsafe(no_mangle)]
pub extern "C" fn sion_keyval_type_to_str(mode: c_int) -> *const c_char {
    let name: &CStr = match mode {
        50 => c"SION_KEYVAL_NONE",
        51 => c"SION_KEYVAL_INLINE",
        52 => c"SION_KEYVAL_META",
        53 => c"SION_KEYVAL_HASH",
        UNKNOWN => c"SION_KEYVAL_UNKNOWN",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// `SION_SUCCESS` for what was found.
fn found(found: Option<bool>) -> c_int {
    if found.unwrap_or(false) { SUCCESS } else { NOT_SUCCESS }
}
