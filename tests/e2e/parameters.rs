//! SCR's parameters in the environment of `holdfast run`.

use std::fs;

use holdfast_testkit::files_below;
use rustix::process::Signal;
use serde_json::json;

use crate::job::Job;
use crate::pfs;
use crate::world::World;

/// A spec that runs a shell script in four ranks on two nodes.
fn script(world: &World, script: &str) -> String {
    let spec = format!(
        "job: plain\nprefix: {:?}\nallocation: {{manager: local, nodes: 3}}\n\
         run: {{nodes: 2, ranks_per_node: 2, command: [sh, -c, {script:?}]}}\n",
        world.prefix()
    );
    world.write("job.yaml", &spec).to_str().unwrap().to_owned()
}

#[test]
fn scr_enable_0_launches_once_with_the_exit_code_of_the_program(world: &World) {
    let spec = script(world, "echo rank $HOLDFAST_RANK of $HOLDFAST_RANKS, $SCR_ENABLE$HOLDFAST_SOCKET; exit 7");
    let ran = world.run(world.holdfast(["run", &spec]).env("SCR_ENABLE", "0")).with_code(7);
    let mut lines: Vec<&str> = ran.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["rank 0 of 4, 0", "rank 1 of 4, 0", "rank 2 of 4, 0", "rank 3 of 4, 0"]);
    assert!(ran.err.starts_with("warning: SCR_ENABLE=0 (environment): the application runs without"), "{}", ran.err);
    assert!(!world.prefix().exists(), "no agents, no state");
}

#[test]
fn what_has_no_effect_with_scr_enable_0_is_named_and_pairs_are_refused(world: &World) {
    let run = |spec: &str| {
        let spec = world.write("job.yaml", &format!("job: plain\nprefix: {:?}\n{spec}", world.prefix()));
        world.run(world.holdfast(["run".as_ref(), spec.as_os_str()]).env("SCR_ENABLE", "0"))
    };
    let keys = "before: [{command: ['false']}]\nnotify: [{command: ['false']}]\nmetrics: {file: plain.prom}\n";
    let ran = run(&format!("{keys}run: {{command: ['true']}}\n")).with_code(0);
    let warned = |key: &str| ran.err.contains(&format!("`{key}` has no effect"));
    assert!(["before", "notify", "metrics"].into_iter().all(warned), "{}", ran.err);
    assert!(!["after", "requeue", "halt", "allocation.faults"].into_iter().any(warned), "{}", ran.err);
    let pair = "kind: replicated\npairs: [{name: a, main: ['true']}]\n";
    run(pair).with_code(78).prints(&["`kind: replicated` cannot run without Holdfast", "unset it"]);
}

#[test]
fn scr_enable_0_in_a_file_passes_signals_to_the_program(world: &World) {
    let started = world.path("started");
    let spec = script(
        world,
        &format!("trap 'exit 3' TERM; touch {}.$HOLDFAST_RANK; while :; do sleep 0.02; done", started.display()),
    );
    let conf = world.write("user.conf", "SCR_ENABLE=0\n");
    let running = world.start(world.holdfast(["run", &spec]).env("SCR_CONF_FILE", conf));
    world.wait("the ranks", || (0..4).all(|rank| world.path(&format!("started.{rank}")).exists()).then_some(()));
    running.signal(Signal::TERM);
    running.ends_with(3);
}

#[test]
fn user_name_and_job_id_name_the_directories_on_nodes(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let mut running = world.start(job.command_line().env("SCR_USER_NAME", "alice").env("SCR_JOB_ID", "4711"));
    running.sees_checkpoint(4);
    assert_eq!(world.the("job_started")["job_id"], "4711");
    let directory = world.node_root("node1").join("tmp/alice/scr.4711");
    assert!(directory.is_dir(), "{} is missing", directory.display());
    job.finishes(running);
}

/// Bytes of the application's files of the only checkpoint on the prefix.
fn bytes_of(world: &World, checkpoint: u64) -> u64 {
    let files = files_below(&world.prefix()).into_iter().filter(|path| {
        path.to_str().is_some_and(|path| path.contains(&format!(".{checkpoint}/rank_")) && !path.ends_with(".scr"))
    });
    files.map(|path| fs::metadata(path).unwrap().len()).sum()
}

#[test]
fn nodes_share_the_bandwidth_of_a_flush_in_the_background(world: &World) {
    let job = Job::new(world, 0).holding_after(8).flush("{every: 8, mode: async}");
    let mut running = world.start(job.command_line().env("SCR_FLUSH_ASYNC_BW", "4000"));
    // The end of the job would wait for the flush, without its limit.
    running.sees_event("flushed");
    job.goes_on_to_its_end(running);
    let (bytes, flushed) = (bytes_of(world, 8), world.the("flushed"));
    assert_eq!(flushed["checkpoint"], json!(8));
    let millis = flushed["millis"].as_u64().unwrap();
    // Were it the bandwidth of each node, it would take a quarter of this time.
    assert!(bytes > 4000 && millis >= bytes * 1000 / 4000 * 9 / 10, "{bytes} bytes in {millis} ms");
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn flush_in_the_background_uses_its_share_of_a_processor(world: &World) {
    let mut job = Job::new(world, 0).holding_after(8).flush("{every: 8, mode: async, bandwidth: 0}");
    job.size = "512x512";
    let mut running = world.start(job.command_line().env("SCR_FLUSH_ASYNC_PERCENT", "0.02"));
    running.sees_event("flushed");
    job.goes_on_to_its_end(running);
    let millis = world.the("flushed")["millis"].as_u64().unwrap();
    // No processor copies the 512 KiB of a rank in less than 40 microseconds.
    assert!(millis >= 200, "{millis} ms");
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn ranks_that_flush_or_fetch_one_at_a_time_save_and_restart_the_job(world: &World) {
    let job = Job::new(world, 0).flush("{every: 4}").top("keep_cache: none").holding_after(4);
    let mut running = world.start(job.command_line().env("SCR_FLUSH_WIDTH", "1"));
    running.sees_checkpoint(4);
    running.terminated();
    pfs::assert_current(&world.prefix(), 4);
    job.go_on();
    world.start(job.command_line().env("SCR_FETCH_WIDTH", "1")).ends_with(0);
    assert_eq!(world.all("restarted").last().unwrap()["source"], "fetched");
    job.assert_result();
}

#[test]
fn scr_debug_shows_the_internal_log(world: &World) {
    let job = Job::new(world, 0);
    let ran = world.start(job.command_line().env("SCR_DEBUG", "2")).ends_with(0);
    ran.prints(&["DEBUG holdfast::job::actions: action"]);
    // HOLDFAST_LOG says more exactly what is shown.
    let mut command = world.holdfast(["status"]);
    command.arg(job.spec()).env("SCR_DEBUG", "3").env("HOLDFAST_LOG", "error");
    assert_eq!(world.run(command).with_code(0).err, "");
}

#[test]
fn scr_log_enable_0_writes_no_event_log(world: &World) {
    let job = Job::new(world, 1).faults("{node: 1, during: write, checkpoint: 3}");
    let ran = world.start(job.command_line().env("SCR_LOG_ENABLE", "0")).ends_with(0);
    ran.prints(&["node1 down"]);
    assert!(!ran.out.contains("  events"), "{}", ran.out);
    job.assert_result();
    let log = world.prefix().join(".holdfast/events.jsonl");
    assert!(!log.exists(), "{}", log.display());
    job.command(&["status"], 0);
    job.command(&["drain"], 0);
    assert!(!log.exists(), "the drain writes none either");
}

#[test]
fn scr_global_restart_flushes_the_newest_checkpoint_and_restarts_from_the_prefix(world: &World) {
    let job = Job::new(world, 0).holding_after(5);
    let mut running = world.start(job.command_line().env("SCR_GLOBAL_RESTART", "1"));
    running.sees_checkpoint(5);
    assert_eq!(world.all("flushed").len(), 0);
    assert!(world.kill(|line| line.contains(" example heat ")) > 0, "no rank runs");
    job.finishes(running);
    assert_eq!(world.the("flushed")["checkpoint"], json!(5));
    let restarted = world.all("restarted").pop().unwrap();
    assert_eq!((&restarted["checkpoint"], &restarted["source"]), (&json!(5), &json!("fetched")));
    pfs::assert_current(&world.prefix(), 8);
}
