//! The example applications that are built into the binary: real programs on the client API, to see Holdfast at work
//! without writing one, and to test it with.

mod error;
pub mod heat;

pub use error::ExampleError;
