//! The typed control files: the operations of SCR's runs give the bytes of SCR's files.
//!
//! Exceptions, all from `docs/scr-files.md` §1, and none of a control file that a run writes for itself: meta files
//! that came through MPI (partner copies, files moved or rebuilt at a restart) have their elements in reverse order,
//! and two that a drain found damaged had COMPLETE set last. Filemaps after a restart were merged and sent in
//! the order of messages; `a3`'s second state and `h-index` are read, not replayed.

// Helpers of tests report as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod originals;

use std::fs;
use std::path::Path;

use holdfast_core::control::filemap::{Filemap, MasterFilemap};
use holdfast_core::control::flush::FlushFile;
use holdfast_core::control::meta::{Meta, format_crc, parse_crc};
use holdfast_core::control::nodes;
use holdfast_core::control::transfer::{FileTransfer, TransferCommand, TransferFile, TransferState};
use holdfast_core::kvtree::file::{encode, read};
use holdfast_core::kvtree::{Tree, print};
use holdfast_model::{CheckpointId, Location, NodeName, Rank};
use holdfast_testkit::{files_below, fixtures, scratch_copy};
use originals::{JOB, bytes, node, scr};

/// Checks that a tree is written with the bytes of an original file; on a difference the printed texts are compared.
fn same_bytes(tree: &Tree, path: &Path) {
    let original = bytes(path);
    assert_eq!(print::text(tree), print::text(&read(path).unwrap()), "{}", path.display());
    assert_eq!(encode(tree), original, "{}", path.display());
}

fn named(path: &Path, name: &str) -> bool {
    path.file_name().is_some_and(|file| file == name)
}

// Meta files.

#[test]
fn every_meta_file_has_the_same_content_when_written_again() {
    let (mut identical, mut reordered) = (0, 0);
    for path in files_below(&fixtures("scr")) {
        let is_meta = path.extension().is_some_and(|extension| extension == "scr");
        if !is_meta || named(&path, "index.scr") || named(&path, "summary.scr") {
            continue;
        }
        // Some drains have deliberately damaged meta files.
        let Ok(mut tree) = read(&path) else { continue };
        let text = path.to_str().unwrap();
        let meta = Meta::from_tree(&tree).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut again = meta.to_tree();
        assert!(again.same_content(&tree), "{text}");
        if again == tree {
            assert_eq!(encode(&again), bytes(&path));
            identical += 1;
            continue;
        }
        // Elements from a message are in reverse order, and later keys are first, as everywhere.
        let came_in_a_message =
            ["c-partner/", "e-multi-descriptor/", "g-drain-partner/", "a3-", "s-srun-end-to-end/drain-pdsh-failure/"];
        if came_in_a_message.iter().any(|part| text.contains(part)) {
            again.unset("CRC");
            tree.unset("CRC");
            assert_eq!(again.reversed(), tree, "{text}");
        } else {
            // A mismatch was found: COMPLETE 0 was set last.
            assert!(text.contains("f-drain-xor/crc-on-copy-corrupt-") && !meta.complete, "{text}");
        }
        reordered += 1;
    }
    assert!(identical > 500 && reordered < 100, "{identical} {reordered}");
}

#[test]
fn a_crc_is_written_without_padding_and_zero_without_prefix() {
    assert_eq!((format_crc(0), format_crc(0x0927_6ff0)), ("0".to_owned(), "0x9276ff0".to_owned()));
    for (text, crc) in [("0", Some(0)), ("0x9276ff0", Some(0x0927_6ff0)), ("010", Some(8)), ("12", Some(12))] {
        assert_eq!(parse_crc(text), crc);
    }
    for text in ["", "0x", "0x+1", "-1", "+1", "0x100000000", "x", "09"] {
        assert_eq!(parse_crc(text), None, "{text:?}");
    }
}

#[test]
fn a_meta_file_of_another_directory_or_without_a_required_key_is_refused() {
    let good = Meta { crc: Some(0), ..Meta::of_application("rank_0.ckpt", 10, CheckpointId(1), Rank(0), 4) };
    assert_eq!(Meta::from_tree(&good.to_tree()), Ok(good.clone()));
    for (key, value) in [
        ("FILE", "../../etc/passwd"),
        ("FILE", "/etc/passwd"),
        ("FILE", ".."),
        ("SIZE", "-1"),
        ("RANK", "4294967296"),
        ("CRC", "0x1ffffffff"),
        ("TYPE", "a scheme"),
        ("COMPLETE", "yes"),
    ] {
        let mut tree = good.to_tree();
        tree.put(key, value);
        let error = Meta::from_tree(&tree).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
    for key in ["FILE", "SIZE", "RANK", "RANKS", "CKPT", "TYPE"] {
        let mut tree = good.to_tree();
        tree.unset(key);
        assert!(Meta::from_tree(&tree).unwrap_err().to_string().contains(key));
    }
    let mut twice = good.to_tree();
    twice.set_kv("SIZE", 11);
    assert!(Meta::from_tree(&twice).is_err());
}

#[test]
fn a_file_is_usable_only_if_its_meta_file_matches() {
    let copy = scratch_copy(&node("a-xor4/killed-after-flush", 0).join("index.0/checkpoint.3"));
    let file = copy.path().join("rank_0.ckpt");
    let usable = |rank, checkpoint, ranks| Meta::of_usable(&file, CheckpointId(checkpoint), Rank(rank), ranks);
    assert_eq!(usable(0, 3, Some(4)).unwrap().size, 10001);
    assert!(usable(1, 3, None).is_err());
    assert!(usable(0, 2, None).is_err());
    assert!(usable(0, 3, Some(5)).is_err());
    fs::File::options().write(true).open(&file).unwrap().set_len(10000).unwrap();
    assert!(usable(0, 3, None).unwrap_err().to_string().contains("SIZE 10001, expected is 10000"));
    fs::remove_file(&file).unwrap();
    assert!(usable(0, 3, None).is_err());
}

// Filemaps.

/// The input of the fixtures' library for a descriptor.
struct Group {
    scheme: &'static str,
    groups: u32,
    id: u32,
    size: u32,
    rank: u32,
    hop: u32,
    set: u32,
}

fn descriptor(base: &str, group: &Group) -> Tree {
    let mut tree = Tree::new();
    tree.put("SET_SIZE", group.set);
    tree.put("HOP_DISTANCE", group.hop);
    tree.put("GROUP_RANK", group.rank);
    tree.put("GROUP_SIZE", group.size);
    tree.put("GROUP_ID", group.id);
    tree.put("GROUPS", group.groups);
    tree.put("TYPE", group.scheme);
    tree.put("DIRECTORY", format!("{base}/{JOB}/index.0"));
    tree.put("BASE", base);
    tree.put("INTERVAL", 1);
    tree.put("INDEX", 0);
    tree.put("ENABLED", 1);
    tree
}

/// One rank a node, one XOR set of all: the changes of a rank of a-xor4 to its filemap.
struct XorRank {
    map: Filemap,
    rank: u32,
}

impl XorRank {
    const RANKS: u32 = 4;

    fn new(rank: u32) -> Self {
        XorRank { map: Filemap::new(), rank }
    }

    fn descriptor_of(rank: u32) -> Tree {
        let group = Group { scheme: "XOR", groups: 1, id: 0, size: Self::RANKS, rank, hop: 1, set: 4 };
        descriptor(&format!("/tmp/scr-fixture/node{rank}"), &group)
    }

    fn path(&self, checkpoint: u64, name: &str) -> String {
        format!("/tmp/scr-fixture/node{}/{JOB}/index.0/checkpoint.{checkpoint}/{name}", self.rank)
    }

    fn start(&mut self, checkpoint: u64) {
        let (id, rank) = (CheckpointId(checkpoint), Rank(self.rank));
        self.map.set_descriptor(id, rank, Self::descriptor_of(self.rank));
        self.map.add_file(id, rank, &self.path(checkpoint, &format!("rank_{rank}.ckpt")));
    }

    fn complete(&mut self, checkpoint: u64) {
        let (id, rank) = (CheckpointId(checkpoint), Rank(self.rank));
        let left = (self.rank + Self::RANKS - 1) % Self::RANKS;
        // A descriptor from a message is in reverse order.
        self.map.set_descriptor(id, Rank(left), Self::descriptor_of(left).reversed());
        self.map.add_file(id, rank, &self.path(checkpoint, &format!("{}_of_4_in_0.xor", self.rank + 1)));
        self.map.set_expected(id, rank, 2);
    }

    fn checkpoint(&mut self, checkpoint: u64) {
        self.start(checkpoint);
        self.complete(checkpoint);
    }
}

#[test]
fn the_operations_of_a_xor_run_give_the_filemaps_of_its_nodes() {
    for rank in 0..4 {
        let mut run = XorRank::new(rank);
        run.checkpoint(1);
        same_bytes(run.map.tree(), &node("a-xor4/crc-on-copy", rank).join("filemap_0.scrinfo"));
        run.start(2);
        same_bytes(run.map.tree(), &node("a-xor4/killed-mid-checkpoint", rank).join("filemap_0.scrinfo"));
        assert_eq!(run.map.expected(CheckpointId(2), Rank(rank)), None);
        assert!(!run.map.is_complete(CheckpointId(2), Rank(rank)));
        run.complete(2);
        same_bytes(run.map.tree(), &node("a-xor4/finalized", rank).join("filemap_0.scrinfo"));
        run.map.remove_checkpoint(CheckpointId(1));
        run.checkpoint(3);
        same_bytes(run.map.tree(), &node("a-xor4/killed-after-flush", rank).join("filemap_0.scrinfo"));
        same_bytes(run.map.tree(), &node("a-xor4/killed-before-flush", rank).join("filemap_0.scrinfo"));
    }
}

#[test]
fn the_operations_of_a_partner_run_give_the_filemaps_of_its_nodes() {
    let files: [&[&str]; 4] = [
        &["rank_0.ckpt"],
        &["rank_1.ckpt", "rank_1.extra"],
        &["rank_2.ckpt", "rank_2.b", "rank_2.c"],
        &["rank_3.ckpt"],
    ];
    let described = |rank: u32| {
        let group = Group { scheme: "PARTNER", groups: 1, id: 0, size: 4, rank, hop: 1, set: 8 };
        descriptor(&format!("/tmp/scr-fixture/node{rank}"), &group)
    };
    for rank in 0..4_u32 {
        let left = (rank + 3) % 4;
        let mut map = Filemap::new();
        for id in [CheckpointId(1), CheckpointId(2)] {
            let path = |name: &str| format!("/tmp/scr-fixture/node{rank}/{JOB}/index.0/checkpoint.{id}/{name}");
            let (own, theirs) = (Rank(rank), Rank(left));
            map.set_descriptor(id, own, described(rank));
            for name in files[rank as usize] {
                map.add_file(id, own, &path(name));
            }
            map.set_expected(id, theirs, files[left as usize].len() as u32);
            map.set_partner(id, theirs, &NodeName::new(format!("node{left}")));
            map.set_descriptor(id, theirs, described(left).reversed());
            // Copies are sent in the order of the owner's list, the last routed file first.
            for name in files[left as usize].iter().rev() {
                map.add_file(id, theirs, &path(name));
            }
            map.set_expected(id, own, files[rank as usize].len() as u32);
        }
        // The index lists ranks in the order of their first entries.
        same_bytes(map.tree(), &node("c-partner/killed-before-flush", rank).join("filemap_0.scrinfo"));
        assert_eq!(map.partner(CheckpointId(2), Rank(left)), Some(NodeName::new(format!("node{left}"))));
        assert_eq!(map.partner(CheckpointId(2), Rank(rank)), None);
        assert!(map.is_complete(CheckpointId(2), Rank(left)));
    }
}

#[test]
fn the_master_filemap_lists_the_filemaps_of_a_node() {
    let control = node("b-xor4-2groups/killed-before-flush", 0);
    let mut master = MasterFilemap::new();
    for local_rank in 0..2 {
        master.add(&format!("/tmp/scr-fixture/node0/{JOB}/filemap_{local_rank}.scrinfo"));
    }
    same_bytes(master.tree(), &control.join("filemap.scrinfo"));
    assert_eq!(MasterFilemap::read(&control.join("filemap.scrinfo")).unwrap(), master);
    assert_eq!(master.filemaps().count(), 2);
}

#[test]
fn every_filemap_is_read_and_lists_its_ranks() {
    let mut maps = 0;
    for path in files_below(&fixtures("scr")) {
        if !path.file_name().unwrap().to_str().unwrap().starts_with("filemap_")
            || path.extension().unwrap() != "scrinfo"
        {
            continue;
        }
        let map = Filemap::read(&path).unwrap();
        for id in map.checkpoints() {
            for rank in map.ranks(id) {
                let listed = map.files(id, rank).count() as u32;
                assert!(map.descriptor(id, rank).is_some(), "{}", path.display());
                // A neighbour's descriptor, or an unfinished checkpoint, has no EXPECT.
                assert_eq!(map.is_complete(id, rank), map.expected(id, rank) == Some(listed));
            }
        }
        maps += 1;
    }
    assert!(maps > 100, "{maps}");
}

#[test]
fn a_rank_is_extracted_with_all_entries_and_merging_restores_it() {
    let whole = Filemap::read(&node("a-xor4/killed-after-flush", 0).join("filemap_0.scrinfo")).unwrap();
    let mut rest = whole.clone();
    let extracted = rest.extract_rank(Rank(0));
    assert_eq!(extracted.all_ranks(), [Rank(0)]);
    assert_eq!(extracted.checkpoints(), [CheckpointId(2), CheckpointId(3)]);
    assert_eq!(rest.all_ranks(), [Rank(3)]);
    rest.merge(&extracted);
    assert!(rest.tree().same_content(whole.tree()));
    assert!(rest.extract_rank(Rank(77)).is_empty());
    rest.remove_rank(Rank(0));
    rest.remove_rank(Rank(3));
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn files_are_removed_one_by_one_and_leave_the_rank_incomplete() {
    let (id, rank) = (CheckpointId(1), Rank(0));
    let mut map = Filemap::new();
    map.add_file(id, rank, "/tmp/a");
    map.set_expected(id, rank, 1);
    assert!(map.is_complete(id, rank));
    assert!(map.remove_file(id, rank, "/tmp/a"));
    assert!(!map.remove_file(id, rank, "/tmp/a"));
    assert!(!map.is_complete(id, rank));
    map.unset_expected(id, rank);
    assert_eq!(map.expected(id, rank), None);
    map.remove(id, rank);
    assert!(map.is_empty());
}

#[test]
fn a_filemap_with_invalid_numbers_is_refused() {
    for path in [["RANK", "x", "CKPT", "1"], ["RANK", "0", "CKPT", "-1"]] {
        let mut tree = Tree::new();
        tree.set_kv(path[0], path[1]).set_kv(path[2], path[3]);
        assert!(Filemap::from_tree(tree).is_err());
    }
    let mut tree = Tree::new();
    tree.set_kv("RANK", 0).set_kv("CKPT", 1).put("EXPECT", "many");
    assert!(Filemap::from_tree(tree).is_err());
}

// Flush and nodes files.

fn place(flush: &mut FlushFile, id: u64, location: Location, present: bool) {
    let mut locations = flush.locations(CheckpointId(id)).unwrap_or_default();
    locations.set(location, present);
    flush.record(CheckpointId(id), locations);
}

/// The result of `scr_flush_file --needflush`: the dataset is known, and not on the parallel file system.
fn needs_flush(flush: &FlushFile, id: CheckpointId) -> bool {
    flush.locations(id).is_some_and(|locations| !locations.pfs)
}

#[test]
fn the_operations_of_a_run_give_its_flush_files() {
    let mut flush = FlushFile::new();
    let same = |flush: &FlushFile, state: &str| {
        same_bytes(flush.tree(), &node(state, 0).join("flush.scrinfo"));
        assert_eq!(&FlushFile::read(&node(state, 0).join("flush.scrinfo")).unwrap().unwrap(), flush);
    };
    place(&mut flush, 1, Location::Cache, true);
    same(&flush, "a-xor4/crc-on-copy");
    // An asynchronous flush begins, and ends.
    let mut asynchronous = flush.clone();
    place(&mut asynchronous, 1, Location::Flushing, true);
    same(&asynchronous, "h-async-flush/requested");
    place(&mut flush, 2, Location::Cache, true);
    let mut finalized = flush.clone();
    place(&mut finalized, 2, Location::ParallelFileSystem, true);
    same(&finalized, "a-xor4/finalized");
    let mut later = finalized.clone();
    assert!(later.remove(CheckpointId(1)));
    place(&mut later, 3, Location::Cache, true);
    same(&later, "a-xor4/killed-after-flush");
    let mut ended = flush.clone();
    place(&mut ended, 2, Location::Flushing, true);
    ended.remove(CheckpointId(1));
    place(&mut ended, 3, Location::Cache, true);
    place(&mut ended, 2, Location::ParallelFileSystem, true);
    place(&mut ended, 2, Location::Flushing, false);
    same(&ended, "h-async-flush/completed-by-library");
    flush.remove(CheckpointId(1));
    place(&mut flush, 3, Location::Cache, true);
    same(&flush, "a-xor4/killed-before-flush");
}

#[test]
fn flush_and_nodes_files_give_the_results_of_scr_s_programs() {
    for state in ["finalized", "killed-after-flush", "killed-before-flush"] {
        let control = node(&format!("a-xor4/{state}"), 0);
        let flush = FlushFile::read(&control.join("flush.scrinfo")).unwrap().unwrap();
        let output = fs::read_to_string(scr(&format!("h-control-files/flush_file/a-{state}.node0.out"))).unwrap();
        let mut lines = output.lines();
        while let Some(command) = lines.next() {
            let answer: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("rc=")).collect();
            if command.ends_with("--latest") {
                assert_eq!(answer, [flush.checkpoints().last().unwrap().to_string()]);
            } else if let Some((_, id)) = command.split_once("--needflush ") {
                let needed = needs_flush(&flush, id.parse().unwrap());
                assert!(output.contains(&format!("{command}\nrc={}\n", i32::from(!needed))), "{state}: {command}");
            } else {
                assert_eq!(answer, [nodes::read(&control.join("nodes.scrinfo")).unwrap().unwrap().to_string()]);
            }
        }
    }
    assert_eq!(FlushFile::read(Path::new("/nonexistent/flush.scrinfo")).unwrap(), None);
    assert_eq!(nodes::read(Path::new("/nonexistent/nodes.scrinfo")).unwrap(), None);
}

#[test]
fn a_checkpoint_whose_asynchronous_flush_was_interrupted_needs_a_flush() {
    let flush = FlushFile::read(&node("h-async-flush/done-after-kill", 0).join("flush.scrinfo")).unwrap().unwrap();
    assert!(flush.locations(CheckpointId(1)).unwrap().flushing);
    assert!(needs_flush(&flush, CheckpointId(1)));
}

#[test]
fn every_nodes_file_has_the_bytes_of_scr() {
    let mut files = 0;
    for path in files_below(&fixtures("scr")).into_iter().filter(|path| named(path, "nodes.scrinfo")) {
        same_bytes(&nodes::to_tree(nodes::read(&path).unwrap().unwrap()), &path);
        files += 1;
    }
    assert!(files > 50);
    assert!(nodes::from_tree(&Tree::new()).is_err());
}

// Transfer files.

#[test]
fn the_operations_of_an_asynchronous_flush_give_its_transfer_files() {
    for rank in 0..4_u64 {
        let file = |state: &str| node(&format!("h-async-flush/{state}"), rank as u32).join("transfer.scrinfo");
        let requested = TransferFile::read(&file("requested")).unwrap().unwrap();
        let destination = requested.files()[0].destination.rsplit_once('/').unwrap().0.to_owned();
        let cache = format!("/tmp/scr-fixture/node{rank}/{JOB}/index.0/checkpoint.1");
        let list = |destination: &str| -> Vec<FileTransfer> {
            [(".scr", 154), ("", 5001 + 17 * rank)]
                .map(|(end, size)| FileTransfer {
                    source: format!("{cache}/rank_{rank}.ckpt{end}"),
                    destination: format!("{destination}/rank_{rank}.ckpt{end}"),
                    size,
                    written: 0,
                })
                .into_iter()
                .rev()
                .collect()
        };
        let start = |bandwidth: f64, destination: &str| {
            let mut transfers = TransferFile::default();
            transfers.set_state(TransferState::Stopped);
            transfers.request(&list(destination), bandwidth, 0.0);
            transfers
        };
        let mut transfers = start(52_428_800.0, &destination);
        same_bytes(transfers.tree(), &file("requested"));
        assert_eq!(transfers, requested);
        assert!(!transfers.all_written());

        // The daemon runs to the end.
        for done in list(&destination) {
            transfers.set_written(&done.source, done.size);
        }
        transfers.set_done();
        same_bytes(transfers.tree(), &file("done-after-kill"));
        assert!(transfers.all_written() && transfers.is_done());

        // The library removes its files from the list.
        for done in list(&destination) {
            assert!(transfers.remove_file(&done.source));
        }
        transfers.set_command(TransferCommand::Stop);
        same_bytes(transfers.tree(), &file("completed-by-library"));

        // Another one was killed in between.
        let partly = TransferFile::read(&file("in-progress")).unwrap().unwrap();
        let destination = partly.files()[0].destination.rsplit_once('/').unwrap().0.to_owned();
        let mut transfers = start(500.0, &destination);
        transfers.set_state(TransferState::Running);
        for file in partly.files().iter().filter(|file| file.written > 0) {
            transfers.set_written(&file.source, file.written);
        }
        same_bytes(transfers.tree(), &file("in-progress"));
        assert_eq!(
            (transfers.command(), transfers.state()),
            (Some(TransferCommand::Run), Some(TransferState::Running))
        );
        assert_eq!((transfers.bandwidth(), transfers.percent()), (Some(500.0), Some(0.0)));
    }
}

#[test]
fn a_second_request_keeps_the_limits_and_resets_done() {
    let mut transfers = TransferFile::default();
    transfers.request(&[], 500.0, 1.5);
    transfers.set_done();
    transfers.request(&[], 900.0, 3.0);
    assert_eq!((transfers.bandwidth(), transfers.percent()), (Some(500.0), Some(1.5)));
    assert!(!transfers.is_done());
}

#[test]
fn a_transfer_file_with_impossible_values_is_refused() {
    for (key, value) in [("BW", "inf"), ("BW", "fast"), ("COMMAND", "GO"), ("STATE", "?")] {
        let mut tree = Tree::new();
        tree.put(key, value);
        assert!(TransferFile::from_tree(tree).unwrap_err().to_string().contains(key));
    }
    let mut tree = Tree::new();
    tree.set_kv("FILES", "/tmp/a").put("SIZE", 3);
    assert!(TransferFile::from_tree(tree).is_err());
}
