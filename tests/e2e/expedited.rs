//! Jobs of `sbatch --requeue=expedite`: Slurm runs them again after each exit code but 0, and older versions do not
//! have the option.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::job::Job;
use crate::world::{Ran, World};

/// What `sbatch --help` prints of the option, in 26.05 and in 22.05.
const WITH_OPTION: &str = "      --requeue[=expedite]   if set, permit the job to be requeued";
const WITHOUT_OPTION: &str = "      --requeue               if set, permit the job to be requeued";
const EXPEDITED: &str = "echo '   Requeue=1 ExpeditedRequeue=Yes Restarts=0'";

/// Slurm's commands, which note how they were called.
fn commands(world: &World, help: &str, show_job: &str) {
    let bin = world.path("bin");
    fs::create_dir_all(&bin).unwrap();
    let called = world.path("called").display().to_string();
    let noted = |name: &str, text: &str| {
        let path = bin.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    noted("sbatch", &format!("[ \"$1\" = --help ] && echo '{help}' && exit 0\necho sbatch \"$@\" >>{called}"));
    noted("scontrol", &format!("echo scontrol \"$@\" >>{called}\ncase $1 in show) {show_job};; esac"));
}

/// The calls that change something, since the last time.
fn called(world: &World) -> Vec<String> {
    let text = fs::read_to_string(world.path("called")).unwrap_or_default();
    let _ = fs::remove_file(world.path("called"));
    text.lines().filter(|line| !line.starts_with("scontrol show")).map(str::to_owned).collect()
}

/// The same command in a job of Slurm.
fn in_slurm(world: &World, mut command: Command) -> Command {
    let path = format!("{}:{}", world.path("bin").display(), std::env::var("PATH").unwrap());
    command.env("PATH", path).env("SLURM_JOB_ID", "17");
    command
}

fn fails(world: &World) -> Ran {
    let mut job = Job::new(world, 0).top("relaunch: {attempts: 0}");
    job.heat = vec!["--no-such-option".to_owned()];
    job.spec();
    world.run(in_slurm(world, job.command_line())).with_code(90)
}

const PREVENTED: &str = "`scontrol update JobId=17 Requeue=0` prevents it";
const UPDATE: &str = "scontrol update JobId=17 Requeue=0";

#[test(unchecked)]
fn job_that_cannot_continue_is_not_run_again_by_slurm(world: &World) {
    commands(world, WITH_OPTION, EXPEDITED);
    fails(world).prints(&["would run this job again after exit code 90", PREVENTED]);
    assert_eq!(called(world), [UPDATE]);

    // Not even its spec can be read.
    let spec = world.write("bad.yaml", "steps: 3\n");
    let run = in_slurm(world, world.holdfast(["run".as_ref(), spec.as_os_str()]));
    world.run(run).with_code(78).prints(&["would run this job again after exit code 78", PREVENTED]);
    assert_eq!(called(world), [UPDATE]);

    // Nor its command line.
    for command in [&["run"][..], &["--verbose", "run"]] {
        let words = command.iter().chain(&["--no-such-option"]).map(OsStr::new).chain([spec.as_os_str()]);
        let run = in_slurm(world, world.holdfast(words.collect::<Vec<_>>()));
        world.run(run).with_code(64).prints(&["would run this job again after exit code 64", PREVENTED]);
        assert_eq!(called(world), [UPDATE]);
    }

    // A dry run is no run.
    let run = in_slurm(world, world.holdfast(["run".as_ref(), "--dry-run".as_ref(), spec.as_os_str()]));
    world.run(run).with_code(78);
    assert!(!world.path("called").exists());

    commands(world, WITH_OPTION, "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1");
    fails(world).prints(&[
        "may run this job again after exit code 90",
        "scontrol show job 17: slurm_load_jobs error",
        "cancel the job if it does",
    ]);
    assert_eq!(called(world), [] as [&str; 0]);
}

#[test(unchecked)]
fn other_jobs_of_slurm_are_left_as_they_are(world: &World) {
    commands(world, WITH_OPTION, "echo '   Requeue=1 Restarts=0'");
    assert!(!fails(world).err.contains("again"));
    assert_eq!(called(world), [] as [&str; 0]);
    // Older versions have no such jobs: the controller is not asked.
    commands(world, WITHOUT_OPTION, EXPEDITED);
    assert!(!fails(world).err.contains("again"));
    assert!(!world.path("called").exists());
}

#[test]
fn second_orchestrator_leaves_the_job_of_the_first_as_it_is(world: &World) {
    commands(world, WITH_OPTION, EXPEDITED);
    let job = Job::new(world, 0).holding_after(4);
    let running = job.reaches(4);
    world.run(in_slurm(world, job.command_line())).with_code(69).prints(&["is running"]);
    assert_eq!(called(world), [] as [&str; 0]);
    running.terminated();
}

#[test]
fn unfinished_job_continues_once() {
    for (help, requeue, expected) in [
        (WITH_OPTION, "", vec![]),
        (WITH_OPTION, "requeue: {command: [sbatch, job.sbatch]}", vec!["sbatch job.sbatch", UPDATE]),
        (
            WITH_OPTION,
            "requeue: {command: [sbatch, --requeue=expedite, job.sbatch]}",
            vec!["sbatch --requeue=expedite job.sbatch", UPDATE],
        ),
        (
            WITHOUT_OPTION,
            "requeue: {command: [sbatch, --requeue=expedite, job.sbatch]}",
            vec!["sbatch --requeue job.sbatch"],
        ),
    ] {
        let world = World::new();
        commands(&world, help, EXPEDITED);
        let mut job = Job::new(&world, 0).holding_after(4);
        if !requeue.is_empty() {
            job = job.top(requeue);
        }
        job.spec();
        let mut running = world.start(in_slurm(&world, job.command_line()));
        running.sees_checkpoint(4);
        let ran = running.terminated();
        assert_eq!(called(&world), expected, "{requeue}");
        let is_adapted = ran.err.contains("this `sbatch` has no `--requeue=expedite`: the job is submitted with");
        assert_eq!(is_adapted, help == WITHOUT_OPTION, "{}", ran.err);
    }
}
