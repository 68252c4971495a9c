//! The processes that Holdfast starts and supervises: ranks, launchers, copies of pairs, programs and commands of
//! users.
//!
//! A signal must reach the process that is meant, also if that has ended meanwhile and its number is used again. There
//! are two ways to ensure that:
//!
//! * [`leader`]: a child of this process, which only one place waits for: until then its number is its own.
//!   [`children`] is a table of them. This works on every Linux.
//! * [`observed`]: any process of this boot, also the child of an earlier process, held by a file descriptor (Linux
//!   5.4). Its [`identity`] can be saved. How it ended is known only if it is our child.
//!
//! Every process leads a process group of its own, so that a signal reaches what it has started. [`descendants`] finds
//! what has left the group. [`end`] tells how a process ended, and [`stat`] reads the kernel's account of one.

#![forbid(unsafe_code)]

pub mod children;
pub mod descendants;
pub mod end;
pub mod identity;
pub mod leader;
pub mod observed;
pub mod stat;

pub use children::Children;
pub use identity::ProcessId;
pub use leader::{GroupLeader, OutputPipes};
pub use observed::ObservedProcess;
