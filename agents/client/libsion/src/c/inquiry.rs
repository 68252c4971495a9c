//! What a file contains, and where a task is.

use std::ffi::{c_int, c_longlong, c_void};

use holdfast_boundary::c::put;
use holdfast_formats::sion::ByteOrder;

use super::{INVALID, SUCCESS, int, success};
use crate::error::{CallError, Result};
use crate::files::{BOUNDARY, OpenFile};
use crate::tables::Locations;

/// The version whose interface and format this is: major, minor, patch level, and version of the file format.
const VERSION: [c_int; 4] = [1, 7, 2, 5];

/// A number of an open file; -1 if there is none.
fn number<T: From<c_int>>(function: &str, handle: c_int, work: impl FnOnce(&mut OpenFile) -> Result<T>) -> T {
    BOUNDARY.call(function, |open| work(open.get(handle)?)).unwrap_or(T::from(INVALID))
}

/// 1 if the program's data are declared as big-endian, 0 if not; -1 if there is no such file.
#[unsafe(no_mangle)]
pub extern "C" fn sion_get_file_endianness(handle: c_int) -> c_int {
    number("sion_get_file_endianness", handle, |file| {
        let order = match file {
            OpenFile::Reading(file) => file.part()?.header.user_order,
            OpenFile::Writing(file) => file.declared.user_order,
        };
        Ok(c_int::from(order == ByteOrder::Big))
    })
}

/// 1 if the program's data are declared in another byte order than that of this machine.
#[unsafe(no_mangle)]
pub extern "C" fn sion_endianness_swap_needed(handle: c_int) -> c_int {
    c_int::from(sion_get_file_endianness(handle) != sion_get_endianness())
}

/// 1 on a big-endian machine.
#[unsafe(no_mangle)]
pub extern "C" fn sion_get_endianness() -> c_int {
    c_int::from(ByteOrder::native() == ByteOrder::Big)
}

/// Copies elements, with their bytes reversed if `reverse` is not 0.
///
/// # Safety
/// `target` and `source` point to `count` elements of `size` bytes, at the same place or not overlapping.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_swap(
    target: *mut c_void,
    source: *mut c_void,
    size: c_int,
    count: c_int,
    reverse: c_int,
) {
    let _ = BOUNDARY.call("sion_swap", |_| {
        let wrong = |what, value: c_int| CallError::Number { what, value: value.into(), remedy: "give 0 or more" };
        let size = usize::try_from(size).map_err(|_| wrong("the size of an element", size))?;
        let count = usize::try_from(count).map_err(|_| wrong("the number of elements", count))?;
        let bytes = super::bytes_of(size, count)?;
        // SAFETY: the caller's promise.
        let to = unsafe { super::buffer(target, bytes) }?;
        if source.cast_const() != target.cast_const() {
            // SAFETY: the caller's promise.
            to.copy_from_slice(unsafe { super::given(source, bytes) }?);
        }
        if reverse != 0 && size > 0 {
            to.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        Ok::<_, CallError>(())
    });
}

/// Tables of the file, which belong to the library.
///
/// # Safety
/// The pointers are null, or point to variables of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_get_locations(
    handle: c_int,
    tasks: *mut c_int,
    blocks: *mut c_int,
    skip: *mut c_longlong,
    tail: *mut c_longlong,
    chunk_sizes: *mut *mut c_longlong,
    global_ranks: *mut *mut c_longlong,
    chunk_counts: *mut *mut c_longlong,
    chunk_bytes: *mut *mut c_longlong,
) -> c_int {
    success(BOUNDARY.call("sion_get_locations", |open| {
        open.all_tasks(handle)?;
        let mut none = Locations::default();
        let (extent, tables) = match open.get(handle)? {
            OpenFile::Reading(file) => {
                let extent = file.locate()?;
                (extent, file.locations.as_mut().unwrap_or(&mut none))
            }
            OpenFile::Writing(file) => {
                let extent = file.locate()?;
                (extent, &mut file.locations)
            }
        };
        // SAFETY: the caller's promise.
        unsafe {
            put(tasks, int(extent.tasks), "the pointer to the number of tasks")?;
            put(blocks, c_int::try_from(extent.blocks).unwrap_or(c_int::MAX), "the pointer to the number of chunks")?;
            put(skip, extent.skip.cast_signed(), "the pointer to the size of a block")?;
            put(tail, extent.tail.cast_signed(), "the pointer to the offset of the byte counts")?;
            put(chunk_sizes, tables.chunk_sizes.as_mut_ptr(), "the pointer to the chunk sizes")?;
            put(global_ranks, tables.global_ranks.as_mut_ptr(), "the pointer to the global ranks")?;
            put(chunk_counts, tables.chunk_counts.as_mut_ptr(), "the pointer to the numbers of chunks")?;
            put(chunk_bytes, tables.chunk_bytes.as_mut_ptr(), "the pointer to the byte counts")?;
        }
        Ok::<_, CallError>(())
    }))
}

/// The place of the current task.
///
/// # Safety
/// The pointers are null, or point to variables of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_get_current_location(
    handle: c_int,
    chunk: *mut c_int,
    position: *mut c_longlong,
    chunks: *mut c_int,
    chunk_bytes: *mut *mut c_longlong,
) -> c_int {
    success(BOUNDARY.call("sion_get_current_location", |open| {
        let ((at, inside, number), bytes) = match open.get(handle)? {
            OpenFile::Reading(file) => (file.current_place()?, &mut file.current_bytes),
            OpenFile::Writing(file) => (file.current_place()?, &mut file.current_bytes),
        };
        // SAFETY: the caller's promise.
        unsafe {
            put(chunk, int(at), "the pointer to the chunk")?;
            put(position, inside, "the pointer to the position")?;
            put(chunks, int(number), "the pointer to the number of chunks")?;
            put(chunk_bytes, bytes.as_mut_ptr(), "the pointer to the byte counts")?;
        }
        Ok::<_, CallError>(())
    }))
}

/// The places of all tasks.
///
/// # Safety
/// The pointers are null, or point to variables of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_get_current_locations(
    handle: c_int,
    tasks: *mut c_int,
    positions: *mut *mut c_longlong,
    chunks: *mut *mut c_longlong,
) -> c_int {
    success(BOUNDARY.call("sion_get_current_locations", |open| {
        open.all_tasks(handle)?;
        let tables = match open.get(handle)? {
            OpenFile::Reading(file) => {
                file.locate_current()?;
                &mut file.current
            }
            OpenFile::Writing(file) => {
                file.locate_current()?;
                &mut file.current
            }
        };
        // SAFETY: the caller's promise.
        unsafe {
            put(tasks, int(tables.positions.len()), "the pointer to the number of tasks")?;
            put(positions, tables.positions.as_mut_ptr(), "the pointer to the positions")?;
            put(chunks, tables.chunks.as_mut_ptr(), "the pointer to the chunks")?;
        }
        Ok::<_, CallError>(())
    }))
}

/// File and index of each task of a set of files. For a single file, `*size` is -1, and `*mapping` unchanged.
///
/// # Safety
/// The pointers are null, or point to variables of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_get_mapping(
    handle: c_int,
    size: *mut c_int,
    mapping: *mut *mut c_int,
    files: *mut c_int,
) -> c_int {
    success(BOUNDARY.call("sion_get_mapping", |open| {
        let (table, number) = match open.get(handle)? {
            OpenFile::Reading(file) => {
                let number = file.part()?.header.files.cast_signed();
                (&mut file.mapping[..], number)
            }
            OpenFile::Writing(file) => (&mut [][..], file.declared.files.cast_signed()),
        };
        let entries = if table.is_empty() { INVALID } else { int(table.len() / 2) };
        // SAFETY: the caller's promise.
        unsafe {
            put(size, entries, "the pointer to the size")?;
            put(files, number, "the pointer to the number of files")?;
            if !table.is_empty() {
                put(mapping, table.as_mut_ptr(), "the pointer to the mapping")?;
            }
        }
        Ok::<_, CallError>(())
    }))
}

/// The number of physical files; -1 if there is no such file.
#[unsafe(no_mangle)]
pub extern "C" fn sion_get_number_of_files(handle: c_int) -> c_int {
    number("sion_get_number_of_files", handle, |file| match file {
        OpenFile::Reading(file) => Ok(file.part()?.header.files.cast_signed()),
        OpenFile::Writing(file) => Ok(file.declared.files.cast_signed()),
    })
}

/// The number of the physical file: 0 for a set, 1 for a file of the serial functions; -1 if there is no such file.
#[unsafe(no_mangle)]
pub extern "C" fn sion_get_filenumber(handle: c_int) -> c_int {
    number("sion_get_filenumber", handle, |file| match file {
        OpenFile::Reading(file) if file.container().parts.len() > 1 && !file.is_of_one_rank() => Ok(0),
        OpenFile::Reading(file) => Ok(file.part()?.header.file_number.unwrap_or(0)),
        OpenFile::Writing(file) => Ok(file.declared.number),
    })
}

/// 1, 0 for a file of the parallel functions; -1 if there is no such file.
#[unsafe(no_mangle)]
pub extern "C" fn sion_is_serial_opened(handle: c_int) -> c_int {
    let opened = BOUNDARY.call("sion_is_serial_opened", |open| {
        let is_parallel = open.is_parallel(handle);
        if !is_parallel {
            open.get(handle)?;
        }
        Ok::<_, CallError>(c_int::from(!is_parallel))
    });
    opened.unwrap_or(INVALID)
}

/// The position in the physical file; -1 if there is no such file.
#[unsafe(no_mangle)]
pub extern "C" fn sion_get_position(handle: c_int) -> c_longlong {
    number("sion_get_position", handle, |file| {
        let stream = match file {
            OpenFile::Reading(file) => file.stream()?,
            OpenFile::Writing(file) => &mut file.stream,
        };
        Ok(stream.position()?.cast_signed())
    })
}

/// The bytes that the current task wrote; -1 of a file that is read.
#[unsafe(no_mangle)]
pub extern "C" fn sion_get_bytes_written(handle: c_int) -> c_longlong {
    number("sion_get_bytes_written", handle, |file| match file {
        OpenFile::Reading(_) => Ok(INVALID.into()),
        OpenFile::Writing(file) => Ok(file.bytes_written()?.cast_signed()),
    })
}

/// The bytes of the current task that were read; -1 of a file that is written.
#[unsafe(no_mangle)]
pub extern "C" fn sion_get_bytes_read(handle: c_int) -> c_longlong {
    number("sion_get_bytes_read", handle, |file| match file {
        OpenFile::Reading(file) => file.bytes_read(),
        OpenFile::Writing(_) => Ok(INVALID.into()),
    })
}

/// The `FILE` of the current task; null with `posix`.
#[unsafe(no_mangle)]
pub extern "C" fn sion_get_fp(handle: c_int) -> *mut libc::FILE {
    let mut pointer = std::ptr::null_mut();
    let _ = BOUNDARY.call("sion_get_fp", |open| {
        pointer = match open.get(handle)? {
            OpenFile::Reading(file) => file.stream()?.file_pointer(),
            OpenFile::Writing(file) => file.stream.file_pointer(),
        };
        Ok::<_, CallError>(())
    });
    pointer
}

/// The descriptor of the current task; -1 without `posix`.
#[unsafe(no_mangle)]
pub extern "C" fn sion_get_fd(handle: c_int) -> c_int {
    number("sion_get_fd", handle, |file| match file {
        OpenFile::Reading(file) => Ok(file.stream()?.descriptor()),
        OpenFile::Writing(file) => Ok(file.stream.descriptor()),
    })
}

/// The version whose interface and format this is.
///
/// # Safety
/// The pointers are null, or point to variables of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_get_version(
    major: *mut c_int,
    minor: *mut c_int,
    patch: *mut c_int,
    format: *mut c_int,
) -> c_int {
    success(BOUNDARY.call("sion_get_version", |_| {
        for (to, number) in [major, minor, patch, format].into_iter().zip(VERSION) {
            // SAFETY: the caller's promise.
            unsafe { put(to, number, "the pointer to a number") }?;
        }
        Ok::<_, CallError>(())
    }))
}

/// 1: calls of several threads are carried out one after another.
#[unsafe(no_mangle)]
pub extern "C" fn sion_is_thread_safe() -> c_int {
    SUCCESS
}
