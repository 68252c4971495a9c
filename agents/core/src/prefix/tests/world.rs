//! Prefix directories for tests.

use std::fs;
use std::path::{Path, PathBuf};

use chrono::NaiveDateTime;

use crate::control::meta::{FileKind, Meta};
use crate::kvtree::{Tree, file};
use crate::prefix::add::{AddOptions, AddReport, add};
use crate::prefix::rank_filemap::{FilemapWriter, RankFilemap};
use crate::prefix::{DirectoryName, Prefix, PrefixError};
use crate::redundancy::files::MemberFiles;
use crate::redundancy::xor;
use crate::redundancy::xor::header::{XorHeader, chunk_size};
use holdfast_model::{CheckpointId, Rank};

/// A local time as the index writes it.
pub fn time(text: &str) -> NaiveDateTime {
    NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S").unwrap()
}

/// A time for tests that do not depend on it.
pub fn some_time() -> NaiveDateTime {
    time("2026-11-20T10:22:24")
}

pub fn name(text: &str) -> DirectoryName {
    DirectoryName::new(text).unwrap()
}

pub fn add_now(prefix: &Path, directory: &str) -> Result<AddReport, PrefixError> {
    add_with(prefix, directory, &AddOptions::default())
}

pub fn add_with(prefix: &Path, directory: &str, options: &AddOptions) -> Result<AddReport, PrefixError> {
    add(&Prefix::open(prefix)?, &name(directory), some_time(), options, &|_| {})
}

/// All names in a directory, sorted, without Holdfast's own directory.
pub fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != ".holdfast");
    names.sort();
    names
}

/// Every file below a directory with its bytes, to check that nothing changed.
pub fn snapshot(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    holdfast_testkit::files_below(directory)
        .into_iter()
        .filter(|path| !path.components().any(|part| part.as_os_str() == ".holdfast"))
        .map(|path| {
            let link = fs::read_link(&path).map(|target| target.into_os_string().into_encoded_bytes());
            let bytes = link.or_else(|_| fs::read(&path)).unwrap_or_default();
            (path, bytes)
        })
        .collect()
}

/// Writes a tree as a hash file.
pub fn write_tree(path: &Path, tree: &Tree) {
    file::write(path, tree).unwrap();
}

/// A drained checkpoint of ranks in XOR sets of `set_size`, one application file of a few bytes a rank. Without the
/// library's or our own encoder, so that the two are not tested against each other.
pub fn drained_checkpoint(directory: &Path, id: u64, ranks: u32, set_size: u32) {
    fs::create_dir_all(directory).unwrap();
    let data: Vec<Vec<u8>> = (0..ranks).map(|rank| format!("data of rank {rank:8}").into_bytes()).collect();
    for first in (0..ranks).step_by(set_size as usize) {
        let members: Vec<u32> = (first..(first + set_size).min(ranks)).collect();
        let count = members.len() as u32;
        let longest = members.iter().map(|rank| data[*rank as usize].len()).max().unwrap() as u64;
        let chunk = chunk_size(longest, count);
        let files = |rank: u32| MemberFiles {
            rank: Rank(rank),
            files: vec![app_meta(id, rank, ranks, &data[rank as usize], false)],
        };
        for (index, rank) in members.iter().enumerate() {
            let header = XorHeader {
                chunk,
                checkpoint: CheckpointId(id),
                ranks,
                members: members.iter().map(|rank| Rank(*rank)).collect(),
                current: files(*rank),
                partner: files(members[(index + members.len() - 1) % members.len()]),
            };
            let mut data_of_set = vec![0_u8; chunk as usize];
            for (other, other_rank) in members.iter().enumerate().filter(|(other, _)| *other != index) {
                let slot = if index < other { index } else { index - 1 };
                let start = slot * chunk as usize;
                for (at, byte) in data_of_set.iter_mut().enumerate() {
                    *byte ^= data[*other_rank as usize].get(start + at).copied().unwrap_or(0);
                }
            }
            let mut bytes = file::encode(&header.to_tree());
            bytes.extend(data_of_set);
            let xor_name = format!("{}_of_{count}_in_{first}.xor", index + 1);
            let application = app_meta(id, *rank, ranks, &data[*rank as usize], true);
            let redundancy = Meta {
                file: xor_name.clone(),
                kind: FileKind::Redundancy(xor::NAME),
                size: bytes.len() as u64,
                crc: Some(crc32fast::hash(&bytes)),
                ..application.clone()
            };
            for (meta, bytes) in [(&application, &data[*rank as usize]), (&redundancy, &bytes)] {
                fs::write(directory.join(&meta.file), bytes).unwrap();
                fs::write(directory.join(format!("{}.scr", meta.file)), file::encode(&meta.to_tree())).unwrap();
            }
            let filemap = RankFilemap {
                rank: Rank(*rank),
                id: CheckpointId(id),
                files: vec![xor_name, application.file],
                expected: 2,
            };
            let path = RankFilemap::path_in(directory, Rank(*rank));
            fs::write(path, file::encode(&filemap.to_tree(FilemapWriter::Copy))).unwrap();
        }
    }
}

fn app_meta(id: u64, rank: u32, ranks: u32, data: &[u8], crc: bool) -> Meta {
    Meta {
        file: format!("rank_{rank}.ckpt"),
        kind: FileKind::Full,
        size: data.len() as u64,
        checkpoint: CheckpointId(id),
        rank: Rank(rank),
        ranks,
        complete: true,
        crc: crc.then(|| crc32fast::hash(data)),
        output_path: None,
    }
}
