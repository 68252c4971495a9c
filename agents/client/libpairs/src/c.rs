//! The C functions, as declared in `include/holdfast_pairs.h`. Each documents the requirements on its pointers, which a
//! C program must guarantee.
//!
//! Safety of every `#[unsafe(no_mangle)]` here: the names are those of the Fault-tolerant Scheme, whose own library is
//! not linked beside this one, or start with `holdfast_pairs_`.

use std::ffi::{c_char, c_int, c_longlong, c_uchar, c_uint, c_ulonglong, c_void};

use holdfast_boundary::c::{put, text};
use holdfast_boundary::{ArgumentError, Boundary, Halt};

use crate::session::{Said, Session, SessionError, SessionResult};

pub const SUCCESS: c_int = 0;
pub const FAILURE: c_int = 1;
/// There is no checkpoint yet.
pub const NO_CHECKPOINT: c_int = 2;
/// The copy was told to end before it was woken.
pub const STOP: c_int = 3;

static BOUNDARY: Boundary<Session> = Boundary::new("holdfast", Session::new());

/// Makes a call that returns nothing.
fn code(function: &str, work: impl FnOnce(&mut Session) -> SessionResult<()>) -> c_int {
    if BOUNDARY.call(function, work).is_some() { SUCCESS } else { FAILURE }
}

/// Registers this process, sleeps until it is its turn, and starts the heartbeat if `beats`.
fn begin(function: &str, said: SessionResult<Said>, beats: bool) -> c_int {
    let begun = BOUNDARY.call(function, |session| {
        let awake = session.begin(&said?)?;
        if awake && beats {
            session.start_heartbeat(None)?;
        }
        Ok::<_, SessionError>(awake)
    });
    match begun {
        None => FAILURE,
        Some(true) => SUCCESS,
        Some(false) => STOP,
    }
}

/// # Safety
/// `name` is null or a C string.
unsafe fn said(pid: c_uint, name: *const c_char, index: c_int) -> SessionResult<Said> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name) }?;
    Ok(Said { pid, name, index: Some(index) })
}

/// Ends the process where it must end.
fn or_exit(code: c_int) -> c_int {
    if code == STOP {
        // Programs of the Fault-tolerant Scheme do not look at the returned value: one that went on would be awake
        // beside the other copy.
        BOUNDARY.exit(&Halt { reason: String::new(), reports: false });
    }
    code
}

/// Registers this process, sleeps until it is its turn, and starts the heartbeat. May end the process.
///
/// # Safety
/// `jobname` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_init_wait(pid: c_uint, _tid: c_uint, jobname: *const c_char, index: c_int) -> c_int {
    // SAFETY: the caller's promise.
    or_exit(begin("ft_init_wait", unsafe { said(pid, jobname, index) }, true))
}

/// Registers this process and sleeps until it is its turn. May end the process.
///
/// # Safety
/// `jobname` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tag_ft_job_begin(pid: c_uint, _tid: c_uint, jobname: *const c_char, index: c_int) -> c_int {
    // SAFETY: the caller's promise.
    or_exit(begin("tag_ft_job_begin", unsafe { said(pid, jobname, index) }, false))
}

/// Starts the thread of the heartbeat.
#[unsafe(no_mangle)]
pub extern "C" fn init_ft(index: c_int) -> c_int {
    code("init_ft", |session| session.start_heartbeat(Some(index)))
}

/// One heartbeat, of a program without the thread.
#[unsafe(no_mangle)]
pub extern "C" fn ft_hb(index: c_int) -> c_int {
    code("ft_hb", |session| session.beat(index))
}

/// There is work. The flags are `bool` in C, of which every value is accepted.
///
/// # Safety
/// `jobname` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tag_job_begin(
    pid: c_uint,
    _tid: c_uint,
    _jobname: *const c_char,
    _slack_time: c_longlong,
    _first: c_uchar,
    _shareable: c_uchar,
    _required_memory: c_ulonglong,
) -> c_int {
    code("tag_job_begin", |session| session.job_begin(pid))
}

/// The work is done.
///
/// # Safety
/// `jobname` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tag_job_end(pid: c_uint, _tid: c_uint, _jobname: *const c_char) -> c_int {
    code("tag_job_end", |session| session.job_end(pid))
}

/// Stores a number as the checkpoint of a layer.
#[unsafe(no_mangle)]
pub extern "C" fn update_checkpoint(x: c_longlong, layer: c_int) -> c_int {
    code("update_checkpoint", |session| session.update(layer.into(), &x.to_ne_bytes()).map(drop))
}

/// Reads the number and the layer of the newest checkpoint.
///
/// # Safety
/// `x` points to a `long long`; `layer` is null (not wanted) or points to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn newest_checkpoint(x: *mut c_longlong, layer: *mut c_int) -> c_int {
    found(BOUNDARY.call("newest_checkpoint", |session| {
        let Some((number, of_layer)) = session.newest_number()? else { return Ok(None) };
        // SAFETY: the caller's promise.
        unsafe { put(x, number, "the pointer to the number") }?;
        // SAFETY: as above.
        unsafe { put_wanted(layer, of_layer) };
        Ok::<_, SessionError>(Some(()))
    }))
}

/// As [`ft_init_wait`], for the place that the environment names; returns where that ends the process.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_pairs_init_wait() -> c_int {
    begin("holdfast_pairs_init_wait", Ok(Said { pid: 0, name: None, index: None }), true)
}

/// As [`ft_init_wait`], or [`tag_ft_job_begin`] if `beats` is 0; returns where they end the process.
///
/// # Safety
/// `jobname` is null or a C string; `index` is null (not compared) or points to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_pairs_wait(
    pid: c_uint,
    jobname: *const c_char,
    index: *const c_int,
    beats: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let index = (!index.is_null()).then(|| unsafe { index.read() });
    // SAFETY: as above.
    let name = unsafe { text(jobname) }.map_err(SessionError::from);
    begin("ft_init_wait", name.map(|name| Said { pid, name, index }), beats != 0)
}

/// Stores a checkpoint.
///
/// # Safety
/// `data` points to `bytes` bytes that are not changed during the call; null if there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_pairs_update(data: *const c_void, bytes: usize, tag: i64) -> c_int {
    code("holdfast_pairs_update", |session| {
        if data.is_null() && bytes > 0 {
            return Err(ArgumentError::Null("the data").into());
        }
        // No object is larger than `isize::MAX`; a slice of more would be undefined behaviour.
        session.check_size(bytes)?;
        let data = if bytes == 0 { std::ptr::NonNull::dangling().as_ptr() } else { data.cast::<u8>() };
        // SAFETY: not null, and of this size by the caller's promise, which is at most that of a checkpoint.
        session.update(tag, unsafe { std::slice::from_raw_parts(data, bytes) }).map(drop)
    })
}

/// Stores the size of the newest checkpoint.
///
/// # Safety
/// `bytes` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_pairs_newest_size(bytes: *mut usize) -> c_int {
    found(BOUNDARY.call("holdfast_pairs_newest_size", |session| {
        let Some((_, content)) = session.newest()? else { return Ok(None) };
        // SAFETY: the caller's promise.
        unsafe { put(bytes, content.len(), "the pointer to the size") }?;
        Ok::<_, SessionError>(Some(()))
    }))
}

/// Reads the newest checkpoint.
///
/// # Safety
/// `data` points to `size` bytes, or is null if `size` is 0; the others are null (not wanted) or point to their types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_pairs_newest(
    data: *mut c_void,
    size: usize,
    bytes: *mut usize,
    tag: *mut i64,
    sequence: *mut u64,
) -> c_int {
    found(BOUNDARY.call("holdfast_pairs_newest", |session| {
        let Some((checkpoint, content)) = session.newest()? else { return Ok(None) };
        // SAFETY: the caller's promise, here and below.
        unsafe { put_wanted(bytes, content.len()) };
        if content.len() > size {
            return Err(SessionError::ShortMemory { stored: content.len(), given: size });
        }
        if data.is_null() && !content.is_empty() {
            return Err(ArgumentError::Null("the memory for the checkpoint").into());
        }
        unsafe {
            if !data.is_null() {
                std::ptr::copy_nonoverlapping(content.as_ptr(), data.cast::<u8>(), content.len());
            }
            put_wanted(tag, checkpoint.tag);
            put_wanted(sequence, checkpoint.sequence);
        }
        Ok(Some(()))
    }))
}

/// Sets `flag` to 1 if this copy must end.
///
/// # Safety
/// `flag` points to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_pairs_stop_requested(flag: *mut c_int) -> c_int {
    code("holdfast_pairs_stop_requested", |session| {
        let stops = c_int::from(session.stop_requested()?);
        // SAFETY: the caller's promise.
        Ok(unsafe { put(flag, stops, "the pointer to the flag") }?)
    })
}

/// The text of the last error in this thread; not to be freed, and valid until the thread's next error.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_pairs_error() -> *const c_char {
    holdfast_boundary::last_error()
}

/// Whether errors are printed to standard error: 1 (from the beginning) or 0.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_pairs_print_errors(print: c_int) {
    BOUNDARY.print_errors(print != 0);
}

fn found(call: Option<Option<()>>) -> c_int {
    match call {
        None => FAILURE,
        Some(None) => NO_CHECKPOINT,
        Some(Some(())) => SUCCESS,
    }
}

/// Stores a value, unless the pointer is null.
///
/// # Safety
/// `to` is null or points to a `T`.
unsafe fn put_wanted<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write(value) };
    }
}
