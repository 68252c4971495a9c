//! Jobs with pairs that end before their pairs are finished, where the next run goes on from the checkpoints that were
//! saved, and nodes that the site reboots.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_process::stat::ProcessStat;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::pair_faults::{registry_of, registry_path};
use crate::pairs::{on_two_nodes_with, printed, ready, run, sees, spec, waits_for_line, waits_for_state};
use crate::world::{Ran, World, signal};

/// The demonstration, which pauses for ever after each of its three rounds, and a pair that finishes at once.
fn job(world: &World, keys: &str) -> PathBuf {
    let demonstration =
        format!(r#"name: dnn0, main: [holdfast, example, pair, "{{side}}", "{{index}}", "1", "100000000"]{keys}"#);
    let quick = "  - {name: quick, main: [holdfast, example, pair, \"{side}\", \"{index}\", \"1\", \"1\"], \
                 heartbeat: {period: 5ms, misses: 200}, checkpoint: {size: 4KiB}}\n";
    spec(world, &demonstration, quick)
}

/// Runs until the demonstration has come to this line and the other pair, if it runs, is finished; then halts.
#[track_caller]
fn halted(world: &World, spec: &Path, line: &str, waits_for_quick: bool) -> Ran {
    halted_after(world, spec, line, waits_for_quick, || {})
}

#[track_caller]
fn halted_after(world: &World, spec: &Path, line: &str, waits_for_quick: bool, before: impl FnOnce()) -> Ran {
    let mut running = run(world, spec);
    waits_for_line(world, "dnn0.main", line);
    if waits_for_quick {
        sees(&mut running, "quick", "finished", None);
    }
    before();
    world.run(world.holdfast(["halt", "set", "--now", spec.to_str().unwrap()])).with_code(0);
    running.ends_with(75)
}

fn changes(world: &World, change: &str) -> Vec<Value> {
    world.all("pair").into_iter().filter(|event| event["change"] == change).collect()
}

fn saved_files(world: &World) -> Vec<PathBuf> {
    holdfast_testkit::files_below(&world.prefix().join(".holdfast/pairs.saved"))
}

#[test]
fn halted_pairs_go_on_from_their_checkpoints_and_finished_ones_do_not_run_again(world: &World) {
    let spec = job(world, "");
    let first = halted(world, &spec, "6", true);
    first.prints(&["the newest checkpoint of 1 pair is saved, `holdfast run` goes on from it"]);
    let saved = world.all("pairs_saved").pop().unwrap();
    assert_eq!((&saved["pairs"], &saved["older"], &saved["without"]), (&json!(1), &json!([]), &json!([])));
    let dry_run = world.run(world.holdfast(["run".as_ref(), "--dry-run".as_ref(), spec.as_os_str()]));
    dry_run.with_code(0).prints(&["would go on from the checkpoints of an earlier run; 1 finished in it"]);

    halted(world, &spec, "12", false);
    assert_eq!(printed(world, "dnn0.main"), "7\n9\n12\n");
    assert_eq!(printed(world, "quick.main"), "", "it was finished");
    let restored = changes(world, "restored");
    assert_eq!((restored.len(), &restored[0]["name"], &restored[0]["tag"]), (1, &json!("dnn0"), &json!(3)));
    assert_eq!(saved_files(world).len(), 1, "what the first run saved is not needed any more");

    // Its last round: it finishes.
    run(world, &spec).ends_with(0).prints(&["all pairs are finished"]);
    assert_eq!(printed(world, "dnn0.main"), "13\n15\n18\n");
}

#[test]
fn checkpoints_are_saved_although_the_file_of_the_registry_was_removed(world: &World) {
    let spec = job(world, "");
    let ran = halted_after(world, &spec, "6", true, || {
        fs::remove_file(registry_path(waits_for_state(world, 0, "main", "awake"))).unwrap();
    });
    ran.prints(&["the newest checkpoint of 1 pair is saved"]);
    let running = run(world, &spec);
    waits_for_line(world, "dnn0.main", "12");
    running.terminated();
    assert_eq!(printed(world, "dnn0.main"), "7\n9\n12\n");
}

#[test]
fn pair_of_two_nodes_goes_on_from_the_other_copy_of_a_damaged_checkpoint(world: &World) {
    let spec = job(world, ", nodes: [0, 1]");
    let text = fs::read_to_string(&spec).unwrap().replace("{manager: local}", "{manager: local, nodes: 2}");
    let spec = world.write("job.yaml", &text);
    let mut running = run(world, &spec);
    waits_for_line(world, "dnn0.main", "6");
    sees(&mut running, "quick", "finished", None);
    // Both nodes have it.
    let registry = registry_of(waits_for_state(world, 0, "replica", "asleep"));
    world.wait("the mirrored checkpoint", || (registry.newest(0)?.tag == 3).then_some(()));
    world.run(world.holdfast(["halt", "set", "--now", spec.to_str().unwrap()])).with_code(0);
    running.ends_with(75);
    let files = saved_files(world);
    assert_eq!(files.len(), 2, "{files:?}");
    let damaged = files.iter().find(|file| file.ends_with("dnn0.main.checkpoint")).unwrap();
    let mut bytes = fs::read(damaged).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(damaged, bytes).unwrap();

    let running = run(world, &spec);
    waits_for_line(world, "dnn0.main", "12");
    running.terminated();
    assert_eq!(printed(world, "dnn0.main"), "7\n9\n12\n");
    let refused = changes(world, "not_restored");
    assert!(refused[0]["reason"].as_str().unwrap().contains("its CRC32 is"), "{refused:?}");
}

#[test]
fn from_beginning_ignores_what_was_saved_and_a_checkpoint_cannot_be_chosen(world: &World) {
    let spec = job(world, "");
    halted(world, &spec, "6", true);
    let choose = world.holdfast(["run".as_ref(), "--checkpoint".as_ref(), "c3".as_ref(), spec.as_os_str()]);
    world.run(choose).with_code(78).prints(&["c3"]);
    // What follows waits for the output of this run.
    fs::remove_dir_all(world.prefix().join(".holdfast/pairs")).unwrap();
    let running = world.start(world.holdfast(["run".as_ref(), "--from-beginning".as_ref(), spec.as_os_str()]));
    waits_for_line(world, "dnn0.main", "6");
    running.terminated();
    assert_eq!(printed(world, "dnn0.main"), "1\n3\n6\n");
    assert!(changes(world, "restored").is_empty());
}

#[test]
fn checkpoints_that_cannot_be_saved_are_named(world: &World) {
    let spec = job(world, "");
    let mut running = run(world, &spec);
    waits_for_line(world, "dnn0.main", "6");
    sees(&mut running, "quick", "finished", None);
    // In the place of the directory.
    fs::write(world.prefix().join(".holdfast/pairs.saved"), "").unwrap();
    let ran = running.terminated();
    assert_eq!(changes(world, "not_saved").len(), 1);
    ran.prints(&["the newest checkpoint is not saved"]);
}

#[test]
fn node_whose_agent_does_not_come_back_is_rebooted_by_the_command_of_the_site(world: &World) {
    let root = world.path("root");
    let away = world.path("away");
    let script = format!(
        "echo {{node}} $HOLDFAST_NODE >> {}; mv {} \"$(cat {})\"",
        world.path("reboots").display(),
        away.display(),
        root.display()
    );
    let reboot = format!("replication: {{reboot: {{command: [sh, -c, '{script}'], after: 1s}}}}\n");
    let spec = on_two_nodes_with(world, &reboot);
    let mut running = run(world, &spec);
    let main = ready(world, "dnn0");
    // The node is gone with its processes, until it is rebooted.
    let node = world.node_root("node0");
    fs::write(&root, node.to_str().unwrap()).unwrap();
    let agent = world.agent_pid("node0");
    fs::rename(&node, &away).unwrap();
    // The agent must not see the main end, and the next agent must not find it alive: it would not wait until the
    // replica has done its round.
    signal(agent, Signal::STOP);
    signal(main, Signal::KILL);
    let has_ended = || ProcessStat::of(main).is_none_or(|stat| stat.has_ended());
    world.wait("the end of the main", || has_ended().then_some(()));
    signal(agent, Signal::KILL);
    let ended = running.sees("the reboot", |event| event["event"] == "site_command");
    assert_eq!(
        (&ended["key"], &ended["nodes"], &ended["failure"]),
        (&json!("reboot"), &json!(["node0"]), &json!(null))
    );
    assert_eq!(fs::read_to_string(world.path("reboots")).unwrap(), "node0 node0\n");
    // The replica has gone on meanwhile, and the main takes over again.
    running.ends_with(0).prints(&["running `reboot` command sh on node0"]);
    assert_eq!(printed(world, "dnn0.replica"), "7\n9\n12\n");
    assert!(printed(world, "dnn0.main").ends_with("13\n15\n18\n"));
}
