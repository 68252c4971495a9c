//! The XOR scheme: files, ring encode, rebuild (`SCR manual §7.3`, `docs/scr-files.md` §6).
//!
//! A set of N members protects against the loss of any one: a set with [`parity`](super::parity) of which the one row
//! is the XOR of all chunks in a slot.
//!
//! * [`name`]: the name of an XOR file; [`header`]: what the hash in front of it has of its own;
//! * [`in_cache`]: the rebuild with the links and the file map of a member; [`in_directory`]: at the drain, with all
//!   files in one directory.

pub mod header;
mod in_cache;
mod in_directory;
pub mod name;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use holdfast_model::{Level, RankDescriptor, Scheme};

use super::error::RedundancyError;
use super::files::{FileFormat, SetId};
use super::groups::{ForcedLocal, GroupRules, Groups, Site, sets};
use super::member::{GroupMember, MemberTask};
use super::numbers::{NumberError, SET_SIZE};
use super::parity::ParityScheme;
use super::parity::code::Code;
use super::parity::encode::encode;
use super::registry;
use super::scheme::{OpenSet, RedundancyScheme};
use crate::store::DatasetFiles;

pub use name::NAME;

/// Sets with one row of redundancy data.
pub static PARITY: ParityScheme = ParityScheme {
    name: NAME,
    extension: ".xor",
    is_redundancy_file: registry::is_redundancy_file,
    put_left: header::put_left,
    read_left: header::read_left,
    places: u32::MAX,
    code: |members, _| Code::xor(members),
};

#[derive(Debug)]
pub struct Xor;

impl RedundancyScheme for Xor {
    fn name(&self) -> Scheme {
        NAME
    }

    fn remedy(&self) -> &'static str {
        "see `scheme: rs`"
    }

    /// Level 3 is Reed-Solomon in FTI; XOR restores one lost node a set.
    fn levels(&self) -> &'static [Level] {
        &[Level::Parity]
    }

    fn check(&self, rules: GroupRules<'_>) -> Result<(), NumberError> {
        match rules.set_size() {
            value @ 0..=1 => Err(NumberError {
                scheme: NAME,
                number: &SET_SIZE,
                value,
                why: format!("a set of {value} protects nothing"),
                expected: "as many members as the scheme needs: 2 or more",
                help: "write at least 2 (4 to 16 are usual), or `scheme: local`",
            }),
            _ => Ok(()),
        }
    }

    fn form(&self, sites: &[Site], rules: GroupRules<'_>) -> Result<Groups, ForcedLocal> {
        sets(NAME, sites, rules, 2)
    }

    fn tolerance(&self, descriptor: &RankDescriptor) -> u32 {
        u32::from(descriptor.group_size >= 2)
    }

    fn encode(&self, task: &MemberTask, node: &dyn GroupMember) -> Result<(), RedundancyError> {
        encode(&PARITY, 1, task, node)
    }

    fn rebuild(&self, task: &MemberTask, missing: &[u32], node: &dyn GroupMember) -> Result<(), RedundancyError> {
        in_cache::rebuild(task, only_one(task.group_id, task.size(), missing)?, node)
    }

    fn parity(&self) -> Option<&'static ParityScheme> {
        Some(&PARITY)
    }

    fn tolerance_by_name(&self, _: SetId) -> Option<u32> {
        Some(1)
    }

    fn file_format(&self) -> Option<FileFormat> {
        Some(FileFormat { name: "scr-xor", title: "SCR XOR file", data: "XOR data", extension: PARITY.extension })
    }

    fn open_set(
        &self,
        files: &Arc<dyn DatasetFiles>,
        set: SetId,
        missing: &[u32],
        piece_bytes: usize,
    ) -> Result<OpenSet, RedundancyError> {
        in_directory::open_set(files, set, only_one(set.group_id, set.members, missing)?, piece_bytes)
    }
}

fn only_one(group_id: u32, members: u32, missing: &[u32]) -> Result<u32, RedundancyError> {
    match missing {
        [missing] => Ok(*missing),
        _ => Err(RedundancyError::TooManyMissing { group_id, members, missing: missing.len() }),
    }
}
