//! The functions that `sion_paropen_mapped_mpi` and `sion_parclose_mapped_mpi` of `include/sion_mpi.h` call, besides
//! those of [`super::parallel`]: a process has several tasks, in any of the physical files.

use std::ffi::{c_char, c_int, c_longlong, c_void};

use holdfast_boundary::c::{put, some_text};
use holdfast_formats::sion::{Padding, PhysicalFile, Slot, Usage};

use super::open::{note_contrary, path};
use super::parallel::{allocated, count, fill, given, index, parsed, sizes};
use super::{INVALID, int, success};
use crate::error::{CallError, Result};
use crate::files::{BOUNDARY, OpenFile};
use crate::parallel::create::Tasks;
use crate::parallel::mapped::{self, Mapped, UNUSED_MARK, ordered};
use crate::parallel::{Task, read};

/// The program's functions, in reports.
const OPEN: &str = "sion_paropen";
const CLOSE: &str = "sion_parclose_mapped_mpi";

/// Begins to open a file. Returns its handle.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_sion_mapped(communicators: *mut c_void) -> c_int {
    let opened = BOUNDARY
        .call(OPEN, |open| Ok::<_, CallError>(open.insert_mapped(Mapped::new(communicators.expose_provenance()))));
    opened.unwrap_or(INVALID)
}

/// The program's communicators of an open file; null if it is not one of the mapped functions.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_sion_mapped_communicators(handle: c_int) -> *mut c_void {
    let found = BOUNDARY.call(CLOSE, |open| Ok::<_, CallError>(open.mapped(handle)?.communicators));
    found.map_or(std::ptr::null_mut(), std::ptr::with_exposed_provenance_mut)
}

/// Plans a physical file that was joined, as its first task, and sets its tasks, in the order of `entries`: index in
/// the file, global rank and chunk size of each. `mapping`: global rank, file and index of each of the `mapped` tasks
/// of the set, in the first file; otherwise null.
///
/// # Safety
/// `name` is null or a C string. `set` is null, or an array of 3 elements; `entries` one of three times `tasks`, and
/// `to` one of `tasks`; `mapping` is null, or an array of three times `mapped`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_mapped_plan(
    joined: c_int,
    name: *const c_char,
    set: *const c_int,
    tasks: c_int,
    entries: *const c_longlong,
    mapping: *const c_int,
    mapped: c_int,
    to: *mut Task,
) -> c_int {
    success(BOUNDARY.call(OPEN, |open| {
        let tasks = index(tasks, "the number of tasks")?;
        // SAFETY: the caller's promise.
        let (name, entries, set) = unsafe {
            (
                some_text(name, "the name of the file")?,
                given(entries, 3 * tasks, "the array of tasks")?.as_chunks::<3>().0,
                given(set, 3, "the array of the set")?,
            )
        };
        let &[files, file, block_size] = set else { return Err(CallError::NoPlan) };
        let file = count(file, "the number of the file")?;
        let in_order = ordered(entries.iter().map(|[index, rank, size]| (*index, (*rank, *size))));
        let in_order = in_order.map_err(|index| CallError::TaskNumbers { file, index, tasks })?;
        let (ranks, requested): (Vec<_>, Vec<_>) = in_order.into_iter().unzip();
        let mapping = if mapping.is_null() {
            None
        } else {
            let mapped = index(mapped, "the number of tasks")?;
            // SAFETY: the caller's promise.
            Some(slots(unsafe { given(mapping, 3 * mapped, "the mapping") }?.as_chunks::<3>().0)?)
        };
        let planned = open.joined(joined)?.plan(Tasks {
            name: &name,
            files: count(files, "the number of files")?,
            number: file,
            block_size: count(block_size, "the block size")?,
            sizes: sizes(&requested)?,
            global_ranks: &ranks,
            padding: Padding::Each,
            mapping,
            unused_mark: UNUSED_MARK,
        })?;
        let of_entry =
            |[index, ..]: &[c_longlong; 3]| usize::try_from(*index).ok().and_then(|index| planned.get(index));
        let planned: Vec<Task> = entries.iter().filter_map(of_entry).copied().collect();
        // SAFETY: the caller's promise.
        unsafe { fill(to, &planned, "the array of tasks") }
    }))
}

/// The places of all tasks, from the global rank, file and index of each.
fn slots(mapping: &[[c_int; 3]]) -> Result<Vec<Slot>> {
    let tasks = mapping.len();
    let in_order = ordered(mapping.iter().map(|[rank, file, local]| (i64::from(*rank), (*file, *local))));
    let in_order = in_order.map_err(|rank| CallError::GlobalRanks { rank, tasks })?;
    let slot = |(file, local)| Ok(Slot { part: index(file, "a file")?, local: index(local, "a task")? });
    in_order.into_iter().map(slot).collect()
}

/// Begins to write the tasks of this process in a physical file that was joined.
///
/// # Safety
/// `own` is null, or an array of `tasks` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_mapped_begin(
    handle: c_int,
    joined: c_int,
    number: c_int,
    own: *const Task,
    tasks: c_int,
) -> c_int {
    success(BOUNDARY.call(OPEN, |open| {
        let number = count(number, "the number of the file")?;
        // SAFETY: the caller's promise.
        let own = unsafe { given(own, index(tasks, "the number of tasks")?, "the array of tasks") }?;
        let joined = open.leave(joined).ok_or(CallError::Handle(joined))?;
        let file = OpenFile::Writing(Box::new(joined.begin(own)?));
        open.mapped(handle)?.add(number, own.iter().map(|task| task.global_rank), file)
    }))
}

/// Finds a set, as one process: sets the numbers of its files and tasks, and the global ranks of the tasks, in an array
/// that is allocated.
///
/// # Safety
/// `name` is null or a C string; the others are null, or point to variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_mapped_find(
    name: *const c_char,
    files: *mut c_int,
    tasks: *mut c_int,
    ranks: *mut *mut c_longlong,
) -> c_int {
    success(BOUNDARY.call(OPEN, |_| {
        // SAFETY: the caller's promise.
        let (found, stored) = mapped::find(&unsafe { path(name) }?)?;
        // SAFETY: the caller's promise.
        unsafe {
            put(files, found.cast_signed(), "the pointer to the number of files")?;
            put(tasks, int(stored.len()), "the pointer to the number of tasks")?;
            put(ranks, allocated(&stored)?, "the pointer to the ranks")?;
        }
        Ok::<_, CallError>(())
    }))
}

/// Finds the tasks with these global ranks, as one process: sets file and index of each.
///
/// # Safety
/// `name` is null or a C string; `ranks` is null, or an array of `tasks` elements; `places` one of twice as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_mapped_places(
    name: *const c_char,
    tasks: c_int,
    ranks: *const c_int,
    places: *mut c_int,
) -> c_int {
    success(BOUNDARY.call(OPEN, |_| {
        // SAFETY: the caller's promise.
        let (path, ranks) = unsafe { (path(name)?, given(ranks, index(tasks, "the number of tasks")?, "the ranks")?) };
        let found = mapped::places(&path, ranks)?;
        let pairs: Vec<c_int> = found.iter().flat_map(|slot| [int(slot.part), int(slot.local)]).collect();
        // SAFETY: the caller's promise.
        unsafe { fill(places, &pairs, "the array of places") }
    }))
}

/// Reads the tables of a physical file, as one process: sets the tasks with these indexes and global ranks, and the
/// bytes in each of their chunks, task after task, in an array that is allocated.
///
/// # Safety
/// `name` and `mode` are null or C strings. `wanted` is null, or an array of twice `tasks` elements; `to` one of
/// `tasks`; `bytes` is null, or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_mapped_part(
    name: *const c_char,
    mode: *const c_char,
    number: c_int,
    files: c_int,
    tasks: c_int,
    wanted: *const c_int,
    to: *mut Task,
    bytes: *mut *mut c_longlong,
) -> c_int {
    success(BOUNDARY.call(OPEN, |_| {
        let tasks = index(tasks, "the number of tasks")?;
        // SAFETY: the caller's promise.
        let (path, mode, wanted) = unsafe {
            (path(name)?, parsed(mode)?, given(wanted, 2 * tasks, "the array of wanted tasks")?.as_chunks::<2>().0)
        };
        let (number, files) = (count(number, "the number of the file")?, count(files, "the number of files")?);
        let part: PhysicalFile = mapped::part(&path, number, files, wanted)?;
        note_contrary(&part.path, mode.mode, part.header.key_value);
        let locals = || wanted.iter().map(|[local, _]| usize::try_from(*local).unwrap_or(usize::MAX));
        let stored: Vec<Task> = locals().map(|local| Task::stored(&part, local)).collect();
        let counts: Vec<c_longlong> =
            locals().flat_map(|local| part.table.chunk_bytes(local).map(u64::cast_signed)).collect();
        // SAFETY: the caller's promise.
        unsafe {
            put(bytes, allocated(&counts)?, "the pointer to the byte counts")?;
            fill(to, &stored, "the array of tasks")
        }
    }))
}

/// Opens the tasks of this process in a physical file to read, with these bytes in each of their chunks, task after
/// task.
///
/// # Safety
/// `name` and `mode` are null or C strings. `own` is null, or an array of `tasks` elements; `bytes` is null, or an
/// array with the number of chunks of all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_mapped_read(
    handle: c_int,
    name: *const c_char,
    mode: *const c_char,
    number: c_int,
    own: *const Task,
    tasks: c_int,
    bytes: *const c_longlong,
) -> c_int {
    success(BOUNDARY.call(OPEN, |open| {
        let number = count(number, "the number of the file")?;
        // SAFETY: the caller's promise.
        let (path, mode, own) = unsafe {
            (path(name)?, parsed(mode)?, given(own, index(tasks, "the number of tasks")?, "the array of tasks")?)
        };
        let chunks = own.iter().map(|task| usize::try_from(task.chunks).unwrap_or(0)).sum();
        // SAFETY: the caller's promise.
        let bytes = unsafe { given(bytes, chunks, "the byte counts") }?;
        let file = OpenFile::Reading(Box::new(read::own(&path, number, mode, own, bytes)?));
        open.mapped(handle)?.add(number, own.iter().map(|task| task.global_rank), file)
    }))
}

/// Sets the `FILE` of the first task of this process; null if it has none, and with `posix`.
///
/// # Safety
/// `file_pointer` is null, or points to a variable of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_mapped_file(handle: c_int, file_pointer: *mut *mut libc::FILE) {
    let _ = BOUNDARY.call(OPEN, |open| {
        let pointer = match open.mapped(handle)?.current() {
            Ok(OpenFile::Reading(file)) => file.stream()?.file_pointer(),
            Ok(OpenFile::Writing(file)) => file.stream.file_pointer(),
            Err(_) => std::ptr::null_mut(),
        };
        if !file_pointer.is_null() {
            // SAFETY: not null; the rest is the caller's promise.
            unsafe { file_pointer.write(pointer) };
        }
        Ok::<_, CallError>(())
    });
}

/// What this process wrote to a physical file, in an array that is allocated: for each of its tasks the index, the
/// number of chunks, and the bytes of each chunk. Returns the number of elements; -1 if it wrote beyond a chunk.
///
/// # Safety
/// `to` is null, or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_mapped_report(handle: c_int, number: c_int, to: *mut *mut c_longlong) -> c_int {
    let length = BOUNDARY.call(CLOSE, |open| {
        let report = open.mapped(handle)?.report(count(number, "the number of the file")?)?;
        let length = c_int::try_from(report.len()).map_err(|_| CallError::LargeTable(report.len() as u64))?;
        // SAFETY: the caller's promise.
        unsafe { put(to, allocated(&report)?, "the pointer to the report") }?;
        Ok::<_, CallError>(length)
    });
    length.unwrap_or(INVALID)
}

/// Closes a physical file of this process, if it has one with this number. The process with its first task completes
/// it: `report` are the reports of all processes, one after another. Otherwise it is null.
///
/// # Safety
/// `report` is null, or an array of `length` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_mapped_close(
    handle: c_int,
    number: c_int,
    report: *const c_longlong,
    length: c_longlong,
) -> c_int {
    success(BOUNDARY.call(CLOSE, |open| {
        let number = count(number, "the number of the file")?;
        let Some(OpenFile::Writing(file)) = open.mapped(handle)?.take(number) else { return Ok(()) };
        if report.is_null() {
            return file.finish(&[]);
        }
        // SAFETY: the caller's promise.
        let report = unsafe { given(report, usize::try_from(length).unwrap_or(0), "the reports") }?;
        let entries = entries(report);
        let tasks = entries.len();
        let usages = ordered(entries.into_iter());
        file.finish(&usages.map_err(|index| CallError::TaskNumbers { file: number, index, tasks })?)
    }))
}

/// The index of each task in reports, and the bytes of its chunks.
fn entries(mut report: &[c_longlong]) -> Vec<(c_longlong, Usage)> {
    let mut entries = Vec::new();
    while let [index, chunks, rest @ ..] = report {
        let (own, others) = rest.split_at(usize::try_from(*chunks).unwrap_or(0).min(rest.len()));
        entries.push((*index, own.iter().map(|bytes| bytes.cast_unsigned()).collect()));
        report = others;
    }
    entries
}

/// Ends the use of a handle. With `give_up`, of a file that could not be opened: the physical files that this process
/// would complete are removed.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_sion_mapped_end(handle: c_int, give_up: c_int) {
    let _ = BOUNDARY.call(CLOSE, |open| {
        let mapped = open.take_mapped(handle)?;
        if give_up != 0 {
            mapped.give_up();
        }
        Ok::<_, CallError>(())
    });
}
