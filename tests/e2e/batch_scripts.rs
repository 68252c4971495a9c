//! The batch scripts of configs/slurm without Slurm: signals reach the run, and exit code 75 alone submits the next
//! allocation.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use rustix::process::Signal;

use crate::job::Job;
use crate::world::{Running, World};

const MANUAL: &str = include_str!("../../configs/slurm/manual.sbatch");
const SCRIPT: &str = include_str!("../../configs/slurm/job.sbatch");

/// Starts a batch script as Slurm does, with an `sbatch` that records its arguments and ends with this code.
fn batch<'a>(world: &'a World, job: &Job<'_>, script: &str, submission: u8) -> Running<'a> {
    let bin = world.path("bin");
    fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_holdfast"), bin.join("holdfast")).unwrap();
    let record = world.path("submitted");
    fs::write(bin.join("sbatch"), format!("#!/bin/sh\necho \"$@\" >> {}\nexit {submission}\n", record.display()))
        .unwrap();
    fs::set_permissions(bin.join("sbatch"), fs::Permissions::from_mode(0o755)).unwrap();
    job.spec();
    let mut command: Command = world.command("bash");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    command.arg(world.write("script", script)).env("PATH", path);
    world.start(command)
}

fn submissions(world: &World) -> String {
    fs::read_to_string(world.path("submitted")).unwrap_or_default()
}

#[test]
fn manual_script_passes_the_signal_on_and_submits_the_next_allocation() {
    for (submission, code) in [(0, 75), (1, 69)] {
        let world = World::new();
        let job = Job::new(&world, 0).holding_after(4);
        let mut script = batch(&world, &job, MANUAL, submission);
        script.sees_checkpoint(4);
        script.signal(Signal::TERM);
        script.ends_with(code).prints(&["halted by SIGTERM", "checkpoint 4 is complete"]);
        assert_eq!(submissions(&world), "manual.sbatch\n");
    }
}

#[test]
fn manual_script_submits_nothing_after_other_codes() {
    let world = World::unchecked();
    let job = Job::new(&world, 0);
    batch(&world, &job, MANUAL, 0).ends_with(0);
    assert_eq!(submissions(&world), "");

    let world = World::unchecked();
    let mut job = Job::new(&world, 0).top("relaunch: {attempts: 0}");
    job.heat = vec!["--no-such-option".to_owned()];
    batch(&world, &job, MANUAL, 0).ends_with(90);
    assert_eq!(submissions(&world), "");
}

#[test]
fn script_with_exec_and_requeue_submits_the_next_allocation_when_it_is_signalled(world: &World) {
    let job = Job::new(world, 0).holding_after(4).top("requeue: {command: [sbatch, job.sbatch]}");
    let mut script = batch(world, &job, SCRIPT, 0);
    script.sees_checkpoint(4);
    script.terminated().prints(&["next allocation submitted by"]);
    assert_eq!(submissions(world), "job.sbatch\n");
}
