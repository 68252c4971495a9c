//! Redundancy descriptors, groups, and the schemes that rebuild a lost member.
//!
//! What decides is pure: [`descriptor`] (which scheme protects a checkpoint), [`groups`] (who is in a set with whom),
//! [`partner`] (who holds whose copies), [`inventory`] (what the nodes
//! hold), [`plan`] (what a restart has to move and rebuild) and [`drainable`] (what can
//! be saved at the end of an allocation). What acts on files is in [`xor`]: it works on directories and on links to
//! the neighbours that the caller provides, so that it runs the same in a test, in an agent and at the drain.

pub mod convert;
pub mod descriptor;
pub mod drainable;
mod error;
#[cfg(test)]
mod fixture_tests;
pub mod groups;
pub mod inventory;
pub mod partner;
pub mod plan;
pub mod xor;

pub use descriptor::{Descriptor, Scheme};
pub use error::RedundancyError;
