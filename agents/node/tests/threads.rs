//! The threads of agents are bounded by settings, not by ranks; where the system refuses one, a call fails, not the
//! agent.

// A test reports by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cluster;

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use holdfast_client::Client;
use holdfast_model::Rank;
use rustix::process::{Resource, getrlimit, getuid, setrlimit};

use cluster::Cluster;

/// Set in the process that has a user of its own.
const LIMITED: &str = "HOLDFAST_TEST_LIMITED";
/// A user without any other process.
const USER: u32 = 54_321;
/// Ranks are threads of this name.
const RANK: &str = "a-rank";

/// The threads of this process that are not ranks, by name.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim_end() != RANK).collect()
}

/// Begins a checkpoint and writes a file of 100 kB, so that its pieces are not small messages.
fn write(client: &mut Client, rank: Rank) {
    client.start_checkpoint().unwrap();
    let path = client.route_file(format!("rank_{}.ckpt", rank.0)).unwrap();
    fs::write(path, vec![rank.0 as u8; 100_000]).unwrap();
}

/// Runs `work` for each rank of the cluster, on a thread.
fn on_ranks(cluster: &Cluster, work: impl Fn(&mut Client, Rank) + Sync) {
    thread::scope(|scope| {
        for (node, (_, ranks)) in cluster.nodes.iter().enumerate() {
            for rank in ranks {
                let work = &work;
                let run = move || work(&mut cluster.client(node, *rank), *rank);
                thread::Builder::new().name(RANK.to_owned()).stack_size(512 << 10).spawn_scoped(scope, run).unwrap();
            }
        }
    });
}

#[test]
fn agents_have_fewer_threads_than_ranks_while_redundancy_is_computed() {
    if is_limited() {
        return;
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut most = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                let now = threads();
                most = if now.len() > most.len() { now } else { most };
            }
            most
        });
        for (job, scheme) in [("threads-xor", "XOR"), ("threads-partner", "PARTNER")] {
            let cluster = Cluster::start(job, 2, 128, scheme);
            on_ranks(&cluster, |client, rank| {
                write(client, rank);
                assert!(client.complete_checkpoint(true).unwrap().kept);
            });
        }
        ended.store(true, Ordering::Relaxed);
        let most = watching.join().unwrap();
        assert!(most.len() > 16, "the agents were not seen at work: {most:?}");
        assert!(most.len() < 256, "{} threads of two agents with 256 ranks: {most:?}", most.len());
    });
}

fn is_limited() -> bool {
    std::env::var_os(LIMITED).is_some()
}

/// A limit of processes does not bind root, and counts all processes of a user: the test runs as a user of its own.
#[test]
fn a_checkpoint_for_which_a_thread_is_refused_is_dropped_and_the_next_one_is_kept() {
    if is_limited() {
        return refuse_threads();
    }
    if !getuid().is_root() {
        println!("ignored: only root can run a process as another user");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    chown(directory.path(), Some(USER), Some(USER)).unwrap();
    let program = directory.path().join("threads");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut limited = Command::new(&program);
    limited.args(["--exact", "a_checkpoint_for_which_a_thread_is_refused_is_dropped_and_the_next_one_is_kept"]);
    limited.args(["--nocapture"]).env(LIMITED, "1").env("TMPDIR", directory.path()).current_dir(directory.path());
    let output = limited.uid(USER).gid(USER).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    assert!(!printed.contains("panicked"), "{printed}");
}

/// In a process of a user that has no other one.
fn refuse_threads() {
    let cluster = Cluster::start("threads-limited", 2, 6, "XOR");
    let together = Barrier::new(12);
    let unlimited = getrlimit(Resource::Nproc);
    on_ranks(&cluster, |client, rank| {
        let as_one = |work: &dyn Fn()| {
            together.wait();
            if rank == Rank(0) {
                work();
            }
            together.wait();
        };
        for (refused, kept) in [(true, false), (false, true)] {
            write(client, rank);
            as_one(&|| {
                let mut limit = unlimited;
                if refused {
                    // Six groups need eleven threads, and as many to read from each other.
                    limit.current = Some(fs::read_dir("/proc/self/task").unwrap().count() as u64 + 1);
                }
                setrlimit(Resource::Nproc, limit).unwrap();
            });
            assert_eq!(client.complete_checkpoint(true).unwrap().kept, kept, "refused: {refused}");
        }
    });
}
