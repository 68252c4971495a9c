//! `libholdfast_variables`: checkpoints of variables in memory for C, Fortran and Python, by `include/holdfast.h`, the
//! module `include/holdfast.f90`, and the Python module `holdfast.variables`.
//!
//! * [`session`]: the behaviour of the functions, on top of [`holdfast_client::variables`];
//! * [`boundary`]: the session of the process, and return codes;
//! * [`c`]: the C functions, which the Fortran module and the Python module call, too.
//!
//! `libfti` is a second interface to the same session.

#![warn(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

pub mod boundary;
pub mod c;
pub mod session;

pub use c::*;
