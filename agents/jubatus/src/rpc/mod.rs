//! MessagePack-RPC as Jubatus servers implement it.
//!
//! * [`message`]: requests and answers as bytes, without a connection;
//! * [`connection`]: one call with a time limit.

pub mod connection;
pub mod message;

pub use connection::{RpcClient, RpcError, RpcFailure, ServerAddress};
pub use message::{AnswerError, Limits, RemoteError, Value};
