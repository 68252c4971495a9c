//! The XOR scheme: files, ring encode, rebuild (`SCR manual §7.3`, `docs/scr-files.md` §6).
//!
//! A set of N members protects against the loss of any one. Each member's files, put one behind the other, are its
//! *logical file*; padded with zeros and cut into N-1 chunks, they fill all *slots* 0…N-1 but the member's own. The
//! XOR data of member s is the XOR of what all others have in slot s.
//!
//! * [`name`]: the name of an XOR file; [`header`]: the hash in front of it; [`mod@file`]: header and chunk together;
//! * [`encode`]: a member's part in making the XOR files; [`rebuild`]: its part in making a lost member's files again;
//!   [`in_cache`]: both with the links and the file map of a member;
//! * [`in_directory`]: the rebuild at the drain, with all files in one directory.

pub mod encode;
pub mod file;
pub mod header;
mod in_cache;
mod in_directory;
pub mod name;
pub mod rebuild;

#[cfg(test)]
mod tests;

use std::io::BufReader;
use std::sync::Arc;

use holdfast_model::{Level, RankDescriptor, Scheme};

use self::header::XorHeader;
use self::name::XorName;
use super::error::RedundancyError;
use super::files::{DescribedHeader, FileFormat, SetFile, SetId};
use super::groups::{ForcedLocal, GroupRules, Groups, Site, sets};
use super::inside;
use super::member::{GroupMember, MemberTask};
use super::numbers::{NumberError, SET_SIZE};
use super::scheme::{OpenSet, RedundancyScheme, SetHeader};
use crate::kvtree::limits::Limits;
use crate::kvtree::{Tree, file as hash_file};
use crate::store::DatasetFiles;

pub use encode::Progress;
pub use name::NAME;

#[derive(Debug)]
pub struct Xor;

impl RedundancyScheme for Xor {
    fn name(&self) -> Scheme {
        NAME
    }

    fn limit(&self) -> &'static str {
        "XOR can rebuild one"
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
        sets(NAME, sites, rules)
    }

    fn tolerance(&self, descriptor: &RankDescriptor) -> u32 {
        u32::from(descriptor.group_size >= 2)
    }

    fn encode(&self, task: &MemberTask, node: &dyn GroupMember) -> Result<(), RedundancyError> {
        in_cache::encode(task, node)
    }

    fn rebuild(&self, task: &MemberTask, missing: &[u32], node: &dyn GroupMember) -> Result<(), RedundancyError> {
        in_cache::rebuild(task, only_one(task.group_id, task.size(), missing)?, node)
    }

    fn parse_file_name(&self, name: &str) -> Option<SetFile> {
        let XorName { group_id, members, index } = XorName::parse(name)?;
        Some(SetFile { set: SetId { scheme: NAME, group_id, members }, member: index })
    }

    fn file_names(&self, set: SetId, member: u32) -> Vec<String> {
        vec![XorName { group_id: set.group_id, members: set.members, index: member }.to_string()]
    }

    fn tolerance_by_name(&self, _: SetId) -> Option<u32> {
        Some(1)
    }

    fn file_format(&self) -> Option<FileFormat> {
        Some(FileFormat { name: "scr-xor", title: "SCR XOR file", data: "XOR data", extension: ".xor" })
    }

    fn describe_header(&self, header: &Tree, origin: &str) -> Result<DescribedHeader, RedundancyError> {
        let header = XorHeader::from_tree(header, origin)?;
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let member = header.index().map_or(0, number);
        Ok(DescribedHeader { data_bytes: header.chunk, members: number(header.members.len()), member })
    }

    fn read_header(&self, files: &dyn DatasetFiles, file: &SetFile) -> Result<SetHeader, RedundancyError> {
        let SetFile { set: SetId { group_id, members, .. }, member } = *file;
        let name = XorName { group_id, members, index: member }.to_string();
        let path = files.path_of(&name);
        let origin = path.display().to_string();
        let bad = |why: String| RedundancyError::Header { origin: origin.clone(), why };
        let data = inside::open(files, &name, None)?;
        let decoded = hash_file::decode_prefix(&mut BufReader::new(data.reader()), Limits::of(&path));
        let (tree, _) = decoded.map_err(|error| bad(error.to_string()))?;
        let header = XorHeader::from_tree(&tree, &origin)?;
        if header.members.len() as u64 != u64::from(members) || header.index() != usize::try_from(member).ok() {
            return Err(bad("it is about another set or member".into()));
        }
        let left = if member == 0 { members - 1 } else { member - 1 };
        Ok(SetHeader {
            checkpoint: header.checkpoint,
            ranks: header.ranks,
            members: header.members,
            tolerance: 1,
            files: vec![(member, header.current), (left, header.partner)],
        })
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
