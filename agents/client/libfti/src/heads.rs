//! Head processes: what `FTI_Init` of the header and of the Fortran module needs for them. The library has no MPI: the
//! header splits the communicator by the role of each process.
//!
//! Safety of every `#[unsafe(no_mangle)]` here: the symbol starts with `holdfast_fti_`, and a program links one FTI.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_boundary::c::put;
use holdfast_variables_c::boundary::BOUNDARY;
use holdfast_variables_c::heads::{Role, Served};

use crate::c::{FAILURE, SUCCESS, initialise};

/// `FTI_Init` returns in a head process, at the end of the run.
const HEAD: c_int = 2;

/// The program continues in its head processes when the run has ended.
static KEPT_ALIVE: AtomicBool = AtomicBool::new(false);

/// Room for an `MPI_Comm`, which is an `int` or a pointer.
#[repr(C, align(16))]
struct Room(UnsafeCell<[u8; 16]>);

// SAFETY: the library never reads or writes it; the program accesses it as it accesses FTI's global variable.
unsafe impl Sync for Room {}

static COMMUNICATOR: Room = Room(UnsafeCell::new([0; 16]));

/// Where `FTI_COMM_WORLD` is. The library does not use it.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_fti_communicator() -> *mut c_void {
    COMMUNICATOR.0.get().cast()
}

/// As [`holdfast_fti_init`](crate::c::holdfast_fti_init), for programs with head processes, too. `role` becomes 0 if
/// there are none, 1 in a process of the application, and 2 in a head process, which must call
/// [`holdfast_fti_serve`].
///
/// # Safety
/// `file` is null (no configuration file) or a C string, `role` null or points to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_fti_start(file: *const c_char, rank: c_int, ranks: c_int, role: *mut c_int) -> c_int {
    // SAFETY: the caller's promise, here and below.
    let Some((own, heads)) = (unsafe { initialise(file, rank, ranks, true) }) else { return FAILURE };
    KEPT_ALIVE.store(heads.is_some_and(|heads| heads.kept_alive), Ordering::Relaxed);
    let number = match own {
        Role::Alone => 0,
        Role::Application => 1,
        Role::Head => 2,
    };
    match BOUNDARY.call("FTI_Init", |_| unsafe { put(role, number, "the pointer to the role") }) {
        Some(()) => SUCCESS,
        None => FAILURE,
    }
}

/// In a head process: takes part in the calls of the application until its end. Returns `FTI_HEAD` if the program wants
/// to continue then, else 0. Ends the process with exit code 0 if a halt condition holds, and with 1 if the run is
/// lost.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_fti_serve() -> c_int {
    loop {
        match BOUNDARY.call("FTI_Init (head process)", |session| session.serve()) {
            Some(Served::Next) => {}
            Some(Served::Halted(halt)) => BOUNDARY.exit(&halt),
            Some(Served::Finalized) => return if KEPT_ALIVE.load(Ordering::Relaxed) { HEAD } else { SUCCESS },
            None => std::process::exit(1),
        }
    }
}
