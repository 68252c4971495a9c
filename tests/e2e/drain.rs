//! Failures during a drain: a node fails in round 1, or the destination cannot be written.

use std::fs::{self, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use holdfast_testkit::files_below;
use holdfast_testkit::harness::ignore;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::job::Job;
use crate::pfs;
use crate::world::{Running, USER, World, is_secured};

/// A job that halts after checkpoint 4, which is then copied by the drain.
fn halting(world: &World) -> Job<'_> {
    Job::new(world, 0).top("halt: {checkpoints_left: 4}")
}

/// Checkpoint 4 was drained, nothing else is left, and the job is finished from it.
fn finishes_elsewhere(job: &Job<'_>, world: &World) {
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
    let mut next = Job::new(world, 0);
    next.heat.clone_from(&job.heat);
    next.run(0);
    job.assert_result();
    assert_eq!(world.all("restarted").pop().unwrap()["checkpoint"], 4);
    world.assert_nothing_is_left();
}

#[test(unchecked)]
fn agent_killed_during_copy_is_restarted_and_copies(world: &World) {
    let job = halting(world).faults("{node: 2, during: copy, action: kill-agent}");
    job.run(75);
    let copied = world.all("copied");
    let of_node: Vec<&Value> = copied.iter().filter(|event| event["node"] == "node2").collect();
    assert_eq!(of_node.len(), 2, "{copied:#?}");
    assert!(of_node[0]["failure"].is_string() && of_node[1]["failure"].is_null(), "{copied:#?}");
    assert_eq!(of_node[1]["ranks"], json!([2]));
    assert_eq!(world.all("rebuilt_in_prefix").len(), 0);
    finishes_elsewhere(&job, world);
}

#[test(unchecked)]
fn partner_copies_files_of_node_lost_during_copy(world: &World) {
    let job = halting(world).redundancy("[{scheme: partner}]").faults("{node: 2, during: copy}");
    job.run(75);
    let second: Vec<Value> = world.all("copied").into_iter().filter(|event| event["round"] == 2).collect();
    assert!(second.iter().any(|event| event["node"] == "node3" && event["ranks"] == json!([2])), "{second:#?}");
    finishes_elsewhere(&job, world);
}

#[test(unchecked)]
fn rebuilds_files_of_node_lost_during_copy(world: &World) {
    // Several files a rank, so that the node can be lost between two of them.
    let job = halting(world).heat("--files-per-rank 6").faults("{node: 2, during: copy}");
    job.run(75);
    assert_eq!(world.the("rebuilt_in_prefix")["rank"], 2);
    finishes_elsewhere(&job, world);
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

/// The drain of checkpoint 4 leaves this directory incomplete.
fn leaves_incomplete(job: &Job<'_>, world: &World) -> std::path::PathBuf {
    let mut running = job.start();
    let directory = with_a_directory(&mut running, world);
    fs::create_dir_all(directory.join("rank_1.ckpt/in the way")).unwrap();
    running.terminated().prints(&["checkpoint 4 is recorded as incomplete", "checkpoint 3 is complete"]);
    directory
}

#[test]
fn drain_fails_on_unwritable_file_and_next_drain_completes_it(world: &World) {
    let job = Job::new(world, 0).holding_after(4).flush("{every: 3}");
    let mut running = job.start();
    let directory = with_a_directory(&mut running, world);
    // A file cannot replace a directory that is not empty, not even in a rebuild.
    fs::create_dir_all(directory.join("rank_1.ckpt/in the way")).unwrap();
    running.signal(Signal::TERM);
    let ran = running.ends_with(73);
    ran.prints(&["rank_1.ckpt", "could not be completed", "correct this, then run `holdfast drain` again"]);
    assert_eq!(pfs::indexed(&world.prefix())[&4], Some(false));
    pfs::assert_current(&world.prefix(), 3);
    assert_eq!(world.processes(), []);
    // The nodes still hold the data.
    let status = job.command(&["status", "--json"], 0).json();
    for node in status["nodes"].as_array().unwrap() {
        assert_eq!(node["state"], "undrained", "{node}");
        assert!(node["reason"].as_str().unwrap().contains("was not copied"), "{node}");
    }
    // Again, with the cause still present: the same error, and nothing is lost.
    job.command(&["drain"], 73).prints(&["correct this, then run `holdfast drain` again"]);
    pfs::assert_current(&world.prefix(), 3);
    fs::remove_dir_all(directory.join("rank_1.ckpt")).unwrap();
    job.command(&["drain"], 0).prints(&["checkpoint 4 is complete"]);
    job.command(&["status"], 0).prints(&["released"]);
    pfs::assert_current(&world.prefix(), 4);
    assert_eq!(pfs::current(&world.prefix()).unwrap(), directory);
}

#[test]
fn next_run_completes_drain_of_earlier_run(world: &World) {
    let job = Job::new(world, 0).holding_after(4).flush("{every: 3}");
    let mut running = job.start();
    let directory = with_a_directory(&mut running, world);
    fs::create_dir_all(directory.join("rank_1.ckpt/in the way")).unwrap();
    running.signal(Signal::TERM);
    running.ends_with(73);
    // The cause is still present: no job starts, because it would delete the checkpoint.
    job.run(73).prints(&["an earlier job", "cannot be drained", MEND]);
    fs::remove_dir_all(directory.join("rank_1.ckpt")).unwrap();
    job.go_on();
    job.run_to_result();
    assert_eq!(world.all("restarted").pop().unwrap()["checkpoint"], 4);
}

#[test]
fn failed_checkpoint_leaves_older_one_in_cache_and_is_reported(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    leaves_incomplete(&job, world);
    assert_eq!(pfs::indexed(&world.prefix())[&4], Some(false));
    pfs::assert_current(&world.prefix(), 3);
}

#[test(unchecked)]
fn drain_of_node_directories_to_another_prefix_leaves_the_drain_to_the_jobs_own(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    job.abandon_after(4);
    let job_id = world.state()["agents"]["job_id"].as_str().unwrap().to_owned();
    let roots = world.node_root("node0").parent().unwrap().to_owned();
    world.kill(|_| true);
    let elsewhere = world.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let mut command = world.holdfast(["drain", "--job-id", &job_id, "--user", USER]);
    command.arg("--root").arg(&roots).arg("--prefix").arg(&elsewhere);
    world.run(command).with_code(0);
    pfs::assert_current(&elsewhere, 4);
    job.command(&["drain"], 0).prints(&["checkpoint 4 is complete"]);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn run_after_everything_was_killed_during_a_drain_starts_agents_and_drains(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let mut running = job.reaches(4);
    // The drain cannot end without the lock of the index.
    let lock = world.prefix().join(".holdfast/index.lock");
    let lock = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(lock).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    running.signal(Signal::TERM);
    running.sees_event("drain_started");
    world.kill(|_| true);
    running.end();
    let before = world.all("copied").len();
    drop(lock);
    job.run(75).prints(&["took over", "checkpoint 4 is complete in the prefix directory"]);
    pfs::assert_current(&world.prefix(), 4);
    assert_eq!(world.all("copied").len() - before, 4, "the ranks of each node");
}

#[test]
fn drain_does_not_continue_what_was_left_of_a_dataset_that_a_restart_superseded(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let directory = leaves_incomplete(&job, world);
    let files = || {
        let mut names: Vec<_> = fs::read_dir(&directory).unwrap().flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    let left = files();
    // The nodes lose their memory. The next run goes on from checkpoint 3, and writes another checkpoint 4.
    world.empty_nodes(&["node0", "node1", "node2", "node3"]);
    let mut running = job.start();
    running.sees("another checkpoint 4", |event| {
        is_secured(event) && event["checkpoint"] == 4 && event["generation"] != 1
    });
    running.terminated();
    assert_eq!(world.all("restarted").pop().unwrap()["checkpoint"], 3);
    let current = fs::canonicalize(world.prefix().join("scr.current")).unwrap();
    assert_ne!(current, fs::canonicalize(&directory).unwrap(), "the directory of the earlier checkpoint 4");
    let indexed = world.all("indexed").pop().unwrap();
    assert_eq!((&indexed["checkpoint"], &indexed["complete"]), (&json!(4), &json!(true)), "{indexed}");
    assert_eq!(current.file_name().unwrap().to_str(), indexed["directory"].as_str());
    assert_eq!(files(), left);
}

/// Everything is killed after checkpoint 4 was flushed. Returns its directory.
fn killed_after_flush(world: &World, job: &Job<'_>) -> std::path::PathBuf {
    let mut running = job.reaches(4);
    running.sees_event("flushed");
    world.kill(|_| true);
    running.end();
    pfs::assert_current(&world.prefix(), 4);
    pfs::current(&world.prefix()).unwrap()
}

#[test]
fn flushed_checkpoint_that_is_damaged_in_the_prefix_directory_is_copied_again_before_the_caches_go() {
    type Damage = (&'static str, fn(&Path));
    let damages: [Damage; 4] = [
        ("holdfast-1.sion", |directory| fs::remove_file(directory.join("holdfast-1.sion")).unwrap()),
        ("holdfast-1.sion.000001", |directory| {
            let file = fs::OpenOptions::new().write(true).open(directory.join("holdfast-1.sion.000001")).unwrap();
            file.set_len(file.metadata().unwrap().len() / 3).unwrap();
        }),
        ("summary", |directory| fs::remove_file(directory.join("summary.scr")).unwrap()),
        ("it does not exist", |directory| fs::remove_dir_all(directory).unwrap()),
    ];
    for (expected, damage) in damages {
        let world = World::new();
        let job = Job::new(&world, 0).holding_after(4).flush("{every: 4, container: {kind: sion, files: 2}}");
        damage(&killed_after_flush(&world, &job));
        let preview = job.command(&["drain", "--dry-run"], 0);
        preview.prints(&["checkpoint 4 was flushed, but its copy cannot be used", expected]);
        preview.prints(&["checkpoint 4 would be drained"]);
        job.command(&["drain"], 0)
            .prints(&["checkpoint 4 was flushed, but its copy cannot be used", "checkpoint 4 is complete in"]);
        pfs::assert_current(&world.prefix(), 4);
    }
}

#[test]
fn flushed_checkpoint_that_is_intact_is_not_copied_again(world: &World) {
    let job = Job::new(world, 0).holding_after(4).flush("{every: 4, container: {kind: sion, files: 2}}");
    killed_after_flush(world, &job);
    job.command(&["drain", "--dry-run"], 0).prints(&["nothing would be drained"]);
    job.command(&["drain"], 0).prints(&["nothing to drain"]);
    assert!(world.all("copied").is_empty());
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn caches_are_kept_if_the_index_that_lists_the_flushed_checkpoint_cannot_be_read(world: &World) {
    let job = Job::new(world, 0).holding_after(4).flush("{every: 4}");
    killed_after_flush(world, &job);
    let index = world.prefix().join("index.scr");
    let intact = fs::read(&index).unwrap();
    fs::write(&index, "damaged").unwrap();
    job.command(&["drain"], 65).prints(&["index.scr"]);
    assert!(world.node_root("node0").exists());
    fs::write(&index, intact).unwrap();
    job.command(&["drain"], 0).prints(&["nothing to drain"]);
}

#[test]
fn run_that_ends_copies_a_flushed_checkpoint_again_if_its_directory_is_gone(world: &World) {
    let job = Job::new(world, 0).holding_after(4).flush("{every: 4}").top("keep_cache: none");
    let mut running = job.reaches(4);
    running.sees_event("flushed");
    fs::remove_dir_all(pfs::current(&world.prefix()).unwrap()).unwrap();
    running.terminated().prints(&["checkpoint 4 is complete in the prefix directory"]);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn drain_of_an_older_checkpoint_keeps_the_newer_one_until_it_is_drained(world: &World) {
    let job = Job::new(world, 0).holding_after(4).checkpoint("cache: [{base: /tmp, keep: 4}]");
    let running = job.reaches(4);
    world.kill(|_| true);
    running.end();
    job.command(&["drain", "--dry-run", "--checkpoint", "3"], 0).prints(&["only the nodes have 4: they would be kept"]);
    let ran = job.command(&["drain", "--checkpoint", "3"], 0);
    ran.prints(&["checkpoint 3 is complete in", "only the nodes have 4", "without `--checkpoint`"]);
    pfs::assert_current(&world.prefix(), 3);
    job.command(&["drain"], 0).prints(&["checkpoint 4 is complete in"]);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn drain_fails_on_damaged_index_and_next_drain_completes_it(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let running = job.reaches(4);
    let index = world.prefix().join("index.scr");
    fs::create_dir(&index).unwrap();
    running.signal(Signal::TERM);
    running.ends_with(65).prints(&["the drain failed", "index.scr", "holdfast drain"]);
    assert_eq!(pfs::current_id(&world.prefix()), None);
    fs::remove_dir(&index).unwrap();
    job.command(&["drain"], 0);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn file_lost_in_cache_is_rebuilt(world: &World) {
    let mut job = Job::new(world, 0).holding_after(4);
    job.per_node = 2;
    let running = job.reaches(4);
    let root = world.node_root("node1");
    let lost: Vec<_> = holdfast_testkit::files_below(&root)
        .into_iter()
        .filter(|path| path.ends_with("checkpoint.4/rank_2.ckpt"))
        .collect();
    assert_eq!(lost.len(), 1);
    fs::remove_file(&lost[0]).unwrap();
    running.terminated();
    assert_eq!(world.the("rebuilt_in_prefix")["rank"], 2);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn dry_run_lists_copies_and_changes_nothing(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    job.reaches(4).killed();
    let before = pfs::names(&world.prefix());
    job.command(&["drain", "--dry-run"], 0).prints(&["checkpoint 4 would be drained", "node3: ranks 3"]);
    let scr = |names: Vec<String>| -> Vec<String> { names.into_iter().filter(|name| name.contains("scr")).collect() };
    assert_eq!(scr(pfs::names(&world.prefix())), scr(before));
    job.command(&["drain"], 0);
    pfs::assert_current(&world.prefix(), 4);
}

/// Node directories that were saved without those of lost nodes, drained with or without a list of the nodes.
#[test]
fn saved_directories_without_those_of_lost_nodes_are_drained_with_every_scheme() {
    for (redundancy, kept, rebuilt) in [
        ("[{scheme: partner}]", &["node0", "node1", "node3"][..], json!([])),
        ("[{scheme: xor, set_size: 4}]", &["node0", "node1", "node3"], json!([2])),
        ("[{scheme: rs, set_size: 4, failures: 2}]", &["node0", "node3"], json!([1, 2])),
    ] {
        let world = World::new();
        let job = Job::new(&world, 0).redundancy(redundancy).heat("--files-per-rank 2").holding_after(4);
        job.abandon_after(4);
        let job_id = world.state()["agents"]["job_id"].as_str().unwrap().to_owned();
        let roots = world.node_root("node0").parent().unwrap().to_owned();
        world.kill(|_| true);
        // A socket cannot be copied.
        for socket in files_below(&roots).iter().filter(|path| path.ends_with("agent.sock")) {
            fs::remove_file(socket).unwrap();
        }
        for listed in [true, false] {
            let saved = world.path(&format!("saved-{listed}"));
            for node in kept {
                fs::create_dir_all(saved.join(node)).unwrap();
                holdfast_testkit::copy_tree(&roots.join(node), &saved.join(node)).unwrap();
            }
            let prefix = world.path(&format!("pfs-{listed}"));
            fs::create_dir(&prefix).unwrap();
            let mut command = world.holdfast(["drain", "--json", "--job-id", &job_id, "--user", USER]);
            command.arg("--root").arg(&saved).arg("--prefix").arg(&prefix);
            if listed {
                command.args(["--nodes", "node[0-3]"]);
            }
            let drained = world.run(command).with_code(0).json();
            assert_eq!((&drained["checkpoint"], &drained["complete"]), (&json!(4), &json!(true)), "{drained:#}");
            assert_eq!(drained["rebuilt_ranks"], rebuilt, "{drained:#}");
            pfs::assert_current(&prefix, 4);
        }
        fs::remove_dir_all(roots.parent().unwrap()).unwrap();
    }
}

/// A command that is bound by the modes of files, also when root runs it.
fn without_capabilities(world: &World, command: &Command) -> Command {
    if !rustix::process::geteuid().is_root() {
        let mut same = world.command(command.get_program());
        same.args(command.get_args());
        return same;
    }
    let mut version = world.command("setpriv");
    if !version.arg("--version").output().is_ok_and(|output| output.status.success()) {
        ignore("root needs setpriv to give up its capabilities");
    }
    let mut limited = world.command("setpriv");
    limited.args(["--inh-caps=-all", "--bounding-set=-all", "--"]);
    limited.arg(command.get_program()).args(command.get_args());
    limited
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

const MEND: &str = "correct this, then run `holdfast drain` again";

#[test]
fn drain_without_permission_in_the_checkpoint_directory_ends_with_73_until_it_is_given(world: &World) {
    let job = Job::new(world, 0).holding_after(4).flush("{every: 3}");
    let mut running = world.start(without_capabilities(world, &job.command_line()));
    let directory = with_a_directory(&mut running, world);
    set_mode(&directory, 0o500);
    running.signal(Signal::TERM);
    running.ends_with(73).prints(&["Permission denied", "could not be completed", MEND]);
    assert_eq!(world.all("finished").pop().unwrap()["exit_code"], 73);
    let mut drain = world.holdfast(["drain"]);
    drain.arg(job.spec());
    world.run(without_capabilities(world, &drain)).with_code(73).prints(&["Permission denied", MEND]);
    pfs::assert_current(&world.prefix(), 3);
    set_mode(&directory, 0o700);
    world.run(without_capabilities(world, &drain)).with_code(0).prints(&["checkpoint 4 is complete"]);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn drain_without_permission_in_the_prefix_directory_ends_with_73_until_it_is_given(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let mut running = world.start(without_capabilities(world, &job.command_line()));
    running.sees_checkpoint(4);
    set_mode(&world.prefix(), 0o500);
    running.signal(Signal::TERM);
    running.ends_with(73).prints(&["the drain failed", "Permission denied", MEND]);
    set_mode(&world.prefix(), 0o700);
    job.command(&["drain"], 0).prints(&["checkpoint 4 is complete"]);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn a_finished_job_stays_finished_when_its_drain_is_repeated(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let mut running = world.start(without_capabilities(world, &job.command_line()));
    running.sees_checkpoint(4);
    set_mode(&world.prefix(), 0o500);
    job.go_on();
    running.ends_with(73).prints(&["the job is finished", "Permission denied", MEND]);
    set_mode(&world.prefix(), 0o700);
    job.command(&["drain"], 0).prints(&["checkpoint 8 is complete"]);
    assert_eq!(job.command(&["status", "--json"], 0).json()["exit_code"], 0);
    job.run(0).prints(&["finished in an earlier run"]);
    assert_eq!(world.all("generation_launched").len(), 1, "it is not run again");
}

#[test]
fn drain_without_permission_for_its_own_state_ends_with_73(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    job.abandon_after(4);
    let own = world.prefix().join(".holdfast");
    let before = fs::metadata(&own).unwrap().permissions().mode() & 0o7777;
    let entries = fs::read_dir(&own).unwrap().flatten().map(|entry| entry.path());
    let files: Vec<_> = entries.filter(|path| path.is_file()).collect();
    files.iter().for_each(|path| set_mode(path, 0o400));
    set_mode(&own, 0o500);
    let mut drain = world.holdfast(["drain"]);
    drain.arg(job.spec());
    world.run(without_capabilities(world, &drain)).with_code(73).prints(&["Permission denied", MEND]);
    set_mode(&own, before);
    files.iter().for_each(|path| set_mode(path, 0o600));
    job.command(&["drain"], 0).prints(&["checkpoint 4 is complete"]);
}

#[test]
fn drain_to_a_full_place_ends_with_73_until_there_is_room(world: &World) {
    let mut job = Job::new(world, 0).holding_after(4);
    // 128 KiB a rank, and no file of the drain may grow beyond 64 KiB: what a full file system does to a write.
    job.size = "256x256";
    job.abandon_after(4);
    world.kill(|line| line.contains(" agent"));
    let mut limited = world.command("bash");
    limited.args(["-c", "ulimit -f 64; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_holdfast"), "drain"]);
    limited.arg(job.spec());
    world.run(limited).with_code(73).prints(&["File too large", MEND]);
    assert_eq!(pfs::indexed(&world.prefix())[&4], Some(false));
    job.command(&["drain"], 0).prints(&["checkpoint 4 is complete"]);
    pfs::assert_current(&world.prefix(), 4);
}
