//! The client of Jubatus servers, for checkpoints of their models.
//!
//! * [`rpc`]: MessagePack-RPC, one call on each connection; answers are limited in size, depth and time;
//! * [`server`]: the calls that a checkpoint needs, with typed answers;
//! * [`model_file`]: the file that a server saved or is to load: where it lies, whether servers load it, moving it.
//!
//! Servers are called directly, not through a proxy: the answer of a proxy does not name the server that failed. An
//! answer is untrusted: a path in it is compared with the path that the server must have used.

#![forbid(unsafe_code)]

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod model_file;
pub mod rpc;
pub mod server;

pub use model_file::{ModelFileError, ModelFiles};
pub use rpc::{RpcError, RpcFailure, ServerAddress};
pub use server::{JubatusServer, ServerError, ServerStatus};
