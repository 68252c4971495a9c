//! Jobs of OpenPBS. Scripts stand in for its commands; what they print was recorded with OpenPBS 23.06.06
//! (tests/fixtures/pbs). All nodes are addresses of this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::SystemTime;

use chrono::{DateTime, TimeDelta, Utc};
use rustix::process::Signal;

use crate::job::Job;
use crate::library::hydra;
use crate::world::{Ran, Running, World, signal};

const JOB: &str = "1.head";
const NODES: [&str; 3] = ["127.0.0.2", "127.0.0.3", "127.0.0.4"];
/// Answers of the real commands, about the nodes n1, n2 and n3 of `site`.
const QSTAT: &str = include_str!("../fixtures/pbs/qstat.json");
const PBSNODES_LOST: &str = include_str!("../fixtures/pbs/pbsnodes-lost.json");
/// The start of the job in [`QSTAT`], which has ten minutes.
const STARTED: &str = "Mon Nov 30 11:17:39 2026";

/// The commands of PBS, which know the job until [`Pbs::forgets`].
struct Pbs<'a> {
    world: &'a World,
}

/// Ends a run with SIGTERM.
#[track_caller]
fn terminated_with(running: Running<'_>, code: u8) -> Ran {
    running.signal(Signal::TERM);
    running.ends_with(code)
}

/// The names of these nodes instead of the real ones.
fn with_nodes(answer: &str) -> String {
    let names = ["n1.site", "n2.site", "n3.site"].into_iter().zip(NODES);
    names.fold(answer.to_owned(), |text, (name, node)| text.replace(&format!("\"{name}\""), &format!("\"{node}\"")))
}

impl<'a> Pbs<'a> {
    fn new(world: &'a World) -> Self {
        fs::create_dir(world.path("bin")).unwrap();
        let pbs = Pbs { world };
        // Two processes a node.
        world.write("nodefile", &NODES.map(|node| format!("{node}\n{node}\n")).concat());
        pbs.started(TimeDelta::zero());
        let lost = with_nodes(PBSNODES_LOST);
        world.write("pbsnodes-lost.json", &lost);
        let comment = "\"comment\":\t\"node down: communication closed\",";
        assert!(lost.contains(comment) && lost.contains("\"state\":\t\"down\""));
        world
            .write("pbsnodes.json", &lost.replace(comment, "").replace("\"state\":\t\"down\"", "\"state\":\t\"free\""));
        let home = world.path("").display().to_string();
        let home = home.trim_end_matches('/');
        let of_job = |command: &str, then: &str| {
            format!(
                "for job; do :; done\n\
                 if [ -e {home}/forgotten ] || [ \"$job\" != {JOB} ]; then\n\
                 echo \"{command}: Unknown Job Id $job\" >&2; exit 153\nfi\n{then}"
            )
        };
        // A task has neither the environment nor the directory of its caller, reads nothing, and writes to the output
        // of the job. It lives on when the command is killed.
        let tmrsh = format!(
            "node=$1; shift\n\
             echo \"$node $*\" >>{home}/tasks\n\
             grep -qx \"$node\" $PBS_NODEFILE || {{\n\
             echo \"pbs_tmrsh: host \\\"$node\\\" is not a node in job <$PBS_JOBID>\" >&2; exit 255; }}\n\
             if [ -e {home}/lost-$node ]; then\n\
             echo \"pbs_tmrsh: tm_poll(spawn): host \\\"$node\\\" err not connected (17002) 0\" >&2; exit 255\nfi\n\
             cd {home}\n\
             setsid env -i PATH=$PATH HOME={home} TMPDIR={home}/tmp USER=$USER PBS_JOBID=$PBS_JOBID \\\n\
             PBS_NODEFILE=$PBS_NODEFILE PBS_NODENUM=1 PBS_ENVIRONMENT=PBS_BATCH PBS_JOBCOOKIE=$PBS_JOBCOOKIE \\\n\
             \"$@\" </dev/null >>{home}/job.out 2>&1 &\n\
             task=$!\n\
             echo $task >>{home}/tasks-$node\n\
             wait $task\n"
        );
        let qrerun = of_job(
            "qrerun",
            &format!(
                "echo \"$job\" >>{home}/requeued\n\
                 [ -e {home}/operator ] || {{ echo \"qrerun: Unauthorized Request  $job\" >&2; exit 159; }}\n"
            ),
        );
        let pbsnodes = format!(
            "[ -e {home}/lost-{} ] && exec cat {home}/pbsnodes-lost.json\nexec cat {home}/pbsnodes.json\n",
            NODES[2]
        );
        for (name, text) in [
            ("pbs_tmrsh", tmrsh),
            ("qstat", of_job("qstat", &format!("exec cat {home}/qstat.json\n"))),
            ("pbsnodes", pbsnodes),
            ("qrerun", qrerun),
        ] {
            let path = world.path("bin").join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        pbs
    }

    /// The job has run for this time, of its ten minutes.
    fn started(&self, before: TimeDelta) {
        let start = DateTime::<Utc>::from(SystemTime::now()) - before;
        assert!(QSTAT.contains(STARTED));
        let start = start.format("%a %b %e %H:%M:%S %Y").to_string();
        self.world.write("qstat.json", &QSTAT.replace(STARTED, &start));
    }

    /// A job of two ranks on one node; the other nodes are spares. Checkpoints expect the same paths on all nodes of a
    /// run, and these nodes share the machine.
    fn job(&self) -> Job<'a> {
        for node in NODES {
            fs::create_dir_all(self.world.path("nodes").join(node)).unwrap();
        }
        let base = self.world.path("nodes").join("{node}");
        let mut job = Job::new(self.world, 0)
            .redundancy("[{scheme: local}]")
            .checkpoint(&format!("control: {{base: {base:?}}}"))
            .checkpoint(&format!("cache: [{{base: {base:?}, keep: 2}}]"));
        (job.on, job.per_node, job.flush) = (1, 2, "{every: 1}".to_owned());
        job
    }

    fn spec(&self, job: &Job<'a>) -> String {
        let yaml = job.yaml().replace("allocation:\n  manager: local\n  nodes: 4\n", "");
        let yaml = yaml.replace("run:\n", &format!("run:\n  launcher_program: {}\n", hydra()));
        self.world.write("pbs.yaml", &yaml).to_string_lossy().into_owned()
    }

    fn start(&self, job: &Job<'a>) -> Running<'a> {
        self.world.start(self.holdfast(&["run", &self.spec(job)]))
    }

    fn refused(&self, job: &Job<'a>, code: u8) -> Ran {
        self.world.run(self.holdfast(&["run", &self.spec(job)])).with_code(code)
    }

    /// A command in the batch script.
    fn holdfast(&self, words: &[&str]) -> Command {
        let mut command = self.world.holdfast(words);
        let path = format!("{}:{}", self.world.path("bin").display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("PBS_JOBID", JOB).env("PBS_NODEFILE", self.world.path("nodefile"));
        command.env("PBS_NODENUM", "1").env("PBS_ENVIRONMENT", "PBS_BATCH").env("PBS_JOBCOOKIE", "2093C600631608D1");
        command.env("SHELL", "/bin/sh");
        command
    }

    /// The processes that PBS started on a node.
    fn tasks_on(&self, node: &str) -> Vec<u32> {
        let text = fs::read_to_string(self.world.path(&format!("tasks-{node}"))).unwrap_or_default();
        text.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    /// The node is lost, with all processes on it.
    fn loses(&self, node: &str) {
        self.world.write(&format!("lost-{node}"), "");
        let mut killed = self.tasks_on(node);
        // Its tasks, and what they have started.
        while let Some(pid) = killed.pop() {
            let children = format!("/proc/{pid}/task/{pid}/children");
            let children = fs::read_to_string(children).unwrap_or_default();
            if fs::metadata(format!("/proc/{pid}")).is_ok() {
                signal(pid, Signal::KILL);
            }
            killed.extend(children.split_whitespace().map(|child| child.parse::<u32>().unwrap()));
        }
    }

    /// `qdel`: SIGTERM to all processes of the job.
    fn deletes_the_job(&self, running: &Running<'a>) {
        for pid in NODES.iter().flat_map(|node| self.tasks_on(node)) {
            if fs::metadata(format!("/proc/{pid}")).is_ok() {
                signal(pid, Signal::TERM);
            }
        }
        running.signal(Signal::TERM);
    }

    fn forgets(&self) {
        self.world.write("forgotten", "");
    }

    fn requeued(&self) -> Vec<String> {
        let text = fs::read_to_string(self.world.path("requeued")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
fn agents_and_ranks_are_tasks_of_the_job_and_a_spare_replaces_a_node_that_pbs_has_lost() {
    let world = World::unchecked();
    let pbs = Pbs::new(&world);
    let job = pbs.job().holding_after(4);
    let mut running = pbs.start(&job);
    running.sees_checkpoint(4);
    // Each node once, although the file has each twice.
    for node in NODES {
        assert!(!pbs.tasks_on(node).is_empty(), "no agent on {node}");
    }
    assert_eq!(world.all("agent_ready").len(), 3);
    // The ranks run on the first node, started by mpirun through PBS.
    let daemons = pbs.tasks_on(NODES[0]).len();
    assert_eq!(daemons, 2, "an agent, and mpirun's daemon");
    // Secrets are on no command line, and no file with one is left.
    let commands = fs::read_to_string(world.path("tasks")).unwrap();
    let token = world.secret()["trust"]["token"].as_str().unwrap().to_owned();
    assert!(!token.is_empty() && !commands.contains(&token), "{commands}");
    let logs = world.prefix().join(".holdfast/agents");
    world.wait("the files of the tasks to be removed", || {
        let mut names = fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().file_name());
        names.all(|name| !name.to_string_lossy().ends_with(".task")).then_some(())
    });
    // Its only copy is on the node until then.
    running.sees_where("flushed", "checkpoint", 4);
    pbs.loses(NODES[0]);
    let down = running.sees_event("node_down");
    assert_eq!(down["node"], NODES[0]);
    assert!(down.to_string().contains("not connected"), "{down}");
    job.go_on();
    running.ends_with(0);
    assert_eq!(world.all("generation_launched").len(), 2);
    world.assert_restarted(4, "fetched");
    assert_eq!(world.processes(), []);
}

#[test(unchecked)]
fn a_spare_that_pbs_reports_as_down_is_excluded(world: &World) {
    let pbs = Pbs::new(world);
    pbs.loses(NODES[2]);
    let job = pbs.job();
    let running = pbs.start(&job);
    running.ends_with(0);
    let down = world.the("node_down");
    assert_eq!(down["node"], NODES[2]);
    assert!(down.to_string().contains("down: node down: communication closed"), "{down}");
}

#[test(unchecked)]
fn the_run_ends_before_the_wall_time_of_the_job(world: &World) {
    let pbs = Pbs::new(world);
    pbs.started(TimeDelta::minutes(8));
    let job = pbs.job().heat("--step-delay 0.05").top("halt: {before_end: 5m, grace: 20s}");
    let running = pbs.start(&job);
    running.ends_with(75).prints(&["the allocation"]);
}

#[test(unchecked)]
fn a_deleted_job_saves_its_checkpoint(world: &World) {
    let pbs = Pbs::new(world);
    let mut job = pbs.job().holding_after(4);
    job.flush = "{every: 0}".to_owned();
    let mut running = pbs.start(&job);
    running.sees_checkpoint(4);
    pbs.deletes_the_job(&running);
    running.ends_with(75);
    assert_eq!(world.the("drained")["checkpoint"], 4);
    assert_eq!(world.processes(), []);
}

#[test(unchecked)]
fn a_job_is_requeued_if_pbs_permits_it_and_the_refusal_is_shown_if_not(world: &World) {
    let pbs = Pbs::new(world);
    let job = pbs.job().holding_after(4).top("requeue: {pbs: true}");
    let mut running = pbs.start(&job);
    running.sees_checkpoint(4);
    terminated_with(running, 69).prints(&["Unauthorized Request  1.head"]);
    assert!(world.the("requeue_failed")["reason"].as_str().unwrap().contains("Unauthorized Request"));
    // An operator.
    world.write("operator", "");
    let mut running = pbs.start(&job);
    running.sees_where("restarted", "generation", 2);
    terminated_with(running, 75);
    assert_eq!(pbs.requeued(), [JOB, JOB]);
    assert_eq!(world.all("requeued").len(), 1);
}

#[test(unchecked)]
fn a_job_that_pbs_does_not_know_any_more_is_to_be_submitted_again(world: &World) {
    let pbs = Pbs::new(world);
    let job = pbs.job().holding_after(4).top("requeue: {pbs: true}");
    let mut running = pbs.start(&job);
    running.sees_checkpoint(4);
    pbs.forgets();
    let denied = running.sees_event("allocation_denied");
    assert!(denied["reason"].as_str().unwrap().contains("Unknown Job Id 1.head"), "{denied}");
    terminated_with(running, 69).prints(&["submit the batch script again"]);
    assert_eq!(pbs.requeued(), [] as [String; 0]);
}

#[test(unchecked)]
fn what_cannot_run_is_refused_before_anything_is_started(world: &World) {
    let pbs = Pbs::new(world);
    let job = pbs.job();
    world.write("qstat.json", &QSTAT.replace("\"Rerunable\":\t\"True\"", "\"Rerunable\":\t\"False\""));
    let rerun = pbs.job().top("requeue: {pbs: true}");
    pbs.refused(&rerun, 78).prints(&["PBS will not run job 1.head again", "qsub -r y"]);
    world.write("qstat.json", &QSTAT.replace("\"job_state\":\t\"R\"", "\"job_state\":\t\"E\""));
    pbs.refused(&job, 69).prints(&["job 1.head is in state E"]);
    world.write("qstat.json", "{");
    pbs.refused(&job, 69).prints(&["unexpected output of qstat", "docs/pbs.md"]);
    let spec = pbs.spec(&job);
    let mut outside = world.holdfast(["run", &spec]);
    outside.env("PATH", std::env::var("PATH").unwrap());
    fs::write(&spec, fs::read_to_string(&spec).unwrap() + "allocation: {manager: pbs}\n").unwrap();
    world.run(outside).with_code(78).prints(&["PBS_JOBID is not set", "qsub"]);
    let mut gone = pbs.holdfast(&["run", &spec]);
    world.run(gone.env("PBS_NODEFILE", world.path("gone"))).with_code(69).prints(&["which PBS_NODEFILE names"]);
    fs::remove_file(world.path("bin/pbs_tmrsh")).unwrap();
    world.run(pbs.holdfast(&["run", &spec])).with_code(69).prints(&["pbs_tmrsh is not in PATH"]);
    assert_eq!(fs::read_to_string(world.path("tasks")).unwrap_or_default(), "");
}

/// It needs four nodes.
#[test]
fn the_shipped_spec_is_valid_in_a_job_that_has_enough_nodes(world: &World) {
    let pbs = Pbs::new(world);
    let spec = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/pbs/job.yaml");
    let check = || world.run(pbs.holdfast(&["check", spec]));
    check().with_code(78).prints(&["the allocation has 3"]);
    world.write("nodefile", "n1\nn2\nn3\nn4\nn5\n");
    check().with_code(0);
}

#[test(unchecked)]
fn a_job_of_lsf_is_refused_with_what_a_site_has_to_send(world: &World) {
    let job = Job::new(world, 0);
    let yaml = job.yaml().replace("allocation:\n  manager: local\n  nodes: 4\n", "");
    let spec = world.write("lsf.yaml", &yaml);
    let mut command = world.holdfast(["run", &spec.to_string_lossy()]);
    let ran = world.run(command.env("LSB_JOBID", "17")).with_code(78);
    ran.prints(&["this is an allocation of lsf", "docs/other-managers.md lists what a site has to send"]);
    assert!(!world.prefix().join(".holdfast").exists());
}
