//! The index and the summaries compared with those that SCR wrote in several runs.

use std::fs;
use std::path::Path;

use holdfast_testkit::{files_below, fixtures, scratch_copy};

use super::world::{at, each_store, name, some_time, time};
use crate::kvtree::file;
use crate::prefix::index::{self, Index, list_text};
use crate::prefix::summary::{self, FetchRefusal, Summary};
use crate::prefix::{fetch, publish};
use crate::store::PosixStore;
use holdfast_model::{CheckpointId, Rank};

fn original(state: &str) -> (Vec<u8>, String) {
    let root = fixtures("scr").join("h-index").join(state);
    let list = fs::read_to_string(root.join("scr_index_list.out")).unwrap();
    let list: String = list.lines().filter(|line| !line.starts_with("rc=")).map(|line| format!("{line}\n")).collect();
    (fs::read(root.join("tree/pfs/index.scr")).unwrap(), list)
}

fn check(index: &Index, state: &str) {
    let (bytes, list) = original(state);
    assert!(file::encode(&index.to_tree()) == bytes, "{state}: {:#?}", index.to_tree());
    assert_eq!(list_text(&index.entries()), list, "{state}");
}

#[test]
fn replaying_runs_of_scr_gives_the_bytes_of_its_index() {
    let mut index = Index::default();
    let flush = |index: &mut Index, id: u64, second: &str, directory: &str| {
        index.add(CheckpointId(id), &name(directory), time(second));
        index.set_complete(&name(directory), true);
    };
    for id in 1..=3 {
        flush(&mut index, id, "2026-11-20T10:26:07", &format!("scr.2026-11-20_10:26:07.1145655.{id}"));
    }
    check(&index, "1-three-flushed");

    let (second, third) = (name("scr.2026-11-20_10:26:07.1145655.2"), name("scr.2026-11-20_10:26:07.1145655.3"));
    let eight = time("2026-11-20T10:26:08");
    index.mark_fetched(&third, eight);
    index.mark_failed(&third, eight, None);
    index.mark_fetched(&second, eight);
    flush(&mut index, 3, "2026-11-20T10:26:08", "scr.2026-11-20_10:26:08.1145655.3");
    check(&index, "2-fetch-of-3-failed-restart-from-2");

    index.mark_fetched(&name("scr.2026-11-20_10:26:08.1145655.3"), time("2026-11-20T10:26:09"));
    check(&index, "3-fetched-then-killed");

    let drained = name("scr.2011-04-15_12:00:00.1145655.4");
    index.add(CheckpointId(4), &drained, time("2026-11-20T10:26:11"));
    index.set_complete(&drained, false);
    check(&index, "4-incomplete-drain-indexed");

    assert!(index.remove(&drained));
    assert!(!index.remove(&drained));
    check(&index, "5-removed");
}

#[test]
fn every_index_of_the_original_is_read_and_written_back_to_the_byte() {
    let mut read = 0;
    for path in files_below(&fixtures("scr")) {
        if path.file_name().is_some_and(|name| name == index::INDEX_FILE) {
            let index = index::read(&PosixStore::open(path.parent().unwrap()).unwrap()).unwrap().unwrap();
            assert!(file::encode(&index.to_tree()) == fs::read(&path).unwrap(), "{}", path.display());
            read += 1;
        }
    }
    assert!(read >= 40, "only {read}");
}

#[test]
fn every_list_of_a_drain_is_printed_as_by_scr() {
    let mut compared = 0;
    for path in files_below(&fixtures("scr")) {
        let Some(root) = path.parent().and_then(Path::parent) else { continue };
        if path.ends_with("logs/scr_index_list.out") && root.join("expected/tree/pfs/index.scr").exists() {
            let index = index::read(&PosixStore::open(root.join("expected/tree/pfs")).unwrap()).unwrap().unwrap();
            let printed = fs::read_to_string(&path).unwrap();
            assert_eq!(list_text(&index.entries()), printed, "{}", path.display());
            compared += 1;
        }
    }
    assert!(compared >= 30, "only {compared}");
}

#[test]
fn ids_are_sorted_as_numbers_beyond_255() {
    let mut index = Index::default();
    for id in [256_u64, 2, 1000, 255, 10] {
        index.add(CheckpointId(id), &name(&format!("dir.{id}")), some_time());
    }
    let ids: Vec<u64> = index.entries().iter().map(|entry| entry.id.0).collect();
    assert_eq!(ids, [1000, 256, 255, 10, 2]);
}

#[test]
fn several_fetches_are_collected_and_those_of_one_second_are_one() {
    let mut index = Index::default();
    let directory = name("d");
    index.add(CheckpointId(7), &directory, some_time());
    for second in ["2026-01-01T00:00:01", "2026-01-01T00:00:02", "2026-01-01T00:00:02"] {
        assert!(index.mark_fetched(&directory, time(second)));
    }
    assert_eq!(index.entry(&directory).unwrap().fetched, [time("2026-01-01T00:00:02"), time("2026-01-01T00:00:01")]);
    assert!(!index.mark_fetched(&name("other"), some_time()));
    assert_eq!(index.entry(&directory).unwrap().complete, None);
}

#[test]
fn a_restart_takes_the_link_first_and_then_older_complete_ones_that_never_failed() {
    each_store(|world| {
        let prefix = world.store();
        let directories = ["d300", "d200-new", "d200-old", "d100", "d9"];
        let order = || -> Vec<String> {
            fetch::candidates(prefix).unwrap().into_iter().map(|it| it.directory.to_string()).collect()
        };
        assert!(order().is_empty());
        index::update(prefix, |index| {
            for (directory, id) in
                [("d9", 9), ("d200-old", 200), ("d200-new", 200), ("d100", 100), ("d300", 300), ("d400", 400)]
            {
                index.add(CheckpointId(id), &name(directory), some_time());
                index.set_complete(&name(directory), directory != "d400");
            }
        })
        .unwrap();
        for directory in directories {
            assert!(prefix.create(&name(directory)).unwrap());
        }
        assert_eq!(order(), directories);

        // The link decides: no newer checkpoint follows it.
        publish::make_current(prefix, &name("d200-old")).unwrap();
        assert_eq!(order(), ["d200-old", "d200-new", "d100", "d9"]);
        fetch::begin(prefix, &name("d200-old"), some_time()).unwrap();
        fetch::failed(prefix, &name("d200-old"), some_time(), "damaged").unwrap();
        assert_eq!(prefix.current().unwrap(), None);
        assert_eq!(order(), ["d300", "d200-new", "d100", "d9"]);
        let failed = index::read(prefix).unwrap().unwrap().entry(&name("d200-old")).unwrap();
        assert_eq!((failed.fetched.len(), failed.failed.len(), failed.is_usable()), (1, 1, false));
        assert_eq!(failed.failed[0].reason.as_deref(), Some("damaged"));
        let restore = || index::update(prefix, |index| index.restore(&name("d200-old"))).unwrap();
        assert!(restore() && !restore(), "the mark is taken back once");
        assert_eq!(order(), ["d300", "d200-new", "d200-old", "d100", "d9"]);
        fetch::failed(prefix, &name("d200-old"), some_time(), "damaged").unwrap();

        // Even a failed one is tried if the user sets the link to it; a dangling link has no effect.
        publish::make_current(prefix, &name("d200-old")).unwrap();
        assert_eq!(order()[0], "d200-old");
        publish::make_current(prefix, &name("missing")).unwrap();
        assert_eq!(order()[0], "d300");
        publish::remove_current(prefix).unwrap();
        fetch::succeeded(prefix, &name("d100")).unwrap();
        assert_eq!(prefix.current().unwrap(), Some(name("d100")));
    });
}

#[test]
fn every_summary_of_the_original_is_read_and_written_back_with_the_same_content() {
    let mut read = 0;
    for path in files_below(&fixtures("scr")) {
        if path.file_name().is_some_and(|name| name == summary::SUMMARY_FILE) {
            let tree = file::read(&path).unwrap();
            let summary = Summary::from_tree(&tree, &path).unwrap();
            assert!(summary.to_tree().same_content(&tree), "{}", path.display());
            let answer = summary.accept(summary.ranks);
            assert_eq!(answer.is_ok(), summary.complete, "{}: {answer:?}", path.display());
            assert!(summary.accept(summary.ranks + 1).is_err());
            read += 1;
        }
    }
    assert!(read >= 40, "only {read}");
}

#[test]
fn the_summary_of_a_drain_is_written_in_the_order_of_scr() {
    let expected =
        fixtures("scr").join("f-drain-xor/one-node-lost/expected/tree/pfs/scr.2011-04-15_12:00:00.1145655.3");
    let path = expected.join(summary::SUMMARY_FILE);
    let summary = Summary::from_tree(&file::read(&path).unwrap(), &path).unwrap();
    // The ranks are in numeric order there, and the order of the files is kept.
    assert!(file::encode(&summary.to_tree()) == fs::read(&path).unwrap());
}

#[test]
fn a_summary_is_refused_for_another_number_of_ranks_or_without_a_size() {
    let path = Path::new("summary.scr");
    let flushed = fixtures("scr").join("h-index/1-three-flushed/tree/pfs/scr.2026-11-20_10:26:07.1145655.3");
    let good = summary::read(&*at(&flushed)).unwrap();
    assert_eq!(good.accept(4), Ok(()));
    assert_eq!(good.accept(8), Err(FetchRefusal::OtherSize { written: 4, running: 8 }));
    let mut without_size = good.clone();
    without_size.by_rank.get_mut(&Rank(2)).unwrap().files[0].size = None;
    let file = "rank_2.ckpt".to_owned();
    assert_eq!(without_size.accept(4), Err(FetchRefusal::SizeMissing { rank: Rank(2), file }));
    let mut missing = good.clone();
    missing.by_rank.remove(&Rank(0));
    assert_eq!(missing.accept(4), Err(FetchRefusal::RankMissing { rank: Rank(0) }));
    let mut incomplete = good.clone();
    incomplete.complete = false;
    assert_eq!(incomplete.accept(4), Err(FetchRefusal::Incomplete));
    let mut two = good.to_tree();
    two.set_kv("CKPT", 9);
    assert!(Summary::from_tree(&two, path).unwrap_err().to_string().contains("2 checkpoints"));
    let mut version = good.to_tree();
    version.put("VERSION", 6);
    assert!(Summary::from_tree(&version, path).unwrap_err().to_string().contains("version 6"));
}

#[test]
fn a_flush_by_the_library_is_added_without_touching_its_summary() {
    let scratch = scratch_copy(&fixtures("scr").join("h-index/1-three-flushed/tree/pfs"));
    let directory = "scr.2026-11-20_10:26:07.1145655.3";
    let summary = scratch.path().join(directory).join(summary::SUMMARY_FILE);
    let before = fs::read(&summary).unwrap();
    let prefix = PosixStore::open(scratch.path()).unwrap();
    index::update(&prefix, |index| index.remove(&name(directory))).unwrap();
    assert!(super::world::add_now(scratch.path(), directory).unwrap().is_complete());
    assert!(fs::read(&summary).unwrap() == before);

    // A file of it is lost: only the summary records that, because the library writes no filemaps.
    index::update(&prefix, |index| index.remove(&name(directory))).unwrap();
    fs::remove_file(scratch.path().join(directory).join("rank_2.ckpt")).unwrap();
    let report = super::world::add_now(scratch.path(), directory).unwrap();
    assert!(!report.is_complete());
    assert_eq!(report.reasons.iter().map(ToString::to_string).collect::<Vec<_>>(), ["rank 2 lacks rank_2.ckpt"]);
}
