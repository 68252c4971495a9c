//! `libfti`: the functions of FTI 1.1, and of the releases after it, that save and recover variables, carried out by
//! Holdfast's agents, without MPI.
//!
//! A program is compiled with `include/fti.h` (Fortran: the module `include/fti.f90`), linked with `-lfti`, and started
//! by `holdfast run` with `checkpoint: {source: variables}`. Functions with an `MPI_Comm` are defined in the header, so
//! that the library fits every MPI.
//!
//! * [`configuration`]: the file that `FTI_Init` is given;
//! * [`types`]: the types of elements, and structures;
//! * [`attributes`]: identifiers, names and shapes of variables;
//! * [`incremental`]: checkpoints whose variables are added one by one;
//! * [`staging`]: files of the program that a thread copies;
//! * [`heads`]: head processes;
//! * [`refused`]: functions that fail, because they are about HDF5 files or injected errors;
//! * [`c`]: the other functions, on top of the session of [`holdfast_variables_c`]: a program may also call the
//!   functions of `holdfast.h`, which the library contains.

pub mod attributes;
pub mod c;
pub mod configuration;
pub mod heads;
pub mod incremental;
pub mod refused;
pub mod staging;
pub mod types;

pub use attributes::*;
pub use c::*;
pub use heads::*;
pub use incremental::*;
pub use refused::*;
pub use staging::*;
pub use types::*;
