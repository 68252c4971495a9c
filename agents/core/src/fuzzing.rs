//! The parsers of this crate as targets of mutation tests and fuzzing, with what must hold for any input.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use chrono::{FixedOffset, NaiveDateTime};
use holdfast_model::Rank;
use holdfast_testkit::fuzz::{FuzzTarget, SCR_KEYS, fixture_files, texts};

use crate::control::filemap::{Filemap, log};
use crate::control::flush::FlushFile;
use crate::control::halt::HaltFile;
use crate::control::meta::Meta;
use crate::control::node_path::real_path;
use crate::control::nodes;
use crate::control::transfer::TransferFile;
use crate::hostlist;
use crate::kvtree::limits::Limits;
use crate::kvtree::packed::{HEADER_BYTES, decode, decode_prefix, encode};
use crate::kvtree::{Tree, print};
use crate::prefix::rank_filemap::{FilemapWriter, RankFilemap};
use crate::prefix::{Index, Summary, index};
use crate::redundancy::descriptor;
use crate::redundancy::files::MemberFiles;
use crate::redundancy::parity::ParityScheme;
use crate::redundancy::parity::header::ParityHeader;
use crate::redundancy::rs;
use crate::redundancy::xor;
use crate::redundancy::xor::name::XorName;
use crate::store::base_name::check_base_name;
use crate::store::{DirectoryName, NameParts};

/// A target whose input is the packed tree of a hash file. Header and CRC are added, so that changes reach the reader
/// of the tree.
macro_rules! tree_target {
    ($name:literal, $ending:literal, $check:expr) => {
        FuzzTarget {
            name: $name,
            corpus: || fixture_files(&["scr"], &[$ending]).iter().filter_map(|file| body(file)).collect(),
            words: SCR_KEYS,
            check: |bytes| {
                if let Ok((tree, _)) = decode(&with_header(bytes)) {
                    $check(tree);
                }
            },
        }
    };
}

pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "hash_file", corpus: hash_files, words: SCR_KEYS, check: hash_file },
    tree_target!("filemap", "filemap_0.scrinfo", filemap),
    tree_target!("flush_file", "flush.scrinfo", flush_file),
    tree_target!("halt_file", "halt.scrinfo", halt_file),
    tree_target!("nodes_file", "nodes.scrinfo", |tree| drop(nodes::from_tree(&tree))),
    tree_target!("transfer_file", "transfer.scrinfo", transfer_file),
    tree_target!("meta_file", "ckpt.scr", meta_file),
    tree_target!("index", "index.scr", index_file),
    tree_target!("summary", "summary.scr", summary),
    tree_target!("rank_filemap", ".scrfilemap", rank_filemap),
    tree_target!("xor_header", ".xor", |tree| parity_header(&xor::PARITY, tree)),
    FuzzTarget {
        name: "rs_header",
        corpus: rs_headers,
        words: SCR_KEYS,
        check: |bytes| {
            if let Ok((tree, _)) = decode(&with_header(bytes)) {
                parity_header(&rs::PARITY, tree);
            }
        },
    },
    FuzzTarget { name: "filemap_log", corpus: filemap_logs, words: SCR_KEYS, check: filemap_log },
    FuzzTarget { name: "hostlist", corpus: hostlists, words: &["[", "]", ",", "-", "node", "."], check: hostlist_text },
    FuzzTarget {
        name: "names",
        corpus: names,
        words: &["scr.", "_of_", "_in_", ".xor", ".rs", "../", "/"],
        check: name,
    },
];

/// The packed tree of a hash file.
fn body(file: &[u8]) -> Option<Vec<u8>> {
    let (_, length) = decode(file).ok()?;
    Some(file[HEADER_BYTES..length - size_of::<u32>()].to_vec())
}

/// The hash file of a packed tree.
fn with_header(body: &[u8]) -> Vec<u8> {
    let mut file = encode(&Tree::new())[..HEADER_BYTES].to_vec();
    file.extend(body);
    let size = file.len() as u64 + size_of::<u32>() as u64;
    file[8..16].copy_from_slice(&size.to_be_bytes());
    let crc = crc32fast::hash(&file);
    file.extend(crc.to_be_bytes());
    file
}

fn hash_files() -> Vec<Vec<u8>> {
    fixture_files(&["scr"], &[".scrinfo", ".scr", ".scrfilemap", ".xor"])
}

fn hash_file(bytes: &[u8]) {
    let decoded = decode(bytes);
    let mut rest = bytes;
    let from_stream = decode_prefix(&mut rest, Limits::LARGEST);
    match decoded {
        Ok((tree, length)) => {
            let (streamed, streamed_length) = from_stream.unwrap();
            assert_eq!((&streamed, streamed_length), (&tree, length as u64));
            assert_eq!(decode(&encode(&tree)).unwrap().0, tree);
            // A key a line.
            assert!(print::text(&tree).lines().count() >= tree.len());
            let json = serde_json::to_string(&tree).unwrap();
            assert_eq!(serde_json::from_str::<Tree>(&json).unwrap(), tree);
        }
        Err(_) => assert!(from_stream.is_err()),
    }
    let _ = serde_json::from_slice::<Tree>(bytes);
}

fn filemap(tree: Tree) {
    for (_, descriptor) in tree.get("CKPTDESC").into_iter().flat_map(Tree::iter) {
        let _ = descriptor::from_tree(descriptor);
    }
    let Ok(mut map) = Filemap::from_tree(tree) else { return };
    let merged = {
        let mut other = map.clone();
        other.merge(&map);
        other
    };
    assert_eq!(merged.checkpoints(), map.checkpoints());
    for id in map.checkpoints() {
        for rank in map.ranks(id) {
            for path in map.files(id, rank) {
                if let Ok(real) = real_path(Path::new("/srv/node"), path) {
                    assert!(real.starts_with("/srv/node"), "{path:?}");
                }
            }
            let _ = (map.is_complete(id, rank), map.partner(id, rank));
            let _ = map.descriptor(id, rank).map(descriptor::from_tree);
        }
    }
    let _ = map.extract_rank(Rank(0));
    for id in map.checkpoints() {
        map.remove_checkpoint(id);
        assert!(map.ranks(id).is_empty());
    }
}

fn flush_file(tree: Tree) {
    if let Ok(mut flush) = FlushFile::from_tree(tree) {
        for id in flush.checkpoints() {
            let locations = flush.locations(id);
            flush.record(id, locations.unwrap_or_default());
            assert!(flush.remove(id));
        }
    }
}

fn halt_file(tree: Tree) {
    let Ok(mut halt) = HaltFile::from_tree(tree) else { return };
    let east = FixedOffset::east_opt(14 * 3600).unwrap();
    for now in [i64::MIN, -1, 1_795_170_192, i64::MAX] {
        for reason in halt.check(now, Some(now), None) {
            assert!(!reason.message(&east).is_empty());
        }
    }
    halt.decrement();
    assert_eq!(HaltFile::from_tree(halt.tree().clone()).unwrap(), halt);
}

fn transfer_file(tree: Tree) {
    let Ok(mut transfers) = TransferFile::from_tree(tree) else { return };
    let files = transfers.files();
    transfers.request(&files, 1.0, 0.0);
    for file in &files {
        transfers.set_written(&file.source, file.size);
    }
    assert!(transfers.all_written());
    let _ = (transfers.bandwidth(), transfers.percent(), transfers.command(), transfers.state());
}

fn meta_file(tree: Tree) {
    if let Ok(meta) = Meta::from_tree(&tree) {
        assert!(!meta.file.contains('/') && meta.file != "..");
        assert_eq!(Meta::from_tree(&meta.to_tree()).unwrap(), meta);
    }
}

fn index_file(tree: Tree) {
    let Ok(mut index) = Index::from_tree(tree, Path::new("index.scr")) else { return };
    let entries = index.entries();
    let _ = index::list_text(&entries);
    for entry in entries {
        assert!(!entry.directory.as_str().contains('/'));
        index.mark_failed(&entry.directory, NaiveDateTime::default(), Some("damaged"));
        let marked = index.entry(&entry.directory);
        assert!(marked.is_some_and(|entry| !entry.is_usable()), "{} can still be chosen", entry.directory);
    }
    for entry in index.entries() {
        index.remove(&entry.directory);
    }
    assert!(index.entries().is_empty(), "an entry cannot be removed");
}

fn summary(tree: Tree) {
    let Ok(summary) = Summary::from_tree(&tree, Path::new("summary.scr")) else { return };
    let accepted = summary.accept(summary.ranks).is_ok();
    assert!(!accepted || summary.by_rank.len() == summary.ranks as usize, "complete without all ranks");
    for file in summary.by_rank.values().flat_map(|rank| &rank.files) {
        assert!(check_base_name(&file.name).is_ok());
        assert!(!accepted || !file.fetch || (file.size.is_some() && !file.failed), "complete with a lost file");
    }
    let again = Summary::from_tree(&summary.to_tree(), Path::new("summary.scr")).unwrap();
    assert_eq!((again.id, again.ranks, again.complete), (summary.id, summary.ranks, summary.complete));
}

fn rank_filemap(tree: Tree) {
    if let Ok(map) = RankFilemap::from_tree(&tree, Path::new("0.scrfilemap")) {
        assert!(map.files.iter().all(|name| check_base_name(name).is_ok()));
        for writer in [FilemapWriter::Copy, FilemapWriter::Rebuild] {
            assert_eq!(RankFilemap::from_tree(&map.to_tree(writer), Path::new("0.scrfilemap")).unwrap(), map);
        }
    }
}

fn parity_header(scheme: &'static ParityScheme, tree: Tree) {
    let _ = MemberFiles::from_tree(&tree, "input");
    if let Ok(header) = ParityHeader::from_tree(scheme, &tree, "input") {
        assert!(header.index().is_some());
        assert!(header.known().count() as u32 == header.failures() + 1 && header.failures() < header.size());
        assert_eq!(ParityHeader::from_tree(scheme, &header.to_tree(), "input").unwrap(), header);
    }
}

/// The headers of the XOR files as those of Reed-Solomon files that survive two losses.
fn rs_headers() -> Vec<Vec<u8>> {
    let files = fixture_files(&["scr"], &[".xor"]);
    let headers = files.iter().filter_map(|file| {
        let (tree, _) = decode(file).ok()?;
        let mut header = ParityHeader::from_tree(&xor::PARITY, &tree, "fixture").ok()?;
        header.scheme = &rs::PARITY;
        let second = (header.index()? + header.size()).checked_sub(2)? % header.size();
        let files = MemberFiles { rank: header.members[second as usize], files: Vec::new() };
        header.left.extend((header.size() > 2).then_some(files));
        body(&encode(&header.to_tree()))
    });
    headers.collect()
}

/// The records of a log are separated by this in the input.
const BETWEEN_RECORDS: &[u8] = b"\xff\xff";

fn filemap_logs() -> Vec<Vec<u8>> {
    let records = [
        r#"{"CKPT":{"3":{}},"RANK":{"1":{}},"CHANGE":{"ADD_FILE":{}},"FILE":{"/tmp/a":{}}}"#,
        r#"{"CKPT":{"3":{}},"RANK":{"1":{}},"CHANGE":{"SET_EXPECTED":{}},"EXPECT":{"1":{}}}"#,
        r#"{"CKPT":{"3":{}},"RANK":{"1":{}},"CHANGE":{"SET_PARTNER":{}},"PARTNER":{"n2":{}}}"#,
        r#"{"CKPT":{"3":{}},"RANK":{"1":{}},"CHANGE":{"SET_DESCRIPTOR":{}},"CKPTDESC":{"TYPE":{"XOR":{}}}}"#,
        r#"{"CKPT":{"3":{}},"RANK":{"1":{}},"CHANGE":{"REMOVE_FILE":{}},"FILE":{"/tmp/a":{}}}"#,
        r#"{"CKPT":{"3":{}},"RANK":{"1":{}},"CHANGE":{"REMOVE_RANK":{}}}"#,
        r#"{"CKPT":{"3":{}},"CHANGE":{"REMOVE_CHECKPOINT":{}}}"#,
    ];
    let records = records.map(|json| body(&encode(&serde_json::from_str(json).unwrap())).unwrap());
    vec![records.join(BETWEEN_RECORDS), records[..4].join(BETWEEN_RECORDS)]
}

fn filemap_log(bytes: &[u8]) {
    let mut records = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(BETWEEN_RECORDS.len()).position(|window| window == BETWEEN_RECORDS) {
        records.extend(with_header(&rest[..at]));
        rest = &rest[at + BETWEEN_RECORDS.len()..];
    }
    records.extend(with_header(rest));
    for records in [&records, bytes] {
        if let Ok(map) = log::replayed(records) {
            assert_eq!(Filemap::from_tree(map.tree().clone()).unwrap(), map);
        }
    }
}

fn hostlists() -> Vec<Vec<u8>> {
    texts(&[
        "node[1-4,7]",
        "a[1-2],b3",
        "rack1-node[08-11].cluster",
        "r[1-2]n[1-3]",
        "login",
        "10.0.0.1,n1,n1",
        "n[4-2]",
    ])
}

fn hostlist_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(mut names) = hostlist::expand(text) else { return };
    assert!(names.len() <= hostlist::MAX_HOSTS);
    if names.len() > 1000 {
        return;
    }
    let mut again = hostlist::expand(&hostlist::compress(&names)).unwrap();
    names.sort();
    again.sort();
    assert_eq!(again, names);
    assert!(hostlist::subtract(&names, &again).is_empty());
    let _ = hostlist::nth(&names, -1);
}

fn names() -> Vec<Vec<u8>> {
    texts(&["3_of_4_in_0.xor", "scr.2026-11-20_10:21:52.1145655.2", "rank_2.ckpt", "/tmp/user1/scr.1/index.0", "../a"])
}

fn name(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(name) = XorName::parse(text) {
        assert_eq!(XorName::parse(&name.to_string()), Some(name));
    }
    if let Some(parts) = NameParts::parse(text) {
        assert_eq!(NameParts::parse(&parts.to_string()), Some(parts));
    }
    if let Ok(name) = DirectoryName::new(text) {
        assert_eq!(Path::new("/prefix").join(name.as_str()).parent(), Some(Path::new("/prefix")));
    }
    if let Ok(path) = real_path(Path::new("/srv/node"), text) {
        assert!(path.starts_with("/srv/node"));
        assert!(path.components().all(|part| part != std::path::Component::ParentDir));
    }
}

#[cfg(test)]
mod tests {
    holdfast_testkit::mutation_test!(super::TARGETS, 20_000);
}
