//! Failures during a drain: a node fails in round 1, or the destination cannot be written.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::job::Job;
use crate::pfs;
use crate::world::{Running, World};

/// A job that halts after checkpoint 4, which is then copied by the drain.
fn halting(world: &World) -> Job<'_> {
    Job::new(world, 0).top("halt: {checkpoints_left: 4}")
}

fn finishes_elsewhere(job: &Job<'_>, world: &World) {
    let mut next = Job::new(world, 0);
    next.heat.clone_from(&job.heat);
    next.run(0);
    job.assert_result();
    assert_eq!(world.all("restarted").pop().unwrap()["checkpoint"], 4);
    world.assert_nothing_is_left();
}

#[test]
fn agent_killed_during_copy_is_restarted_and_copies() {
    let world = World::new();
    let job = halting(&world).chaos("{node: 2, during: copy, action: kill-agent}");
    job.run(75);
    let copied = world.all("copied");
    let of_node: Vec<&Value> = copied.iter().filter(|event| event["node"] == "node2").collect();
    assert_eq!(of_node.len(), 2, "{copied:#?}");
    assert!(of_node[0]["failure"].is_string() && of_node[1]["failure"].is_null(), "{copied:#?}");
    assert_eq!(of_node[1]["ranks"], json!([2]));
    assert_eq!(world.all("rebuilt_in_prefix").len(), 0);
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
    finishes_elsewhere(&job, &world);
}

#[test]
fn partner_copies_files_of_node_lost_during_copy() {
    let world = World::new();
    let job = halting(&world).redundancy("[{scheme: partner}]").chaos("{node: 2, during: copy}");
    job.run(75);
    let second: Vec<Value> = world.all("copied").into_iter().filter(|event| event["round"] == 2).collect();
    assert!(second.iter().any(|event| event["node"] == "node3" && event["ranks"] == json!([2])), "{second:#?}");
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
    finishes_elsewhere(&job, &world);
}

#[test]
fn rebuilds_files_of_node_lost_during_copy() {
    let world = World::new();
    // Several files a rank, so that the node can be lost between two of them.
    let job = halting(&world).heat("--files-per-rank 6").chaos("{node: 2, during: copy}");
    job.run(75);
    assert_eq!(world.the("rebuilt_in_prefix")["rank"], 2);
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
    finishes_elsewhere(&job, &world);
}

/// The job waits after checkpoint 4, and the directory that the drain will write exists, recorded as that of an
/// earlier attempt.
fn with_a_directory(running: &mut Running<'_>, world: &World) -> std::path::PathBuf {
    running.sees_checkpoint(4);
    let job_id = running.sees_event("job_started")["job_id"].as_str().unwrap().to_owned();
    let name = format!("scr.2026-01-02_03:04:05.{job_id}.4");
    let directory = world.prefix().join(&name);
    fs::create_dir(&directory).unwrap();
    let note = json!({"job_id": job_id, "checkpoint": 4, "directory": name});
    fs::write(world.prefix().join(".holdfast/drain.json"), note.to_string()).unwrap();
    directory
}

#[test]
fn drain_fails_on_unwritable_file_and_next_drain_completes_it() {
    let world = World::new();
    let job = Job::new(&world, 0).holding_after(4).flush("{every: 3}");
    let mut running = job.start();
    let directory = with_a_directory(&mut running, &world);
    // A file cannot replace a directory that is not empty, not even in a rebuild.
    fs::create_dir_all(directory.join("rank_1.ckpt/in the way")).unwrap();
    running.signal(Signal::TERM);
    let ran = running.ends_with(65);
    ran.prints(&["rank_1.ckpt", "holdfast drain", "could not be completed"]);
    assert_eq!(pfs::indexed(&world.prefix())[&4], Some(false));
    pfs::assert_current(&world.prefix(), 3);
    assert_eq!(world.processes(), []);
    // Again, with the cause still present: the same error, and nothing is lost.
    job.command(&["drain"], 65);
    pfs::assert_current(&world.prefix(), 3);
    fs::remove_dir_all(directory.join("rank_1.ckpt")).unwrap();
    job.command(&["drain"], 0).prints(&["checkpoint 4 is complete"]);
    pfs::assert_current(&world.prefix(), 4);
    assert_eq!(pfs::current(&world.prefix()).unwrap(), directory);
    world.assert_nothing_is_left();
}

#[test]
fn next_run_completes_drain_of_earlier_run() {
    let world = World::new();
    let job = Job::new(&world, 0).holding_after(4).flush("{every: 3}");
    let mut running = job.start();
    let directory = with_a_directory(&mut running, &world);
    fs::create_dir_all(directory.join("rank_1.ckpt/in the way")).unwrap();
    running.signal(Signal::TERM);
    running.ends_with(65);
    // The cause is still present: no job starts, because it would delete the checkpoint.
    job.run(65).prints(&["an earlier job", "cannot be drained"]);
    fs::remove_dir_all(directory.join("rank_1.ckpt")).unwrap();
    job.go_on();
    job.run(0);
    job.assert_result();
    assert_eq!(world.all("restarted").pop().unwrap()["checkpoint"], 4);
    world.assert_nothing_is_left();
}

#[test]
fn failed_checkpoint_leaves_older_one_in_cache_and_is_reported() {
    let world = World::new();
    let job = Job::new(&world, 0).holding_after(4);
    let mut running = job.start();
    let directory = with_a_directory(&mut running, &world);
    fs::create_dir_all(directory.join("rank_1.ckpt/in the way")).unwrap();
    running.signal(Signal::TERM);
    running.ends_with(75).prints(&["checkpoint 4 is recorded as incomplete", "checkpoint 3 is complete"]);
    assert_eq!(pfs::indexed(&world.prefix())[&4], Some(false));
    pfs::assert_current(&world.prefix(), 3);
    world.assert_nothing_is_left();
}

#[test]
fn drain_fails_on_damaged_index_and_next_drain_completes_it() {
    let world = World::new();
    let job = Job::new(&world, 0).holding_after(4);
    let mut running = job.start();
    running.sees_checkpoint(4);
    let index = world.prefix().join("index.scr");
    fs::create_dir(&index).unwrap();
    running.signal(Signal::TERM);
    running.ends_with(65).prints(&["the drain failed", "index.scr", "holdfast drain"]);
    assert_eq!(pfs::current_id(&world.prefix()), None);
    fs::remove_dir(&index).unwrap();
    job.command(&["drain"], 0);
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
}

#[test]
fn file_lost_in_cache_is_rebuilt() {
    let world = World::new();
    let mut job = Job::new(&world, 0).holding_after(4);
    job.per_node = 2;
    let mut running = job.start();
    running.sees_checkpoint(4);
    let root = world.node_root("node1");
    let lost: Vec<_> = holdfast_testkit::files_below(&root)
        .into_iter()
        .filter(|path| path.ends_with("checkpoint.4/rank_2.ckpt"))
        .collect();
    assert_eq!(lost.len(), 1);
    fs::remove_file(&lost[0]).unwrap();
    running.signal(Signal::TERM);
    running.ends_with(75);
    assert_eq!(world.the("rebuilt_in_prefix")["rank"], 2);
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
}

#[test]
fn dry_run_lists_copies_and_changes_nothing() {
    let world = World::new();
    let job = Job::new(&world, 0).holding_after(4);
    let mut running = job.start();
    running.sees_checkpoint(4);
    running.signal(Signal::KILL);
    running.end();
    let before = pfs::names(&world.prefix());
    job.command(&["drain", "--dry-run"], 0).prints(&["checkpoint 4 would be drained", "node3: ranks 3"]);
    let scr = |names: Vec<String>| -> Vec<String> { names.into_iter().filter(|name| name.contains("scr")).collect() };
    assert_eq!(scr(pfs::names(&world.prefix())), scr(before));
    job.command(&["drain"], 0);
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
}
