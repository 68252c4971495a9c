//! Crash tests: file work that is interrupted at every call, by a kill, by a loss of power, and by an error.
//!
//! The work is done once, and what its calls change is [recorded](crate::calls::recording). Each state that a kill or a
//! loss of power can leave is then made again and given to the work, as after a restart of the program. The errors are
//! those of full disks, quotas, broken disks, and exhausted descriptors; writes are short, and calls are interrupted.
//!
//! With `HOLDFAST_CRASH=all` more of the changes before a loss of power are lost in every combination.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::calls::recording::{self, Loss};
use crate::calls::{self, Call};
use crate::temporary;

/// The errors of exhausted descriptors and memory.
pub const WITHOUT_DESCRIPTORS: &[Errno] = &[Errno::MFILE, Errno::NFILE, Errno::NOMEM];
/// The errors of full disks, quotas and exhausted descriptors. A later try succeeds.
pub const EXHAUSTED: &[Errno] = &[Errno::NOSPC, Errno::DQUOT, Errno::MFILE];
/// As [`EXHAUSTED`], and those of broken disks.
pub const ALL_ERRORS: &[Errno] = &[Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::MFILE];
/// Of so many changes before a loss of power, any can be lost: the default, and with `HOLDFAST_CRASH=all`.
const LAST: [usize; 2] = [2, 6];

/// File work below a directory, which does not exist before [`Subject::prepare`].
pub struct Subject<'a> {
    /// For the line that is printed.
    pub name: &'a str,
    /// Makes the directory, and what is there before the work.
    pub prepare: &'a dyn Fn(&Path),
    /// The work. Done again after an interruption, it completes what is missing.
    pub work: &'a dyn Fn(&Path) -> Result<(), String>,
    /// What must be true after every interruption; the error is what is not.
    pub check: &'a dyn Fn(&Path) -> Result<(), String>,
    /// What is there after the work; the same with and without interruptions.
    pub result: &'a dyn Fn(&Path) -> String,
    /// Whether the result must survive a loss of power, or kills only.
    pub power: bool,
    /// The errors that calls return, each one once.
    pub errors: &'a [Errno],
}

/// True if a call of this kind can return the error.
fn applies(errno: Errno, call: Call) -> bool {
    match errno {
        Errno::NOSPC | Errno::DQUOT => call.changes() && !matches!(call, Call::Remove | Call::ChangeMode),
        Errno::MFILE | Errno::NFILE => matches!(call, Call::Open | Call::Create | Call::List),
        _ => true,
    }
}

/// What one test has tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// States after a kill.
    pub kills: usize,
    /// States after a loss of power.
    pub losses: usize,
    /// Calls that failed.
    pub errors: usize,
}

#[allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "for tests")]
impl Subject<'_> {
    /// Interrupts the work in every way, and prints how many there were.
    ///
    /// # Panics
    /// When anything is lost.
    pub fn interrupt(&self) -> Tried {
        self.tried(true)
    }

    /// As [`Subject::interrupt`], without the errors.
    ///
    /// # Panics
    /// When anything is lost.
    pub fn kill(&self) -> Tried {
        self.tried(false)
    }

    fn tried(&self, with_errors: bool) -> Tried {
        let scratch = tempdir();
        let path = scratch.0.join("state");
        (self.prepare)(&path);
        let (done, recorded) = recording::record(&path, || (self.work)(&path));
        let name = self.name;
        done.unwrap_or_else(|error| panic!("{name}: the undisturbed work failed: {error}"));
        self.check(&path, "undisturbed");
        let expected = (self.result)(&path);
        let begin = |loss: &Loss| {
            fs::remove_dir_all(&path).unwrap();
            recorded.make(loss, &path);
            // The process that made the temporary files is dead.
            leave_temporary_files(&path);
        };
        let mut tried = Tried::default();
        let last = LAST[usize::from(std::env::var("HOLDFAST_CRASH").is_ok_and(|value| value == "all"))];
        for at in 0..=recorded.changes() {
            for loss in recorded.losses(at, last) {
                let is_kill = loss == Loss::none(at);
                if is_kill || self.power {
                    begin(&loss);
                    self.go_on(&path, &recorded.describe(&loss), &expected);
                    tried.kills += usize::from(is_kill);
                    tried.losses += usize::from(!is_kill);
                }
            }
        }
        if with_errors {
            let begin = || begin(&Loss::none(0));
            tried.errors = self.errors.iter().map(|errno| self.fail(&path, begin, &expected, *errno)).sum();
            for disturb in [calls::with_short_writes, calls::with_interrupted_calls] {
                begin();
                disturb(&mut || (self.work)(&path).unwrap_or_else(|error| panic!("{name}: {error}")));
                self.check(&path, "short writes or interrupted calls");
                self.compare(&path, &expected, "short writes or interrupted calls");
            }
        }
        let Tried { kills, losses, errors } = tried;
        let points = kills + losses + errors;
        println!("crash: {name}: {points} points, 0 lost ({kills} kills, {losses} losses of power, {errors} errors)");
        tried
    }

    /// Each call fails once; returns how many there were.
    fn fail(&self, path: &Path, begin: impl Fn(), expected: &str, errno: Errno) -> usize {
        for nth in 1.. {
            begin();
            let (result, call) = with_error(nth, errno, || (self.work)(path));
            let Some(call) = call else { return nth - 1 };
            let context = format!("{errno:?} from call {nth} ({call:?})");
            self.check(path, &context);
            // What this process could not remove, another one does.
            leave_temporary_files(path);
            let context = format!("{context}, {}", result.map_or("an error", |()| "no error"));
            self.go_on(path, &context, expected);
        }
        0
    }

    fn check(&self, path: &Path, context: &str) {
        let wrong = self.explained(context, || (self.check)(path));
        wrong.unwrap_or_else(|wrong| panic!("{}: {context}: {wrong}", self.name));
    }

    /// Prints what was interrupted if a test's own check ends with a panic.
    fn explained<T>(&self, context: &str, work: impl FnOnce() -> T) -> T {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            println!("{}: {context}", self.name);
            resume_unwind(panic)
        })
    }

    fn compare(&self, path: &Path, expected: &str, context: &str) {
        let found = self.explained(context, || (self.result)(path));
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<String>>();
        let (here, there) = (lines(&found), lines(expected));
        let (more, less): (Vec<_>, Vec<_>) = (here.difference(&there).collect(), there.difference(&here).collect());
        assert!(found == expected, "{}: {context}: there is {more:#?} instead of {less:#?}", self.name);
    }

    /// The work is done again after an interruption.
    fn go_on(&self, path: &Path, context: &str, expected: &str) {
        self.check(path, context);
        let done = self.explained(context, || (self.work)(path));
        done.unwrap_or_else(|error| panic!("{}: {context}: done again, it failed: {error}", self.name));
        self.check(path, &format!("{context}, and done again"));
        self.compare(path, expected, &format!("{context}, and done again"));
    }
}

/// Does the work with an error from its `nth` call in this thread that can return it; returns that call, if there was
/// one.
pub fn with_error<T>(nth: usize, errno: Errno, work: impl FnOnce() -> T) -> (T, Option<Call>) {
    let hit = Rc::new(Cell::new(None));
    let (seen, left) = (hit.clone(), Cell::new(nth));
    let observer = move |call: Call| {
        if !applies(errno, call) {
            return Ok(());
        }
        left.set(left.get().saturating_sub(1));
        if left.get() == 0 && seen.get().is_none() {
            seen.set(Some(call));
            return Err(errno);
        }
        Ok(())
    };
    let result = calls::observe(observer, work);
    (result, hit.get())
}

/// A directory that is removed at the end, in memory where that is possible.
struct Scratch(std::path::PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[allow(clippy::unwrap_used, reason = "for tests")]
fn tempdir() -> Scratch {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let memory = Path::new("/dev/shm");
    let above = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    let path = above.join(format!("holdfast-crash.{}.{number}", std::process::id()));
    fs::create_dir(&path).unwrap();
    Scratch(path)
}

/// Gives the temporary files of this process below a directory names of one that has ended.
///
/// # Panics
/// When the directory cannot be read or a file cannot be renamed.
#[allow(clippy::unwrap_used, reason = "for tests")]
pub fn leave_temporary_files(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() {
            leave_temporary_files(&path);
        }
        if temporary::is_temporary(&name) {
            fs::rename(&path, path.with_file_name(temporary::abandoned_name())).unwrap();
        }
    }
}

/// Writes a file as an application does, through the calls that are recorded.
///
/// # Errors
/// The first call that failed.
pub fn write_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let file = calls::openat(CWD, path, flags, Mode::from_raw_mode(0o600))?;
    calls::write_all(&fs::File::from(file), bytes)
}
