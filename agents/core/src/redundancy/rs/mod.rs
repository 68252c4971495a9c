//! The Reed-Solomon scheme: a set survives the loss of several members at once (`docs/reed-solomon.md`).
//!
//! Its sets are those of [`parity`](super::parity), with as many rows as members can be lost. The redundancy data are
//! those of SCR 3.1: the same field, factors, chunks and rotation. Names and headers of the files are in the style of
//! SCR's XOR files (`docs/scr-files.md` §6.1).
//!
//! * [`header`]: what the hash in front of a redundancy file has of its own; [`in_cache`]: the rebuild with the links
//!   and the file map of a member.

pub mod header;
mod in_cache;

use std::sync::Arc;

use holdfast_model::{Level, NumberName, RankDescriptor, Scheme};

use super::error::RedundancyError;
use super::files::{FileFormat, SetId};
use super::groups::{ForcedLocal, GroupRules, Groups, Site, sets};
use super::member::{GroupMember, MemberTask};
use super::numbers::{NumberError, SET_SIZE, SchemeNumber};
use super::parity::ParityScheme;
use super::parity::code::{Code, PLACES};
use super::parity::encode::encode;
use super::parity::in_directory;
use super::registry;
use super::scheme::{OpenSet, RedundancyScheme};
use crate::store::DatasetFiles;

pub const NAME: Scheme = Scheme::new("RS");

/// How many members of a set can be lost.
pub static FAILURES: SchemeNumber = SchemeNumber {
    name: NumberName::new("SET_FAILURES"),
    key: "failures",
    parameter: "SCR_SET_FAILURES",
    title: "number of failures",
    documentation: "`rs`: how many members of a set can be lost at once, fewer than `set_size`. A member then keeps \
                    `failures / (set_size - failures)` of the size of its files.",
    default: 2,
    range: 1..=127,
};

/// Sets with several rows of redundancy data.
pub static PARITY: ParityScheme = ParityScheme {
    name: NAME,
    extension: ".rs",
    is_redundancy_file: registry::is_redundancy_file,
    put_left: header::put_left,
    read_left: header::read_left,
    places: PLACES,
    code: Code::reed_solomon,
};

#[derive(Debug)]
pub struct Rs;

impl RedundancyScheme for Rs {
    fn name(&self) -> Scheme {
        NAME
    }

    fn remedy(&self) -> &'static str {
        "see `failures`"
    }

    fn numbers(&self) -> &'static [&'static SchemeNumber] {
        static NUMBERS: [&SchemeNumber; 1] = [&FAILURES];
        &NUMBERS
    }

    fn levels(&self) -> &'static [Level] {
        &[Level::Parity]
    }

    fn check(&self, rules: GroupRules<'_>) -> Result<(), NumberError> {
        let (size, failures) = (rules.set_size(), FAILURES.of(rules.numbers));
        if failures >= size {
            return Err(NumberError {
                scheme: NAME,
                number: &FAILURES,
                value: failures,
                why: format!("a set of {size} members cannot lose {failures}"),
                expected: "fewer failures than members of a set",
                help: "write fewer `failures`, or a larger `set_size`",
            });
        }
        // A set may take the members of a remainder that is too small for a set of its own.
        if 2 * size - 1 + failures > PLACES {
            return Err(NumberError {
                scheme: NAME,
                number: &SET_SIZE,
                value: size,
                why: format!("with {failures} failures a set can have at most {} members", (PLACES + 1 - failures) / 2),
                expected: "a number of members that the code distinguishes",
                help: "write a smaller `set_size` (8 to 16 are usual)",
            });
        }
        Ok(())
    }

    /// Each set has more members than can be lost, as far as the placement allows.
    fn form(&self, sites: &[Site], rules: GroupRules<'_>) -> Result<Groups, ForcedLocal> {
        sets(NAME, sites, rules, FAILURES.of(rules.numbers).saturating_add(1))
    }

    /// A set with fewer members survives the loss of all but one of them.
    fn tolerance(&self, descriptor: &RankDescriptor) -> u32 {
        failures(descriptor)
    }

    fn passes_lists_on(&self) -> bool {
        true
    }

    fn encode(&self, task: &MemberTask, node: &dyn GroupMember) -> Result<(), RedundancyError> {
        encode(&PARITY, failures(&node.descriptor(task.rank()?)?), task, node)
    }

    fn rebuild(&self, task: &MemberTask, missing: &[u32], node: &dyn GroupMember) -> Result<(), RedundancyError> {
        in_cache::rebuild(task, missing, node)
    }

    fn parity(&self) -> Option<&'static ParityScheme> {
        Some(&PARITY)
    }

    fn file_format(&self) -> Option<FileFormat> {
        let (title, data) = ("Reed-Solomon file", "redundancy data");
        Some(FileFormat { name: "rs", title, data, extension: PARITY.extension })
    }

    fn open_set(
        &self,
        files: &Arc<dyn DatasetFiles>,
        set: SetId,
        missing: &[u32],
        piece_bytes: usize,
    ) -> Result<OpenSet, RedundancyError> {
        in_directory::open_set(&PARITY, files, set, missing, piece_bytes, |survivors| {
            let headers = survivors.iter().map(|survivor| &survivor.file.header);
            let lost = header::rebuilt(headers, missing)?;
            Ok(lost.iter().map(|header| header.lost_files(&header.to_tree_of_fixed_length(), set.group_id)).collect())
        })
    }
}

/// How many members of the set of this rank can be lost.
fn failures(descriptor: &RankDescriptor) -> u32 {
    FAILURES.of(&descriptor.descriptor.numbers).min(descriptor.group_size.saturating_sub(1))
}

#[cfg(test)]
mod tests;
