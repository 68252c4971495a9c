//! The C functions for variables in memory, which `libholdfast_variables` and `libfti` contain.
//!
//! * [`session`]: the behaviour of the functions, on top of [`holdfast_client::variables`];
//! * [`boundary`]: the session of the process, and return codes;
//! * [`c`]: the functions of `holdfast.h`, which the Fortran module and the Python module call, too.

pub mod boundary;
pub mod c;
pub mod heads;
pub mod session;
