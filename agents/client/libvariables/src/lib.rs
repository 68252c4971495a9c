//! `libholdfast_variables`: the library of [`holdfast_variables_c`]'s functions, for C by `include/holdfast.h`, for
//! Fortran by the module `include/holdfast.f90`, for Python by `holdfast.variables`.
//!
//! A package of its own, because cargo passes the name of the library, which `build.rs` sets, to every library that
//! depends on the package.

pub use holdfast_variables_c::c::*;
