//! The boundary to C and Fortran, shared by `libscr`, `libholdfast_variables`, `libfti`, `libsion` and
//! `libholdfast_pairs`: serialisation of calls, containment of panics, reports of errors, refusal of calls of forked
//! processes, and conversion of pointers.
//!
//! * [`Boundary`]: the session of a library, and calls of it;
//! * [`c`]: arguments of C functions;
//! * [`fortran`]: arguments of Fortran functions.

use std::cell::RefCell;
use std::ffi::CString;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

pub mod c;
pub mod fortran;

/// The state of a library in this process.
pub trait Session {
    /// The rank of this process, once it is known.
    fn rank(&self) -> Option<u32>;

    /// True if this process has joined a run as a rank, and has not left it. The calls of processes that are forked
    /// from it are then refused.
    fn is_joined(&self) -> bool {
        false
    }
}

/// A halt condition holds: the process must end with exit code 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halt {
    /// The halt condition that holds, for a message.
    pub reason: String,
    /// True on rank 0, which prints the reason.
    pub reports: bool,
}

/// An argument that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    #[error("{0} is NULL")]
    Null(&'static str),
    #[error("names must be UTF-8")]
    NotUtf8,
    #[error("a CHARACTER argument is missing")]
    NoCharacter,
    #[error("a CHARACTER argument is too short for the returned value")]
    ShortCharacter,
    #[error("{value} does not fit into {bytes} bytes")]
    ShortBuffer { value: String, bytes: usize },
}

/// The session of a library. It is locked during a call: calls of several threads are serialised.
#[derive(Debug)]
pub struct Boundary<S> {
    /// The name of the library in its reports.
    library: &'static str,
    session: Mutex<S>,
    silent: AtomicBool,
    /// The process that has joined the run, or is inside of a call; 0: none.
    process: AtomicU32,
}

thread_local! {
    /// Per thread, so that the text of an error is that of the caller's own call.
    static LAST_ERROR: RefCell<Option<CString>> = const { RefCell::new(None) };
}

impl<S: Session> Boundary<S> {
    /// The boundary of a library of this name.
    pub const fn new(library: &'static str, session: S) -> Self {
        let (silent, process) = (AtomicBool::new(false), AtomicU32::new(0));
        Boundary { library, session: Mutex::new(session), silent, process }
    }

    /// The process from which this one was forked, if that one has joined the run, or was inside of a call. Does not
    /// wait for the session: in the forked process it may be locked for ever.
    pub fn forked_from(&self) -> Option<u32> {
        let process = self.process.load(Ordering::Acquire);
        (process != 0 && process != std::process::id()).then_some(process)
    }

    /// As [`Boundary::call`], for the end of the run. In a process that was forked from the rank this does nothing, and
    /// succeeds with `T::default()`: programs register it with `atexit`, whose functions each child calls that ends.
    pub fn finalize<T: Default, E: Display>(
        &self,
        function: &str,
        work: impl FnOnce(&mut S) -> Result<T, E>,
    ) -> Option<T> {
        if self.forked_from().is_some() { Some(T::default()) } else { self.call(function, work) }
    }

    /// Makes a call. Errors are printed to standard error, and so are panics (bugs of the library), because unwinding
    /// into C is undefined behaviour. In a process that was forked from the rank, calls fail.
    pub fn call<T, E: Display>(&self, function: &str, work: impl FnOnce(&mut S) -> Result<T, E>) -> Option<T> {
        let own = std::process::id();
        if let Some(rank) = self.forked_from() {
            self.fail(&format!(
                "{}: {function}: process {own} was forked from process {rank}, which is the rank: only that process \
                 can make calls; make them there, or call the init function in the process that computes",
                self.library
            ));
            return None;
        }
        let worked = catch_unwind(AssertUnwindSafe(|| {
            let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
            self.process.store(own, Ordering::Release);
            let result = work(&mut session);
            if !session.is_joined() {
                self.process.store(0, Ordering::Release);
            }
            result.map_err(|failure| (failure.to_string(), session.rank()))
        }));
        match worked {
            Ok(Ok(value)) => Some(value),
            Ok(Err((failure, rank))) => {
                let rank = rank.map_or_else(String::new, |rank| format!(" rank {rank}:"));
                self.fail(&format!("{}:{rank} {function}: {failure}", self.library));
                None
            }
            Err(_) => {
                self.fail(&format!("{}: {function} failed inside the library: please report it", self.library));
                None
            }
        }
    }

    /// Whether errors are printed to standard error. They are, unless the program has asked otherwise.
    pub fn print_errors(&self, print: bool) {
        self.silent.store(!print, Ordering::Relaxed);
    }

    /// Prints a note of a call that succeeded.
    pub fn note(&self, note: &str) {
        print(&format!("{}: {note}", self.library));
    }

    /// Ends the process with exit code 0. To be called outside of [`Boundary::call`], so that functions that the
    /// program registered with `atexit` can use the library.
    pub fn exit(&self, halt: &Halt) -> ! {
        if halt.reports {
            self.note(&format!("the run ends here: {}", halt.reason));
        }
        std::process::exit(0)
    }

    fn fail(&self, text: &str) {
        // The process may be ending: without thread-local storage there is no last error.
        let _ = LAST_ERROR.try_with(|last| {
            last.replace(CString::new(text.replace('\0', " ")).ok());
        });
        if !self.silent.load(Ordering::Relaxed) {
            print(text);
        }
    }
}

/// The text of the last error of this thread, as a C string that is valid until the thread's next error; empty if there
/// was none.
pub fn last_error() -> *const std::ffi::c_char {
    let last = LAST_ERROR.try_with(|last| last.borrow().as_ref().map(|text: &CString| text.as_ptr()));
    last.ok().flatten().unwrap_or(c"".as_ptr())
}

/// Prints to standard error; errors are ignored, because it may be closed.
fn print(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ranked(Option<u32>);

    impl Session for Ranked {
        fn rank(&self) -> Option<u32> {
            self.0
        }
    }

    fn last() -> String {
        // SAFETY: a C string of this thread.
        unsafe { std::ffi::CStr::from_ptr(last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn forked_process_does_not_wait_for_a_call_that_the_fork_interrupted() {
        let boundary = Boundary::new("LIB", Ranked(Some(3)));
        // As in a child that was forked while another thread made a call: the session is locked for ever.
        let locked = boundary.session.lock().unwrap();
        boundary.process.store(std::process::id() + 1, Ordering::Release);
        assert_eq!(boundary.call("f", |_| Ok::<_, ArgumentError>(1)), None);
        assert!(last().contains("LIB: f: process") && last().contains("was forked from process"), "{}", last());
        assert_eq!(boundary.finalize("g", |_| Err::<(), _>(ArgumentError::NotUtf8)), Some(()));
        assert!(!last().contains(" g:"), "{}", last());
        drop(locked);
    }

    #[test]
    fn errors_and_panics_are_returned_with_their_text() {
        let boundary = Boundary::new("LIB", Ranked(Some(3)));
        assert_eq!(boundary.call("f", |_| Ok::<_, ArgumentError>(1)), Some(1));
        assert_eq!(last(), "");
        assert_eq!(boundary.call("f", |_| Err::<(), _>(ArgumentError::Null("the name"))), None);
        assert_eq!(last(), "LIB: rank 3: f: the name is NULL");
        assert_eq!(boundary.call("g", |_| -> Result<(), ArgumentError> { panic!("a bug") }), None);
        assert!(last().starts_with("LIB: g failed inside the library"), "{}", last());
        // A panic leaves the session usable.
        assert_eq!(boundary.call("f", |session| Ok::<_, ArgumentError>(session.0)), Some(Some(3)));
        assert_eq!(std::thread::spawn(last).join().unwrap(), "", "an error is that of its thread");
    }
}
