//! What a drain says that copied nothing, or did without a node: 0 only if no data can be lost by trusting it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::{copy_tree, files_below};
use serde_json::json;

use crate::job::Job;
use crate::library_program::{CHECKPOINTS, CONTROL, HOLD, MEETING};
use crate::pfs;
use crate::world::{USER, World};

/// The job has checkpoint 4 in the caches, and no process is left.
fn abandoned<'a>(world: &'a World, flush: &str) -> Job<'a> {
    let job = Job::new(world, 0).flush(flush).holding_after(4);
    let mut running = job.reaches(4);
    if flush.contains("every: 4") {
        running.sees_event("flushed");
    }
    world.kill(|_| true);
    running.end();
    job
}

/// No agent can be started on a node whose root is a file.
fn lose(world: &World, node: &str) -> PathBuf {
    let (root, aside) = (world.node_root(node), world.path(&format!("{node}.aside")));
    fs::rename(&root, &aside).unwrap();
    fs::write(&root, "").unwrap();
    aside
}

fn give_back(world: &World, node: &str, aside: &Path) {
    fs::remove_file(world.node_root(node)).unwrap();
    fs::rename(aside, world.node_root(node)).unwrap();
}

#[test(unchecked)]
fn without_data_on_the_nodes_that_answer_a_lost_node_decides_when_it_is_back(world: &World) {
    let job = abandoned(world, "{every: 0}");
    world.empty_nodes(&["node0", "node2", "node3"]);
    let aside = lose(world, "node1");
    for _ in 0..2 {
        let drained = job.command(&["drain"], 69);
        drained.prints(&["nothing was copied from node1: ", "nothing was drained: ", "what node1 has is not known"]);
    }
    let drained = job.command(&["drain", "--json"], 69).json();
    assert!(drained["reason"].as_str().unwrap().contains("what node1 has is not known"), "{drained:#}");
    assert!(drained["failed_nodes"]["node1"].is_string(), "{drained:#}");
    let mut postrun = world.holdfast(["compat", "scr_postrun", "-p"]);
    postrun.arg(world.prefix());
    world.run(postrun).with_code(1).prints(&["what node1 has is not known"]);
    give_back(world, "node1", &aside);
    // Its data is one rank of four.
    job.command(&["drain"], 65).prints(&["checkpoint 4 is not complete"]);
}

#[test]
fn nodes_that_all_answer_and_have_nothing_are_certain(world: &World) {
    let job = abandoned(world, "{every: 0}");
    world.empty_nodes(&["node0", "node1", "node2", "node3"]);
    job.command(&["drain"], 0).prints(&["nothing to drain"]);
}

#[test]
fn a_lost_node_is_named_and_does_not_matter_if_its_files_are_rebuilt_or_were_flushed() {
    for (flush, end) in [("{every: 0}", "checkpoint 4 is complete in"), ("{every: 4}", "nothing to drain")] {
        let world = World::unchecked();
        let job = abandoned(&world, flush);
        lose(&world, "node1");
        job.command(&["drain"], 0).prints(&["nothing was copied from node1: ", end]);
        pfs::assert_current(&world.prefix(), 4);
    }
}

#[test(unchecked)]
fn node_directories_that_were_drained_are_copied_to_another_prefix_only_by_their_checkpoint(world: &World) {
    abandoned(world, "{every: 0}");
    let job_id = world.state()["agents"]["job_id"].as_str().unwrap().to_owned();
    let saved = world.path("saved");
    fs::create_dir(&saved).unwrap();
    let roots = world.node_root("node0").parent().unwrap().to_owned();
    // A socket cannot be copied; without the plan of the job it is not known to which prefix it belongs.
    let no_copy = ["agent.sock", "holdfast.run"];
    files_below(&roots).iter().filter(|path| no_copy.iter().any(|name| path.ends_with(name))).for_each(|path| {
        fs::remove_file(path).unwrap();
    });
    copy_tree(&roots, &saved).unwrap();
    let drain = |prefix: &str, words: &[&str]| -> Command {
        let prefix = world.path(prefix);
        fs::create_dir_all(&prefix).unwrap();
        let mut command = world.holdfast(["drain", "--job-id", &job_id, "--user", USER]);
        command.arg("--root").arg(&saved).arg("--prefix").arg(prefix).args(words);
        command
    };
    world.run(drain("first", &[])).with_code(0).prints(&["checkpoint 4 is complete in"]);
    world.run(drain("first", &[])).with_code(0).prints(&["nothing to drain"]);
    let elsewhere = world.run(drain("second", &[])).with_code(69);
    elsewhere
        .prints(&["nothing was drained: ", "it is in another one; `holdfast drain --checkpoint 4` copies it here"]);
    world.run(drain("second", &["--checkpoint", "4"])).with_code(0).prints(&["checkpoint 4 is complete in"]);
    pfs::assert_current(&world.path("second"), 4);
}

/// Files of SCR's library on this machine, in directories that all drains share.
struct OnMachine<'a> {
    world: &'a World,
}

impl<'a> OnMachine<'a> {
    fn new(world: &'a World) -> Self {
        let (base, meeting) = (world.path("local"), world.path("meeting"));
        [&base, &meeting, &world.path("a"), &world.path("b")]
            .into_iter()
            .for_each(|path| fs::create_dir(path).unwrap());
        let mut program = world.command(std::env::current_exe().unwrap());
        program
            .envs([(MEETING, &meeting), (CONTROL, &base)])
            .envs([(CHECKPOINTS, "3"), (HOLD, ""), ("SCR_JOB_ID", "4711"), ("SCR_USER_NAME", "anna")])
            .envs([("SCR_COPY_TYPE", "PARTNER"), ("SCR_CACHE_SIZE", "2"), ("SCR_FLUSH", "0"), ("SCR_FLUSH_ASYNC", "0")])
            .env("SCR_CACHE_BASE", &base)
            .envs([("HOLDFAST_RANK", "0"), ("HOLDFAST_RANKS", "1"), ("HOLDFAST_GENERATION", "1")])
            .envs([("HOLDFAST_NODE", "here"), ("HOLDFAST_NODE_ROOT", "/")]);
        world.run(program).with_code(0);
        OnMachine { world }
    }

    fn drain(&self, prefix: &str) -> Command {
        let (base, prefix) = (self.world.path("local"), self.world.path(prefix));
        let spec = format!(
            "prefix: {prefix:?}\nrun: {{command: ['true']}}\n\
             checkpoint: {{control: {{base: {base:?}}}, cache: [{{base: {base:?}}}]}}\n"
        );
        let spec = self.world.write("scr.yaml", &spec);
        let mut command = self.world.holdfast(["drain".as_ref(), spec.as_os_str()]);
        command.env("SCR_JOB_ID", "4711").env("SCR_USER_NAME", "anna");
        command
    }

    fn cached(&self) -> PathBuf {
        self.world.path("local/anna/scr.4711/index.0/checkpoint.3/rank_0.ckpt")
    }
}

#[test]
fn drain_to_a_second_prefix_says_where_the_data_is_and_deletes_nothing(world: &World) {
    let machine = OnMachine::new(world);
    // The only node is drained although the user excludes it from runs.
    let mut drain = machine.drain("a");
    drain.env("SCR_EXCLUDE_NODES", rustix::system::uname().nodename().to_str().unwrap());
    world.run(drain).with_code(0).prints(&["checkpoint 3 is complete in"]);
    let a = world.path("a").canonicalize().unwrap();
    let elsewhere = format!("checkpoint 3 of the node is in the prefix directory {} already", a.display());
    world.run(machine.drain("b")).with_code(69).prints(&[&elsewhere]);
    assert!(machine.cached().is_file(), "nothing on the node is deleted");
    world.run(machine.drain("a")).with_code(0).prints(&["nothing to drain"]);
}

#[test(unchecked)]
fn drain_to_a_second_prefix_after_an_incomplete_one_is_refused_by_the_agents_and_does_not_end_with_0(world: &World) {
    let machine = OnMachine::new(world);
    let index = world.path("a/index.scr");
    fs::create_dir(&index).unwrap();
    world.run(machine.drain("a")).with_code(65).prints(&["index.scr"]);
    let a = world.path("a").canonicalize().unwrap();
    let refused = format!("checkpoint 3 of the prefix directory {}, which is not there yet", a.display());
    let command = format!("holdfast drain --prefix {}", a.display());
    world.run(machine.drain("b")).with_code(69).prints(&[&refused, &command]);
    fs::remove_dir(&index).unwrap();
    world.run(machine.drain("a")).with_code(0).prints(&["checkpoint 3 is complete in"]);
    pfs::assert_current(&world.path("a"), 3);
    assert_eq!(json!(pfs::indexed(&world.path("a"))[&3]), json!(true));
}
