//! Invalid and hostile files: each gives an error that names file, place and remedy, or counts as damage; nothing
//! outside the checkpoint directory is read or written, no file is changed, and no call blocks.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::world::{add_now, at, drained_checkpoint, name, snapshot, some_time, write_tree};
use crate::control::meta::Meta;
use crate::kvtree::{Tree, file};
use crate::prefix::add::AddOutcome;
use crate::prefix::inspect::{LossReason, inspect};
use crate::prefix::rank_filemap::RankFilemap;
use crate::prefix::scan::{FileDamage, ScanOptions, scan};
use crate::prefix::verify::VerifyUnit;
use crate::prefix::{index, publish, summary};
use crate::store::{DatasetStore as _, DirectoryName, PosixStore, PrefixError};
use holdfast_model::{CheckpointId, Rank};

fn summary_tree(file_name: &str) -> Tree {
    let mut tree = Tree::new();
    let checkpoint = tree.set_kv("CKPT", 3);
    checkpoint.put("COMPLETE", 1);
    checkpoint.put("RANKS", 1);
    checkpoint.set_kv("RANK", 0).set_kv("FILE", file_name).put("SIZE", 10);
    tree.put("VERSION", 5);
    tree
}

/// A hash file with 100,000 levels, with valid size and CRC.
fn deep_file() -> Vec<u8> {
    let depth = 100_000;
    let mut bytes = vec![0x95, 0x1f, 0xc3, 0xf5, 0, 1, 0, 1];
    bytes.extend((20 + depth as u64 * 6 + 4 + 4).to_be_bytes());
    bytes.extend(1_u32.to_be_bytes());
    for _ in 0..depth {
        bytes.extend([0, 0, 0, 1, b'a', 0]);
    }
    bytes.extend([0; 4]);
    let crc = crc32fast::hash(&bytes);
    bytes.extend(crc.to_be_bytes());
    bytes
}

/// A prefix directory with checkpoint 3 in its directory `d`.
fn drained(ranks: u32, set_size: u32) -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("d");
    drained_checkpoint(&directory, 3, ranks, set_size);
    (scratch, directory)
}

#[test]
fn a_summary_that_names_a_file_elsewhere_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    for bad in ["../../etc/passwd", "/etc/passwd", "..", "sub/rank_0.ckpt"] {
        write_tree(&scratch.path().join(summary::SUMMARY_FILE), &summary_tree(bad));
        let before = snapshot(scratch.path());
        let error = summary::read(&*at(scratch.path())).unwrap_err();
        assert!(matches!(&error, PrefixError::Name { name, .. } if name == bad));
        let message = error.to_string();
        for part in [
            scratch.path().join(summary::SUMMARY_FILE).to_str().unwrap(),
            "CKPT/3/RANK/0/FILE",
            bad,
            "holdfast index add",
        ] {
            assert!(message.contains(part), "{message}");
        }
        assert!(snapshot(scratch.path()) == before);
    }
    write_tree(&scratch.path().join(summary::SUMMARY_FILE), &summary_tree("rank_0.ckpt"));
    assert_eq!(summary::read(&*at(scratch.path())).unwrap().accept(1), Ok(()));
}

#[test]
fn impossible_numbers_in_a_summary_are_named_with_their_place() {
    let scratch = tempfile::tempdir().unwrap();
    let refuse = |change: &dyn Fn(&mut Tree), part: &str| {
        let mut tree = summary_tree("rank_0.ckpt");
        change(&mut tree);
        write_tree(&scratch.path().join(summary::SUMMARY_FILE), &tree);
        let message = summary::read(&*at(scratch.path())).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    };
    refuse(&|tree| tree.put("VERSION", 4), "version 4");
    refuse(&|tree| tree.set_kv("CKPT", 3).put("RANKS", "many"), "CKPT/3/RANKS");
    refuse(
        &|tree| {
            tree.set_kv("CKPT", 3).set_kv("RANK", 1);
        },
        "only 1 ranks",
    );
    refuse(
        &|tree| {
            tree.set_kv("CKPT", 3).set_kv("RANK", "x");
        },
        "CKPT/3/RANK/x",
    );
    refuse(
        &|tree| tree.set_kv("CKPT", 3).set_kv("RANK", 0).set_kv("FILE", "f").put("SIZE", "-1"),
        "CKPT/3/RANK/0/FILE/f/SIZE",
    );
    refuse(&|tree| tree.set_kv("CKPT", 3).set_kv("RANK", 0).set_kv("FILE", "f").put("CRC", "0x1ffffffff"), "f/CRC");
}

#[test]
fn a_missing_or_outdated_summary_is_an_error_with_remedy() {
    let scratch = tempfile::tempdir().unwrap();
    assert!(matches!(summary::read(&*at(scratch.path())), Err(PrefixError::NoSummary { .. })));
    fs::write(scratch.path().join("scr_summary.txt"), "0 1 2").unwrap();
    let error = summary::read(&*at(scratch.path())).unwrap_err();
    assert!(matches!(error, PrefixError::OldSummary { .. }));
    assert!(error.to_string().contains("scr_summary.txt"));
}

#[test]
fn an_index_that_names_a_directory_elsewhere_is_refused_and_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let prefix = PosixStore::open(scratch.path()).unwrap();
    for bad in ["../../elsewhere", "/tmp", ".."] {
        let mut tree = Tree::new();
        tree.set_kv("CKPT", 3).set_kv("DIR", bad).put("COMPLETE", 1);
        tree.set_kv("DIR", bad).set_kv("CKPT", 3);
        tree.put("VERSION", 1);
        write_tree(&scratch.path().join("index.scr"), &tree);
        let before = snapshot(scratch.path());
        let error = index::update(&prefix, |index| index.add(CheckpointId(4), &name("d"), some_time())).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("index.scr") && message.contains(bad) && message.contains("CKPT/3/DIR"), "{message}");
        assert!(snapshot(scratch.path()) == before);
    }
}

#[test]
fn a_damaged_index_is_named_and_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let prefix = PosixStore::open(scratch.path()).unwrap();
    drained_checkpoint(&scratch.path().join("d"), 3, 2, 2);
    index::update(&prefix, |index| index.add(CheckpointId(1), &name("d1"), some_time())).unwrap();
    let path = scratch.path().join("index.scr");
    let good = fs::read(&path).unwrap();
    let deep = deep_file();
    for bytes in [&good[..good.len() / 2], b"", b"no index at all, but text", &deep] {
        fs::write(&path, bytes).unwrap();
        let before = snapshot(scratch.path());
        let error = add_now(scratch.path(), "d").unwrap_err();
        assert!(matches!(error, PrefixError::HashFile(_)), "{error}");
        assert!(error.to_string().contains("index.scr"), "{error}");
        assert!(snapshot(scratch.path()) == before);
    }
}

#[test]
fn a_current_link_that_leads_elsewhere_is_refused_and_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let prefix = PosixStore::open(scratch.path()).unwrap();
    for bad in ["../other/scr.current", "/etc", ".."] {
        symlink(bad, scratch.path().join("scr.current")).unwrap();
        let message = prefix.current().unwrap_err().to_string();
        assert!(message.contains("scr.current") && message.contains(bad), "{message}");
        assert_eq!(fs::read_link(scratch.path().join("scr.current")).unwrap(), Path::new(bad));
        assert!(publish::remove_current(&prefix).unwrap());
    }
    // A file that is not a link is never removed.
    fs::write(scratch.path().join("scr.current"), "text").unwrap();
    assert!(prefix.current().is_err());
    assert!(publish::remove_current(&prefix).is_err());
    assert!(scratch.path().join("scr.current").exists());
}

#[test]
fn a_prefix_or_directory_that_is_not_there_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let missing = scratch.path().join("nowhere");
    assert!(matches!(PosixStore::open(&missing), Err(PrefixError::NoPrefix { problem: "does not exist", .. })));
    fs::write(scratch.path().join("file"), "").unwrap();
    assert!(matches!(
        PosixStore::open(scratch.path().join("file")),
        Err(PrefixError::NoPrefix { problem: "is not a directory", .. })
    ));
    symlink("loop", scratch.path().join("loop")).unwrap();
    for (directory, part) in [("absent", "absent"), ("file", "file"), ("loop", "loop")] {
        let error = add_now(scratch.path(), directory).unwrap_err();
        assert!(matches!(error, PrefixError::Io { .. } | PrefixError::Owned(_)), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(!scratch.path().join("index.scr").exists());
    for given in ["../x", "/x", "a/b", "", ".."] {
        assert!(DirectoryName::given(given).is_err(), "{given}");
    }
    assert_eq!(DirectoryName::given("scr.1/").unwrap().as_str(), "scr.1");
}

#[test]
fn a_filemap_that_names_a_file_elsewhere_counts_as_lost() {
    let (scratch, directory) = drained(4, 4);
    for bad in ["../../etc/passwd", "/etc/passwd"] {
        let path = directory.join("1.scrfilemap");
        let mut tree = Tree::new();
        let record = tree.set_kv("RANK", 1).set_kv("CKPT", 3);
        record.put("EXPECT", 1);
        record.set_kv("FILE", bad);
        write_tree(&path, &tree);
        let error = RankFilemap::read(&*at(&directory), "1.scrfilemap").unwrap_err();
        assert!(matches!(&error, PrefixError::Name { place, .. } if place == "RANK/1/CKPT/3/FILE"), "{error}");
        let scanned = scan(&at(&directory), ScanOptions::default()).unwrap();
        assert!(matches!(&scanned.damaged[..], [file] if matches!(file.damage, FileDamage::Filemap(_))));
    }
    // The XOR header lists the rank's files: the filemap is restored from it, and the forged one is removed.
    let report = add_now(scratch.path(), "d").unwrap();
    assert_eq!(report.outcome, AddOutcome::Complete);
    let restored = RankFilemap::read(&*at(&directory), "1.scrfilemap").unwrap();
    assert_eq!(restored.files, ["2_of_4_in_0.xor", "rank_1.ckpt"]);
}

#[test]
fn an_xor_header_that_names_a_file_elsewhere_writes_nothing_there() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("prefix/d");
    drained_checkpoint(&directory, 3, 4, 4);
    for file in ["rank_1.ckpt", "rank_1.ckpt.scr", "2_of_4_in_0.xor", "2_of_4_in_0.xor.scr", "1.scrfilemap"] {
        fs::remove_file(directory.join(file)).unwrap();
    }
    // Member 2's PARTNER describes the lost member 1.
    let path = directory.join("3_of_4_in_0.xor");
    let bytes = fs::read(&path).unwrap();
    let (mut tree, length) = file::decode(&bytes).unwrap();
    let partner = tree.get_mut("PARTNER").and_then(|it| it.get_mut("FILE")).and_then(|it| it.get_mut("0")).unwrap();
    partner.put("FILE", "../../escaped");
    let mut forged = file::encode(&tree);
    forged.extend(&bytes[length..]);
    let mut meta = Meta::read(&path).unwrap();
    (meta.size, meta.crc) = (forged.len() as u64, Some(crc32fast::hash(&forged)));
    fs::write(&path, forged).unwrap();
    meta.write(&path).unwrap();
    let report = add_now(&scratch.path().join("prefix"), "d").unwrap();
    assert_eq!(report.outcome, AddOutcome::Incomplete, "{report:?}");
    assert!(report.rebuilt.is_empty());
    assert!(!scratch.path().join("escaped").exists() && !scratch.path().join("prefix/escaped").exists());
}

#[test]
fn a_verify_unit_reads_nothing_elsewhere() {
    let scratch = tempfile::tempdir().unwrap();
    fs::create_dir(scratch.path().join("d")).unwrap();
    fs::write(scratch.path().join("secret"), "").unwrap();
    let unit = VerifyUnit { rank: Rank(0), name: "../secret".to_owned(), size: 0, crc: 0, output_path: None };
    assert!(matches!(unit.check(&*at(&scratch.path().join("d")), &|_| {}), Err(FileDamage::Unreadable(_))));
}

#[test]
fn a_damaged_meta_file_makes_only_its_member_incomplete() {
    let deep = deep_file();
    for bytes in [&b""[..], &b"\x95\x1f\xc3\xf5\0\x01"[..], &deep] {
        let (scratch, directory) = drained(8, 4);
        fs::write(directory.join("rank_6.ckpt.scr"), bytes).unwrap();
        let report = add_now(scratch.path(), "d").unwrap();
        assert_eq!(report.outcome, AddOutcome::Complete);
        assert_eq!(report.rebuilt.iter().flat_map(|set| set.ranks.clone()).collect::<Vec<_>>(), [Rank(6)]);
        assert_eq!(report.damaged[0].name, "rank_6.ckpt");
    }
}

#[test]
fn links_pipes_and_directories_are_not_opened_as_files() {
    let (scratch, directory) = drained(8, 4);
    let pipe = |file: &str| mknodat(CWD, directory.join(file), FileType::Fifo, Mode::RUSR, 0).unwrap();
    // A pipe as a meta file, a file, a filemap: opening it would block.
    fs::remove_file(directory.join("rank_0.ckpt.scr")).unwrap();
    pipe("rank_0.ckpt.scr");
    fs::remove_file(directory.join("rank_0.ckpt")).unwrap();
    pipe("rank_0.ckpt");
    fs::remove_file(directory.join("3.scrfilemap")).unwrap();
    pipe("3.scrfilemap");
    // A link that leads to itself, one that leads to another file, and a directory.
    fs::remove_file(directory.join("rank_5.ckpt")).unwrap();
    symlink("rank_5.ckpt", directory.join("rank_5.ckpt")).unwrap();
    symlink("loop.scr", directory.join("loop.scr")).unwrap();
    symlink("/etc/passwd", directory.join("other.scr")).unwrap();
    pipe("summary.scr");
    fs::create_dir(directory.join("directory.scr")).unwrap();
    let scanned = scan(&at(&directory), ScanOptions::default()).unwrap();
    let names: Vec<_> = scanned.damaged.iter().map(|file| file.name.as_str()).collect();
    for expected in ["rank_0.ckpt.scr", "3.scrfilemap", "rank_5.ckpt", "loop.scr", "other.scr", "directory.scr"] {
        assert!(names.contains(&expected), "{expected} in {names:?}");
    }
    let ranks: Vec<_> = inspect(&scanned).rebuildable.iter().flat_map(|set| &set.ranks).map(|rank| rank.0).collect();
    assert_eq!(ranks, [0, 5]);
    assert!(matches!(summary::read(&*at(&directory)), Err(PrefixError::HashFile(_))));
    mknodat(CWD, scratch.path().join("index.scr"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert!(matches!(add_now(scratch.path(), "d"), Err(PrefixError::Io { .. })));
}

#[test]
fn billions_of_ranks_and_members_are_judged_at_once() {
    let (scratch, directory) = drained(2, 2);
    for file in ["1_of_2_in_0.xor", "2_of_2_in_0.xor", "rank_0.ckpt", "rank_1.ckpt"] {
        let path = directory.join(file);
        let mut meta = Meta::read(&path).unwrap();
        meta.ranks = u32::MAX;
        fs::remove_file(directory.join(format!("{file}.scr"))).unwrap();
        let renamed = file.replace("_of_2_in", "_of_4294967295_in");
        fs::rename(&path, directory.join(&renamed)).unwrap();
        meta.file.clone_from(&renamed);
        meta.write(&directory.join(&renamed)).unwrap();
    }
    let report = add_now(scratch.path(), "d").unwrap();
    assert_eq!(report.outcome, AddOutcome::Incomplete);
    assert!(
        report.reasons.contains(&LossReason::RanksMissing { first: Rank(2), last: Rank(u32::MAX - 1) }),
        "{:?}",
        report.reasons
    );
}

#[test]
fn a_file_whose_type_names_another_scheme_than_its_name_is_damaged() {
    let scratch = tempfile::tempdir().unwrap();
    drained_checkpoint(scratch.path(), 3, 2, 2);
    for (file_name, kind) in [("rank_0.ckpt", "PARTNER"), ("1_of_2_in_0.xor", "PARTNER"), ("rank_0.ckpt", "XOR")] {
        let path = scratch.path().join(format!("{file_name}.scr"));
        let good = fs::read(&path).unwrap();
        let mut tree = file::read(&path).unwrap();
        tree.unset("TYPE");
        tree.put("TYPE", kind);
        write_tree(&path, &tree);
        let scanned = scan(&at(scratch.path()), ScanOptions::default()).unwrap();
        let damaged = |file: &&crate::prefix::scan::DamagedFile| file.name == file_name;
        let found = scanned.damaged.iter().find(damaged).map(|file| &file.damage);
        assert!(matches!(found, Some(FileDamage::NotASetName)), "{file_name} {kind}: {found:?}");
        fs::write(&path, good).unwrap();
    }
}
