//! Jobs in a Flux instance: a script stands in for `flux`, with the output of a real one. Its nodes are mount
//! namespaces of this machine, so that agents share the paths of their directories, as on machines. This requires root.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_testkit::harness::ignore;
use rustix::process::Signal;

use crate::job::Job;
use crate::world::{Ran, Running, World, signal};

const JOB: (&str, &str) = ("FLUX_ENCLOSING_ID", "ƒ8UK76CX");

/// An instance with four nodes.
struct Flux<'a> {
    world: &'a World,
    served: Option<Running<'a>>,
}

impl<'a> Flux<'a> {
    fn new(world: &'a World) -> Self {
        let can = Command::new("unshare").args(["--mount", "mount", "--bind", "/tmp", "/tmp"]).output();
        if !can.is_ok_and(|output| output.status.success()) {
            ignore("mount namespaces need root and util-linux");
        }
        for directory in ["bin", "flux/base", "flux/jobs", "flux/lost"] {
            fs::create_dir_all(world.path(directory)).unwrap();
        }
        (1..=4).for_each(|node| fs::create_dir_all(world.path(&format!("flux/nodes/n{node}"))).unwrap());
        let script = world.write("bin/flux", include_str!("flux.sh"));
        fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
        let mut flux = Flux { world, served: None };
        flux.ends_in(Duration::from_secs(3600));
        let mut serve = world.command(world.path("bin/flux"));
        serve.args(["serve", "-"]).env("FLUX_TEST", world.path("flux"));
        flux.served = Some(world.start(serve));
        flux
    }

    /// A job of three ranks on three nodes; the fourth one is a spare.
    fn job(&self) -> Job<'a> {
        let base = self.world.path("flux/base");
        let mut job = Job::new(self.world, 0)
            .redundancy("[{scheme: xor, set_size: 3}]")
            .checkpoint(&format!("control: {{base: {base:?}}}"))
            .checkpoint(&format!("cache: [{{base: {base:?}, keep: 2}}]"));
        job.on = 3;
        job
    }

    fn start(&self, job: &Job<'a>) -> Running<'a> {
        self.world.start(self.holdfast(&["run", &self.spec(job)]))
    }

    /// The spec, which leaves the manager to `auto`.
    fn spec(&self, job: &Job<'a>) -> String {
        let yaml = job.yaml().replace("allocation:\n  manager: local\n  nodes: 4\n", "");
        self.world.write("flux.yaml", &yaml).to_string_lossy().into_owned()
    }

    /// A command in the batch script.
    fn holdfast(&self, words: &[&str]) -> Command {
        let mut command = self.world.holdfast(words);
        let path = format!("{}:{}", self.world.path("bin").display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env(JOB.0, JOB.1).env("FLUX_URI", "local:///tmp/flux-a1/local-0");
        command.env("FLUX_TEST", self.world.path("flux"));
        command
    }

    /// The allocation ends after this time.
    fn ends_in(&self, time: Duration) {
        let end = (SystemTime::now() + time).duration_since(UNIX_EPOCH).unwrap();
        self.world.write("flux/expiration", &end.as_secs_f64().to_string());
    }

    /// A node is lost with all of its processes.
    fn loses(&self, node: &str) {
        self.world.write(&format!("flux/lost/{node}"), "");
        self.signal(node, Signal::KILL);
    }

    /// The processes of a node stop, and none is started on it.
    fn freezes(&self, node: &str) {
        self.world.write(&format!("flux/frozen-{node}"), "");
        self.signal(node, Signal::STOP);
    }

    fn signal(&self, node: &str, to_all: Signal) {
        let mark = format!("FLUX_TEST_NODE={node}\0");
        for (pid, _) in self.world.processes() {
            let environment = fs::read(Path::new("/proc").join(pid.to_string()).join("environ")).unwrap_or_default();
            if String::from_utf8_lossy(&environment).contains(&mark) {
                signal(pid, to_all);
            }
        }
    }

    /// A line of a file that the script writes for each of its calls of a kind.
    fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.world.path("flux").join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Ends the instance. Nothing of the job is left.
    fn stop(mut self) {
        self.world.write("flux/stop", "");
        self.served.take().unwrap().ends_with(0);
        self.world.wait("the end of all processes", || self.world.processes().is_empty().then_some(()));
    }
}

/// The job goes on after a loss, and has the result of a run without one.
#[track_caller]
fn ends_in_the_next_generation(mut running: Running<'_>, job: &Job<'_>) {
    running.sees_where("generation_launched", "generation", 2);
    job.go_on();
    running.ends_with(0);
    job.assert_result();
}

#[test(unchecked)]
fn a_job_in_a_flux_instance_survives_a_lost_node(world: &World) {
    let flux = Flux::new(world);
    let job = flux.job().holding_after(4);
    let mut running = flux.start(&job);
    running.sees_checkpoint(4);
    flux.loses("n3");
    ends_in_the_next_generation(running, &job);
    world.assert_restarted(4, "rebuilt");
    assert_eq!(flux.lines("required"), ["n[1-3]", "n[1-2,4]"], "survivors keep their nodes");
    assert_eq!(world.state()["allocation"]["manager"], "flux");
    flux.stop();
}

#[test(unchecked)]
fn survivors_take_the_ranks_of_a_lost_node_also_if_these_are_more_for_some(world: &World) {
    let flux = Flux::new(world);
    let mut job = flux.job().holding_after(4).redundancy("[{scheme: xor, set_size: 4}]");
    job = job.top("relaunch: {min_nodes: 2}");
    (job.on, job.per_node) = (4, 2);
    let mut running = flux.start(&job);
    running.sees_checkpoint(4);
    flux.loses("n3");
    ends_in_the_next_generation(running, &job);
    let last = flux.lines("jobspecs").pop().unwrap();
    assert!(last.contains(r#""count": 3, "exclusive": true"#), "{last}");
    flux.stop();
}

#[test(unchecked)]
fn a_frozen_node_is_disconnected_so_that_flux_ends_its_job(world: &World) {
    let flux = Flux::new(world);
    let job = flux.job().holding_after(4);
    let mut running = flux.start(&job);
    running.sees_checkpoint(4);
    flux.freezes("n3");
    ends_in_the_next_generation(running, &job);
    assert_eq!(flux.lines("disconnected"), ["n3"]);
    flux.signal("n3", Signal::KILL);
    flux.stop();
}

#[test(unchecked)]
fn the_end_of_the_allocation_halts_the_job_in_time(world: &World) {
    let flux = Flux::new(world);
    flux.ends_in(Duration::from_secs(25));
    let job = flux.job().top("halt: {grace: 2s, drain_reserve: 12s}").holding_after(4);
    let mut running = flux.start(&job);
    let requested = running.sees_event("halt_requested");
    assert!(requested["reason"].as_str().unwrap().contains("12 s are kept for the drain"), "{requested}");
    job.go_on();
    running.ends_with(75).prints(&["the allocation"]);
    // The program makes a last checkpoint if it is asked to end before it has ended.
    let drained = world.the("drained")["checkpoint"].as_u64();
    assert!(matches!(drained, Some(4 | 5)), "{drained:?}");
    flux.stop();
}

#[test(unchecked)]
fn ranks_of_a_run_that_is_ended_are_cancelled_by_the_name_of_their_job(world: &World) {
    let flux = Flux::new(world);
    let job = flux.job().holding_after(4);
    let mut running = flux.start(&job);
    running.sees_checkpoint(4);
    // `halt.grace` is zero: the ranks, which wait at their checkpoint, are killed.
    running.terminated();
    assert_eq!(world.the("drained")["checkpoint"], 4);
    let id = format!("holdfast-run-f{}-1", &JOB.1["ƒ".len()..]);
    assert!(flux.lines("cancelled").contains(&id), "{:?}", flux.lines("cancelled"));
    flux.stop();
}

#[test(unchecked)]
fn a_drained_node_is_not_used(world: &World) {
    let flux = Flux::new(world);
    world.write("flux/drained", "drained|n2|bad disk\n");
    let job = flux.job();
    flux.start(&job).ends_with(0).prints(&["n2", "bad disk"]);
    assert_eq!(flux.lines("required"), ["n[1,3-4]"]);
    flux.stop();
}

#[test(unchecked)]
fn a_program_that_cannot_be_started_is_named(world: &World) {
    let flux = Flux::new(world);
    let job = flux.job().top("relaunch: {attempts: 1}");
    let text = fs::read_to_string(flux.spec(&job)).unwrap();
    let missing = text.replace("command: [\"holdfast\"", "command: [\"/nowhere/app\"");
    assert_ne!(text, missing);
    let spec = world.write("missing.yaml", &missing);
    let ran = world.run(flux.holdfast(&["run", &spec.to_string_lossy()]));
    assert!(ran.err.contains("/nowhere/app"), "{}", ran.err);
    assert_eq!(flux.lines("required"), Vec::<String>::new());
    flux.stop();
}

#[test(unchecked)]
fn refuses_what_is_no_allocation_of_flux_and_says_how_to_get_one(world: &World) {
    let flux = Flux::new(world);
    let spec = flux.spec(&flux.job());
    let run = |change: &dyn Fn(&mut Command)| -> Ran {
        let mut command = flux.holdfast(&["run", &spec]);
        change(&mut command);
        world.run(command).with_code(78)
    };
    let task = run(&|command| {
        command.env("FLUX_JOB_ID", "ƒTH4GhV");
    });
    task.prints(&["this is a task of Flux job fTH4GhV", "flux batch"]);
    let cut_off = run(&|command| {
        command.env_remove("FLUX_URI");
    });
    cut_off.prints(&["FLUX_URI is not set"]);
    world.write("flux/hostlist", "n1,n1,n1\n");
    run(&|_| ()).prints(&["several brokers on n1", "one broker a node"]);
    world.write("flux/version", "0.74.0\n");
    let old = world.run(flux.holdfast(&["run", &spec])).with_code(69);
    old.prints(&["this is Flux 0.74.0", "0.75 or newer"]);
    let named = world.write("named.yaml", "allocation: {manager: flux}\nrun: {command: [\"true\"]}\n");
    let outside = world.run(world.holdfast(["run", &named.to_string_lossy()])).with_code(78);
    outside.prints(&["FLUX_ENCLOSING_ID is not set", "flux alloc"]);
    flux.stop();
}

/// Runs a command on nodes that the spec does not count, or counts by `keys`; returns the output of the ranks.
fn output_of(flux: &Flux<'_>, keys: &str, command: &str) -> String {
    let prefix = flux.world.prefix();
    let base = flux.world.path("flux/base");
    let text = format!(
        "prefix: {prefix:?}\ncheckpoint: {{control: {{base: {base:?}}}, cache: [{{base: {base:?}}}]}}\n\
        run: {{{keys}command: [sh, -c, '{command}']}}\n"
    );
    let spec = flux.world.write("plain.yaml", &text);
    flux.world.run(flux.holdfast(&["run", &spec.to_string_lossy()])).with_code(0);
    fs::read_to_string(prefix.join(".holdfast/generations/1/ranks.out")).unwrap()
}

#[test(unchecked)]
fn a_spec_without_a_number_of_nodes_uses_all_of_the_instance(world: &World) {
    let flux = Flux::new(world);
    let output = output_of(&flux, "", "echo of $HOLDFAST_RANKS");
    assert_eq!(output.matches("of 4\n").count(), 4, "{output}");
    assert_eq!(flux.lines("required"), ["n[1-4]"]);
    flux.stop();
}

#[test(unchecked)]
fn ranks_have_the_variables_of_torchrun(world: &World) {
    let flux = Flux::new(world);
    let keys = "launcher: torchrun, nodes: 2, ranks_per_node: 2, ";
    let output = output_of(&flux, keys, "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE");
    for rank in 0..4 {
        let line = format!("{rank}: {rank} of 4, {} of 2\n", rank % 2);
        assert!(output.contains(&line), "{line}{output}");
    }
    flux.stop();
}
