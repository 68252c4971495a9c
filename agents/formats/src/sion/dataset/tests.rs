use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use holdfast_core::control::meta::Meta;
use holdfast_core::kvtree::file::packed;
use holdfast_core::prefix::inspect::inspect;
use holdfast_core::prefix::rank_filemap::{FilemapWriter, RankFilemap};
use holdfast_core::prefix::scan::{ScanOptions, scan};
use holdfast_core::store::{DatasetFiles, FoundFile, OpenDataset, PosixDataset};
use holdfast_model::{CheckpointId, ContainerPlaces, PackedRank, Rank};

use super::packed_files::is_complete;
use super::*;
use crate::sion::{Container, JoinInput, SplitOptions, VerifyOptions, defrag, join, split, verify};
use crate::{Destination, recognise};

fn at(directory: &Path) -> Arc<dyn OpenDataset> {
    Arc::new(PosixDataset::at(directory).unwrap())
}

type RankContent = Vec<(String, Vec<u8>)>;

fn content(rank: u32, files: u32, bytes: usize) -> RankContent {
    let byte = |at: usize| (at as u32).wrapping_mul(31).wrapping_add(rank) as u8;
    let file = |file: u32| (format!("rank_{rank}.{file}"), (0..bytes + file as usize).map(byte).collect());
    (0..files).map(file).collect()
}

/// Plans for streams of this many bytes, whatever is then written.
fn create(directory: &Path, ranks: u32, files: u32, planned: u64) -> DatasetCreation {
    let streams = (0..ranks).map(|rank| (Rank(rank), planned)).collect();
    DatasetCreation::new(at(directory), ranks, &streams, files).unwrap()
}

fn write(directory: &Path, places: &ContainerPlaces, rank: u32, files: &RankContent) -> PackedRank {
    let places = places.of([Rank(rank)], 0);
    let placed = PlacedFiles::open(&*at(directory), &places).unwrap();
    let mut writer = placed.writer(places.ranks[&Rank(rank)]).unwrap();
    for (name, bytes) in files {
        writer.add(name, bytes).unwrap();
    }
    placed.synchronise().unwrap();
    writer.end()
}

#[test]
fn what_a_killed_process_has_written_of_a_stream_is_not_written_again() {
    // Also in several chunks.
    for planned in [40_000, 1000] {
        let directory = tempfile::tempdir().unwrap();
        let creation = create(directory.path(), 1, 1, planned);
        let places = creation.places();
        let files = content(0, 3, 9000);
        let placed = PlacedFiles::open(&*at(directory.path()), &places).unwrap();
        let kept = |files: &[(String, Vec<u8>)]| -> Vec<u64> {
            let mut writer = placed.writer(places.ranks[&Rank(0)]).unwrap();
            let write = |(name, bytes): &(String, Vec<u8>)| {
                let mut sink = writer.content();
                bytes.chunks(1000).for_each(|piece| sink.write_all(piece).unwrap());
                let kept = sink.kept();
                writer.finish(name, bytes.len() as u64).unwrap();
                kept
            };
            files.iter().map(write).collect()
        };
        assert_eq!(kept(&files[..1]), [0], "nothing was there");
        assert_eq!(kept(&files[..2]), [9000, 0]);
        let mut changed = files.clone();
        changed[0].1[5000] ^= 1;
        assert_eq!(kept(&changed), [5000, 9001, 0], "it goes on behind a difference");
        assert_eq!(kept(&files), [5000, 9001, 9002], "pieces that were changed are written again");
        let mut other = files.clone();
        other.iter_mut().for_each(|(_, bytes)| bytes[0] ^= 1);
        assert_eq!(kept(&other), [0, 0, 0]);
        let packed = write(directory.path(), &places, 0, &files);
        creation.commit(&[(Rank(0), packed)].into()).unwrap();
        let stored = open(at(directory.path())).unwrap();
        assert!(files.iter().all(|(name, bytes)| read(&*stored, name).unwrap() == *bytes));
    }
}

/// A container of two physical files and five ranks, of which rank 3 has no files.
fn example(directory: &Path, planned: u64) -> BTreeMap<u32, RankContent> {
    let creation = create(directory, 5, 2, planned);
    let places = creation.places();
    let contents: BTreeMap<u32, RankContent> =
        [0, 1, 2, 4].map(|rank| (rank, content(rank, 3, 1000 * rank as usize))).into();
    let packed = contents.iter().map(|(rank, files)| (Rank(*rank), write(directory, &places, *rank, files)));
    let packed = packed.collect();
    creation.commit(&packed).unwrap();
    contents
}

fn read(files: &dyn DatasetFiles, name: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    files.open(name, None)?.reader().read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_that_were_packed_are_read_back_and_split_as_they_were() {
    // Also with streams that are longer than planned, which continue in further chunks.
    for planned in [20_000, 100] {
        let (packed, plain) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let contents = example(packed.path(), planned);
        assert_eq!(names(packed.path()), ["holdfast-1.sion", "holdfast-1.sion.000001"]);
        let path = packed.path().join("holdfast-1.sion");
        let checked = verify(&path, &VerifyOptions::default(), &mut |_, _| ()).unwrap();
        assert!(checked.is_intact(), "{:?}", checked.damages);
        let files = open(at(packed.path())).unwrap();
        assert!(files.damaged_containers().is_empty());
        let mut listed: Vec<String> = files.list().unwrap().into_iter().map(|file| file.name).collect();
        listed.sort();
        let mut all: Vec<&(String, Vec<u8>)> = contents.values().flatten().collect();
        all.sort();
        assert_eq!(listed, all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
        for (name, bytes) in &all {
            assert_eq!(read(&*files, name).unwrap(), *bytes, "{name}");
            assert_eq!(files.examine(name, None).unwrap(), FoundFile::Regular(bytes.len() as u64));
        }
        assert_eq!(read(&*files, "rank_3.0").unwrap_err().kind(), std::io::ErrorKind::NotFound);
        let to = Destination::new(plain.path(), false).unwrap();
        split(&path, &to, &Default::default(), &mut |_, _| ()).unwrap();
        assert_eq!(names(plain.path()), listed);
        for (name, bytes) in &all {
            assert_eq!(fs::read(plain.path().join(name)).unwrap(), *bytes, "{name}");
        }
        // For SIONlib it is a key-value container: one key a file.
        let container = Container::open(&path).unwrap();
        let keys = |rank| container.keys(rank).unwrap().iter().map(|value| value.key).collect::<Vec<_>>();
        assert_eq!((container.tasks(), keys(4), keys(3), keys(5)), (6, vec![0, 1, 2], vec![], vec![0]));
    }
}

#[test]
fn a_file_of_a_container_without_its_first_file_is_missing_with_the_name_of_that_file() {
    let packed = tempfile::tempdir().unwrap();
    example(packed.path(), 20_000);
    fs::remove_file(packed.path().join("holdfast-1.sion")).unwrap();
    let files = open(at(packed.path())).unwrap();
    for error in [read(&*files, "rank_0.0").unwrap_err(), files.examine("rank_0.0", None).unwrap_err()] {
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        assert!(error.to_string().contains("the first file of its set, holdfast-1.sion, is missing"), "{error}");
    }
}

#[test]
fn a_file_in_a_lost_further_file_of_a_container_cannot_be_read_with_the_name_of_that_file() {
    let packed = tempfile::tempdir().unwrap();
    let contents = example(packed.path(), 20_000);
    fs::remove_file(packed.path().join("holdfast-1.sion.000001")).unwrap();
    let files = open(at(packed.path())).unwrap();
    let names = contents.values().flatten().map(|(name, _)| name);
    let errors: Vec<String> = names.filter_map(|name| Some(read(&*files, name).err()?.to_string())).collect();
    assert!(!errors.is_empty() && errors.iter().all(|error| error.contains("holdfast-1.sion.000001")), "{errors:?}");
}

#[test]
fn a_file_that_failed_is_replaced_by_the_next_and_a_second_round_writes_behind_the_first() {
    let scratch = tempfile::tempdir().unwrap();
    let creation = create(scratch.path(), 2, 1, 5000);
    let places = creation.places();
    let first = places.of([Rank(0)], 0);
    let placed = PlacedFiles::open(&*at(scratch.path()), &first).unwrap();
    let mut writer = placed.writer(first.ranks[&Rank(0)]).unwrap();
    writer.add("a", b"content of a").unwrap();
    writer.content().write_all(&[7; 3000]).unwrap();
    writer.add("b", b"content of b").unwrap();
    let one = writer.end();
    let second = places.of([Rank(1)], 1);
    let placed = PlacedFiles::open(&*at(scratch.path()), &second).unwrap();
    let mut writer = placed.writer(second.ranks[&Rank(1)]).unwrap();
    writer.add("c", b"content of c").unwrap();
    let two = writer.end();
    // The node of rank 1 was given up, and still writes at its place of the first round.
    write(scratch.path(), &places, 1, &vec![("c".to_owned(), vec![9; 4000])]);
    creation.commit(&BTreeMap::from([(Rank(0), one), (Rank(1), two)])).unwrap();
    let files = open(at(scratch.path())).unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(read(&*files, name).unwrap(), format!("content of {name}").as_bytes());
    }
    assert_eq!(files.list().unwrap().len(), 3);
}

#[test]
fn a_container_that_is_not_committed_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let creation = create(scratch.path(), 4, 2, 100);
    write(scratch.path(), &creation.places(), 1, &content(1, 1, 10));
    assert!(open(at(scratch.path())).unwrap().list().unwrap().is_empty());
    drop(creation);
    assert!(names(scratch.path()).is_empty());
    create(scratch.path(), 4, 2, 100).commit(&BTreeMap::new()).unwrap();
    assert!(names(scratch.path()).is_empty());
}

/// Packs these ranks into a container of one file, with other content than `example`.
fn pack(directory: &Path, ranks: &[u32]) {
    let creation = create(directory, 5, 1, 100);
    let places = creation.places();
    let new = |rank: u32| (Rank(rank), write(directory, &places, rank, &content(rank, 3, 5)));
    assert!(creation.commit(&ranks.iter().map(|rank| new(*rank)).collect()).unwrap().is_none());
}

/// The meta file of the file of a rank, of a checkpoint of three ranks.
fn meta_of(rank: u32) -> Meta {
    let crc = Some(crc32fast::hash(&[rank as u8; 900]));
    Meta { crc, ..Meta::of_application(format!("rank_{rank}.ckpt"), 900, CheckpointId(4), Rank(rank), 3) }
}

/// The file of a rank of that checkpoint, its meta file and its file map.
fn described(rank: u32) -> RankContent {
    let meta = meta_of(rank);
    let filemap = RankFilemap { rank: Rank(rank), id: meta.checkpoint, files: vec![meta.file.clone()], expected: 1 };
    let filemap = filemap.encode(Path::new("x"), FilemapWriter::Copy).unwrap();
    let tree = packed(Path::new("x"), &meta.to_tree()).unwrap();
    let meta_file = (format!("{}.scr", meta.file), tree);
    vec![(meta.file, vec![rank as u8; 900]), meta_file, (format!("{rank}.scrfilemap"), filemap)]
}

/// Packs these ranks of that checkpoint into a container of so many files.
fn pack_described(directory: &Path, ranks: &[u32], files: u32) {
    let creation = create(directory, 3, files, 3000);
    let places = creation.places();
    let packed = ranks.iter().map(|rank| (Rank(*rank), write(directory, &places, *rank, &described(*rank))));
    assert!(creation.commit(&packed.collect()).unwrap().is_none());
}

fn set_age(path: &Path, hours: u64) {
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(hours * 3600);
    fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
}

#[test]
fn a_part_without_the_first_file_is_kept_until_no_process_can_complete_its_set() {
    let scratch = tempfile::tempdir().unwrap();
    let part = scratch.path().join("holdfast-1.sion.000001");
    fs::write(&part, "of a process that completes the container now").unwrap();
    pack_described(scratch.path(), &[0, 1, 2], 1);
    assert_eq!(names(scratch.path()), ["holdfast-1.sion.000001", "holdfast-2.sion"]);
    assert!(open(at(scratch.path())).unwrap().damaged_containers().is_empty());
    set_age(&part, 48);
    pack_described(scratch.path(), &[0, 1, 2], 1);
    assert_eq!(names(scratch.path()), ["holdfast-3.sion"]);
}

#[test]
fn the_parts_of_a_container_that_lost_its_first_file_are_kept_until_the_dataset_is_complete_without_them() {
    let scratch = tempfile::tempdir().unwrap();
    pack_described(scratch.path(), &[0, 1], 2);
    fs::remove_file(scratch.path().join("holdfast-1.sion")).unwrap();
    let part = scratch.path().join("holdfast-1.sion.000001");
    set_age(&part, 48);
    // Only rank 2, which was rebuilt: rank 1 is in the part.
    pack_described(scratch.path(), &[2], 1);
    assert_eq!(names(scratch.path()), ["holdfast-1.sion.000001", "holdfast-2.sion"]);
    let found = inspect(&scan(&at(scratch.path()), ScanOptions { threads: 1, open }).unwrap());
    let named: Vec<String> = found.damaged.iter().map(ToString::to_string).collect();
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(named[0].starts_with("holdfast-1.sion.000001: ") && named[0].contains(", holdfast-1.sion, is missing"));
    let refused = open(at(scratch.path())).unwrap().open("rank_1.ckpt", None).unwrap_err().to_string();
    assert!(refused.contains("the first file of its set, holdfast-1.sion, is missing"), "{refused}");
    let checked = verify(&part, &VerifyOptions::default(), &mut |_, _| ()).unwrap();
    assert!(!checked.is_intact(), "{:?}", checked.notes);
    // The other ranks are plain files.
    for (name, bytes) in [0, 1].into_iter().flat_map(described) {
        fs::write(scratch.path().join(name), bytes).unwrap();
    }
    let checked = verify(&part, &VerifyOptions::default(), &mut |_, _| ()).unwrap();
    assert!(checked.is_intact(), "{:?}", checked.damages);
    assert!(checked.notes.iter().any(|note| note.what.contains("complete dataset")), "{:?}", checked.notes);
    assert!(inspect(&scan(&at(scratch.path()), ScanOptions { threads: 1, open }).unwrap()).damaged.is_empty());
    pack_described(scratch.path(), &[2], 1);
    assert!(!part.exists());
}

#[test]
fn a_container_that_another_process_completed_meanwhile_is_not_replaced() {
    for files in [1, 2] {
        let scratch = tempfile::tempdir().unwrap();
        let late = create(scratch.path(), 5, files, 100);
        let places = late.places();
        let packed = [0, 4].map(|rank| (Rank(rank), write(scratch.path(), &places, rank, &content(rank, 1, 50))));
        let before = example(scratch.path(), 20_000);
        let refused = late.commit(&packed.into()).unwrap_err();
        assert!(matches!(refused, crate::sion::SionError::Taken { .. }), "{refused}");
        assert_eq!(names(scratch.path()), ["holdfast-1.sion", "holdfast-1.sion.000001"]);
        let files = open(at(scratch.path())).unwrap();
        for (name, bytes) in before.values().flatten() {
            assert_eq!(read(&*files, name).unwrap(), *bytes, "{name}");
        }
    }
    // The other one has fewer files: what was already named is removed again.
    let scratch = tempfile::tempdir().unwrap();
    let late = create(scratch.path(), 5, 2, 100);
    let packed = BTreeMap::from([(Rank(0), write(scratch.path(), &late.places(), 0, &content(0, 1, 50)))]);
    pack(scratch.path(), &[1]);
    late.commit(&packed).unwrap_err();
    assert_eq!(names(scratch.path()), ["holdfast-1.sion"]);
}

#[test]
fn what_is_packed_replaces_plain_files_of_an_earlier_copy() {
    let scratch = tempfile::tempdir().unwrap();
    // Of another timeline; that of rank 3 is not packed.
    for name in ["rank_1.0", "rank_1.2", "rank_3.0", "summary.scr"] {
        fs::write(scratch.path().join(name), "old").unwrap();
    }
    let packed = example(scratch.path(), 20_000);
    assert_eq!(names(scratch.path()), ["holdfast-1.sion", "holdfast-1.sion.000001", "rank_3.0", "summary.scr"]);
    let files = open(at(scratch.path())).unwrap();
    for (name, bytes) in packed.values().flatten() {
        assert_eq!(read(&*files, name).unwrap(), *bytes, "{name}");
    }
}

#[test]
fn an_intact_file_of_an_older_container_is_read_if_the_newer_part_is_lost() {
    let scratch = tempfile::tempdir().unwrap();
    // The older one is kept for rank 3. The newer one has three physical files, the last with the table of contents.
    pack(scratch.path(), &[2, 3]);
    let creation = create(scratch.path(), 5, 3, 2000);
    let places = creation.places();
    let part = places.ranks[&Rank(2)].file;
    assert_eq!(part, 1, "neither the first nor the last file");
    let packed = [0, 1, 2, 4].map(|rank| (Rank(rank), write(scratch.path(), &places, rank, &content(rank, 3, 9))));
    creation.commit(&packed.into()).unwrap();
    let first = |rank: u32| read(&*open(at(scratch.path())).unwrap(), &format!("rank_{rank}.0"));
    assert_eq!(first(2).unwrap(), content(2, 1, 9)[0].1);
    fs::remove_file(scratch.path().join("holdfast-2.sion.000001")).unwrap();
    assert_eq!(first(2).unwrap(), content(2, 1, 5)[0].1);
    assert_eq!(first(0).unwrap(), content(0, 1, 9)[0].1);
}

#[test]
fn a_file_that_is_not_as_its_meta_file_records_it_is_left_out_when_a_container_is_split() {
    let scratch = tempfile::tempdir().unwrap();
    pack_described(scratch.path(), &[0, 1, 2], 2);
    let part = scratch.path().join("holdfast-1.sion");
    let mut bytes = fs::read(&part).unwrap();
    let at = bytes.windows(900).position(|piece| piece == [1; 900]).unwrap();
    bytes[at + 7] = 9;
    fs::write(&part, bytes).unwrap();
    for dry_run in [true, false] {
        let to = tempfile::tempdir().unwrap();
        let options = SplitOptions { dry_run, ..Default::default() };
        let mut last = (0, 0);
        let target = Destination::new(to.path(), false).unwrap();
        let found = split(&part, &target, &options, &mut |done, total| last = (done, total)).unwrap();
        let faults: Vec<String> = found.damaged.iter().map(|(task, fault)| format!("{task}: {fault}")).collect();
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert!(fault.starts_with("1: rank 1, rank_1.ckpt: its CRC32 is "), "{fault}");
        let written: Vec<String> = found.files.iter().map(|file| file.name.clone()).collect();
        let intact = (0..3).flat_map(described).map(|(name, _)| name).filter(|name| name != "rank_1.ckpt");
        let intact: std::collections::BTreeSet<String> = intact.collect();
        assert_eq!(written.into_iter().collect::<std::collections::BTreeSet<_>>(), intact);
        assert_eq!(names(to.path()).len(), if dry_run { 0 } else { intact.len() });
        assert!(last.0 == last.1 && last.1 > 0, "{last:?}");
    }
}

#[test]
fn splitting_a_container_with_a_damaged_table_of_contents_is_refused_with_the_remedy() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("holdfast-1.sion");
    pack(scratch.path(), &[0, 1]);
    let mut bytes = fs::read(&path).unwrap();
    let name = b"rank_1.2";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
    bytes[at] ^= 0x20;
    fs::write(&path, bytes).unwrap();
    let split_to = |to: &Path, by_global_rank| {
        let to = Destination::new(to, false).unwrap();
        split(&path, &to, &SplitOptions { by_global_rank, ..Default::default() }, &mut |_, _| ())
    };
    let to = tempfile::tempdir().unwrap();
    let refused = split_to(to.path(), false).unwrap_err().to_string();
    assert!(refused.contains("table of contents") && refused.contains("--by-rank"), "{refused}");
    assert!(names(to.path()).is_empty());
    assert_eq!(split_to(to.path(), true).unwrap().files.len(), 7);
}

#[test]
fn splitting_a_container_whose_table_of_contents_is_lost_names_the_missing_file() {
    let scratch = tempfile::tempdir().unwrap();
    pack_described(scratch.path(), &[0, 1, 2], 2);
    fs::remove_file(scratch.path().join("holdfast-1.sion.000001")).unwrap();
    let to = tempfile::tempdir().unwrap();
    let target = Destination::new(to.path(), false).unwrap();
    let path = scratch.path().join("holdfast-1.sion");
    let refused = split(&path, &target, &Default::default(), &mut |_, _| ()).unwrap_err().to_string();
    let lost = "its table of contents is lost: ";
    assert!(refused.contains(lost) && refused.contains("holdfast-1.sion.000001"), "{refused}");
    assert!(!refused.contains("--by-rank"), "{refused}");
}

#[test]
fn a_container_can_be_defragmented_or_joined_again_and_read_as_before() {
    let scratch = tempfile::tempdir().unwrap();
    pack_described(scratch.path(), &[0, 1, 2], 2);
    let path = scratch.path().join("holdfast-1.sion");
    let readable = |path: &Path| {
        for (name, bytes) in (0..3).flat_map(described) {
            assert_eq!(read(&*open(at(path.parent().unwrap())).unwrap(), &name).unwrap(), bytes, "{name}");
        }
        assert!(is_complete(&at(scratch.path())));
    };
    let checks = |path: &Path| {
        let checked = verify(path, &VerifyOptions::default(), &mut |_, _| ()).unwrap();
        assert!(checked.is_intact(), "{:?}", checked.damages);
        let to = tempfile::tempdir().unwrap();
        split(path, &Destination::new(to.path(), false).unwrap(), &Default::default(), &mut |_, _| ()).unwrap();
        let all = (0..3).flat_map(described).map(|(name, _)| name).collect::<std::collections::BTreeSet<String>>();
        assert_eq!(names(to.path()), all.into_iter().collect::<Vec<_>>());
        // The files in it are compared with their meta files.
        let mut bytes = fs::read(path).unwrap();
        let before = bytes.clone();
        let at = bytes.windows(900).position(|piece| piece == [1; 900]).unwrap();
        bytes[at + 7] = 9;
        fs::write(path, bytes).unwrap();
        assert_eq!(verify(path, &VerifyOptions::default(), &mut |_, _| ()).unwrap().damages.len(), 1);
        fs::write(path, before).unwrap();
    };
    defrag(&path, &path, &Default::default(), &mut |_, _| ()).unwrap();
    assert_eq!(names(scratch.path()), ["holdfast-1.sion"]);
    readable(&path);
    checks(&path);
    let other = tempfile::tempdir().unwrap();
    let small = other.path().join("small.sion");
    defrag(&path, &small, &Default::default(), &mut |_, _| ()).unwrap();
    checks(&small);
    let tasks = tempfile::tempdir().unwrap();
    let by_rank = SplitOptions { by_global_rank: true, ..Default::default() };
    split(&path, &Destination::new(tasks.path(), false).unwrap(), &by_rank, &mut |_, _| ()).unwrap();
    fs::remove_file(&path).unwrap();
    join(&JoinInput::from_directory(tasks.path()).unwrap(), &path, &Default::default(), &mut |_, _| ()).unwrap();
    readable(&path);
    checks(&path);
}

#[test]
fn a_container_that_is_a_link_is_not_used() {
    for part in ["holdfast-1.sion", "holdfast-1.sion.000001"] {
        let (scratch, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        pack_described(scratch.path(), &[0, 1, 2], 2);
        assert!(is_complete(&at(scratch.path())));
        let moved = elsewhere.path().join(part);
        fs::copy(scratch.path().join(part), &moved).unwrap();
        fs::remove_file(scratch.path().join(part)).unwrap();
        std::os::unix::fs::symlink(&moved, scratch.path().join(part)).unwrap();
        let files = open(at(scratch.path())).unwrap();
        let damaged = files.damaged_containers();
        assert!(damaged.iter().any(|(_, problem)| problem.contains("it is a link")), "{part}: {damaged:?}");
        assert!(read(&*files, "rank_2.ckpt").is_err(), "{part}");
        let checked = verify(&scratch.path().join("holdfast-1.sion"), &VerifyOptions::default(), &mut |_, _| ());
        assert!(!checked.unwrap().is_intact(), "{part}");
    }
}

#[test]
fn a_plain_file_of_a_rank_that_has_the_name_of_a_container_is_no_damage() {
    for name in ["holdfast-0.sion", "holdfast-7.sion", "holdfast-7.sion.000001"] {
        let scratch = tempfile::tempdir().unwrap();
        pack_described(scratch.path(), &[0, 1], 1);
        let mut meta = meta_of(2);
        meta.file = name.to_owned();
        let path = scratch.path().join(name);
        fs::write(&path, [2; 900]).unwrap();
        meta.write(&path).unwrap();
        let filemap = RankFilemap { rank: Rank(2), id: meta.checkpoint, files: vec![name.to_owned()], expected: 1 };
        filemap.write(&*at(scratch.path()), FilemapWriter::Copy).unwrap();
        let files = open(at(scratch.path())).unwrap();
        assert_eq!((files.damaged_containers(), files.containers_without_first_file()), (vec![], vec![]), "{name}");
        assert_eq!(read(&*files, name).unwrap(), [2; 900], "{name}");
        assert!(is_complete(&at(scratch.path())), "{name}");
        assert!(recognise(&path).unwrap().format.is_none(), "{name}");
        // A drain that packs the others leaves it.
        set_age(&path, 48);
        pack_described(scratch.path(), &[0, 1], 1);
        assert!(path.exists(), "{name}");
        // Without its meta file it can only be a damaged container.
        fs::remove_file(scratch.path().join(format!("{name}.scr"))).unwrap();
        assert!(recognise(&path).unwrap().format.is_some(), "{name}");
    }
}

#[test]
fn plain_files_replace_packed_ones_and_a_later_container_an_earlier_one() {
    let scratch = tempfile::tempdir().unwrap();
    let old = example(scratch.path(), 20_000);
    // A later drain that has lost rank 4: the earlier container stays.
    pack(scratch.path(), &[0, 1, 2]);
    assert_eq!(names(scratch.path()), ["holdfast-1.sion", "holdfast-1.sion.000001", "holdfast-2.sion"]);
    fs::write(scratch.path().join("rank_1.0"), "rebuilt").unwrap();
    let files = open(at(scratch.path())).unwrap();
    assert_eq!(read(&*files, "rank_0.0").unwrap(), content(0, 1, 5)[0].1);
    assert_eq!(read(&*files, "rank_4.2").unwrap(), old[&4][2].1);
    assert_eq!(read(&*files, "rank_1.0").unwrap(), b"rebuilt");
    assert_eq!(files.list().unwrap().len(), 12);
    pack(scratch.path(), &[0, 1, 2, 4]);
    assert_eq!(names(scratch.path()), ["holdfast-3.sion"]);
}

#[test]
fn damaged_containers_give_no_wrong_content_and_are_named() {
    let good = tempfile::tempdir().unwrap();
    let contents = example(good.path(), 20_000);
    let first = fs::read(good.path().join("holdfast-1.sion")).unwrap();
    let second = fs::read(good.path().join("holdfast-1.sion.000001")).unwrap();
    let check = |what: &str, first: Option<&[u8]>, second: Option<&[u8]>| {
        let scratch = tempfile::tempdir().unwrap();
        let parts = [("holdfast-1.sion", first), ("holdfast-1.sion.000001", second)];
        for (name, bytes) in parts {
            if let Some(bytes) = bytes {
                fs::write(scratch.path().join(name), bytes).unwrap();
            }
        }
        let files = open(at(scratch.path())).unwrap();
        let listed = files.list().unwrap();
        let readable = listed.iter().filter(|file| read(&*files, &file.name).is_ok()).count();
        let wrong = contents
            .values()
            .flatten()
            .filter(|(name, bytes)| read(&*files, name).is_ok_and(|found| found.len() != bytes.len()));
        assert_eq!(wrong.count(), 0, "{what}");
        (readable, files.damaged_containers().len())
    };
    assert_eq!(check("nothing", Some(&first), Some(&second)), (12, 0));
    // The table of contents is in the second file.
    assert_eq!(check("the second file is lost", Some(&first), None), (0, 1));
    assert_eq!(check("the first file is lost", None, Some(&second)), (0, 1));
    assert_eq!(check("cut", Some(&first), Some(&second[..second.len() - 1])), (0, 1));
    // The first file of the set is needed for the mapping; a lie in its byte counts is found by the lengths.
    let tail = first.len() - 200;
    for at in (0..first.len()).step_by(97).chain(tail..first.len()) {
        let mut changed = first.clone();
        changed[at] ^= 0x41;
        let (readable, _) = check(&format!("byte {at}"), Some(&changed), Some(&second));
        assert!(readable <= 12);
    }
    for at in (0..second.len()).step_by(97) {
        let mut changed = second.clone();
        changed[at] ^= 0x41;
        check(&format!("byte {at} of the second"), Some(&first), Some(&changed));
    }
}
