//! Staging: a thread of the process copies files of the program from a directory on the node to any other one, while
//! the program computes.
//!
//! A file appears under its name when it is complete and on disk. The requests of a process are carried out one after
//! the other; `FTI_Finalize` waits for them. A process that is killed leaves what it has not copied.
//!
//! Safety of every `#[unsafe(no_mangle)]` here: the symbol is FTI's own, and a program links one FTI.

// The names are those of the C interface.
#![allow(non_snake_case)]

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use holdfast_boundary::ArgumentError;
use holdfast_variables_c::boundary::BOUNDARY;
use holdfast_variables_c::session::Session;

use crate::c::{FAILURE, FtiError, code};

/// The requests that have not been reported to the program, at most; as in FTI.
const MOST_REQUESTS: usize = 512 * 1024;

/// The state of a request, by FTI's numbers. There is no request: 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Pending = 1,
    Active = 2,
    Copied = 3,
    Failed = 4,
}

/// Why a file is not copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StagingError {
    #[error(
        "staging is disabled: set Enable_staging = 1 in the section [Basic] of the configuration file, and pass the \
         file to FTI_Init"
    )]
    Disabled,
    #[error("{} is not a regular file that can be read: {reason}", path.display())]
    Source { path: PathBuf, reason: String },
    #[error("{} is not a directory: create it before the call", path.display())]
    NoDirectory { path: PathBuf },
    #[error("{} exists, and is not a regular file: pass the name of a file", path.display())]
    Target { path: PathBuf },
    #[error("{0} requests were not asked for with FTI_GetStageStatus: ask for them first")]
    TooMany(usize),
    #[error("the thread that copies files cannot be started: {0}")]
    Thread(io::Error),
    #[error("the path of the directory has {length} bytes, and the buffer {room}: pass a larger one")]
    Buffer { length: usize, room: c_int },
}

/// The staging of this process; `None`: disabled.
static STAGING: Mutex<Option<Staging>> = Mutex::new(None);

#[derive(Debug)]
struct Staging {
    /// The name of files that are not complete.
    partial: String,
    /// The directory on the node, once it was asked for.
    directory: Option<PathBuf>,
    requests: Arc<Requests>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Requests {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    next: c_int,
    status: BTreeMap<c_int, Status>,
    waiting: VecDeque<Request>,
    /// No more requests follow.
    ends: bool,
}

#[derive(Debug)]
struct Request {
    id: c_int,
    from: PathBuf,
    to: PathBuf,
}

impl Requests {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request; returns its number.
    fn add(&self, from: PathBuf, to: PathBuf) -> Result<c_int, StagingError> {
        let mut state = self.state();
        let id = state.next;
        let next = id.checked_add(1).filter(|_| state.status.len() < MOST_REQUESTS);
        state.next = next.ok_or(StagingError::TooMany(state.status.len()))?;
        state.status.insert(id, Status::Pending);
        state.waiting.push_back(Request { id, from, to });
        self.changed.notify_one();
        Ok(id)
    }

    /// The next request, which is active then; `None` if no more follow.
    fn take(&self) -> Option<Request> {
        let mut state = self.state();
        loop {
            if let Some(request) = state.waiting.pop_front() {
                state.status.insert(request.id, Status::Active);
                return Some(request);
            }
            if state.ends {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The status for the program; a request that has ended is forgotten.
    fn report(&self, id: c_int) -> c_int {
        let mut state = self.state();
        let Some(status) = state.status.get(&id).copied() else { return 0 };
        if matches!(status, Status::Copied | Status::Failed) {
            state.status.remove(&id);
        }
        status as c_int
    }

    fn work(&self, partial: &str) {
        while let Some(Request { id, from, to }) = self.take() {
            let status = match copy(&from, &to, partial) {
                Ok(()) => Status::Copied,
                Err(error) => {
                    let (from, to) = (from.display(), to.display());
                    BOUNDARY.note(&format!("FTI_SendFile: {from} was not copied to {to}: {error}; send it again"));
                    Status::Failed
                }
            };
            self.state().status.insert(id, status);
        }
    }

    fn end(&self) {
        self.state().ends = true;
        self.changed.notify_one();
    }
}

/// Copies a file, which gets its name when it is on disk.
fn copy(from: &Path, to: &Path, partial: &str) -> io::Result<()> {
    let temporary = to.with_file_name(partial);
    let copied = (|| {
        let (mut source, mut target) = (File::open(from)?, File::create(&temporary)?);
        io::copy(&mut source, &mut target)?;
        target.sync_all()?;
        fs::rename(&temporary, to)
    })();
    if copied.is_err() {
        // What is left takes space only, and is overwritten by the next request to this directory.
        let _ = fs::remove_file(&temporary);
    }
    copied
}

fn staging() -> MutexGuard<'static, Option<Staging>> {
    STAGING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enables staging. `job` and `rank` distinguish the files of several processes that are not complete.
pub(crate) fn enable(job: &str, rank: u32) {
    let partial = format!(".holdfast-stage.{job}.{rank}");
    *staging() = Some(Staging { partial, directory: None, requests: Arc::default(), thread: None });
}

/// Waits for all requests, and removes the files in the directory on the node. To be called at the end of the run, and
/// not in a forked process, where the thread does not exist.
pub(crate) fn finish() {
    if BOUNDARY.forked_from().is_some() {
        return;
    }
    let Some(ended) = staging().take() else { return };
    ended.requests.end();
    // The thread has reported what failed.
    let _ = ended.thread.map(JoinHandle::join);
    // The agent removes what is left, with the cache.
    let _ = ended.directory.map(fs::remove_dir_all);
}

/// The staging of this process, if it is enabled. Only inside of a call, which a forked process cannot make.
fn enabled<T>(
    session: &mut Session,
    work: impl FnOnce(&mut Session, &mut Staging) -> Result<T, FtiError>,
) -> Result<T, FtiError> {
    session.rank_and_size()?;
    let mut staging = staging();
    work(session, staging.as_mut().ok_or(StagingError::Disabled)?)
}

/// A path passed by a C program, made absolute: the program may change its working directory.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn path(path: *const c_char, what: &'static str) -> Result<PathBuf, ArgumentError> {
    if path.is_null() {
        return Err(ArgumentError::Null(what));
    }
    // SAFETY: not null; the rest is the caller's promise.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    Ok(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
}

/// Copies the path of a directory on the node for files of this process into a buffer of `room` bytes.
///
/// # Safety
/// `directory` is null, or points to `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTI_GetStageDir(directory: *mut c_char, room: c_int) -> c_int {
    code("FTI_GetStageDir", |session| {
        enabled(session, |session, staging| {
            if directory.is_null() {
                return Err(ArgumentError::Null("the buffer for the path").into());
            }
            let path = match &staging.directory {
                Some(path) => path,
                None => staging.directory.insert(session.workspace()?),
            };
            let bytes = path.as_os_str().as_bytes();
            let length = bytes.len();
            if usize::try_from(room).is_ok_and(|room| length < room) {
                // SAFETY: the caller's promise: `length` bytes and the NUL are within the room.
                unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), directory.cast::<u8>(), length);
                    directory.add(length).write(0);
                }
                return Ok(());
            }
            Err(StagingError::Buffer { length, room }.into())
        })
    })
}

/// Has a file copied; returns the number of the request.
///
/// # Safety
/// Both paths are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTI_SendFile(local: *const c_char, remote: *const c_char) -> c_int {
    let id = BOUNDARY.call("FTI_SendFile", |session| {
        enabled(session, |_, staging| {
            // SAFETY: the caller's promise.
            let (from, to) = unsafe { (path(local, "the local path")?, path(remote, "the remote path")?) };
            check(&from, &to)?;
            if staging.thread.is_none() {
                let (requests, partial) = (Arc::clone(&staging.requests), staging.partial.clone());
                let thread = std::thread::Builder::new().name("fti-stage".to_owned());
                staging.thread = Some(thread.spawn(move || requests.work(&partial)).map_err(StagingError::Thread)?);
            }
            Ok(staging.requests.add(from, to)?)
        })
    });
    id.unwrap_or(FAILURE)
}

/// What can be known before the file is copied.
fn check(from: &Path, to: &Path) -> Result<(), StagingError> {
    let refused = |reason: String| StagingError::Source { path: from.to_owned(), reason };
    let found = fs::metadata(from).map_err(|error| refused(error.to_string()))?;
    if !found.is_file() {
        return Err(refused("it is of another type".to_owned()));
    }
    let directory = to.parent().unwrap_or(to);
    if !directory.is_dir() {
        return Err(StagingError::NoDirectory { path: directory.to_owned() });
    }
    match fs::metadata(to) {
        Ok(found) if !found.is_file() => Err(StagingError::Target { path: to.to_owned() }),
        _ => Ok(()),
    }
}

/// The status of a request. One that has ended is reported once.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_GetStageStatus(id: c_int) -> c_int {
    let status =
        BOUNDARY.call("FTI_GetStageStatus", |session| enabled(session, |_, staging| Ok(staging.requests.report(id))));
    status.unwrap_or(FAILURE)
}
