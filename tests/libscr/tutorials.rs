//! The pages of `docs/tutorials` are carried out.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::pages;
use tempfile::TempDir;

use crate::world::{FTI, SCR, VARIABLES, World, in_repository, library_directory, needs, needs_module, output, quiet};

/// A page that is carried out.
struct Tutorial {
    world: World,
    installed: TempDir,
}

impl Tutorial {
    fn new() -> Self {
        // On the same file system as the build: files are linked, not copied.
        let installed = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let at = |path: &str| installed.path().join(path);
        for directory in ["bin", "lib", "include", "tools", "share/holdfast/configs"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        fs::hard_link(env!("CARGO_BIN_EXE_holdfast"), at("bin/holdfast")).unwrap();
        for library in [
            "libscr.so",
            "libscr.so.100",
            "libholdfast_variables.so",
            "libholdfast_variables.so.1",
            "libscr_interpose.so",
        ] {
            fs::hard_link(library_directory().join(library), at("lib").join(library)).unwrap();
        }
        for header in
            [SCR.include("scr.h"), SCR.include("scrf.h"), FTI.include("fti.h"), VARIABLES.include("holdfast.h")]
        {
            symlink(&header, at("include").join(header.file_name().unwrap())).unwrap();
        }
        symlink(in_repository("agents/client/python"), at("python")).unwrap();
        fs::copy(in_repository("configs/quickstart.yaml"), at("share/holdfast/configs/quickstart.yaml")).unwrap();
        // The MPI and the Python that these tests need may not be the first ones in PATH.
        for (name, program) in
            [("mpicc", "/usr/bin/mpicc.mpich"), ("mpirun", "/usr/bin/mpirun.mpich"), ("python3", "/usr/bin/python3")]
        {
            if Path::new(program).exists() {
                fs::write(at("tools").join(name), format!("#!/bin/sh\nexec {program} \"$@\"\n")).unwrap();
                fs::set_permissions(at("tools").join(name), fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        Tutorial { world: World::new(), installed }
    }

    fn path(&self) -> OsString {
        let first = [self.installed.path().join("tools"), self.installed.path().join("bin")];
        let others = env::var_os("PATH").unwrap_or_default();
        env::join_paths(first.into_iter().chain(env::split_paths(&others))).unwrap()
    }

    /// The output of commands of a page; they must succeed.
    fn shell(&self, commands: &str) -> String {
        let mut shell = Command::new("bash");
        quiet(shell.args(["-euo", "pipefail", "-c", commands]).current_dir(self.world.path()));
        shell.env("PATH", self.path()).env("HOLDFAST", self.installed.path());
        let ran = shell.output().unwrap();
        let text = output(&ran);
        assert!(ran.status.success(), "{commands}\n{text}");
        text
    }

    /// Carries the page out. Returns what each block of commands printed.
    fn run(&self, page: &str) -> Vec<String> {
        let text = fs::read_to_string(in_repository(&format!("docs/tutorials/{page}"))).unwrap();
        pages::carry_out(&text, |file, content| self.write(file, content), |commands| self.shell(commands))
    }

    fn write(&self, file: &str, content: &str) {
        let path: PathBuf = self.world.path().join(file);
        fs::write(&path, format!("{content}\n")).unwrap();
        if content.starts_with("#!") {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

/// The only different line that begins so in these outputs.
#[track_caller]
fn result<'a>(outputs: &'a [String], start: &str) -> &'a str {
    let mut lines: Vec<&str> = outputs.iter().flat_map(|output| output.lines()).collect();
    lines.retain(|line| line.starts_with(start));
    assert!(lines.len() > 1, "{outputs:?}");
    lines.dedup();
    assert_eq!(lines.len(), 1, "the results differ");
    lines[0]
}

/// The events of a job that has lost node1 and has restarted from files that were rebuilt.
#[track_caller]
fn assert_survived(tutorial: &Tutorial, prefix: &str) {
    assert_eq!(source_after_loss(tutorial, prefix), "rebuilt");
}

/// The source of the checkpoint from which a job has restarted that has lost node1.
#[track_caller]
fn source_after_loss(tutorial: &Tutorial, prefix: &str) -> String {
    let events = fs::read_to_string(tutorial.world.path().join(prefix).join(".holdfast/events.jsonl")).unwrap();
    let events: Vec<serde_json::Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let named = |name: &str| events.iter().filter(|event| event["event"] == name).collect::<Vec<_>>();
    assert_eq!(named("node_down").last().unwrap()["node"], "node1");
    named("restarted").last().unwrap()["source"].as_str().unwrap().to_owned()
}

#[test]
fn the_mpi_program_in_c_has_the_same_result_after_a_loss() {
    needs("mpicc.mpich");
    needs("patch");
    let tutorial = Tutorial::new();
    let printed = tutorial.run("c.md");
    result(&printed, "4 ranks, 1000 steps: ");
    // A machine that is slow needs level 4 already: its checkpoints are flushed, not rebuilt.
    let source = source_after_loss(&tutorial, "rod_safe-run");
    assert!(["rebuilt", "fetched"].contains(&&*source), "{source}");
    assert_survived(&tutorial, "rod_files-run");
}

#[test]
fn the_program_in_c_has_the_same_result_after_a_loss() {
    needs("patch");
    let tutorial = Tutorial::new();
    let printed = tutorial.run("program.md");
    result(&printed, "copy 1: ");
    let source = source_after_loss(&tutorial, "pi_safe-run");
    assert!(["rebuilt", "fetched"].contains(&&*source), "{source}");
}

#[test]
fn the_program_in_fortran_has_the_same_result_after_a_loss() {
    needs("gfortran");
    let tutorial = Tutorial::new();
    let printed = tutorial.run("fortran.md");
    for rank in 0..4 {
        result(&printed, &format!("rank {rank} of 4: "));
    }
    assert_survived(&tutorial, "area-run");
}

#[test]
fn the_program_in_python_has_the_same_result_after_a_loss() {
    needs_module("numpy");
    let tutorial = Tutorial::new();
    let printed = tutorial.run("python.md");
    for rank in 0..4 {
        result(&printed, &format!("rank {rank} of 4: "));
    }
    assert_survived(&tutorial, "rod-run");
}

#[test]
fn the_program_with_mpi4py_has_the_same_result_after_a_loss() {
    needs_module("numpy");
    needs_module("mpi4py");
    needs("mpirun.openmpi");
    let tutorial = Tutorial::new();
    let printed = tutorial.run("mpi4py.md");
    result(&printed, "4 ranks: ");
    assert_survived(&tutorial, "rod_mpi-run");
}

#[test]
fn the_training_has_the_same_weights_after_a_loss() {
    needs_module("numpy");
    needs_module("mpi4py");
    needs("mpirun.openmpi");
    let tutorial = Tutorial::new();
    let printed = tutorial.run("training.md");
    result(&printed, "4 ranks: ");
    assert_survived(&tutorial, "train-run");
}

#[test]
fn the_training_with_pytorch_has_the_same_weights_after_a_loss() {
    needs_module("torch");
    let tutorial = Tutorial::new();
    let printed = tutorial.run("pytorch.md");
    result(&printed, "4 ranks: norm ");
    assert_survived(&tutorial, "ddp-lost");
}

#[test]
fn the_rule_of_snakemake_is_continued_and_has_the_same_result() {
    needs("snakemake");
    let tutorial = Tutorial::new();
    tutorial.run("snakemake.md");
    assert_eq!(source_after_loss(&tutorial, "simulate-run"), "cache");
}

#[test]
fn the_first_job_survives_two_losses_and_continues_after_a_third() {
    let tutorial = Tutorial::new();
    let printed = tutorial.run("first-job.md");
    result(&printed, "heat: finished step 400, checksum ");
}

#[test]
fn the_program_that_nobody_can_change_has_the_same_result_after_a_loss() {
    let tutorial = Tutorial::new();
    let printed = tutorial.run("binary.md");
    for rank in 0..4 {
        assert_eq!(result(&printed, &format!("rank {rank}: sum ")), format!("rank {rank}: sum 80200"));
    }
    assert_survived(&tutorial, "count-run");
    assert_survived(&tutorial, "interposed-run");
}
