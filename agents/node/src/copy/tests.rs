use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::control::meta::Meta;
use holdfast_core::crash::{WITHOUT_DESCRIPTORS, with_error};
use holdfast_core::prefix::rank_filemap::RankFilemap;
use holdfast_core::redundancy::registry;
use holdfast_core::store::PosixDataset;
use holdfast_model::{CheckpointId, ContainerPlaces, Rank, RankPlace};
use holdfast_wire::agent::{CopyReply, CopyRequest, RebuildRequest, VerifyRequest};
use tokio_util::sync::CancellationToken;

use super::drain::copy_from;
use super::{CopyError, on_prefix};
use crate::agent::fixtures::{copy_request, fixture_agent};
use crate::prefix::job_prefixes::JobPrefixes;
use crate::store::Store;
use crate::store::fixtures::fixture;

fn request(directory: &Path, checkpoint: u64) -> CopyRequest {
    copy_request(directory.join("ckpt"), CheckpointId(checkpoint))
}

fn run(store: &Store, request: &CopyRequest) -> CopyReply {
    let prefix = request.directory.parent().unwrap();
    fs::create_dir_all(prefix).unwrap();
    let prefixes = JobPrefixes::new(vec![prefix.to_owned()]);
    copy_from(store, &Arc::default(), &prefixes, request, CancellationToken::new(), &|| {}).unwrap()
}

fn same_files(ours: &Path, theirs: &Path) {
    let names = |directory: &Path| -> Vec<_> {
        let files = holdfast_testkit::files_below(directory);
        files.iter().map(|path| path.strip_prefix(directory).unwrap().to_owned()).collect()
    };
    assert_eq!(names(ours), names(theirs));
    for name in names(ours) {
        assert_eq!(fs::read(ours.join(&name)).unwrap(), fs::read(theirs.join(&name)).unwrap(), "{}", name.display());
    }
}

/// The one checkpoint directory in a drain fixture's prefix directory, and those of the nodes after the copy.
fn drained(fixture: &str) -> PathBuf {
    let pfs = holdfast_testkit::fixtures("scr").join(fixture).join("input/tree/pfs");
    let mut directories = fs::read_dir(pfs).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    directories.next().unwrap()
}

#[test]
fn three_surviving_nodes_leave_what_scr_copy_left_byte_for_byte() {
    let prefix = tempfile::tempdir().unwrap();
    let drain = "f-drain-xor/one-node-lost";
    for node in ["node0", "node1", "node3"] {
        let (root, store) = fixture("a-xor4/killed-before-flush", node);
        let reply = run(&store, &request(prefix.path(), 3));
        assert_eq!((reply.copied.len(), reply.failed.len(), reply.partners.len()), (1, 0, 0), "{reply:?}");
        // SCR records the checksums in cache, too.
        let theirs = holdfast_testkit::fixtures("scr").join(drain).join("input/tree").join(node);
        same_files(&root.path().join("tmp/scr-fixture").join(node), &theirs);
    }
    same_files(&prefix.path().join("ckpt"), &drained(drain));
}

#[test]
fn several_files_a_rank_and_several_ranks_a_node_are_copied_as_scr_copy_does() {
    let prefix = tempfile::tempdir().unwrap();
    for node in ["node0", "node1", "node3"] {
        let (_root, store) = fixture("b-xor4-2groups/killed-before-flush", node);
        assert!(run(&store, &request(prefix.path(), 3)).failed.is_empty());
    }
    same_files(&prefix.path().join("ckpt"), &drained("f-drain-xor/multi-file-one-node-lost"));
}

#[test]
fn partners_copy_for_the_requested_nodes() {
    let prefix = tempfile::tempdir().unwrap();
    for node in ["node0", "node1", "node3"] {
        let (_root, store) = fixture("c-partner/hop2-killed-before-flush", node);
        let mut request = request(prefix.path(), 1);
        request.on_behalf_of = vec!["node2".into()];
        let reply = run(&store, &request);
        assert!(reply.failed.is_empty() && !reply.partners.is_empty(), "{reply:?}");
        assert_eq!(reply.copied.contains_key(&Rank(2)), node == "node0");
    }
    same_files(&prefix.path().join("ckpt"), &drained("g-drain-partner/hop2-node-known-down"));

    let (_root, store) = fixture("c-partner/hop2-killed-before-flush", "node0");
    let mut round2 = request(&prefix.path().join("2"), 1);
    round2.partners_only = true;
    round2.on_behalf_of = vec!["node2".into()];
    assert_eq!(run(&store, &round2).copied.keys().collect::<Vec<_>>(), [&Rank(2)]);
}

#[test]
fn a_lost_file_does_not_stop_the_others() {
    let prefix = tempfile::tempdir().unwrap();
    let (root, store) = fixture("b-xor4-2groups/killed-before-flush", "node0");
    let cache = root.path().join("tmp/scr-fixture/node0/user1/scr.1145655/index.0/checkpoint.3");
    fs::remove_file(cache.join("rank_0.1.ckpt")).unwrap();
    let request = request(prefix.path(), 3);
    let reply = run(&store, &request);
    assert_eq!(reply.failed.keys().collect::<Vec<_>>(), [&Rank(0)]);
    assert!(reply.failed[&Rank(0)].contains("rank_0.1.ckpt"));
    assert!(!reply.copied.is_empty(), "the node's other rank");
    let filemap = RankFilemap::read(&PosixDataset::at(&request.directory).unwrap(), "0.scrfilemap").unwrap();
    assert_eq!(filemap.expected, 3);
    assert_eq!(filemap.files, ["1_of_4_in_0.xor", "rank_0.0.ckpt"]);
}

/// What could not be opened is intact: another drain copies it.
#[test]
fn without_descriptors_or_memory_no_file_counts_as_damaged() {
    let (_root, store) = fixture("a-xor4/killed-before-flush", "node1");
    let base = holdfast_testkit::fast_directory();
    let mut refused = 0;
    for errno in WITHOUT_DESCRIPTORS {
        for nth in 1.. {
            let prefix = base.path().join(format!("{errno:?}.{nth}"));
            fs::create_dir(&prefix).unwrap();
            let request = CopyRequest { threads: Some(1), ..request(&prefix, 3) };
            let prefixes = JobPrefixes::new(vec![prefix]);
            let copy = || copy_from(&store, &Arc::default(), &prefixes, &request, CancellationToken::new(), &|| {});
            let (copied, call) = with_error(nth, *errno, copy);
            let Some(call) = call else { break };
            let context = format!("{errno:?} from call {nth} ({call:?}): {copied:?}");
            if let Ok(reply) = copied {
                assert!(reply.failed.keys().all(|rank| reply.unwritable.contains(rank)), "{context}");
            }
            let again = copy().unwrap();
            assert!(again.failed.is_empty() && again.copied.len() == 1, "{context}; then {again:?}");
            refused += 1;
        }
    }
    assert!(refused > 60, "{refused} calls");
}

#[test]
fn a_damaged_file_is_detected_by_its_checksum_and_not_left_on_the_prefix() {
    let prefix = tempfile::tempdir().unwrap();
    let (root, store) = fixture("a-xor4/crc-on-copy", "node1");
    let file = root.path().join("tmp/scr-fixture/node1/user1/scr.1145655/index.0/checkpoint.1/rank_1.ckpt");
    let mut bytes = fs::read(&file).unwrap();
    bytes[7] ^= 1;
    fs::write(&file, bytes).unwrap();
    let request = request(prefix.path(), 1);
    let reply = run(&store, &request);
    assert!(reply.failed[&Rank(1)].contains("rank_1.ckpt is damaged"), "{reply:?}");
    assert!(!request.directory.join("rank_1.ckpt").exists());
    assert!(request.directory.join("2_of_4_in_0.xor").exists());
    assert!(!Meta::read(&file).unwrap().complete);
    assert!(!store.has(CheckpointId(1), Rank(1)).unwrap());
}

#[test]
fn only_files_that_differ_are_copied_again() {
    let prefix = tempfile::tempdir().unwrap();
    let (_root, store) = fixture("a-xor4/killed-before-flush", "node1");
    let request = request(prefix.path(), 3);
    run(&store, &request);
    let inode = |name: &str| {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(request.directory.join(name)).unwrap().ino()
    };
    let (file, xor) = (inode("rank_1.ckpt"), inode("2_of_4_in_0.xor"));
    let mut bytes = fs::read(request.directory.join("2_of_4_in_0.xor")).unwrap();
    let right = bytes.clone();
    bytes[3000] ^= 1;
    fs::write(request.directory.join("2_of_4_in_0.xor"), bytes).unwrap();
    let reply = run(&store, &request);
    assert_eq!(reply.copied[&Rank(1)], 10038 + 3902);
    assert_eq!(inode("rank_1.ckpt"), file);
    assert_ne!(inode("2_of_4_in_0.xor"), xor);
    assert_eq!(fs::read(request.directory.join("2_of_4_in_0.xor")).unwrap(), right);
}

#[test]
fn a_node_without_files_is_no_failure_and_an_unfinished_checkpoint_is_one() {
    let prefix = tempfile::tempdir().unwrap();
    let (_root, store) = fixture("a-xor4/killed-mid-checkpoint", "node1");
    assert_eq!(run(&store, &request(prefix.path(), 77)), CopyReply::default());
    let reply = run(&store, &request(prefix.path(), 2));
    assert!(reply.copied.is_empty() && reply.failed.len() == 1, "{reply:?}");
}

#[test]
fn a_directory_that_is_not_below_a_prefix_directory_is_refused() {
    let (_root, agent) = fixture_agent("node1", "1145655");
    for bad in ["relative", "/tmp/../etc", "/nowhere/scr.3"] {
        let copy = CopyRequest { directory: bad.into(), ..request(Path::new("/"), 3) };
        let refused = super::drain::copy(&agent, &copy, CancellationToken::new());
        assert!(matches!(refused, Err(CopyError::Directory(_))), "{refused:?}");
        let verify = VerifyRequest { directory: bad.into(), files: Vec::new(), threads: None };
        let refused = on_prefix::verify(&agent.prefixes, &verify, CancellationToken::new());
        assert!(matches!(refused, Err(CopyError::Directory(_))), "{refused:?}");
    }
}

#[test]
fn a_lost_member_is_rebuilt_in_the_checkpoint_directory_and_verified() {
    let scratch = holdfast_testkit::scratch_copy(&drained("f-drain-xor/one-node-lost"));
    let prefixes = JobPrefixes::new(vec![std::env::temp_dir()]);
    let request = RebuildRequest {
        directory: scratch.path().to_owned(),
        checkpoint: CheckpointId(3),
        scheme: registry::DEFAULT,
        group_id: 0,
        members: 4,
        missing: vec![2],
        ranks: vec![Rank(2)],
    };
    let reply = on_prefix::rebuild(&prefixes, &Arc::default(), &request).unwrap();
    assert_eq!((reply.ranks, reply.files.len()), (vec![Rank(2)], 2));
    let file = fs::read(scratch.path().join("rank_2.ckpt")).unwrap();
    assert_eq!(file, holdfast_testkit::application_bytes(3, 2, 0, file.len()));

    let files = ["rank_2.ckpt", "rank_1.ckpt", "3_of_4_in_0.xor", "../x", "missing"].map(str::to_owned).to_vec();
    let verify = VerifyRequest { directory: scratch.path().to_owned(), files, threads: None };
    let damaged = on_prefix::verify(&prefixes, &verify, CancellationToken::new()).unwrap().damaged;
    assert_eq!(damaged.keys().collect::<Vec<_>>(), ["../x", "missing"]);
    let mut bytes = fs::read(scratch.path().join("rank_1.ckpt")).unwrap();
    bytes[0] ^= 1;
    fs::write(scratch.path().join("rank_1.ckpt"), bytes).unwrap();
    assert!(
        on_prefix::verify(&prefixes, &verify, CancellationToken::new()).unwrap().damaged.contains_key("rank_1.ckpt")
    );
    assert!(on_prefix::rebuild(&prefixes, &Arc::default(), &request).is_err(), "from a damaged survivor");
}

#[test]
fn a_node_that_cannot_open_the_container_leaves_plain_files() {
    let prefix = tempfile::tempdir().unwrap();
    let drain = "f-drain-xor/one-node-lost";
    let place = RankPlace { file: 0, offset: 4096, chunk_bytes: 1 << 20, stride: 1 << 20, first_chunk: 0 };
    for node in ["node0", "node1", "node3"] {
        let (_root, store) = fixture("a-xor4/killed-before-flush", node);
        let ranks = (0..4).map(|rank| (Rank(rank), place)).collect();
        let container = Some(ContainerPlaces { files: vec!["removed.tmp".to_owned()], ranks });
        let reply = run(&store, &CopyRequest { container, ..request(prefix.path(), 3) });
        assert_eq!((reply.copied.len(), reply.failed.len(), reply.packed.len()), (1, 0, 0), "{reply:?}");
    }
    same_files(&prefix.path().join("ckpt"), &drained(drain));
}
