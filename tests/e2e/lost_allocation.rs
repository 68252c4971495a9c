//! A resource manager that refuses launches for some seconds, or has lost the allocation. Scripts stand in for Slurm's
//! commands; their one node is this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::job::Job;
use crate::world::{Running, World};

/// Slurm's commands, which know the job until [`Slurm::forgets`].
struct Slurm<'a> {
    world: &'a World,
}

impl<'a> Slurm<'a> {
    fn new(world: &'a World) -> Self {
        fs::create_dir(world.path("bin")).unwrap();
        let slurm = Slurm { world };
        let forgotten = world.path("forgotten");
        world.write("began", "1795177430");
        let unless_forgotten = |who: &str, then: &str| {
            let words = format!("{who} error: Invalid job id specified");
            format!("if [ -e {} ]; then echo {words:?} >&2; exit 1; fi\n{then}", forgotten.display())
        };
        // The ranks are its children, and their ends are reported as srun does.
        let ranks = "export SLURMD_NODENAME=n1 SLURM_LAUNCH_NODE_IPADDR=127.0.0.1\n\
                     if [ $step = holdfast-agents ]; then exec \"$@\"; fi\n\
                     for rank in $(seq 0 $((tasks - 1))); do\n\
                     { SLURM_PROCID=$rank \"$@\"; code=$?\n\
                     case $code in\n\
                     0) ;;\n\
                     137) echo \"srun: error: n1: task $rank: Killed\" >&2 ;;\n\
                     *) echo \"srun: error: n1: task $rank: Exited with exit code $code\" >&2 ;;\n\
                     esac; } &\n\
                     done\nwait\n";
        let srun = format!(
            "if [ \"$1\" = --version ]; then echo slurm 22.05.8; exit; fi\n\
             for word in \"$@\"; do\n\
             case $word in --job-name=*) step=${{word#*=}} ;; --ntasks=*) tasks=${{word#*=}} ;; esac\n\
             done\n\
             left=$(cat {left} 2>/dev/null || echo 0)\n\
             if [ -e {forgotten} ] || {{ [ $step = holdfast-run ] && [ $left -gt 0 ]; }}; then\n\
             echo $((left - 1)) >{left}\n\
             echo 'srun: error: Unable to confirm allocation for job 17: Invalid job id specified' >&2\n\
             exit 1\n\
             fi\n\
             while case $1 in -*) true ;; *) false ;; esac; do shift; done\n\
             {ranks}",
            left = world.path("refusals").display(),
            forgotten = forgotten.display(),
        );
        let asked = format!("echo >>{}\n", world.path("asked").display());
        let squeue = asked
            + &unless_forgotten(
                "slurm_load_jobs",
                &format!("echo \"RUNNING|u|NONE|$(cat {})\"\n", world.path("began").display()),
            );
        let scontrol = unless_forgotten("slurm_requeue", "echo requeued\n");
        for (name, text) in [("srun", &srun), ("squeue", &squeue), ("scontrol", &scontrol), ("sinfo", &String::new())] {
            let path = world.path("bin").join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        slurm
    }

    /// A job of two ranks on the node.
    fn job(&self) -> Job<'a> {
        let base = self.world.path("node");
        fs::create_dir_all(&base).unwrap();
        let mut job = Job::new(self.world, 0)
            .redundancy("[{scheme: local}]")
            .checkpoint(&format!("control: {{base: {base:?}}}"))
            .checkpoint(&format!("cache: [{{base: {base:?}, keep: 2}}]"));
        (job.on, job.per_node) = (1, 2);
        job
    }

    fn start(&self, job: &Job<'a>) -> Running<'a> {
        let yaml = job.yaml().replace("allocation:\n  manager: local\n  nodes: 4\n", "");
        let spec = self.world.write("slurm.yaml", &yaml);
        self.world.start(self.holdfast(&["run", &spec.to_string_lossy()]))
    }

    /// A command in the allocation.
    fn holdfast(&self, words: &[&str]) -> Command {
        let mut command = self.world.holdfast(words);
        let path = format!("{}:{}", self.world.path("bin").display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("SLURM_JOB_ID", "17").env("SLURM_JOB_NODELIST", "n1");
        command.env("SLURM_JOB_NUM_NODES", "1");
        command
    }

    /// The next allocation has the id of the last one.
    fn gives_the_id_again(&self) {
        self.world.write("began", "1795177555");
    }

    /// Its controller has lost the job.
    fn forgets(&self) {
        self.world.write("forgotten", "");
    }

    /// So many launches are refused as if the job did not exist.
    fn refuses(&self, launches: u32) {
        self.world.write("refusals", &launches.to_string());
    }

    /// How often squeue ran.
    fn times_asked(&self) -> usize {
        fs::read_to_string(self.world.path("asked")).unwrap_or_default().lines().count()
    }
}

#[test]
fn the_loss_of_the_allocation_is_a_warning_while_ranks_run_and_ends_the_job_when_a_launch_is_refused_for_it() {
    let world = World::unchecked();
    let slurm = Slurm::new(&world);
    let job = slurm.job().holding_after(4);
    let mut running = slurm.start(&job);
    running.sees_checkpoint(4);
    slurm.forgets();
    let denied = running.sees_event("allocation_denied");
    assert!(denied["reason"].as_str().unwrap().contains("Invalid job id specified"), "{denied}");
    assert_eq!(world.all("generation_ended").len(), 0, "the ranks go on");
    let asked = slurm.times_asked();
    world.kill(|line| line.contains("example heat"));
    let ran = running.ends_with(75);
    ran.prints(&["does not know the allocation any more", "the allocation is lost", "checkpoint 4 is complete"]);
    assert_eq!(world.all("generation_launched").len(), 2, "nothing is launched after the refusal");
    assert!(slurm.times_asked() >= asked + 2, "it is asked twice");
    assert_eq!(world.the("drained")["checkpoint"], 4);
    assert_eq!(world.processes(), []);
}

#[test(unchecked)]
fn a_job_that_slurm_does_not_know_cannot_be_requeued_and_is_to_be_submitted_again(world: &World) {
    let slurm = Slurm::new(world);
    let job = slurm.job().holding_after(4).top("requeue: {slurm: true}");
    let mut running = slurm.start(&job);
    running.sees_checkpoint(4);
    slurm.forgets();
    world.kill(|line| line.contains("example heat"));
    let ran = running.ends_with(69);
    ran.prints(&["the allocation is lost", "checkpoint 4 is complete", "submit the batch script again"]);
    assert_eq!(world.all("requeued").len(), 0);
    assert!(world.the("requeue_failed")["reason"].as_str().unwrap().contains("Invalid job id specified"));
}

#[test]
fn launches_that_a_manager_refuses_for_some_seconds_count_once(world: &World) {
    let slurm = Slurm::new(world);
    let job = slurm.job().top("relaunch: {no_progress_limit: 2, attempts: 1}");
    slurm.refuses(3);
    slurm.start(&job).ends_with(0).prints(&["the next launch waits 1 s", "the next launch waits 5 s"]);
    let waits: Vec<_> = world.all("launch_spaced").iter().map(|event| event["millis"].clone()).collect();
    assert_eq!(waits, [1000, 5000]);
    assert_eq!(world.all("generation_launched").len(), 4);
    assert!(world.all("rank_failed").is_empty(), "no rank was started in those");
}

/// A job that was lost after checkpoint 4, and whose id the next allocation has.
fn lost(slurm: &Slurm<'_>) {
    let (world, job) = (slurm.world, slurm.job().holding_after(4));
    let mut running = slurm.start(&job);
    running.sees_checkpoint(4);
    // Slurm ends all of its processes.
    running.killed();
    world.kill(|_| true);
    world.wait("the end of the job", || world.processes().is_empty().then_some(()));
    slurm.gives_the_id_again();
}

/// The directory that an agent has kept of the lost job, as the log of the other job names it.
#[track_caller]
fn kept(world: &World) -> PathBuf {
    let of_other = world.events_of(&world.path("other"));
    let kept = of_other.iter().find(|event| event["event"] == "directory_kept").unwrap();
    assert_eq!((&kept["node"], kept["prefix"].as_str()), (&"n1".into(), world.prefix().to_str()));
    let path = PathBuf::from(kept["path"].as_str().unwrap());
    assert!(path.is_dir());
    path
}

#[test(unchecked)]
fn directories_of_a_lost_job_whose_id_is_given_again_are_kept_and_a_drain_of_its_prefix_saves_them(world: &World) {
    let slurm = Slurm::new(world);
    lost(&slurm);
    let text = slurm.job().yaml().replace("/pfs\"", "/other\"");
    let text = text.replace("allocation:\n  manager: local\n  nodes: 4\n", "");
    let spec = world.write("other.yaml", &text);
    let run = slurm.holdfast(&["run", &spec.to_string_lossy()]);
    let remedy = format!("holdfast drain --prefix {}", world.prefix().display());
    world.run(run).with_code(0).prints(&["n1: ", ".kept-", &remedy]);
    let kept = kept(world);
    world.run(slurm.holdfast(&["status", &spec.to_string_lossy()])).with_code(0).prints(&[".kept-", &remedy]);

    let prefix = world.prefix();
    let drain = slurm.holdfast(&["drain", "--prefix", &prefix.to_string_lossy()]);
    world.run(drain).with_code(0).prints(&["checkpoint 4 is complete"]);
    assert!(!kept.exists());
    assert_eq!(world.processes(), []);
}

#[test(unchecked)]
fn a_job_with_pairs_reports_directories_of_a_lost_job_whose_id_it_has(world: &World) {
    let slurm = Slurm::new(world);
    lost(&slurm);
    let text = format!(
        "kind: replicated\njob: vision\nprefix: {:?}\ncheckpoint: {{control: {{base: {:?}}}}}\npairs:\n  - {{name: a, \
         main: [holdfast, example, pair, \"{{side}}\", \"{{index}}\", \"1\"]}}\n",
        world.path("other"),
        world.path("node")
    );
    let spec = world.write("other.yaml", &text);
    let run = slurm.holdfast(&["run", &spec.to_string_lossy()]);
    let remedy = format!("holdfast drain --prefix {}", world.prefix().display());
    world.run(run).with_code(0).prints(&["n1: ", ".kept-", &remedy]);
    kept(world);
    assert_eq!(world.processes(), []);
}
