//! `MPI_Init`: all ranks join the run there, so that a rank that uses its files earlier than others, while they wait
//! for its message, does not wait for them. The types of MPI are not needed: pointers are passed on. Fortran's
//! functions call those of C, by the names of the profiling interface in some implementations.
//!
//! A program without MPI joins with its first checkpoint file.

use std::ffi::{c_int, c_void};

use crate::{next, process};

fn initialised(code: c_int) -> c_int {
    if code == 0 {
        process::join_run();
    }
    code
}

macro_rules! initialising {
    ($($name:ident, $threads:ident;)*) => {$(
        /// # Safety
        /// As for the function of MPI.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(arguments: *mut c_int, words: *mut c_void) -> c_int {
            // SAFETY: as promised by the caller.
            initialised(unsafe { next::$name(arguments, words) })
        }

        /// # Safety
        /// As for the function of MPI.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $threads(
            arguments: *mut c_int,
            words: *mut c_void,
            required: c_int,
            provided: *mut c_int,
        ) -> c_int {
            // SAFETY: as promised by the caller.
            initialised(unsafe { next::$threads(arguments, words, required, provided) })
        }
    )*};
}

initialising! {
    MPI_Init, MPI_Init_thread;
    PMPI_Init, PMPI_Init_thread;
}
