//! `launcher: torchrun`: ranks form a group with the variables of torchrun, and form another one after a loss.

use std::collections::BTreeSet;
use std::fs;

use crate::world::World;

/// Forms a group as PyTorch does with `env://`: rank 0 listens at MASTER_ADDR and MASTER_PORT, the others connect. Each
/// learns how many ranks there are, and prints its variables. The first group waits for its end.
const PROGRAM: &str = r#"
import os, socket, sys, time

names = "RANK LOCAL_RANK LOCAL_WORLD_SIZE WORLD_SIZE TORCHELASTIC_RESTART_COUNT MASTER_PORT TORCHELASTIC_RUN_ID"
rank, local, local_size, size, restarts, port, run = (os.environ[name] for name in names.split())
address = (os.environ["MASTER_ADDR"], int(port))
if rank == "0":
    with socket.create_server(address) as server:
        others = [server.accept()[0] for _ in range(int(size) - 1)]
    joined = sorted([0] + [int(other.makefile().readline()) for other in others])
    for other in others:
        other.sendall(f"{joined}\n".encode())
else:
    while True:
        try:
            master = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    master.sendall(f"{rank}\n".encode())
    joined = master.makefile().readline().strip()
print(f"{rank}: local {local} of {local_size}, all {joined} of {size}, restart {restarts}, port {port}, run {run}")
sys.stdout.flush()
if restarts == "0":
    open(f"{sys.argv[1]}/formed.{rank}", "w").close()
    time.sleep(600)
"#;

/// A job of four ranks on two nodes, and a spare. `run` are further keys.
fn spec(world: &World, run: &str) -> String {
    let program = world.write("group.py", PROGRAM);
    format!(
        "prefix: {:?}\nallocation: {{manager: local, nodes: 3}}\ncheckpoint: {{source: none}}\n\
        run: {{launcher: torchrun, nodes: 2, ranks_per_node: 2, command: [python3, {program:?}, {:?}]{run}}}\n",
        world.prefix(),
        world.path(""),
    )
}

/// The lines of the ranks in a generation, in the order of the ranks.
fn printed(world: &World, generation: u64) -> Vec<String> {
    let directory = world.prefix().join(format!(".holdfast/generations/{generation}"));
    (0..4).map(|rank| fs::read_to_string(directory.join(format!("rank_{rank}.out"))).unwrap()).collect()
}

/// What follows a word in a line, up to a comma.
fn value<'a>(line: &'a str, word: &str) -> &'a str {
    line.split_once(word).unwrap().1.split(',').next().unwrap().trim()
}

#[test(unchecked)]
fn ranks_form_a_group_and_another_one_after_the_loss_of_a_node(world: &World) {
    let mut running = world.start_spec(&spec(world, ""));
    world.wait("the first group", || (0..4).all(|rank| world.path(&format!("formed.{rank}")).exists()).then_some(()));
    world.lose_node("node1");
    running.sees_event("node_down");
    running.ends_with(0);
    let mut ports = BTreeSet::new();
    for generation in [1, 2] {
        let lines = printed(world, generation);
        for (rank, line) in lines.iter().enumerate() {
            let (local, restart) = (rank % 2, generation - 1);
            let expected = format!("{rank}: local {local} of 2, all [0, 1, 2, 3] of 4, restart {restart}, port ");
            assert!(line.starts_with(&expected), "{line}");
        }
        ports.extend(lines.iter().map(|line| value(line, "port ").to_owned()));
        let job = world.state()["job_id"].as_str().map(str::to_owned);
        assert!(job.is_none_or(|job| lines.iter().all(|line| value(line, "run ") == job)), "{lines:?}");
    }
    assert_eq!(ports.len(), 2, "each generation has one port of its own: {ports:?}");
}

#[test]
fn a_port_in_the_spec_is_obeyed(world: &World) {
    let running = world.start_spec(&spec(world, ", env: {MASTER_PORT: \"19017\", TORCHELASTIC_RESTART_COUNT: \"1\"}"));
    running.ends_with(0);
    assert!(printed(world, 1).iter().all(|line| value(line, "port ") == "19017"));
}

#[test]
fn options_are_refused_where_no_command_starts_the_ranks(world: &World) {
    let ran = world.run_spec(&spec(world, ", launcher_options: [--label]")).with_code(69);
    ran.prints(&["`run.launcher_options` have no effect with `launcher: torchrun`", "`manager: local`"]);
    assert!(!world.prefix().join(".holdfast/generations/1").exists());
}

#[test]
fn a_rank_that_nothing_has_started_says_what_starts_it(world: &World) {
    let ran = world.run(world.holdfast(["rank", "--role", "torchrun", "--", "true"])).with_code(69);
    ran.prints(&["HOLDFAST_TORCHRUN is not set", "`launcher: torchrun`"]);
}
