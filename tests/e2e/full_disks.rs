//! File systems that are full, and files that may not grow: nothing that is complete is lost by that.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use holdfast_testkit::harness::ignore;
use serde_json::json;

use crate::disk::Disk;
use crate::job::Job;
use crate::losses::losing;
use crate::pfs;
use crate::world::{Ran, Running, World};

/// 128 KiB a rank; checkpoints 2 and 4 are in the prefix directory.
fn stopped(world: &World) -> Job<'_> {
    let mut job = Job::new(world, 0).flush("{every: 2}").top("halt: {checkpoints_left: 4}").top("keep_cache: none");
    job.size = "256x256";
    job.run(75);
    pfs::assert_current(&world.prefix(), 4);
    let mut job = Job::new(world, 0).flush("{every: 2}");
    job.size = "256x256";
    job
}

/// Runs a job none of whose processes may write a file beyond this size.
fn run_limited(job: &Job<'_>, world: &World, kib: u32, code: u8) -> Ran {
    let mut limited = world.command("bash");
    limited.args(["-c", &format!("ulimit -f {kib}; exec \"$@\""), "bash", env!("CARGO_BIN_EXE_holdfast"), "run"]);
    limited.arg(job.spec());
    world.run(limited).with_code(code)
}

#[test]
fn restart_that_cannot_write_the_caches_keeps_the_checkpoints_for_the_next_run(world: &World) {
    let job = stopped(world);
    run_limited(&job, world, 64, 75).prints(&["File too large", "`ulimit -f`"]);
    let prevented = world.the("restart_prevented");
    assert!(prevented["faulty"].as_str().unwrap().starts_with("node"), "{prevented}");
    assert_eq!((world.all("restart_attempt").len(), world.all("agent_lost").len()), (0, 0));
    let indexed = pfs::indexed(&world.prefix());
    assert_eq!((indexed[&2], indexed[&4]), (Some(true), Some(true)));
    pfs::assert_current(&world.prefix(), 4);
    job.run_to_result();
    world.assert_restarted(4, "fetched");
}

#[test(unchecked)]
fn flush_beyond_the_limit_on_file_sizes_fails_and_ends_no_process_of_holdfast(world: &World) {
    // The container of four ranks is larger than the limit, the file of each rank is not.
    let flush = "{every: 2, container: {kind: sion, files: 1}}";
    let mut job = Job::new(world, 0).flush(flush).top("halt: {checkpoints_left: 4}");
    job.size = "256x256";
    run_limited(&job, world, 256, 75);
    let reasons: Vec<String> = world.all("flush_failed").iter().map(|event| event["reason"].to_string()).collect();
    assert!(!reasons.is_empty());
    assert!(reasons.iter().all(|reason| reason.contains("File too large") && reason.contains("`ulimit -f`")));
    assert_eq!((world.all("agent_lost").len(), world.all("node_down").len()), (0, 0));
    assert_eq!(world.all("generation_launched").len(), 1);
    // The drain has no container.
    pfs::assert_current(&world.prefix(), 4);
}

/// A file that cannot be written or replaced, not even by root, until this is dropped.
struct Immutable(PathBuf);

fn chattr(option: &str, path: &Path) -> bool {
    Command::new("chattr").arg(option).arg(path).output().is_ok_and(|output| output.status.success())
}

impl Immutable {
    fn new(path: PathBuf) -> Self {
        if !rustix::process::geteuid().is_root() || !chattr("+i", &path) {
            ignore("`chattr +i` requires root and a file system that has it");
        }
        Immutable(path)
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        chattr("-i", &self.0);
    }
}

#[test(unchecked)]
fn index_that_cannot_be_written_ends_the_job_without_a_relaunch(world: &World) {
    let job = stopped(world);
    let launched = world.all("generation_launched").len();
    let index = Immutable::new(world.prefix().join("index.scr"));
    job.run(69).prints(&["index.scr", "run the job again"]);
    assert_eq!(world.all("generation_launched").len(), launched + 1);
    assert_eq!(world.all("restart_attempt").len(), 0);
    drop(index);
    job.run_to_result();
    world.assert_restarted(4, "fetched");
    world.assert_nothing_is_left();
}

/// All checkpoints are on the disk.
const ON_DISK: &str = "cache: [{base: /ssd}]";

/// Starts a job with the directory `/ssd` of one node on a file system of its own. It is mounted when the agents are
/// up, and before the ranks are launched.
fn with_disk<'a>(
    world: &'a World,
    job: Job<'a>,
    node: &str,
    prepare: impl FnOnce(&Path),
) -> (Job<'a>, Disk, Running<'a>) {
    let mut disk = Disk::new(world);
    let mounted = world.path("mounted");
    let wait = format!("until [ -e {} ]; do sleep 0.01; done", mounted.display());
    let job = job.top(&format!("before: [{{command: [sh, -c, {wait:?}]}}]"));
    let running = job.start();
    let is_command = |line: &str| line.contains(&wait);
    world.wait("`before:`", || world.processes().iter().any(|(_, line)| is_command(line)).then_some(()));
    let place = world.node_root(node).join("ssd");
    disk.mount_over(place.clone());
    prepare(&place);
    fs::write(mounted, "").unwrap();
    (job, disk, running)
}

/// Fills a file system until not a byte is left; returns the file to remove.
fn fill(place: &Path) -> PathBuf {
    let path = place.join("fill");
    let mut file = File::create(&path).unwrap();
    let mut chunk = vec![1_u8; 1 << 20];
    while !chunk.is_empty() {
        match file.write(&chunk) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => chunk.truncate(chunk.len() / 2),
            Err(error) => panic!("{error}"),
        }
    }
    path
}

#[test(unchecked)]
fn spare_with_a_full_cache_is_replaced_and_the_checkpoint_in_cache_is_used(world: &World) {
    let job = Job::new(world, 2).checkpoint(ON_DISK).holding_after(5).faults("{node: 1, after_checkpoint: 5}");
    let (job, _disk, mut running) = with_disk(world, job, "node4", |place| drop(fill(place)));
    let prevented = running.sees_event("restart_prevented");
    assert_eq!(prevented["faulty"], "node4", "{prevented}");
    assert!(prevented["reason"].as_str().unwrap().contains("No space left"), "{prevented}");
    job.finishes(running);
    world.assert_restarted(5, "rebuilt");
    assert_eq!(world.all("restart_attempt").len(), 0);
}

#[test(unchecked)]
fn node_whose_cache_is_full_for_a_moment_stays(world: &World) {
    let job = Job::new(world, 0).checkpoint(ON_DISK).holding_after(4);
    let (job, _disk, mut running) = with_disk(world, job, "node1", |_| {});
    running.sees_checkpoint(4);
    let place = world.node_root("node1").join("ssd");
    let filling = fill(&place);
    let user = fs::read_dir(place.join("u")).unwrap().next().unwrap().unwrap().path();
    // The test makes and removes a file there.
    let changed = |since: SystemTime| {
        world.wait("a health test", || fs::metadata(&user).unwrap().modified().ok().filter(|time| *time != since))
    };
    let before = fs::metadata(&user).unwrap().modified().unwrap();
    let first = changed(before);
    changed(changed(first));
    fs::remove_file(filling).unwrap();
    job.finishes(running);
    assert_eq!(world.all("node_down").len(), 0);
    assert_eq!(world.all("generation_launched").len(), 1);
}

/// A checkpoint of the second level takes 4 MiB a node, half of it redundancy. There is no space for two, which are in
/// the cache while the newer one is made.
#[test(unchecked)]
fn checkpoint_of_the_second_level_without_space_is_dropped_and_the_older_one_survives_two_lost_nodes(world: &World) {
    let levels = "[{scheme: xor, set_size: 4, cache: /memory}, \
                  {scheme: rs, set_size: 4, failures: 2, every: 3, cache: /ssd, keep: 1}]";
    let mut job = Job::new(world, 2).redundancy(levels).checkpoint("cache: [{base: /memory, keep: 2}, {base: /ssd}]");
    job.size = "1024x1024";
    let job = losing(job.holding_after(8), &[1, 3], 8);
    let leave_space_for_one = |place: &Path| {
        let filling = File::options().write(true).open(fill(place)).unwrap();
        let bytes = filling.metadata().unwrap().len();
        filling.set_len(bytes - (7 << 20)).unwrap();
    };
    let (job, _disk, mut running) = with_disk(world, job, "node2", leave_space_for_one);
    for node in ["node1", "node3"] {
        running.sees_where("node_down", "node", node);
    }
    job.finishes(running);
    let dropped = world.all("checkpoint_failed");
    assert!(dropped.iter().all(|event| event["checkpoint"] == 6), "{dropped:?}");
    let reason = dropped[0]["reason"].as_str().unwrap();
    assert!(reason.contains("No space left") && reason.contains("node2"), "{reason}");
    // Checkpoints 7 and 8 survive one lost node only, and 6 was begun when 3 was the last that survives two.
    let last = world.all("restarted").pop().unwrap();
    let from = (&last["checkpoint"], &last["source"], &last["rebuilt"]);
    assert_eq!(from, (&json!(3), &json!("rebuilt"), &json!([1, 3])), "{last}");
    pfs::assert_current(&world.prefix(), 8);
}
