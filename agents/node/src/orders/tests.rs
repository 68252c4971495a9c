//! Orders on a node of the fixtures: checkpoint 3 of rank 1 is complete in its cache.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use holdfast_core::control::transfer::{TransferCommand, TransferFile, TransferState};
use holdfast_core::redundancy::descriptor;
use holdfast_model::{CheckpointId, ContainerPlaces, Failure, FailureKind, Generation, Rank, RankPlace, Scheme};
use holdfast_wire::peer::{
    CopyLimits, DatasetFile, FetchRank, GroupWork, Member, Order, OrderResult, RankTransfer, SealCrc,
};
use holdfast_wire::plan::RunRequest;
use tempfile::TempDir;

use super::execute;
use crate::agent::fixtures::fixture_agent;
use crate::agent::fixtures::set_up;
use crate::collective::{Collectives, begin_run, route};
use crate::copy::pace::OrderControl;
use crate::copy::transfer_record;
use crate::fixtures::fixture_request;
use crate::sources::files::{FileError, RankFiles};

/// A run whose prefix directory is the one in which this test's directories are.
fn request() -> RunRequest {
    let mut request = fixture_request(Generation(2), "node1", &[1]);
    request.shared.settings.prefix = std::env::temp_dir();
    request
}

async fn node() -> (TempDir, Collectives) {
    let (root, agent) = fixture_agent("node1", "1145655");
    let collectives = Collectives::new(agent);
    begin_run(&collectives, request()).await.unwrap();
    (root, collectives)
}

/// The same, and a directory for the files of a dataset.
async fn with_prefix() -> (TempDir, Collectives, TempDir) {
    let (root, node) = node().await;
    (root, node, tempfile::tempdir().unwrap())
}

fn carry_out(node: &Collectives, what: Order) -> Result<OrderResult, Failure> {
    execute(&node.agent, &node.run().unwrap(), 1, what, &OrderControl::default())
}

/// A flush of a checkpoint without limits, while the ranks wait for it.
fn flush(checkpoint: CheckpointId, prefix: &TempDir, crc: bool) -> Order {
    let (directory, limits) = (prefix.path().to_owned(), CopyLimits::NONE);
    Order::Flush { checkpoint, directory, limits, background: false, crc, container: None }
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

fn dataset_file(name: &str, size: u64, crc: Option<u32>) -> DatasetFile {
    DatasetFile { name: name.to_owned(), size, crc, output_path: None }
}

#[tokio::test]
async fn a_flush_copies_the_application_s_files_once() {
    let (_root, node, prefix) = with_prefix().await;
    let flush = |crc| carry_out(&node, flush(CheckpointId(3), &prefix, crc)).unwrap();
    let copy = prefix.path().join("rank_1.ckpt");
    let OrderResult::Flushed(flushed) = flush(false) else { panic!("another result") };
    assert_eq!(flushed[&Rank(1)], [dataset_file("rank_1.ckpt", 10038, None)]);
    let first = inode(&copy);
    let right = fs::read(&copy).unwrap();
    assert_eq!(fs::read_dir(prefix.path()).unwrap().count(), 2, "the file and its meta file");

    let OrderResult::Flushed(flushed) = flush(true) else { panic!("another result") };
    assert_eq!(flushed[&Rank(1)], [dataset_file("rank_1.ckpt", 10038, Some(crc32fast::hash(&right)))]);
    assert_eq!(inode(&copy), first, "copied again");

    let mut wrong = right.clone();
    wrong[5000] ^= 1;
    fs::write(&copy, wrong).unwrap();
    flush(true);
    assert_eq!(fs::read(&copy).unwrap(), right);
}

#[tokio::test]
async fn a_flush_in_the_background_is_recorded_in_the_transfer_file() {
    let (_root, node, prefix) = with_prefix().await;
    let path = transfer_record::path(&node.agent.paths);
    let flush = |background| {
        let (checkpoint, directory) = (CheckpointId(3), prefix.path().to_owned());
        let limits = CopyLimits { bandwidth: 1 << 30, percent: 50.0, ..CopyLimits::NONE };
        carry_out(&node, Order::Flush { checkpoint, directory, limits, background, crc: true, container: None })
    };
    flush(false).unwrap();
    assert_eq!(TransferFile::read(&path).unwrap(), None);
    flush(true).unwrap();
    let file = TransferFile::read(&path).unwrap().unwrap();
    let listed = file.files();
    let names: Vec<&str> = listed.iter().map(|file| file.source.rsplit_once('/').unwrap().1).collect();
    assert_eq!(names, ["rank_1.ckpt", "rank_1.ckpt.scr"]);
    for transfer in &listed {
        assert!(transfer.source.starts_with("/tmp/"), "as the node sees it: {}", transfer.source);
        assert_eq!(transfer.written, transfer.size);
        assert_eq!(fs::metadata(&transfer.destination).unwrap().len(), transfer.size, "{}", transfer.destination);
    }
    assert!(file.is_done());
    assert_eq!((file.bandwidth(), file.percent()), (Some(f64::from(1 << 30)), Some(50.0)));
    assert_eq!((file.command(), file.state()), (Some(TransferCommand::Run), Some(TransferState::Stopped)));

    // One that fails is not done.
    carry_out(&node, Order::Delete { checkpoints: vec![CheckpointId(3)], all_but: None }).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(flush(true).is_err());
    assert_eq!(TransferFile::read(&path).unwrap(), None, "nothing was begun");
}

#[tokio::test]
async fn a_node_that_cannot_open_the_container_flushes_plain_files() {
    let (_root, node, prefix) = with_prefix().await;
    let place = RankPlace { file: 0, offset: 4096, chunk_bytes: 65536, stride: 65536, first_chunk: 1 };
    let ranks = [(Rank(1), place)].into();
    let container = Some(ContainerPlaces { files: vec!["gone.tmp".to_owned()], ranks });
    let (checkpoint, directory) = (CheckpointId(3), prefix.path().to_owned());
    let flush =
        Order::Flush { checkpoint, directory, limits: CopyLimits::NONE, background: false, crc: false, container };
    let OrderResult::Flushed(flushed) = carry_out(&node, flush).unwrap() else { panic!("another result") };
    assert_eq!(flushed[&Rank(1)], [dataset_file("rank_1.ckpt", 10038, None)]);
    assert_eq!(fs::metadata(prefix.path().join("rank_1.ckpt")).unwrap().len(), 10038);
}

#[tokio::test]
async fn a_flush_of_missing_files_is_refused_and_publishes_nothing() {
    let (_root, node, prefix) = with_prefix().await;
    let id = CheckpointId(3);
    carry_out(&node, Order::Delete { checkpoints: vec![id], all_but: None }).unwrap();
    for missing in [id, CheckpointId(7)] {
        let failure = carry_out(&node, flush(missing, &prefix, false)).unwrap_err();
        assert_eq!((failure.kind, failure.subject.rank), (FailureKind::NotFound, Some(Rank(1))), "{failure}");
    }
    assert_eq!(fs::read_dir(prefix.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_file_that_changes_after_it_was_sealed_is_damaged_when_the_step_is_repeated() {
    let (_root, node) = node().await;
    let (checkpoint, rank) = (CheckpointId(3), Rank(1));
    let seal = || carry_out(&node, Order::Seal { checkpoint, ranks: 4, crc: SealCrc::Compute });
    let sealed = seal().unwrap();
    assert_eq!(seal().unwrap(), sealed);
    let file = super::context::rank_directory(&node.agent, checkpoint, rank).unwrap().join("rank_1.ckpt");
    let mut bytes = fs::read(&file).unwrap();
    bytes[7] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let failure = seal().unwrap_err();
    assert_eq!((failure.kind, failure.subject.rank, failure.retryable), (FailureKind::Damaged, Some(rank), false));
    assert!(failure.message.contains("rank_1.ckpt of rank 1 is damaged"), "{failure}");
    // Its record is as it was.
    bytes[7] ^= 1;
    fs::write(&file, &bytes).unwrap();
    assert_eq!(seal().unwrap(), sealed);
}

#[tokio::test]
async fn a_member_that_waits_for_a_peer_is_cancelled_when_another_one_on_its_node_has_failed() {
    let (_root, node) = node().await;
    let checkpoint = CheckpointId(3);
    let members = vec![(Rank(0), "node1".into()), (Rank(1), "node1".into())];
    let group = |member| GroupWork {
        scheme: Scheme::new("PARTNER"),
        group_id: 0,
        members: members.clone(),
        member,
        left: 0,
        right: 0,
        largest: 10,
    };
    // Rank 1 keeps a copy of rank 0, of which there are no files.
    let groups = vec![group(1), group(0)];
    let only = Some(vec![Rank(0)]);
    let encode = Order::Encode { checkpoint, groups, crc: true, only, limits: CopyLimits::NONE };
    let begun = Instant::now();
    let failure = carry_out(&node, encode).unwrap_err();
    assert_ne!(failure.kind, FailureKind::LostPeer, "{failure}");
    let alone = node.run().unwrap().plan.settings.stream_timeout / 8;
    assert!(begun.elapsed() < alone, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_transfer_of_missing_files_names_the_rank() {
    let (_root, node) = node().await;
    let (checkpoint, rank) = (CheckpointId(3), Rank(1));
    carry_out(&node, Order::Discard { checkpoint, ranks: vec![rank] }).unwrap();
    let outgoing = vec![RankTransfer { rank, to: "node2".into() }];
    let transfer = Order::Transfer { checkpoint, outgoing, incoming: Vec::new() };
    let failure = carry_out(&node, transfer).unwrap_err();
    assert_eq!((failure.kind, failure.subject.rank, failure.retryable), (FailureKind::NotFound, Some(rank), false));
}

#[tokio::test]
async fn a_fetch_that_was_interrupted_is_resumed_and_other_files_of_that_id_are_replaced() {
    let (_root, node, prefix) = with_prefix().await;
    let descriptor = descriptor::from_tree(&node.agent.store.descriptor(CheckpointId(3), Rank(1)).unwrap()).unwrap();
    let fetch = |names: &[&str]| {
        // As a summary lists them, newest first.
        let file = |name: &&str| dataset_file(name, 5, Some(crc32fast::hash(b"12345")));
        let files = names.iter().rev().map(file).collect();
        let ranks = vec![FetchRank { member: Member { rank: Rank(1), descriptor: descriptor.clone() }, files }];
        let directory = prefix.path().to_owned();
        carry_out(&node, Order::Fetch { checkpoint: CheckpointId(9), directory, ranks, total_ranks: 4, width: 1 })
    };
    fs::write(prefix.path().join("a"), "12345").unwrap();
    assert_eq!(fetch(&["a", "b"]).unwrap_err().kind, FailureKind::Io);
    let cache = super::context::rank_directory(&node.agent, CheckpointId(9), Rank(1)).unwrap();
    let first = inode(&cache.join("a"));
    fs::write(prefix.path().join("b"), "12345").unwrap();
    fetch(&["a", "b"]).unwrap();
    assert_eq!(inode(&cache.join("a")), first, "copied again");
    assert_eq!(node.agent.store.files(CheckpointId(9), Rank(1)), ["b", "a"]);

    fs::write(prefix.path().join("c"), "12345").unwrap();
    fetch(&["c"]).unwrap();
    assert_eq!(node.agent.store.files(CheckpointId(9), Rank(1)), ["c"]);
    assert!(!cache.join("a").exists());

    fs::write(prefix.path().join("c"), "1234x").unwrap();
    fs::write(cache.join("c"), "2345x").unwrap();
    assert_eq!(fetch(&["c"]).unwrap_err().kind, FailureKind::Damaged);
}

#[tokio::test]
async fn a_cancelled_order_copies_nothing_and_is_retryable() {
    let (_root, node, prefix) = with_prefix().await;
    let control = OrderControl::default();
    control.cancelled.cancel();
    let order = flush(CheckpointId(3), &prefix, true);
    let failure = execute(&node.agent, &node.run().unwrap(), 1, order, &control).unwrap_err();
    assert_eq!((failure.kind, failure.retryable), (FailureKind::Cancelled, true));
    assert_eq!(fs::read_dir(prefix.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn files_that_bypass_the_cache_are_listed_by_an_agent_that_was_restarted_after_they_were_routed() {
    let (_root, node, prefix) = with_prefix().await;
    let (checkpoint, directory) = (CheckpointId(4), prefix.path().to_owned());
    let open = || Order::OpenDirect { checkpoint, directory: directory.clone() };
    carry_out(&node, open()).unwrap();
    for name in ["first", "second"] {
        assert_eq!(route(&node, Rank(1), name).unwrap(), directory.join(name));
        fs::write(directory.join(name), name).unwrap();
    }
    let agent = Arc::new(set_up(node.agent.start.clone(), node.agent.paths.clone()).unwrap());
    let restarted = Collectives::new(agent);
    begin_run(&restarted, request()).await.unwrap();
    // The leader repeats an order that was not answered.
    carry_out(&restarted, open()).unwrap();
    route(&restarted, Rank(1), "third").unwrap();
    fs::write(directory.join("third"), "third").unwrap();
    let sealed = carry_out(&restarted, Order::SealDirect { checkpoint }).unwrap();
    let files = ["third", "second", "first"].map(|name| dataset_file(name, name.len() as u64, None));
    assert_eq!(sealed, OrderResult::Flushed([(Rank(1), files.to_vec())].into()));

    carry_out(&restarted, Order::CloseDirect { checkpoint }).unwrap();
    carry_out(&restarted, open()).unwrap();
    let sealed = carry_out(&restarted, Order::SealDirect { checkpoint }).unwrap();
    assert_eq!(sealed, OrderResult::Flushed(Default::default()), "the dataset started again");
}

#[tokio::test]
async fn a_restart_from_the_prefix_directory_names_the_file_that_it_does_not_find() {
    let (_root, node, prefix) = with_prefix().await;
    let directory = prefix.path().to_owned();
    let files = [(Rank(1), vec![dataset_file("missing", 5, None)])].into();
    let read = Order::ReadDirect { checkpoint: CheckpointId(4), directory, files, written_by: None };
    let failure = carry_out(&node, read).unwrap_err();
    assert_eq!((failure.kind, failure.subject.rank, &failure.remedy), (FailureKind::NotFound, Some(Rank(1)), &None));
    let expected = format!("cannot read {}", prefix.path().join("missing").display());
    assert!(failure.message.contains(&expected), "{failure}");
}

#[tokio::test]
async fn a_file_whose_path_below_the_prefix_would_be_too_long_is_refused_before_it_is_recorded() {
    let (_root, node) = node().await;
    let run = node.run().unwrap();
    let before = node.agent.store.files(CheckpointId(3), Rank(1));
    for (bytes, fits) in [(3000, true), (4000, false)] {
        let prefix = Path::new("/").join("p/".repeat(bytes / 2));
        let files = RankFiles { prefix: &prefix, ..run.files_of(Rank(1), &node.agent) };
        match files.add(CheckpointId(3), &"n".repeat(200)) {
            Ok(_) => assert!(fits),
            Err(FileError::LongPath { .. }) => assert!(!fits),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(node.agent.store.files(CheckpointId(3), Rank(1)).len(), before.len() + 1);
}

#[tokio::test]
async fn a_fetch_of_a_file_with_a_reserved_name_is_refused() {
    let (_root, node, prefix) = with_prefix().await;
    let known = node.agent.store.descriptor(CheckpointId(3), Rank(1)).unwrap();
    let member = Member { rank: Rank(1), descriptor: descriptor::from_tree(&known).unwrap() };
    for name in ["rank_1.ckpt.scr", "1_of_4_in_0.xor", "../rank_1.ckpt"] {
        fs::write(prefix.path().join("rank_1.ckpt.scr"), "not a meta file").unwrap();
        let files = vec![dataset_file(name, 15, None)];
        let ranks = vec![FetchRank { member: member.clone(), files }];
        let directory = prefix.path().to_owned();
        let fetch = Order::Fetch { checkpoint: CheckpointId(4), directory, ranks, total_ranks: 4, width: 1 };
        assert_eq!(carry_out(&node, fetch).unwrap_err().kind, FailureKind::Damaged, "{name}");
        assert!(node.agent.store.files(CheckpointId(4), Rank(1)).is_empty(), "{name}");
    }
}
