//! Injected faults (`allocation.faults`) beside the loss of a node: on virtual nodes, and on machines, where the agents
//! inject them too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::devices::{ADDRESSES, Machines};
use crate::job::Job;
use crate::world::{World, is_secured};

/// The files of this name below a directory.
fn find(name: &str, below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(find(name, &path)),
            _ if entry.file_name() == name => found.push(path),
            _ => {}
        }
    }
    found
}

pub fn millis_of(event: &Value) -> i64 {
    chrono::DateTime::parse_from_rfc3339(event["time"].as_str().unwrap()).unwrap().timestamp_millis()
}

#[test]
fn a_fault_whose_moment_never_comes_is_reported_at_the_end(world: &World) {
    let job = Job::new(world, 1).faults("{node: 1, after_checkpoint: 99}").faults("{node: 2, after: 0s, action: kill}");
    let ran = job.run(0);
    let fault = "`kill` of node 1 of the allocation after checkpoint 99";
    let message = format!("warning: the fault {fault} was not injected: its moment did not come");
    ran.prints(&[&message, &format!("fault not injected: {fault}: its moment did not come"), "fault injected: `kill`"]);
    assert_eq!(world.the("fault_not_injected")["fault"], json!(fault));
    let document = world.run(world.holdfast(["--json", "run", "--again"]).arg(job.spec())).with_code(0).json();
    assert_eq!((&document["faults"][0]["injected"], &document["faults"][1]["injected"]), (&json!(false), &json!(true)));
    assert_eq!(document["faults"][0]["reason"], "its moment did not come");
    let ran = world.run(world.holdfast(["-q", "run", "--again"]).arg(job.spec())).with_code(0);
    assert!(ran.err.contains(fault) && !ran.err.contains("event"), "{} {}", ran.out, ran.err);
}

#[test(unchecked)]
fn a_fault_that_an_agent_injects_in_a_phase_counts_as_injected(world: &World) {
    let job = Job::new(world, 1).faults("{node: 1, during: encode, checkpoint: 3}");
    job.run(0).prints(&["fault injected: `kill` of node 1 of the allocation during `encode` of checkpoint 3"]);
    assert!(world.all("fault_not_injected").is_empty());
}

#[test]
fn a_killed_rank_is_relaunched_from_the_newest_checkpoint(world: &World) {
    let job = Job::new(world, 0).holding_after(4).faults("{rank: 2, after_checkpoint: 4, action: kill-rank}");
    job.finishes(job.start_to("restarted", "generation", 2));
    let injected = world.the("fault_injected");
    assert_eq!((&injected["node"], &injected["rank"]), (&json!("node2"), &json!(2)));
    assert_eq!(world.the("rank_failed")["rank"], 2);
    assert!(world.all("node_down").is_empty());
    assert_eq!(world.all("restarted")[1]["checkpoint"], 4);
}

#[test]
fn a_paused_node_is_silent_for_a_while_and_goes_on(world: &World) {
    let mut job = Job::new(world, 1).holding_after(4).faults("{node: 1, after_checkpoint: 4, action: pause, for: 3s}");
    job.down_after = "500ms";
    job = job.health("replace_after: 1min");
    let mut running = job.start_to("agent_silent", "node", "node1");
    running.sees_where("agent_answers", "node", "node1");
    job.finishes(running);
    assert_eq!(world.all("generation_launched").len(), 1);
}

#[test]
fn a_filled_cache_gets_no_more_than_the_given_number_of_bytes(world: &World) {
    let job =
        Job::new(world, 0).holding_after(4).faults("{node: 1, after_checkpoint: 4, action: fill-cache, bytes: 3MiB}");
    let running = job.start_to_event("fault_injected");
    let filled = world.wait("a filled cache", || {
        let found = find("fault_injection.fill", &world.temporary());
        found.into_iter().find(|file| file.metadata().is_ok_and(|found| found.len() == 3 << 20))
    });
    assert!(filled.starts_with(world.node_root("node1")), "{}", filled.display());
    job.finishes(running);
}

#[test]
fn a_stalled_prefix_delays_flushes_and_not_the_application(world: &World) {
    let job = Job::new(world, 0)
        .flush("{every: 1, mode: async}")
        .holding_after(2)
        .faults("{after_checkpoint: 2, action: stall-prefix, for: 4s}");
    let mut running = job.start();
    let stalled = running.sees_event("prefix_stalled");
    job.finishes(running);
    let flushed = world.all("flushed");
    let after = flushed.iter().filter(|event| event["checkpoint"].as_u64() > Some(3));
    let waited: Vec<i64> = after.map(|event| millis_of(event) - millis_of(&stalled)).collect();
    assert!(waited.iter().all(|millis| *millis >= 3_900), "{waited:?}");
    assert_eq!(world.all("generation_launched").len(), 1);
}

#[test]
fn a_line_of_output_is_a_moment(world: &World) {
    let job = Job::new(world, 1).holding_after(4).faults("{node: 3, after_output: 'holding at step [0-9]+'}");
    let mut running = job.start();
    let down = running.sees_event("node_down");
    assert_eq!(down["node"], "node3");
    job.finishes(running);
}

/// A job on two machines, which goes on with one.
fn on_machines(world: &World, machines: &Machines<'_>, steps: u32, faults: &str) -> PathBuf {
    let text = format!(
        "job: heat\nprefix: {prefix}\nallocation: {{{allocation}, faults: [{faults}]}}\n\
         run:\n  nodes: 2\n  ranks_per_node: 2\n  directory: {home}\n\
         \x20 command: [sh, -c, 'exec {program} example heat --step-delay 0 --steps {steps} --size 24x24 \
         --checkpoint-every 5 --hold-at 20 --until {home}/go-on --address $(hostname -I)']\n\
         checkpoint:\n  redundancy: [{{scheme: xor, set_size: 2}}]\n  flush: {{every: 0}}\n\
         relaunch: {{min_nodes: 1}}\nhealth: {{down_after: 5s}}\n",
        prefix = world.prefix().display(),
        allocation = machines.allocation(),
        home = world.path("").display(),
        program = env!("CARGO_BIN_EXE_holdfast"),
    );
    world.write("job.yaml", &text)
}

#[test]
fn on_machines_the_agent_of_a_node_injects_its_loss(world: &World) {
    let machines = Machines::new(world);
    let spec = on_machines(world, &machines, 40, "{node: 1, after_checkpoint: 4}");
    let run = |options: &[&str]| {
        let mut command = machines.command(env!("CARGO_BIN_EXE_holdfast"));
        command.arg("run").args(options).arg(&spec);
        command
    };
    for (options, message) in [
        (&[][..], "machines of `manager: ssh`; nothing was started"),
        (&["--allow-faults"][..], "is not confirmed: there is no terminal"),
        (&["--allow-faults=wave"][..], "does not name this job"),
    ] {
        world.run(run(options)).with_code(78).prints(&[message, "--allow-faults=heat"]);
        assert!(world.events().is_empty(), "something was started");
    }
    let mut running = world.start(run(&["--allow-faults=heat"]));
    running.sees("checkpoint 4", |event| event["checkpoint"] == 4 && is_secured(event));
    let down = running.sees_event("node_down");
    assert_eq!(down["node"], ADDRESSES[1]);
    let again = running.sees_where("restarted", "generation", 2);
    assert_eq!((&again["checkpoint"], &again["source"]), (&json!(4), &json!("rebuilt")));
    // The shell in which what is left there is ended may still read its startup files.
    world.wait("the end of all but the ssh server on the lost machine", || {
        machines.processes(1).iter().all(|(_, line)| line.contains("sshd")).then_some(())
    });
    let control = machines.path(1, Path::new("/tmp"));
    assert!(find("holdfast.marker", &control).is_empty() && find("rank_2.ckpt", &control).is_empty());
    fs::write(world.path("go-on"), "").unwrap();
    running.ends_with(0).prints(&["fault injected: `kill` of node 1 of the allocation after checkpoint 4"]);
}

#[test]
fn an_orchestrator_that_takes_over_does_not_repeat_a_fault(world: &World) {
    let job = Job::new(world, 0).holding_after(4).faults("{rank: 2, after_checkpoint: 4, action: kill-rank}");
    job.start_to("restarted", "generation", 2).killed();
    job.goes_on_to_its_end(job.start_to_event("took_over"))
        .prints(&["fault injected: `kill-rank` of rank 2 after checkpoint 4"]);
    job.assert_result();
    assert_eq!(world.all("fault_injected").len(), 1);
}

/// The same at a terminal, where the user types this.
fn typed(machines: &Machines<'_>, answer: &str, arguments: &str) -> Command {
    let mut command = machines.command("sh");
    let program = env!("CARGO_BIN_EXE_holdfast");
    command.args(["-c", &format!("echo {answer} | script -qec '{program} {arguments}' /dev/null")]);
    command
}

#[test]
fn on_machines_a_rehearsal_is_confirmed_at_the_terminal_and_leaves_nothing(world: &World) {
    let machines = Machines::new(world);
    // The job would not end in the time of a test.
    let spec = on_machines(world, &machines, 1_000_000, "");
    fs::write(world.path("go-on"), "").unwrap();
    let arguments = format!("rehearse --after 2 --allow-faults {}", spec.display());
    let ran = world.run(typed(&machines, "wave", &arguments)).with_code(78);
    ran.prints(&["Type the name of the job (heat) to go on", "the faults were not confirmed; nothing was started"]);
    assert!(world.events().is_empty(), "something was started");
    world.run(typed(&machines, "heat", &arguments)).with_code(0).prints(&[
        "rehearsal of heat: the job survived the fault",
        &format!("{} with ranks 2-3", ADDRESSES[1]),
        "rebuilt: ranks 2-3",
    ]);
    for device in 0..2 {
        let below = fs::read_dir(machines.path(device, Path::new("/tmp"))).unwrap().flatten();
        let names: Vec<_> = below.map(|entry| entry.file_name().into_string().unwrap()).collect();
        assert!(names.iter().all(|name| !name.contains("rehearsal")), "device {device}: {names:?}");
    }
    let here = fs::read_dir(world.path("")).unwrap().flatten();
    assert!(here.into_iter().all(|entry| !entry.file_name().to_string_lossy().contains("rehearsal")));
}
