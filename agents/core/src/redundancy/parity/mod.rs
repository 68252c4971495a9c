//! Sets whose members keep redundancy data of each other: what the schemes XOR and RS have in common.
//!
//! A set of N members survives the loss of any k. Each member's files, put one behind the other, are its *logical
//! file*; padded with zeros and cut into N-k *chunks*. There are N *slots*: in slot s, the members s, s-1, … s-k+1 have
//! redundancy data, row 0 to k-1 of the code; each other member has a chunk of its files. So every member has N-k
//! chunks of files and k chunks of redundancy data, both in the order of the slots, and a slot is one codeword of N
//! chunks, of which any N-k determine the others.
//!
//! * [`code`]: the factors of the redundancy data; [`member`]: a member's place in its set;
//! * [`header`]: the hash in front of a redundancy file; [`mod@file`]: header and data together; [`survivor`]: the
//!   files of a member that was not lost;
//! * [`encode`]: a member's part in making the redundancy files; [`rebuild`]: its part in making the files of lost
//!   members again; [`greeting`]: what members send before the first piece;
//! * [`in_directory`]: the rebuild at the drain, with all files in one directory.

pub mod code;
pub mod encode;
pub mod file;
#[cfg(test)]
pub mod fixtures;
pub mod greeting;
pub mod header;
pub(super) mod in_directory;
pub mod member;
pub mod rebuild;
pub mod survivor;

use std::io::BufReader;
use std::ops::ControlFlow;

use holdfast_model::Scheme;

use self::code::Code;
use self::header::ParityHeader;
use self::member::Member;
use super::files::{DescribedHeader, MemberFiles, SetFile, SetId};
use super::inside;
use super::link::LinkReceiver;
use super::scheme::SetHeader;
use super::{RedundancyError, Result};
use crate::galois::products::Products;
use crate::kvtree::limits::Limits;
use crate::kvtree::{Tree, file as hash_file};
use crate::store::DatasetFiles;

/// Called with the number of bytes done so far; `Break` stops the step, which then leaves nothing behind.
pub type Progress<'a> = dyn FnMut(u64) -> ControlFlow<()> + 'a;

/// Writes the files of a member into a header.
pub type WriteFiles = fn(&MemberFiles) -> Tree;

/// What distinguishes the schemes with such sets.
#[derive(Debug)]
pub struct ParityScheme {
    pub name: Scheme,
    /// How the names of the redundancy files end, with the dot.
    pub extension: &'static str,
    /// True for the name of a redundancy file of any scheme.
    pub is_redundancy_file: fn(&str) -> bool,
    /// Enters the left neighbours' files into a header, each as the function writes it, and how many members can be
    /// lost.
    pub put_left: fn(&mut Tree, &ParityHeader, WriteFiles),
    /// Reads them, nearest neighbour first: as many as members can be lost.
    pub read_left: fn(&Tree, &str) -> Result<Vec<MemberFiles>>,
    /// Members of a set and losses that it survives together, at most: what the code distinguishes.
    pub places: u32,
    /// The code of a set of so many members, of which so many can be lost.
    pub code: fn(u32, u32) -> Code,
}

impl PartialEq for ParityScheme {
    fn eq(&self, other: &ParityScheme) -> bool {
        self.name == other.name
    }
}

impl Eq for ParityScheme {}

impl ParityScheme {
    /// The name of a member's redundancy file: `<member + 1>_of_<members>_in_<group id>` and the extension.
    pub fn file_name(&self, group_id: u32, members: u32, member: u32) -> String {
        format!("{}_of_{members}_in_{group_id}{}", u64::from(member) + 1, self.extension)
    }

    /// Reads a base name; `None` if it is not the name of a redundancy file.
    pub fn parse_file_name(&self, name: &str) -> Option<SetFile> {
        let rest = name.strip_suffix(self.extension)?;
        let (place, rest) = rest.split_once("_of_")?;
        let (members, group_id) = rest.split_once("_in_")?;
        let (place, members, group_id) = (number(place)?, number(members)?, number(group_id)?);
        let member = place.checked_sub(1)?;
        let set = SetId { scheme: self.name, group_id, members };
        (member < members && members >= 2).then_some(SetFile { set, member })
    }

    /// Reads the header of a redundancy file and checks that it fits the file's name.
    pub(super) fn read_header(&'static self, files: &dyn DatasetFiles, file: &SetFile) -> Result<SetHeader> {
        let SetFile { set: SetId { group_id, members, .. }, member } = *file;
        let name = self.file_name(group_id, members, member);
        let path = files.path_of(&name);
        let origin = path.display().to_string();
        let bad = |why: String| RedundancyError::Header { origin: origin.clone(), why };
        let data = inside::open(files, &name, None)?;
        let decoded = hash_file::decode_prefix(&mut BufReader::new(data.reader()), Limits::of(&path));
        let (tree, _) = decoded.map_err(|error| bad(error.to_string()))?;
        let header = ParityHeader::from_tree(self, &tree, &origin)?;
        if header.size() != members || header.index() != Some(member) {
            return Err(bad("it is about another set or member".into()));
        }
        Ok(SetHeader {
            checkpoint: header.checkpoint,
            ranks: header.ranks,
            tolerance: header.failures(),
            files: header.known().map(|(member, files)| (member, files.clone())).collect(),
            members: header.members,
        })
    }

    pub(super) fn describe(&'static self, header: &Tree, origin: &str) -> Result<DescribedHeader> {
        let header = ParityHeader::from_tree(self, header, origin)?;
        let (data_bytes, members) = (header.data_bytes(), header.size());
        Ok(DescribedHeader { data_bytes, members, member: header.index().unwrap_or(0) })
    }
}

/// Digits only: `parse` alone would take a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The next message from the left, which must have this length.
fn receive(left: &mut dyn LinkReceiver, expected: usize) -> Result<Vec<u8>> {
    let piece = left.receive().map_err(RedundancyError::left("receiving a piece"))?;
    if piece.len() != expected {
        return Err(RedundancyError::PieceLength { expected, found: piece.len() });
    }
    Ok(piece)
}

/// Bytes of a file that are read, checked and added at a time: they stay in the second-level cache meanwhile, where a
/// piece may be larger.
const BLOCK: usize = 128 << 10;

/// The sums of `rows` pieces with the own bytes added, which `read` fills into a buffer from an offset in the piece; it
/// returns how many are real. The first member of a chain gets no sums. If the sum is then just its own bytes, they are
/// read into place.
fn with_own(
    member: &Member,
    products: &Products<u8>,
    arrived: Option<Vec<u8>>,
    (rows, length): (usize, usize),
    scratch: &mut [u8],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize>,
) -> Result<Vec<u8>> {
    if arrived.is_none() && products.is_sum() {
        let mut sums = member.pool.take(length);
        for (at, part) in (0..).step_by(BLOCK).zip(sums.chunks_mut(BLOCK)) {
            let real = read(at, part)?;
            part[real..].fill(0);
        }
        return Ok(sums);
    }
    let mut sums = arrived.unwrap_or_else(|| {
        let mut sums = member.pool.take(rows * length);
        sums.fill(0);
        sums
    });
    // One row can be added in blocks; several lie one behind the other.
    let block = if products.is_sum() { BLOCK } else { length };
    for (at, part) in (0..).step_by(block).zip(sums.chunks_mut(rows * block)) {
        let own = &mut scratch[..part.len() / rows];
        let real = read(at, own)?;
        products.add(&own[..real], part, own.len());
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::galois::Element as _;

    #[test]
    fn own_bytes_are_added_to_each_row_also_beyond_a_block_and_what_is_missing_counts_as_zeros() {
        let member = Member::new(0, 4, 1);
        for (length, real) in [(1, 1), (BLOCK, BLOCK), (2 * BLOCK + 5, 2 * BLOCK + 5), (3 * BLOCK, BLOCK + 7), (9, 0)] {
            let own: Vec<u8> = (0..real).map(|at| (at % 251) as u8 + 1).collect();
            let read = |at: u64, buffer: &mut [u8]| {
                let rest = own.get(at as usize..).unwrap_or_default();
                let taken = rest.len().min(buffer.len());
                buffer[..taken].copy_from_slice(&rest[..taken]);
                Ok(taken)
            };
            for factors in [&[1][..], &[7], &[1, 29]] {
                for begins in [false, true] {
                    let rows = factors.len();
                    let others: Vec<u8> = (0..rows * length).map(|at| (at % 241) as u8).collect();
                    let arrived = (!begins).then(|| others.clone());
                    // Buffers have unspecified contents.
                    member.pool.give(vec![0xff; rows * length]);
                    let mut scratch = vec![0xff; length];
                    let products = Products::new(factors);
                    let sums = with_own(&member, &products, arrived, (rows, length), &mut scratch, read).unwrap();
                    let expected = (0..rows * length).map(|at| {
                        let own = own.get(at % length).map_or(0, |byte| byte.times(factors[at / length]));
                        own ^ if begins { 0 } else { others[at] }
                    });
                    assert!(expected.eq(sums.iter().copied()), "{length} {real} {factors:?} {begins}");
                }
            }
        }
    }
}
