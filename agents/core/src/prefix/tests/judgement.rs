//! The findings of a scan and their judgement, for generated checkpoints.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::world::{add_now, add_with, at, drained_checkpoint, each_store, name, some_time, time};
use crate::control::meta::Meta;
use crate::prefix::add::{AddOptions, AddOutcome, AddStep, add};
use crate::prefix::inspect::{Completeness, LossReason, inspect};
use crate::prefix::scan::{FileDamage, ScanOptions, scan};
use crate::prefix::{index, new_directory, publish, summary};
use crate::redundancy::xor;
use crate::store::{DatasetStore as _, PosixStore};
use holdfast_model::{CheckpointId, Rank};

const DIRECTORY: &str = "scr.2026-11-20_10:22:24.77.5";

fn world(ranks: u32, set_size: u32) -> (TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join(DIRECTORY);
    drained_checkpoint(&directory, 5, ranks, set_size);
    (scratch, directory)
}

/// All files of a rank, as if its node and every copy were lost.
fn lose(directory: &Path, rank: u32, set_size: u32, ranks: u32) {
    let (first, count) = set_of(rank, set_size, ranks);
    for file in [format!("rank_{rank}.ckpt"), format!("{}_of_{count}_in_{first}.xor", rank - first + 1)] {
        fs::remove_file(directory.join(format!("{file}.scr"))).unwrap();
        fs::remove_file(directory.join(file)).unwrap();
    }
    fs::remove_file(directory.join(format!("{rank}.scrfilemap"))).unwrap();
}

fn set_of(rank: u32, set_size: u32, ranks: u32) -> (u32, u32) {
    let first = rank / set_size * set_size;
    (first, set_size.min(ranks - first))
}

fn data(rank: u32) -> Vec<u8> {
    format!("data of rank {rank:8}").into_bytes()
}

#[test]
fn more_than_256_ranks_are_supported() {
    let (scratch, directory) = world(600, 8);
    for rank in [3, 256, 257, 599] {
        if rank != 257 {
            lose(&directory, rank, 8, 600);
        }
    }
    let report = add_now(scratch.path(), DIRECTORY).unwrap();
    assert_eq!(report.outcome, AddOutcome::Complete, "{:?}", report.reasons);
    assert_eq!(report.rebuilt.iter().flat_map(|set| &set.ranks).map(|rank| rank.0).collect::<Vec<_>>(), [3, 256, 599]);
    for rank in [3, 256, 599] {
        assert_eq!(fs::read(directory.join(format!("rank_{rank}.ckpt"))).unwrap(), data(rank));
    }
    let summary = summary::read(&*at(&directory)).unwrap();
    assert_eq!(summary.accept(600), Ok(()));
    assert_eq!(summary.by_rank.len(), 600);
}

#[test]
fn a_lost_filemap_is_restored_from_either_neighbour() {
    let (scratch, directory) = world(4, 4);
    // Its own XOR file still records them.
    fs::remove_file(directory.join("0.scrfilemap")).unwrap();
    let report = add_now(scratch.path(), DIRECTORY).unwrap();
    assert_eq!((report.outcome, report.rebuilt.len()), (AddOutcome::Complete, 0));
    assert!(directory.join("0.scrfilemap").exists());

    // Its own XOR file is lost, too: the right neighbour's header records them, and the member is rebuilt.
    let (scratch, directory) = world(4, 4);
    for file in ["1.scrfilemap", "2_of_4_in_0.xor", "2_of_4_in_0.xor.scr"] {
        fs::remove_file(directory.join(file)).unwrap();
    }
    let report = add_now(scratch.path(), DIRECTORY).unwrap();
    assert_eq!((report.outcome, report.rebuilt.len()), (AddOutcome::Complete, 1));
}

#[test]
fn without_redundancy_a_lost_filemap_leaves_the_rank_unknown() {
    let (scratch, directory) = world(2, 2);
    for member in 1..=2 {
        fs::remove_file(directory.join(format!("{member}_of_2_in_0.xor"))).unwrap();
        fs::remove_file(directory.join(format!("{member}_of_2_in_0.xor.scr"))).unwrap();
    }
    fs::remove_file(directory.join("0.scrfilemap")).unwrap();
    let report = add_now(scratch.path(), DIRECTORY).unwrap();
    assert_eq!(report.outcome, AddOutcome::Incomplete);
    assert_eq!(report.reasons[0], LossReason::ExpectationUnknown { rank: Rank(0) });
    assert_eq!(
        report.reasons[1],
        LossReason::FilesMissing { rank: Rank(1), names: vec!["2_of_2_in_0.xor".to_owned()] }
    );
}

#[test]
fn two_lost_members_of_one_set_do_not_affect_the_other_sets() {
    let (scratch, directory) = world(12, 4);
    for rank in [0, 1, 6, 11] {
        lose(&directory, rank, 4, 12);
    }
    let report = add_now(scratch.path(), DIRECTORY).unwrap();
    assert_eq!(report.outcome, AddOutcome::Incomplete);
    assert_eq!(report.rebuilt.iter().flat_map(|set| &set.ranks).map(|rank| rank.0).collect::<Vec<_>>(), [6, 11]);
    assert!(report.reasons.contains(&LossReason::SetLost {
        scheme: xor::NAME,
        group_id: 0,
        members: 4,
        lost: 2,
        tolerance: 1
    }));
    let summary = summary::read(&*at(&directory)).unwrap();
    assert_eq!(summary.by_rank.keys().map(|rank| rank.0).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert!(!summary.complete);
}

#[test]
fn a_file_with_a_wrong_crc_counts_as_missing_and_is_rebuilt() {
    let (scratch, directory) = world(4, 4);
    fs::write(directory.join("rank_2.ckpt"), b"data of rank        X").unwrap();
    let report = add_now(scratch.path(), DIRECTORY).unwrap();
    assert_eq!(report.outcome, AddOutcome::Complete);
    assert!(matches!(report.damaged[0].damage, FileDamage::Crc { .. }), "{:?}", report.damaged);
    assert_eq!(report.verified.files, 8);
    assert_eq!(fs::read(directory.join("rank_2.ckpt")).unwrap(), data(2));

    // Even an XOR file: its loss alone makes its member incomplete, and a rebuild may not use it.
    let (scratch, directory) = world(4, 4);
    let path = directory.join("4_of_4_in_0.xor");
    let mut bytes = fs::read(&path).unwrap();
    let good = bytes.clone();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(add_now(scratch.path(), DIRECTORY).unwrap().rebuilt[0].ranks, [Rank(3)]);
    assert!(fs::read(&path).unwrap().ends_with(&good[good.len() - 7..]));
}

#[test]
fn parallel_verification_has_the_same_result() {
    let (_scratch, directory) = world(8, 4);
    fs::write(directory.join("rank_5.ckpt"), b"data of rank        X").unwrap();
    let options = ScanOptions { threads: 1, ..ScanOptions::default() };
    let mut here = scan(&at(&directory), options).unwrap();
    let verified = here.verify(3, &|_| {});
    let mut elsewhere = scan(&at(&directory), options).unwrap();
    let units = elsewhere.verify_units();
    assert_eq!(units.len(), 16);
    for unit in units {
        if let Err(damage) = unit.check(&*elsewhere.files, &|_| {}) {
            elsewhere.apply_failure(&unit, damage);
        }
    }
    assert_eq!(verified.failures.len(), 1);
    assert_eq!(inspect(&here), inspect(&elsewhere));
    assert_eq!(inspect(&here).completeness, Completeness::Rebuildable);
}

#[test]
fn a_file_left_by_another_checkpoint_has_no_effect() {
    let (scratch, directory) = world(4, 4);
    // It is the first in the sort order, and SCR would use it.
    let mut meta = Meta::read(&directory.join("rank_0.ckpt")).unwrap();
    (meta.file, meta.checkpoint) = ("0_leftover".to_owned(), CheckpointId(4));
    fs::copy(directory.join("rank_0.ckpt"), directory.join("0_leftover")).unwrap();
    meta.write(&directory.join("0_leftover")).unwrap();
    // And one more of a rank than its filemap lists.
    (meta.file, meta.checkpoint) = ("extra".to_owned(), CheckpointId(5));
    fs::copy(directory.join("rank_0.ckpt"), directory.join("extra")).unwrap();
    meta.write(&directory.join("extra")).unwrap();
    let report = add_now(scratch.path(), DIRECTORY).unwrap();
    assert_eq!((report.outcome, report.id), (AddOutcome::Complete, Some(CheckpointId(5))));
    assert_eq!(report.damaged[0].name, "0_leftover");
    let files: Vec<_> =
        summary::read(&*at(&directory)).unwrap().to_fetch(Rank(0)).map(|file| file.name.clone()).collect();
    assert_eq!(files, ["rank_0.ckpt"]);
}

#[test]
fn an_incomplete_directory_is_scanned_again_and_keeps_its_time() {
    let (scratch, directory) = world(4, 4);
    let kept = tempfile::tempdir().unwrap();
    for rank in [1, 2] {
        for file in [format!("rank_{rank}.ckpt"), format!("rank_{rank}.ckpt.scr")] {
            fs::rename(directory.join(&file), kept.path().join(&file)).unwrap();
        }
    }
    assert_eq!(add_now(scratch.path(), DIRECTORY).unwrap().outcome, AddOutcome::Incomplete);
    // A late node copies one of them.
    for file in ["rank_1.ckpt", "rank_1.ckpt.scr"] {
        fs::rename(kept.path().join(file), directory.join(file)).unwrap();
    }
    let prefix = PosixStore::open(scratch.path()).unwrap();
    let later = time("2026-12-01T00:00:00");
    let report = add(&prefix, &name(DIRECTORY), later, &AddOptions::default(), &|_| {}).unwrap();
    assert_eq!((report.outcome, report.rebuilt.len()), (AddOutcome::Complete, 1));
    let entry = index::read(&prefix).unwrap().unwrap().entry(&name(DIRECTORY)).unwrap();
    assert_eq!((entry.complete, entry.flushed), (Some(true), Some(some_time())));
    assert_eq!(add_now(scratch.path(), DIRECTORY).unwrap().outcome, AddOutcome::AlreadyComplete);
}

#[test]
fn the_current_link_moves_to_complete_checkpoints_only() {
    let (scratch, directory) = world(4, 4);
    let prefix = PosixStore::open(scratch.path()).unwrap();
    publish::make_current(&prefix, &name("older")).unwrap();
    let drain = AddOptions { make_current: true, ..AddOptions::default() };
    let lost = directory.with_extension("6");
    drained_checkpoint(&lost, 6, 4, 4);
    lose(&lost, 0, 4, 4);
    lose(&lost, 1, 4, 4);
    add_with(scratch.path(), lost.file_name().unwrap().to_str().unwrap(), &drain).unwrap();
    assert_eq!(prefix.current().unwrap(), Some(name("older")));
    add_with(scratch.path(), DIRECTORY, &AddOptions::default()).unwrap();
    assert_eq!(prefix.current().unwrap(), Some(name("older")));
    // Indexed as complete, but killed before the link moved.
    add_with(scratch.path(), DIRECTORY, &drain).unwrap();
    assert_eq!(prefix.current().unwrap(), Some(name(DIRECTORY)));
}

#[test]
fn progress_counts_what_was_verified_and_rebuilt() {
    let (scratch, directory) = world(4, 4);
    lose(&directory, 3, 4, 4);
    let counted = std::sync::Mutex::new((0_u64, 0_u64));
    let on_step = |step: AddStep<'_>| {
        let mut counted = counted.lock().unwrap();
        match step {
            AddStep::Verified { bytes, total } => {
                counted.0 += bytes;
                assert!(counted.0 <= total, "{counted:?} of {total}");
            }
            AddStep::Rebuilding { bytes, total, set } => {
                assert_eq!(set.ranks, [Rank(3)]);
                assert!(bytes <= total, "{bytes} of {total}");
                counted.1 = bytes;
            }
        }
    };
    let prefix = PosixStore::open(scratch.path()).unwrap();
    let report = add(&prefix, &name(DIRECTORY), some_time(), &AddOptions::default(), &on_step).unwrap();
    let (verified, rebuilt) = *counted.lock().unwrap();
    assert_eq!(verified, report.verified.bytes);
    assert!(rebuilt >= data(3).len() as u64);
}

#[test]
fn a_new_checkpoint_directory_never_reuses_an_old_one() {
    each_store(|world| {
        let make = |job| new_directory::create(world.store(), some_time(), job, CheckpointId(3), None);
        let first = make("1145655").unwrap();
        world.put(&format!("{first}/rank_0.ckpt"), b"content");
        let second = make("1145655").unwrap();
        assert_eq!(first.as_str(), "scr.2026-11-20_10:22:24.1145655.3");
        assert_eq!(second.as_str(), "scr.2026-11-20_10:22:25.1145655.3");
        index::update(world.store(), |index| index.add(CheckpointId(3), &second, some_time())).unwrap();
        let third = make("1145655").unwrap();
        assert_eq!(third.as_str(), "scr.2026-11-20_10:22:26.1145655.3");
        // Empty and not recorded: its process was killed. Those of other jobs and datasets stay.
        let other = new_directory::create(world.store(), some_time(), "1145655", CheckpointId(4), None).unwrap();
        let of_other = make("17").unwrap();
        let again = make("1145655").unwrap();
        assert_eq!(again, third);
        assert!([&first, &second, &other, &of_other].into_iter().all(|name| world.store().contains(name)));
        let parts = first.parts().unwrap();
        assert_eq!((parts.stamp, parts.job.as_str(), parts.id), (some_time(), "1145655", CheckpointId(3)));
        assert!(make("../x").is_err());
    });
    for other in ["scr.2026-11-20_10:22:24.3", "scr.2026-13-20_10:22:24.j.3", "mine", "scr.2026-11-20_10:22:24.j.+3"] {
        assert_eq!(name(other).parts(), None, "{other}");
    }
}

#[test]
fn a_dataset_directory_has_the_name_of_the_dataset_made_unique_by_its_id() {
    each_store(|world| {
        let make = |id, name| {
            let id = CheckpointId(id);
            let made = new_directory::create(world.store(), some_time(), "17", id, Some(name)).unwrap();
            assert!(world.store().contains(&made));
            made.to_string()
        };
        let long = "é".repeat(300);
        for (name, directory) in [
            ("step.3", "step.3"),
            ("step.3", "step.3.7"),
            ("step.3", "step.3.7.2"),
            ("a/b:c", "a_b_c"),
            ("../up", "___up"),
            ("..", "__"),
            ("scr.current", "scr.current.7"),
            ("two words", "two words"),
            (long.as_str(), &"é".repeat(100)),
        ] {
            assert_eq!(make(7, name), directory, "{name}");
        }
        let without = new_directory::create(world.store(), some_time(), "17", CheckpointId(7), None).unwrap();
        assert_eq!(without.parts().unwrap().id, CheckpointId(7));
    });
}
