//! Open and close.

use std::ffi::{c_char, c_int, c_longlong, c_void};
use std::path::{Path, PathBuf};

use holdfast_boundary::ArgumentError;
use holdfast_boundary::c::{put, some_text};
use holdfast_formats::sion::{ByteOrder, Container, FileDistribution, KeyValue, Plan, PlanOptions, TaskPlan};

use super::{INVALID, int, success};
use crate::error::{CallError, Result};
use crate::files::{BOUNDARY, OpenFile};
use crate::mode::Mode;
use crate::reading::Reading;
use crate::stream::Stream;
use crate::writing::{Declared, Writing};

/// The largest number of tasks in a file (`docs/formats.md`, SION 7).
const MOST_TASKS: usize = 1 << 24;

/// Opens a file for all its tasks. Returns its handle, or -1.
///
/// # Safety
/// `name` and `mode` are C strings. The other pointers are null, or point to variables of the program. To write,
/// `*chunk_sizes` and `*global_ranks` are null, or arrays of `*tasks` elements; to read, they are null, or arrays with
/// an element for each task of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_open(
    name: *mut c_char,
    mode: *const c_char,
    tasks: *mut c_int,
    files: *mut c_int,
    chunk_sizes: *mut *mut c_longlong,
    block_size: *mut c_int,
    global_ranks: *mut *mut c_int,
    file_pointer: *mut *mut libc::FILE,
) -> c_int {
    let opened = BOUNDARY.call("sion_open", |open| {
        // SAFETY: the caller's promise.
        let (path, mode) = unsafe { (path(name)?, parsed(mode)?) };
        let program = Program { tasks, files, chunk_sizes, block_size, global_ranks };
        let (file, pointer) = if mode.write {
            // SAFETY: the caller's promise.
            let file = unsafe { program.create(&path, mode) }?;
            let pointer = file.stream.file_pointer();
            (OpenFile::Writing(Box::new(file)), pointer)
        } else {
            let mut file = Reading::of(container(&path, mode)?, None, mode.descriptor)?;
            // SAFETY: the caller's promise.
            unsafe { program.describe(&file) }?;
            let pointer = file.stream()?.file_pointer();
            (OpenFile::Reading(Box::new(file)), pointer)
        };
        if !file_pointer.is_null() {
            // SAFETY: not null; the rest is the caller's promise.
            unsafe { file_pointer.write(pointer) };
        }
        Ok::<_, CallError>(open.insert(file))
    });
    opened.unwrap_or(INVALID)
}

/// Opens a file to read the stream of one task. Returns its handle, or -1.
///
/// # Safety
/// `name` and `mode` are C strings. The other pointers are null, or point to variables of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sion_open_rank(
    name: *mut c_char,
    mode: *const c_char,
    chunk_size: *mut c_longlong,
    block_size: *mut c_int,
    rank: *mut c_int,
    file_pointer: *mut *mut libc::FILE,
) -> c_int {
    let opened = BOUNDARY.call("sion_open_rank", |open| {
        // SAFETY: the caller's promise.
        let (path, mode) = unsafe { (path(name)?, parsed(mode)?) };
        // SAFETY: the caller's promise.
        let rank = unsafe { rank.as_ref() }.ok_or(ArgumentError::Null("the pointer to the rank"))?;
        if mode.write {
            return Err(CallError::OpenedToWriteRank);
        }
        let container = container(&path, mode)?;
        let head = container.parts.first().map(|part| &part.header);
        if container.parts.len() == 1 && head.is_some_and(|head| head.files > 1) {
            return Err(CallError::PartOfSet(path));
        }
        let mut file = Reading::of(container, Some(i64::from(*rank)), mode.descriptor)?;
        let size = file.chunk_size()?.cast_signed();
        let alignment = file.part()?.header.block_size.cast_signed();
        let pointer = file.stream()?.file_pointer();
        // SAFETY: the caller's promise.
        unsafe {
            put(chunk_size, size, "the pointer to the chunk size")?;
            put(block_size, alignment, "the pointer to the block size")?;
        }
        if !file_pointer.is_null() {
            // SAFETY: not null; the rest is the caller's promise.
            unsafe { file_pointer.write(pointer) };
        }
        Ok(open.insert(OpenFile::Reading(Box::new(file))))
    });
    opened.unwrap_or(INVALID)
}

/// Closes a file.
#[unsafe(no_mangle)]
pub extern "C" fn sion_close(handle: c_int) -> c_int {
    success(BOUNDARY.call("sion_close", |open| {
        if open.share(handle).is_ok() {
            return Err(CallError::OpenedInParallel);
        }
        match open.take(handle)? {
            OpenFile::Reading(_) => Ok(()),
            OpenFile::Writing(file) => file.close(),
        }
    }))
}

/// # Safety
/// `name` is null or a C string.
pub(super) unsafe fn path(name: *const c_char) -> Result<PathBuf> {
    // SAFETY: the caller's promise.
    Ok(PathBuf::from(unsafe { some_text(name, "the name of the file") }?))
}

/// # Safety
/// `mode` is null or a C string.
unsafe fn parsed(mode: *const c_char) -> Result<Mode> {
    // SAFETY: the caller's promise.
    Mode::parse(&unsafe { some_text(mode, "the mode") }?)
}

/// A container that has the kind of streams that the mode names.
fn container(path: &Path, mode: Mode) -> Result<Container> {
    let container = Container::open(path)?;
    note_contrary(path, mode, container.key_value());
    Ok(container)
}

/// Reports that a file has not the kind of streams that the mode names.
pub(super) fn note_contrary(path: &Path, mode: Mode, its: KeyValue) {
    if mode.key_value.is_some_and(|wanted| wanted != its) {
        let kind = if its == KeyValue::Inline { "key-value records" } else { "plain streams" };
        BOUNDARY.note(&format!("{} has {kind}, contrary to the mode", path.display()));
    }
}

/// The program's variables that describe a file.
struct Program {
    tasks: *mut c_int,
    files: *mut c_int,
    chunk_sizes: *mut *mut c_longlong,
    block_size: *mut c_int,
    global_ranks: *mut *mut c_int,
}

impl Program {
    /// Creates the file that the variables describe.
    ///
    /// # Safety
    /// As [`sion_open`], to write.
    unsafe fn create(&self, path: &Path, mode: Mode) -> Result<Writing> {
        // SAFETY: the caller's promise.
        let (tasks, files, block_size) =
            unsafe { (self.tasks.as_ref(), self.files.as_ref(), self.block_size.as_mut()) };
        let tasks = *tasks.ok_or(ArgumentError::Null("the pointer to the number of tasks"))?;
        let files = *files.ok_or(ArgumentError::Null("the pointer to the number of files"))?;
        let block_size = block_size.ok_or(ArgumentError::Null("the pointer to the block size"))?;
        if files > 1 {
            let remedy = "the serial functions write one file; give 1";
            return Err(CallError::Number { what: "the number of files", value: files.into(), remedy });
        }
        let number = usize::try_from(tasks).ok().filter(|tasks| (1..=MOST_TASKS).contains(tasks));
        let number = number.ok_or(CallError::Number {
            what: "the number of tasks",
            value: tasks.into(),
            remedy: "give 1 to 16777216",
        })?;
        // SAFETY: the caller's promise.
        let (sizes, ranks) = unsafe {
            let sizes = array(self.chunk_sizes, number, "the array of chunk sizes")?;
            (sizes, array(self.global_ranks, number, "the array of global ranks")?)
        };
        let plans = sizes.iter().zip(ranks).map(|(size, rank)| {
            let what = "a chunk size";
            let wrong = |_| CallError::Number { what, value: *size, remedy: "give 0 or more" };
            Ok(TaskPlan { global_rank: i64::from(*rank), chunk_bytes: u64::try_from(*size).map_err(wrong)? })
        });
        let plans: Vec<TaskPlan> = plans.collect::<Result<_>>()?;
        let declared = Declared {
            key_value: mode.key_value.unwrap_or_default(),
            user_order: mode.user_order.unwrap_or(ByteOrder::native()),
            files: 1,
            number: 1,
        };
        let planned = |alignment: u32| {
            let options = PlanOptions {
                key_value: declared.key_value,
                user_order: declared.user_order,
                ..PlanOptions::new(FileDistribution::Serial, alignment, &path.to_string_lossy())
            };
            let parts = Plan::new(&plans, &options).map(|plan| plan.parts);
            parts.map_err(|source| CallError::Plan { path: path.to_owned(), source })
        };
        // Before the file is created, which would empty one of the same name.
        let asked = u32::try_from(*block_size).ok().filter(|size| *size > 0);
        let first = planned(asked.unwrap_or(1))?;
        let stream = Stream::create(path, mode.descriptor)?;
        let parts = match asked {
            Some(_) => first,
            None => planned(stream.block_size)?,
        };
        *block_size = asked.unwrap_or(stream.block_size).cast_signed();
        let stored = plans.iter().map(|plan| plan.global_rank).collect();
        let part = parts.into_iter().next().ok_or(CallError::NoMemory(0))?;
        Writing::create(path, stream, part, stored, declared)
    }

    /// Sets the variables to what the file has.
    ///
    /// # Safety
    /// As [`sion_open`], to read.
    unsafe fn describe(&self, file: &Reading) -> Result<()> {
        let container = file.container();
        let part = file.part()?;
        let (tasks, files) = (container.tasks(), part.header.files);
        let (mut sizes, mut ranks) = (Vec::with_capacity(tasks), Vec::with_capacity(tasks));
        for task in 0..tasks {
            let slot = container.slot(task)?;
            let layout = container.parts.get(slot.part).map(|part| &part.layout);
            sizes.push(layout.map_or(0, |layout| layout.chunk_size(slot.local)).cast_signed());
            // SIONlib's numbers have 64 bits in the file, and 32 here.
            #[expect(clippy::cast_possible_truncation, reason = "as SIONlib truncates them")]
            ranks.push(container.global_rank(task)? as c_int);
        }
        // SAFETY: the caller's promise.
        unsafe {
            put(self.tasks, int(tasks), "the pointer to the number of tasks")?;
            put(self.files, files.cast_signed(), "the pointer to the number of files")?;
            put(self.block_size, part.header.block_size.cast_signed(), "the pointer to the block size")?;
            fill(self.chunk_sizes, &sizes)?;
            fill(self.global_ranks, &ranks)
        }
    }
}

/// An array of the program.
///
/// # Safety
/// `at` is null, or points to a pointer that is null, or to so many elements.
unsafe fn array<'a, T>(at: *mut *mut T, elements: usize, what: &'static str) -> Result<&'a [T]> {
    // SAFETY: the caller's promise.
    let array = unsafe { at.as_ref() }.filter(|array| !array.is_null()).ok_or(ArgumentError::Null(what))?;
    // SAFETY: not null; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(*array, elements) })
}

/// Fills an array of the program, which is allocated if there is none.
///
/// # Safety
/// `at` is null, or points to a pointer that is null, or to so many elements.
unsafe fn fill<T: Copy>(at: *mut *mut T, values: &[T]) -> Result<()> {
    // SAFETY: the caller's promise.
    let Some(array) = (unsafe { at.as_mut() }) else { return Ok(()) };
    if array.is_null() {
        let bytes = size_of_val(values);
        // SAFETY: malloc can be called with any number.
        let allocated: *mut c_void = unsafe { libc::malloc(bytes.max(1)) };
        if allocated.is_null() {
            return Err(CallError::NoMemory(bytes));
        }
        *array = allocated.cast();
    }
    // SAFETY: the array has room for all values, as allocated here, or by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), *array, values.len()) };
    Ok(())
}
