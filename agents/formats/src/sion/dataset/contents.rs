//! The table of contents of a container: which file is which record of which rank's stream.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use holdfast_core::kvtree::file::HashFileError;
use holdfast_core::kvtree::{Tree, file};
use holdfast_core::store::base_name::check_base_name;
use holdfast_model::{PackedFile, PackedRank, Rank};

use super::super::key_value::RECORD_HEADER;

const VERSION: u32 = 1;
/// No table of contents is larger.
const LARGEST: u64 = 1 << 30;

/// Why a table of contents cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContentsError {
    #[error(transparent)]
    HashFile(#[from] HashFileError),
    #[error("version {0:?} of its table of contents is not known")]
    Version(Option<String>),
    #[error("its table of contents is lost: {0}")]
    Lost(String),
    #[error("its table of contents is damaged at {place}: {problem}")]
    Content { place: String, problem: String },
}

/// The place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentsEntry {
    pub rank: Rank,
    /// The key of its record.
    pub key: u64,
    /// Of its value in the rank's stream.
    pub offset: u64,
    pub bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Contents {
    pub files: HashMap<String, ContentsEntry>,
    /// Bytes of the stream of each rank with files.
    pub streams: BTreeMap<Rank, u64>,
}

pub(super) fn encode(ranks: u32, packed: &BTreeMap<Rank, PackedRank>) -> Vec<u8> {
    let mut tree = Tree::new();
    // The element that is set last is the first.
    let by_rank = tree.entry("RANK");
    for (rank, PackedRank { files, .. }) in packed.iter().rev() {
        let of_rank = by_rank.entry(rank.to_string()).entry("FILE");
        for PackedFile { name, bytes } in files.iter().rev() {
            of_rank.entry(name.as_str()).put("SIZE", bytes);
        }
    }
    tree.put("RANKS", ranks);
    tree.put("VERSION", VERSION);
    file::encode(&tree)
}

impl Contents {
    /// Reads a table of contents of a container with so many ranks; `path` is only named in errors.
    pub(super) fn read(path: &Path, input: impl Read, ranks: u32) -> Result<Contents, ContentsError> {
        let tree = file::read_from(path, &mut input.take(LARGEST))?;
        if tree.parsed::<u32>("VERSION") != Some(VERSION) {
            return Err(ContentsError::Version(tree.value("VERSION").map(str::to_owned)));
        }
        let damaged = |place: &str, problem: &str| ContentsError::Content {
            place: place.to_owned(),
            problem: problem.to_owned(),
        };
        if tree.parsed::<u32>("RANKS") != Some(ranks) {
            return Err(damaged("RANKS", "it is not the number of tasks without the last"));
        }
        let mut contents = Contents::default();
        for (rank_text, of_rank) in tree.get("RANK").into_iter().flat_map(Tree::iter) {
            let place = format!("RANK/{rank_text}");
            let rank: Option<u32> = rank_text.parse().ok().filter(|rank| *rank < ranks);
            let rank = Rank(rank.ok_or_else(|| damaged(&place, "there is no such rank"))?);
            let mut at = 0_u64;
            for ((name, of_file), key) in of_rank.get("FILE").into_iter().flat_map(Tree::iter).zip(0..) {
                if let Err(problem) = check_base_name(name) {
                    return Err(damaged(&place, &format!("the name {name:?} is refused: {problem}")));
                }
                let bytes = of_file.single("SIZE").and_then(|bytes| bytes.parse().ok());
                let bytes: u64 = bytes.ok_or_else(|| damaged(&place, &format!("{name:?} has no size")))?;
                let overflow = || damaged(&place, "the sizes of its files do not add up");
                let offset = at.checked_add(RECORD_HEADER).ok_or_else(overflow)?;
                at = offset.checked_add(bytes).ok_or_else(overflow)?;
                if contents.files.insert(name.to_owned(), ContentsEntry { rank, key, offset, bytes }).is_some() {
                    return Err(damaged(&place, &format!("the file {name:?} is listed twice")));
                }
            }
            if contents.streams.insert(rank, at).is_some() {
                return Err(damaged(&place, "the rank is listed twice"));
            }
        }
        Ok(contents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(ranks: &[(u32, &[(&str, u64)])]) -> BTreeMap<Rank, PackedRank> {
        let file = |(name, bytes): &(&str, u64)| PackedFile { name: (*name).to_owned(), bytes: *bytes };
        let of_rank = |(rank, files): &(u32, &[(&str, u64)])| {
            (Rank(*rank), PackedRank { first_chunk: 0, files: files.iter().map(file).collect() })
        };
        ranks.iter().map(of_rank).collect()
    }

    fn read(bytes: &[u8], ranks: u32) -> Result<Contents, ContentsError> {
        Contents::read(Path::new("x"), bytes, ranks)
    }

    #[test]
    fn a_table_of_contents_gives_the_place_of_each_file() {
        let bytes = encode(3, &packed(&[(0, &[("a", 10), ("a.scr", 5)]), (2, &[("b", 0)])]));
        let contents = read(&bytes, 3).unwrap();
        let entry = |rank, key, offset, bytes| ContentsEntry { rank: Rank(rank), key, offset, bytes };
        assert_eq!(contents.files["a"], entry(0, 0, 16, 10));
        assert_eq!(contents.files["a.scr"], entry(0, 1, 42, 5));
        assert_eq!(contents.files["b"], entry(2, 0, 16, 0));
        assert_eq!(contents.streams, BTreeMap::from([(Rank(0), 47), (Rank(2), 16)]));
    }

    #[test]
    fn a_table_of_contents_that_lies_is_refused() {
        for (ranks, files) in [
            (4, packed(&[(0, &[("a", 1)])])),
            (3, packed(&[(3, &[("a", 1)])])),
            (3, packed(&[(0, &[("a", 1)]), (1, &[("a", 1)])])),
            (3, packed(&[(0, &[("../a", 1)])])),
            (3, packed(&[(0, &[("a", u64::MAX - 3)])])),
        ] {
            assert!(read(&encode(ranks, &files), 3).is_err(), "{files:?}");
        }
        let good = encode(3, &packed(&[(0, &[("a", 1)])]));
        for end in 0..good.len() {
            assert!(read(&good[..end], 3).is_err(), "cut at {end}");
        }
    }
}
