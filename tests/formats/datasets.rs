//! `holdfast verify` of containers that hold the files of a dataset.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use holdfast_core::control::meta::Meta;
use holdfast_core::kvtree::file::packed;
use holdfast_core::prefix::rank_filemap::{FilemapWriter, RankFilemap};
use holdfast_core::store::PosixDataset;
use holdfast_formats::sion::dataset::{DatasetCreation, PlacedFiles, stream_bytes};
use holdfast_model::{CheckpointId, PackedRank, Rank};
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::Ran;
use crate::run;

const RANKS: u32 = 4;
const BYTES: usize = 3000;

fn name(rank: u32) -> String {
    format!("rank_{rank}.ckpt")
}

/// Every byte of a rank's file is the same, so that a test finds it in the container.
fn content(rank: u32) -> Vec<u8> {
    vec![0x80 | rank as u8; BYTES]
}

/// Packs the files of all ranks in so many physical files. The last one has the table of contents.
fn pack(directory: &Path, files: u32) {
    pack_ranks(directory, files, 0..RANKS);
}

fn pack_ranks(directory: &Path, files: u32, of: std::ops::Range<u32>) {
    let streams = (0..RANKS).map(|rank| (Rank(rank), stream_bytes([BYTES as u64]))).collect();
    let creation =
        DatasetCreation::new(Arc::new(PosixDataset::at(directory).unwrap()), RANKS, &streams, files).unwrap();
    let places = creation.places();
    let placed = PlacedFiles::open(&PosixDataset::at(directory).unwrap(), &places).unwrap();
    let packed: BTreeMap<Rank, PackedRank> = of.map(|rank| (Rank(rank), pack_rank(&placed, &places, rank))).collect();
    placed.synchronise().unwrap();
    creation.commit(&packed).unwrap();
}

fn pack_rank(placed: &PlacedFiles, places: &holdfast_model::ContainerPlaces, rank: u32) -> PackedRank {
    let mut writer = placed.writer(places.ranks[&Rank(rank)]).unwrap();
    let (file, bytes, id) = (name(rank), content(rank), CheckpointId(7));
    let crc = Some(crc32fast::hash(&bytes));
    let meta = Meta { crc, ..Meta::of_application(&file, BYTES as u64, id, Rank(rank), RANKS) };
    writer.add(&file, &bytes).unwrap();
    writer.add(&format!("{file}.scr"), &packed(Path::new("x"), &meta.to_tree()).unwrap()).unwrap();
    let filemap = RankFilemap { rank: Rank(rank), id, files: vec![file], expected: 1 };
    writer.add(&format!("{rank}.scrfilemap"), &filemap.encode(Path::new("x"), FilemapWriter::Copy).unwrap()).unwrap();
    writer.end()
}

/// A directory with an intact container.
fn dataset() -> TempDir {
    dataset_of(2)
}

/// The same, with so many physical files.
fn dataset_of(files: u32) -> TempDir {
    let scratch = tempfile::tempdir().unwrap();
    pack(scratch.path(), files);
    scratch
}

/// Changes a byte of the data of a rank.
fn change(directory: &Path, part: &str, rank: u32) {
    let path = directory.join(part);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(BYTES).position(|piece| piece == content(rank)).unwrap();
    bytes[at + 17] ^= 1;
    fs::write(path, bytes).unwrap();
}

const FIRST: &str = "holdfast-1.sion";
const SECOND: &str = "holdfast-1.sion.000001";

/// The damages of the first file of the container, named or found in its directory.
fn damages(ran: &Ran) -> Vec<Value> {
    let document = ran.json();
    let files = document["files"].as_array().unwrap();
    let first = files.iter().find(|file| file["path"].as_str().unwrap().ends_with(FIRST)).unwrap();
    assert_eq!(first["format"], "sion");
    assert_eq!(first["intact"], first["damages"].as_array().unwrap().is_empty());
    first["damages"].as_array().unwrap().clone()
}

#[test]
fn intact_container_of_a_dataset_is_compared_with_its_checksums() {
    let scratch = dataset();
    let first = scratch.path().join(FIRST);
    for path in [first.as_path(), scratch.path()] {
        let ran = run("verify --json", &[path]);
        assert_eq!((ran.code, damages(&ran)), (0, vec![]), "{}", ran.out);
        let document = ran.json();
        let checked = document["files"][0]["checked_bytes"].as_u64().unwrap();
        assert!(checked >= u64::from(RANKS) * BYTES as u64, "{checked}");
    }
    assert!(run("verify", &[&first]).out.contains("intact"));
}

#[test]
fn changed_byte_of_a_packed_file_is_damage_of_its_rank() {
    for (part, rank) in [(FIRST, 1), (SECOND, 2)] {
        let scratch = dataset();
        change(scratch.path(), part, rank);
        let first = scratch.path().join(FIRST);
        for (words, path) in
            [("verify --json", first.as_path()), ("sion verify --json", &first), ("verify --json", scratch.path())]
        {
            let ran = run(words, &[path]).with_code(65);
            let found = damages(&ran);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(
                (&found[0]["kind"], &found[0]["place"]),
                (&json!("checksum"), &json!(format!("rank {rank}, {}", name(rank))))
            );
        }
        let text = run("verify", &[&first]).out;
        assert!(text.contains(&format!("rank {rank}, {}: its CRC32 is", name(rank))), "{text}");
    }
}

#[test]
fn physical_file_that_is_cut_or_lost_is_damage_that_names_its_ranks() {
    let damages: [fn(&Path); 2] = [
        |path| fs::File::options().write(true).open(path).unwrap().set_len(5000).unwrap(),
        |path| fs::remove_file(path).unwrap(),
    ];
    for damage in damages {
        let scratch = dataset_of(3);
        let second = fs::read(scratch.path().join(SECOND)).unwrap();
        let is_in = |rank: &u32| second.windows(BYTES).any(|piece| piece == content(*rank));
        let ranks: Vec<String> = (0..RANKS).filter(is_in).map(|rank| rank.to_string()).collect();
        assert!(!ranks.is_empty() && ranks.len() < 4);
        damage(&scratch.path().join(SECOND));
        let ran = run("verify --details", &[scratch.path()]).with_code(65);
        let named = format!("{SECOND}: the files of rank");
        let line = ran.out.lines().find(|line| line.contains(&named)).unwrap_or_else(|| panic!("{}", ran.out));
        assert!(line.contains(&format!(" {} are lost", ranks.join(", "))), "{line}");
        // Without the table of contents, or the first file, no file is found.
        for part in [FIRST, "holdfast-1.sion.000002"] {
            let scratch = dataset_of(3);
            damage(&scratch.path().join(part));
            run("verify --details", &[scratch.path()]).with_code(65).prints(&[part]);
        }
    }
}

#[test]
fn parts_of_a_container_without_its_first_file_are_damage_until_the_dataset_is_complete_without_them() {
    let scratch = tempfile::tempdir().unwrap();
    pack_ranks(scratch.path(), 2, 0..3);
    // As a drain packs the files that it rebuilt.
    pack_ranks(scratch.path(), 1, 3..4);
    assert_eq!(run("verify", &[scratch.path()]).code, 0);
    fs::remove_file(scratch.path().join(FIRST)).unwrap();
    for path in [scratch.path().to_owned(), scratch.path().join(SECOND)] {
        let ran = run("verify", &[&path]).with_code(65);
        let line = ran.out.lines().find(|line| line.contains(SECOND)).unwrap();
        assert!(line.contains("the first file of its set, holdfast-1.sion, is missing"), "{line}");
        assert!(!ran.out.contains("removed"), "{}", ran.out);
    }
    // A container with all files.
    pack(scratch.path(), 2);
    run("verify --details", &[scratch.path()])
        .with_code(0)
        .prints(&["note: holdfast-1.sion.000001: the first file of its set"]);
}

#[test]
fn entry_with_the_name_of_a_container_that_is_no_regular_file_is_damage() {
    let scratch = dataset();
    let first = scratch.path().join(FIRST);
    let moved = scratch.path().join("moved");
    fs::rename(&first, &moved).unwrap();
    let kinds: [(&str, &dyn Fn()); 4] = [
        ("a link", &|| symlink(&moved, &first).unwrap()),
        ("a dangling link", &|| symlink("nowhere", &first).unwrap()),
        ("a pipe", &|| mkfifoat(CWD, &first, Mode::RUSR | Mode::WUSR).unwrap()),
        ("a directory", &|| fs::create_dir(&first).unwrap()),
    ];
    for (kind, make) in kinds {
        make();
        let ran = run("verify", &[scratch.path()]);
        assert_eq!(ran.code, 65, "{kind}: {}", ran.out);
        let line = ran.out.lines().find(|line| line.starts_with(first.to_str().unwrap())).unwrap();
        assert!(line.contains("it has the name of a container, and is not a regular file"), "{line}");
        let _ = fs::remove_file(&first).or_else(|_| fs::remove_dir(&first));
    }
    fs::rename(moved, first).unwrap();
    assert_eq!(run("verify", &[scratch.path()]).code, 0);
}

#[test]
fn damaged_file_that_another_one_replaces_is_a_note() {
    let scratch = dataset();
    change(scratch.path(), FIRST, 0);
    // As `holdfast index add --rescan` restores it.
    fs::write(scratch.path().join(name(0)), content(0)).unwrap();
    run("verify", &[&scratch.path().join(FIRST)]).with_code(0).prints(&["note: rank 0, rank_0.ckpt", "replaces it"]);
    // A later container with the same files.
    fs::remove_file(scratch.path().join(name(0))).unwrap();
    let first = fs::read(scratch.path().join(FIRST)).unwrap();
    let second = fs::read(scratch.path().join(SECOND)).unwrap();
    pack(scratch.path(), 2);
    // The first container is superseded, and removed; a kill before leaves it.
    fs::write(scratch.path().join(FIRST), first).unwrap();
    fs::write(scratch.path().join(SECOND), second).unwrap();
    run("verify", &[scratch.path()]).with_code(0);
}

/// The plain files that `holdfast index add --rescan` restores.
fn restore(directory: &Path, rank: u32) {
    let split = tempfile::tempdir().unwrap();
    let intact = dataset();
    assert_eq!(run("sion split --to", &[split.path(), &intact.path().join(FIRST)]).code, 0);
    for name in [name(rank), format!("{}.scr", name(rank)), format!("{rank}.scrfilemap")] {
        fs::copy(split.path().join(&name), directory.join(&name)).unwrap();
    }
}

#[test]
fn part_of_which_other_files_replace_all_is_a_note() {
    let cut = |path: &Path| fs::File::options().write(true).open(path).unwrap().set_len(5000).unwrap();
    let damages: [&dyn Fn(&Path); 2] = [&|path| fs::remove_file(path).unwrap(), &cut];
    for damage in damages {
        let scratch = dataset_of(3);
        let second = fs::read(scratch.path().join(SECOND)).unwrap();
        let in_it: Vec<u32> =
            (0..RANKS).filter(|rank| second.windows(BYTES).any(|piece| piece == content(*rank))).collect();
        damage(&scratch.path().join(SECOND));
        assert_eq!(run("verify", &[scratch.path()]).code, 65);
        for rank in &in_it {
            assert_eq!(run("verify", &[scratch.path()]).code, 65);
            restore(scratch.path(), *rank);
        }
        let ran = run("verify --details", &[scratch.path()]).with_code(0);
        let note = format!("note: {SECOND}: other files in the directory replace those of rank");
        assert!(ran.out.contains(&note), "{}", ran.out);
        fs::remove_file(scratch.path().join(name(in_it[0]))).unwrap();
        assert_eq!(run("verify", &[scratch.path()]).code, 65);
    }
}

#[test]
fn container_whose_first_file_is_lost_or_damaged_is_a_note_if_other_files_are_the_complete_dataset() {
    let first = "holdfast-2.sion";
    let damages: [fn(&Path); 2] = [
        |path| fs::remove_file(path).unwrap(),
        |path| fs::File::options().write(true).open(path).unwrap().set_len(900).unwrap(),
    ];
    for damage in damages {
        let scratch = tempfile::tempdir().unwrap();
        pack_ranks(scratch.path(), 2, 0..3);
        pack_ranks(scratch.path(), 2, 3..4);
        damage(&scratch.path().join(first));
        assert_eq!(run("verify", &[scratch.path()]).code, 65);
        restore(scratch.path(), 3);
        run("verify --details", &[scratch.path()]).with_code(0).prints(&["note: holdfast-2.sion"]);
    }
}

#[test]
fn split_and_extract_write_what_is_intact_and_name_each_rank_whose_files_are_lost() {
    let scratch = dataset_of(3);
    let second = fs::read(scratch.path().join(SECOND)).unwrap();
    let is_lost = |rank: &u32| second.windows(BYTES).any(|piece| piece == content(*rank));
    fs::remove_file(scratch.path().join(SECOND)).unwrap();
    for words in ["sion split --to", "extract --to"] {
        let to = tempfile::tempdir().unwrap();
        let ran = run(words, &[to.path(), &scratch.path().join(FIRST)]).with_code(65);
        for rank in 0..RANKS {
            let lost = format!("files of rank {rank} are lost: ");
            let found = fs::read(to.path().join(name(rank))).ok();
            if is_lost(&rank) {
                assert_eq!(found, None);
                assert!(ran.out.contains(&lost) || ran.err.contains(&lost), "{words}: {}{}", ran.out, ran.err);
            } else {
                assert!(found == Some(content(rank)), "{words}: rank {rank}");
            }
        }
    }
}

#[test]
fn dry_run_of_split_refuses_what_split_refuses() {
    let scratch = dataset();
    let first = scratch.path().join(FIRST);
    for words in ["sion split --to", "sion split --by-rank --to"] {
        let to = tempfile::tempdir().unwrap();
        let dry = words.replace("split", "split --dry-run");
        assert_eq!(run(&dry, &[to.path(), &first]).code, 0);
        assert_eq!(run(words, &[to.path(), &first]).code, 0);
        let (dry, real) = (run(&dry, &[to.path(), &first]), run(words, &[to.path(), &first]));
        assert_eq!((dry.code, &dry.err), (69, &real.err), "{words}");
        let forced = words.replace("split", "split --dry-run --force");
        assert_eq!(run(&forced, &[to.path(), &first]).code, 0);
        let file = to.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(run(&words.replace("split", "split --dry-run"), &[&file, &first]).code, 69);
    }
}
