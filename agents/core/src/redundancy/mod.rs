//! Redundancy: descriptors, groups, and the schemes that restore the files of a lost node.
//!
//! One trait, [`RedundancyScheme`], is the only interface of a scheme; the [`registry`] lists them. Each has a folder:
//! [`local`], [`partner`], [`xor`], [`rs`].
//!
//! * [`descriptor`]: which scheme protects a checkpoint, in a file map; [`numbers`]: what it asks of the scheme;
//!   [`groups`]: which ranks form a group;
//! * [`inventory`]: what the nodes hold; [`protection`]: what protects it; [`plan`]: what a restart has to move and
//!   rebuild; [`drainable`]: what can be saved at the end of an allocation; [`lost_set`]: what is lost, in words. All
//!   of that is pure;
//! * [`member`] and [`link`]: what a member of a group works with while it encodes or rebuilds, in an agent or in a
//!   test;
//! * [`parity`]: what the schemes have in common whose members keep redundancy data of each other;
//! * [`directory`]: rebuilding with all files of a set in one directory; [`files`]: redundancy files by name, the files
//!   of a member; [`logical`]: these as one; [`lost_member`]: writing them again; [`piece`]: buffers.

pub mod descriptor;
pub mod directory;
pub mod drainable;
mod error;
pub mod files;
#[cfg(test)]
mod fixture_tests;
pub mod groups;
pub(crate) mod inside;
pub mod inventory;
pub mod link;
pub mod local;
pub mod logical;
pub mod lost_member;
pub mod lost_set;
pub mod member;
#[cfg(test)]
mod mirror;
pub mod numbers;
pub mod parity;
pub mod partner;
pub mod piece;
pub mod plan;
pub mod protection;
pub mod registry;
pub mod rs;
pub mod scheme;
pub mod survival;
pub mod xor;

pub use error::{RedundancyError, Result};
pub use scheme::RedundancyScheme;
