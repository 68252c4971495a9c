//! The functions that `include/sion_mpi.h` calls. They make no MPI calls: the header gathers and distributes the
//! structures. Each returns 1 or a handle, and 0 or -1 after an error. Those for several tasks of a process are in
//! [`super::mapped`].

use std::ffi::{c_char, c_int, c_longlong, c_ulonglong, c_void};

use holdfast_boundary::ArgumentError;
use holdfast_boundary::c::{put, some_text};
use holdfast_formats::sion::{Slot, Usage};

use super::open::{note_contrary, path};
use super::{INVALID, success};
use crate::error::{CallError, Result};
use crate::files::{BOUNDARY, OpenFile};
use crate::mode::ParallelMode;
use crate::parallel::create::{Tasks, create, resize};
use crate::parallel::{Joined, Share, Task, read};
use crate::reading::Reading;

/// The program's function, in reports.
const OPEN: &str = "sion_paropen";
const CLOSE: &str = "sion_parclose_mpi";
const RESIZE: &str = "sion_parreinit_mpi";

/// The number of a physical file, of files, or of tasks.
pub(super) fn count(value: c_int, what: &'static str) -> Result<u32> {
    let wrong = |_| CallError::Number { what, value: value.into(), remedy: "give 0 or more" };
    u32::try_from(value).map_err(wrong)
}

pub(super) fn index(value: c_int, what: &'static str) -> Result<usize> {
    count(value, what).map(|value| value as usize)
}

/// # Safety
/// `mode` is null or a C string.
pub(super) unsafe fn parsed(mode: *const c_char) -> Result<ParallelMode> {
    // SAFETY: the caller's promise.
    ParallelMode::parse(&unsafe { some_text(mode, "the mode") }?)
}

/// An array of the program to read.
///
/// # Safety
/// `at` is null, or points to so many elements that are not changed during the call.
pub(super) unsafe fn given<'a, T>(at: *const T, elements: usize, what: &'static str) -> Result<&'a [T]> {
    if at.is_null() {
        return Err(ArgumentError::Null(what).into());
    }
    // SAFETY: not null; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(at, elements) })
}

/// Fills an array of the program.
///
/// # Safety
/// `to` is null, or points to at least as many elements as there are values.
pub(super) unsafe fn fill<T: Copy>(to: *mut T, values: &[T], what: &'static str) -> Result<()> {
    if to.is_null() {
        return Err(ArgumentError::Null(what).into());
    }
    // SAFETY: not null; the rest is the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len()) };
    Ok(())
}

/// A copy that the program frees.
///
/// # Errors
/// There is no memory.
pub(super) fn allocated(values: &[c_longlong]) -> Result<*mut c_longlong> {
    let size = size_of_val(values);
    // SAFETY: malloc can be called with any number.
    let allocated: *mut c_longlong = unsafe { libc::malloc(size.max(1)) }.cast();
    if allocated.is_null() {
        return Err(CallError::NoMemory(size));
    }
    // SAFETY: allocated above with room for all values.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), allocated, values.len()) };
    Ok(allocated)
}

pub(super) fn sizes(requested: &[c_longlong]) -> Result<Vec<u64>> {
    let wrong = |size| CallError::Number { what: "a chunk size", value: size, remedy: "give 0 or more" };
    requested.iter().map(|size| u64::try_from(*size).map_err(|_| wrong(*size))).collect()
}

/// 1 if the mode writes, 0 if it reads; -1 if it is refused.
///
/// # Safety
/// `mode` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_mode(mode: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let parsed = BOUNDARY.call(OPEN, |_| unsafe { parsed(mode) });
    parsed.map_or(INVALID, |parsed| c_int::from(parsed.mode.write))
}

/// Creates the physical file with this number, with a mark. `*block_size`: 0 or less is replaced by that of the file
/// system.
///
/// # Safety
/// `name` is null or a C string; the others are null, or point to variables of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_create(
    name: *const c_char,
    number: c_int,
    block_size: *mut c_int,
    mark: *mut c_ulonglong,
) -> c_int {
    success(BOUNDARY.call(OPEN, |_| {
        // SAFETY: the caller's promise.
        let (path, asked) = unsafe { (path(name)?, block_size.as_mut()) };
        let asked = asked.ok_or(ArgumentError::Null("the pointer to the block size"))?;
        let (made, size) = create(&path, count(number, "the number of the file")?)?;
        if *asked <= 0 {
            *asked = size.cast_signed();
        }
        // SAFETY: the caller's promise.
        unsafe { put(mark, made, "the pointer to the mark") }?;
        Ok::<_, CallError>(())
    }))
}

/// Joins the other tasks of a file that was created with this mark. Returns a handle for the functions below.
///
/// # Safety
/// `name` and `mode` are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_join(
    name: *const c_char,
    mode: *const c_char,
    number: c_int,
    mark: c_ulonglong,
    local_rank: c_int,
) -> c_int {
    let joined = BOUNDARY.call(OPEN, |open| {
        // SAFETY: the caller's promise.
        let (path, mode) = unsafe { (path(name)?, parsed(mode)?) };
        let joined = Joined::new(&path, count(number, "the number of the file")?, mark, mode, local_rank == 0)?;
        Ok::<_, CallError>(open.join(joined))
    });
    joined.unwrap_or(INVALID)
}

/// Plans a file as its first task, and sets its tasks. `mapping`: file and index of each of `mapped` processes, in the
/// first of several files; otherwise null.
///
/// # Safety
/// `name` is null or a C string. `requested`, `ranks` and `to` are null, or arrays of `tasks` elements; `mapping` is
/// null, or an array of twice `mapped`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_plan(
    handle: c_int,
    name: *const c_char,
    set: *const c_int,
    tasks: c_int,
    requested: *const c_longlong,
    ranks: *const c_longlong,
    mapping: *const c_int,
    mapped: c_int,
    to: *mut Task,
) -> c_int {
    success(BOUNDARY.call(OPEN, |open| {
        let number = index(tasks, "the number of tasks")?;
        // SAFETY: the caller's promise.
        let (name, requested, global_ranks, set) = unsafe {
            (
                some_text(name, "the name of the file")?,
                given(requested, number, "the array of chunk sizes")?,
                given(ranks, number, "the array of ranks")?,
                given(set, 3, "the array of the set")?,
            )
        };
        let &[files, file, block_size] = set else { return Err(CallError::NoPlan) };
        let mapping = if mapping.is_null() {
            None
        } else {
            // SAFETY: the caller's promise.
            let pairs = unsafe { given(mapping, 2 * index(mapped, "the number of processes")?, "the mapping") }?;
            let slots = pairs
                .as_chunks::<2>()
                .0
                .iter()
                .map(|[file, local]| Ok(Slot { part: index(*file, "a file")?, local: index(*local, "a task")? }));
            Some(slots.collect::<Result<_>>()?)
        };
        let joined = open.joined(handle)?;
        let planned = joined.plan(Tasks {
            name: &name,
            files: count(files, "the number of files")?,
            number: count(file, "the number of the file")?,
            block_size: count(block_size, "the block size")?,
            sizes: sizes(requested)?,
            global_ranks,
            padding: joined.mode().padding,
            mapping,
            unused_mark: 0,
        })?;
        // SAFETY: the caller's promise.
        unsafe { fill(to, &planned, "the array of tasks") }
    }))
}

/// Begins to write a task of a file that was joined: the handle is that of an open file now. `communicators` is what
/// [`holdfast_sion_communicators`] returns.
///
/// # Safety
/// `task` is null, or points to a task; `file_pointer` is null, or points to a variable of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_begin(
    handle: c_int,
    task: *const Task,
    communicators: *mut c_void,
    file_pointer: *mut *mut libc::FILE,
) -> c_int {
    success(BOUNDARY.call(OPEN, |open| {
        // SAFETY: the caller's promise.
        let task = unsafe { task.as_ref() }.ok_or(ArgumentError::Null("the pointer to the task"))?;
        let joined = open.leave(handle).ok_or(CallError::Handle(handle))?;
        let padding = joined.mode().padding;
        let file = joined.begin(std::slice::from_ref(task))?;
        if !file_pointer.is_null() {
            // SAFETY: not null; the rest is the caller's promise.
            unsafe { file_pointer.write(file.stream.file_pointer()) };
        }
        let share = Share { local_rank: task.local_rank, communicators: communicators.expose_provenance(), padding };
        open.share_as(Some(handle), OpenFile::Writing(Box::new(file)), share);
        Ok::<_, CallError>(())
    }))
}

/// Gives up a file that was joined, or closes one that was opened, without completing it.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_sion_discard(handle: c_int) {
    let _ = BOUNDARY.call(OPEN, |open| {
        if let Some(joined) = open.leave(handle) {
            joined.give_up();
            return Ok(());
        }
        open.take(handle).map(drop)
    });
}

/// The program's communicators of an open file; null if the parallel functions did not open it. `function` is reported.
///
/// # Safety
/// `function` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_communicators(handle: c_int, function: *const c_char) -> *mut c_void {
    // SAFETY: the caller's promise.
    let function = unsafe { some_text(function, "the function") }.unwrap_or_default();
    let found = BOUNDARY.call(&function, |open| Ok::<_, CallError>(open.share(handle)?.communicators));
    found.map_or(std::ptr::null_mut(), std::ptr::with_exposed_provenance_mut)
}

/// 1 for a file that is written, 0 for one that is read; -1 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_sion_is_written(handle: c_int) -> c_int {
    let written = BOUNDARY.call(CLOSE, |open| Ok::<_, CallError>(matches!(open.get(handle)?, OpenFile::Writing(_))));
    written.map_or(INVALID, c_int::from)
}

/// The number of chunks that this process wrote; -1 if it wrote beyond a chunk.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_sion_chunks(handle: c_int) -> c_int {
    let chunks = BOUNDARY.call(CLOSE, |open| {
        let (_, _, chunks) = open.writing(handle)?.current_place()?;
        c_int::try_from(chunks).map_err(|_| CallError::LargeTable(chunks as u64))
    });
    chunks.unwrap_or(INVALID)
}

/// Sets the bytes of each of them.
///
/// # Safety
/// `to` is null, or an array of as many elements as [`holdfast_sion_chunks`] returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_chunk_bytes(handle: c_int, to: *mut c_longlong) -> c_int {
    success(BOUNDARY.call(CLOSE, |open| {
        // SAFETY: the caller's promise.
        unsafe { fill(to, &open.writing(handle)?.current_bytes, "the array of byte counts") }
    }))
}

/// Closes the file of this process. The first task of a file that was written completes it: `chunks` are the numbers of
/// chunks of its tasks, `bytes` the bytes in each of them, task after task. Otherwise these are null.
///
/// # Safety
/// `chunks` is null, or an array of `tasks` elements; `bytes` has as many as these in sum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_close(
    handle: c_int,
    tasks: c_int,
    chunks: *const c_int,
    bytes: *const c_longlong,
) -> c_int {
    success(BOUNDARY.call(CLOSE, |open| {
        let OpenFile::Writing(file) = open.take(handle)? else { return Ok(()) };
        if chunks.is_null() {
            return file.finish(&[]);
        }
        // SAFETY: the caller's promise.
        let chunks = unsafe { given(chunks, index(tasks, "the number of tasks")?, "the numbers of chunks") }?;
        let numbers = chunks.iter().map(|chunks| index(*chunks, "the number of chunks")).collect::<Result<Vec<_>>>()?;
        // SAFETY: the caller's promise.
        let mut left = unsafe { given(bytes, numbers.iter().sum(), "the byte counts") }?;
        let usages = numbers.into_iter().map(|chunks| {
            let (own, others) = left.split_at(chunks);
            left = others;
            own.iter().map(|bytes| bytes.cast_unsigned()).collect::<Usage>()
        });
        let usages: Vec<Usage> = usages.collect();
        file.finish(&usages)
    }))
}

/// 1 if nothing was written to the file by this process, so that its chunks can get another size.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_sion_is_untouched(handle: c_int) -> c_int {
    success(BOUNDARY.call(RESIZE, |open| match open.writing(handle)?.bytes_written()? {
        0 => Ok(()),
        _ => Err(CallError::WrittenAlready),
    }))
}

/// Plans the file anew with these chunk sizes, as its first task, and sets its tasks.
///
/// # Safety
/// `requested`, `ranks` and `to` are null, or arrays of `tasks` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_resize(
    handle: c_int,
    tasks: c_int,
    requested: *const c_longlong,
    ranks: *const c_longlong,
    to: *mut Task,
) -> c_int {
    success(BOUNDARY.call(RESIZE, |open| {
        let number = index(tasks, "the number of tasks")?;
        // SAFETY: the caller's promise.
        let (requested, ranks) = unsafe {
            let requested = given(requested, number, "the array of chunk sizes")?;
            (requested, given(ranks, number, "the array of ranks")?)
        };
        let padding = open.share(handle)?.padding;
        let planned = resize(open.writing(handle)?, &sizes(requested)?, padding, ranks)?;
        // SAFETY: the caller's promise.
        unsafe { fill(to, &planned, "the array of tasks") }
    }))
}

/// Moves this process to the chunks of a file that was planned anew.
///
/// # Safety
/// `task` is null, or points to a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_move(handle: c_int, task: *const Task) -> c_int {
    success(BOUNDARY.call(RESIZE, |open| {
        // SAFETY: the caller's promise.
        let task = unsafe { task.as_ref() }.ok_or(ArgumentError::Null("the pointer to the task"))?;
        open.writing(handle)?.move_to(Task::layout(std::slice::from_ref(task)))
    }))
}

/// Finds the tasks of so many processes, as the first of them: sets the number of files, and file and index of each.
///
/// # Safety
/// `name` is null or a C string; `files` is null, or points to a variable; `places` is null, or an array of twice
/// `processes` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_places(
    name: *const c_char,
    processes: c_int,
    files: *mut c_int,
    places: *mut c_int,
) -> c_int {
    success(BOUNDARY.call(OPEN, |_| {
        // SAFETY: the caller's promise.
        let path = unsafe { path(name) }?;
        let found = read::places(&path, index(processes, "the number of processes")?)?;
        let pairs: Vec<c_int> =
            found.slots.iter().flat_map(|slot| [super::int(slot.part), super::int(slot.local)]).collect();
        // SAFETY: the caller's promise.
        unsafe {
            put(files, found.files.cast_signed(), "the pointer to the number of files")?;
            fill(places, &pairs, "the array of places")
        }
    }))
}

/// Reads the tables of a physical file, as its first task: sets its tasks, which are those of processes with these
/// ranks, and the bytes in each of their chunks, task after task, in an array that is allocated.
///
/// # Safety
/// `name` and `mode` are null or C strings. `ranks` and `to` are null, or arrays of `tasks` elements; `bytes` is null,
/// or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_part(
    name: *const c_char,
    mode: *const c_char,
    number: c_int,
    files: c_int,
    tasks: c_int,
    ranks: *const c_int,
    to: *mut Task,
    bytes: *mut *mut c_longlong,
) -> c_int {
    success(BOUNDARY.call(OPEN, |_| {
        let tasks = index(tasks, "the number of tasks")?;
        // SAFETY: the caller's promise.
        let (path, mode, ranks) = unsafe { (path(name)?, parsed(mode)?, given(ranks, tasks, "the array of ranks")?) };
        let (number, files) = (count(number, "the number of the file")?, count(files, "the number of files")?);
        let part = read::part(&path, number, files, ranks)?;
        note_contrary(&part.path, mode.mode, part.header.key_value);
        let stored: Vec<Task> = (0..tasks).map(|local| Task::stored(&part, local)).collect();
        let counts = (0..tasks).flat_map(|local| part.table.chunk_bytes(local).map(u64::cast_signed));
        // SAFETY: the caller's promise.
        unsafe {
            put(bytes, allocated(&counts.collect::<Vec<_>>())?, "the pointer to the byte counts")?;
            fill(to, &stored, "the array of tasks")
        }
    }))
}

/// Opens the task of this process to read, with these bytes in each of its chunks. Returns the handle.
///
/// # Safety
/// `name` and `mode` are null or C strings. `task` is null, or points to a task; `bytes` is null, or an array with its
/// number of chunks; `file_pointer` is null, or points to a variable of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sion_read(
    name: *const c_char,
    mode: *const c_char,
    number: c_int,
    task: *const Task,
    bytes: *const c_longlong,
    communicators: *mut c_void,
    file_pointer: *mut *mut libc::FILE,
) -> c_int {
    let opened = BOUNDARY.call(OPEN, |open| {
        // SAFETY: the caller's promise.
        let (path, mode, task) = unsafe { (path(name)?, parsed(mode)?, task.as_ref()) };
        let task = task.ok_or(ArgumentError::Null("the pointer to the task"))?;
        let chunks = usize::try_from(task.chunks).unwrap_or(0);
        // SAFETY: the caller's promise.
        let bytes = unsafe { given(bytes, chunks, "the byte counts") }?;
        let number = count(number, "the number of the file")?;
        let mut file: Reading = read::own(&path, number, mode, std::slice::from_ref(task), bytes)?;
        let pointer = file.stream()?.file_pointer();
        if !file_pointer.is_null() {
            // SAFETY: not null; the rest is the caller's promise.
            unsafe { file_pointer.write(pointer) };
        }
        let share = Share {
            local_rank: task.local_rank,
            communicators: communicators.expose_provenance(),
            padding: mode.padding,
        };
        Ok::<_, CallError>(open.share_as(None, OpenFile::Reading(Box::new(file)), share))
    });
    opened.unwrap_or(INVALID)
}
