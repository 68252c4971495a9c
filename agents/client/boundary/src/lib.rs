//! The boundary to C and Fortran, shared by `libscr`, `libholdfast_variables`, `libfti` and `libholdfast_pairs`:
//! serialisation of calls, containment of panics, reports of errors, and conversion of pointers.
//!
//! * [`Boundary`]: the session of a library, and calls of it;
//! * [`c`]: arguments of C functions;
//! * [`fortran`]: arguments of Fortran functions.

#![warn(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

use std::cell::RefCell;
use std::ffi::CString;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

pub mod c;
pub mod fortran;

/// The state of a library in this process.
pub trait Session {
    /// The rank of this process, once it is known.
    fn rank(&self) -> Option<u32>;
}

/// A halt condition holds: the process must end with exit code 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halt {
    /// The halt condition.
    pub reason: String,
    /// True on rank 0, which prints the reason.
    pub reports: bool,
}

/// An argument that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// A pointer that is required.
    #[error("{0} is NULL")]
    Null(&'static str),
    /// A text in another encoding.
    #[error("names must be UTF-8")]
    NotUtf8,
    /// A CHARACTER argument without an address.
    #[error("a CHARACTER argument is missing")]
    NoCharacter,
    /// A CHARACTER argument that is too short.
    #[error("a CHARACTER argument is too short for the returned value")]
    ShortCharacter,
    /// A buffer that is too short.
    #[error("{value} does not fit into {bytes} bytes")]
    ShortBuffer {
        /// The value that was to be returned.
        value: String,
        /// The size of the buffer.
        bytes: usize,
    },
}

/// The session of a library. It is locked during a call: calls of several threads are serialised.
#[derive(Debug)]
pub struct Boundary<S> {
    /// The name of the library in its reports.
    library: &'static str,
    session: Mutex<S>,
    silent: AtomicBool,
}

thread_local! {
    /// Per thread, so that the text of an error is that of the caller's own call.
    static LAST_ERROR: RefCell<Option<CString>> = const { RefCell::new(None) };
}

impl<S: Session> Boundary<S> {
    /// The boundary of a library of this name.
    pub const fn new(library: &'static str, session: S) -> Self {
        Boundary { library, session: Mutex::new(session), silent: AtomicBool::new(false) }
    }

    /// Makes a call. Errors are printed to standard error, and so are panics (bugs of the library), because unwinding
    /// into C is undefined behaviour.
    pub fn call<T, E: Display>(&self, function: &str, work: impl FnOnce(&mut S) -> Result<T, E>) -> Option<T> {
        let worked = catch_unwind(AssertUnwindSafe(|| {
            let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
            let result = work(&mut session);
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
