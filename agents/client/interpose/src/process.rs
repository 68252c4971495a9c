//! Which process of a rank takes part, and how it ends.
//!
//! The variables of the environment are inherited by all processes of a rank: shells around the program, and tools that
//! it starts. The rank is the process that first calls `MPI_Init` or uses a file that matches. Its agent refuses others
//! as long as it runs; they use the files of the working directory. A process that only read files leaves at its end,
//! and another one can be the rank: a script can look at the files with any tool before it starts the program. Shells
//! are never the rank.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use holdfast_client::{Client, ClientError, Environment, FailureKind};
use holdfast_patterns::{CHECKPOINT_PATTERN, FileMatcher, FilePatterns};

use crate::files::RestartFiles;
use crate::report::report;
use crate::session::Session;

/// Programs that run others.
const SHELLS: &[&str] = &["sh", "ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "mksh", "tcsh", "zsh"];
/// Exit code of a rank that cannot join the run.
const CANNOT_JOIN: i32 = 1;

/// The expressions of this process's rank; not set if the process takes no part.
static MATCHER: OnceLock<FileMatcher> = OnceLock::new();
/// The process that joined the run; 0 before.
static RANK_PROCESS: AtomicI32 = AtomicI32::new(0);
/// Another process is the rank, or the rank has ended its run.
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// Locked during a call: calls of several threads are serialised.
static STATE: Mutex<State> = Mutex::new(State::Outside);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

enum State {
    /// The rank has not joined the run.
    Outside,
    Joined(Box<Session>),
    Over,
}

/// While it exists, functions that this thread calls are the library's own calls, or those of a signal handler that
/// interrupted them: they are not interposed.
#[derive(Debug)]
pub struct Inside(());

impl Inside {
    /// `None` if the thread is inside already.
    pub fn enter() -> Option<Inside> {
        INSIDE.with(|inside| !inside.replace(true)).then_some(Inside(()))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(false));
    }
}

/// Reads the environment. To be called before `main`.
pub fn begin() {
    let Some(inside) = Inside::enter() else { return };
    if let Some(matcher) = matcher_of_environment()
        && MATCHER.set(matcher).is_ok()
    {
        // SAFETY: the function has the required type and lasts as long as the process.
        unsafe { on_exit(at_exit, std::ptr::null_mut()) };
    }
    drop(inside);
}

/// The expressions, if this process may become the rank.
fn matcher_of_environment() -> Option<FileMatcher> {
    let text = std::env::var(CHECKPOINT_PATTERN).ok().filter(|text| !text.is_empty())?;
    let environment = Environment::from_environment().ok().filter(|environment| environment.agent.is_some())?;
    if is_shell() {
        return None;
    }
    let rank = environment.rank.0;
    let patterns = text.parse::<FilePatterns>().and_then(|patterns| patterns.matcher(rank, environment.ranks));
    match patterns {
        Ok(matcher) if !matcher.is_empty() => Some(matcher),
        Ok(_) => {
            report(format_args!("rank {rank}: {CHECKPOINT_PATTERN} has no expression for it"));
            std::process::exit(CANNOT_JOIN)
        }
        Err(error) => {
            report(format_args!("rank {rank}: {CHECKPOINT_PATTERN}: {error}"));
            std::process::exit(CANNOT_JOIN)
        }
    }
}

fn is_shell() -> bool {
    let program = std::fs::read_link("/proc/self/exe").ok();
    let name = program.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    name.is_some_and(|name| SHELLS.contains(&name))
}

/// The number of the expression that matches a name which the program uses. Neither allocates nor locks.
pub fn matches(name: &[u8]) -> Option<usize> {
    let matcher = MATCHER.get()?;
    if IS_OVER.load(Ordering::Acquire) || INSIDE.with(Cell::get) {
        return None;
    }
    let found = matcher.find(name)?;
    (is_rank_process() && std::str::from_utf8(name).is_ok()).then_some(found)
}

/// True if files of this process are those of the rank: not in a process that was forked from it.
pub fn is_rank_process() -> bool {
    let joined = RANK_PROCESS.load(Ordering::Acquire);
    // SAFETY: without conditions.
    joined == 0 || joined == unsafe { libc::getpid() }
}

/// True if calls with descriptors of checkpoint files are to be followed in this thread.
pub fn follows_descriptors() -> bool {
    !INSIDE.with(Cell::get) && is_rank_process()
}

/// Runs `work` in the session of the rank, which joins the run if it has not. `None` if this process is not the rank.
/// Ends the process if a halt condition holds.
pub fn with_session<T>(work: impl FnOnce(&mut Session) -> T) -> Option<T> {
    let inside = Inside::enter()?;
    let worked = catch_unwind(AssertUnwindSafe(|| {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Outside) {
            *state = join();
        }
        let State::Joined(session) = &mut *state else { return (None, None) };
        let mut halt = session.take_halt();
        let mut worked = None;
        if halt.is_none() {
            worked = Some(work(session));
            halt = session.take_halt();
        }
        if halt.is_some() {
            *state = over();
        }
        (worked, halt)
    }));
    drop(inside);
    match worked {
        Ok((worked, None)) => worked,
        Ok((_, Some(reason))) => {
            if !reason.is_empty() {
                report(format_args!("the run ends here: {reason}"));
            }
            std::process::exit(0)
        }
        Err(_) => {
            report(format_args!("failed inside the library: please report it"));
            None
        }
    }
}

/// Joins the run, if the process has not. To be called when MPI is initialised.
pub fn join_run() {
    if MATCHER.get().is_some() && !IS_OVER.load(Ordering::Acquire) && is_rank_process() {
        let _ = with_session(Session::take_part);
    }
}

fn over() -> State {
    IS_OVER.store(true, Ordering::Release);
    State::Over
}

/// All ranks join together.
fn join() -> State {
    let expressions = MATCHER.get().map_or(0, FileMatcher::len);
    // Now: a process that another thread forks meanwhile must not wait for the session, which it has a locked copy of.
    // SAFETY: without conditions.
    RANK_PROCESS.store(unsafe { libc::getpid() }, Ordering::Release);
    let client = match Client::builder().exit_on_halt(false).init() {
        Ok(client) => client,
        Err(ClientError::Refused { source, .. } | ClientError::Failed { source, .. })
            if source.kind == FailureKind::Duplicate =>
        {
            report(format_args!("process {} takes no part: {source}", std::process::id()));
            return over();
        }
        Err(error) => {
            report(format_args!("{error}"));
            std::process::exit(CANNOT_JOIN)
        }
    };
    let restart = client.restart();
    let files = restart
        .directory
        .clone()
        .filter(|_| restart.checkpoint.is_some())
        .map(|directory| RestartFiles { directory, names: restart.files.iter().cloned().collect() });
    State::Joined(Box::new(Session::new(client, files, expressions)))
}

/// The process ends with this code. If it is 0, the run is finished, unless the process has only read files.
pub fn end(code: c_int) {
    if MATCHER.get().is_none() || code != 0 || RANK_PROCESS.load(Ordering::Acquire) == 0 || !is_rank_process() {
        return;
    }
    let Some(inside) = Inside::enter() else { return };
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if let State::Joined(session) = std::mem::replace(&mut *state, over())
        && let Err(error) = session.end()
    {
        report(format_args!("{error}"));
    }
    drop(state);
    drop(inside);
}

extern "C" fn at_exit(code: c_int, _argument: *mut c_void) {
    let _ = catch_unwind(|| end(code));
}

unsafe extern "C" {
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}
