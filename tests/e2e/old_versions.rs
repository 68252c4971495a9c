//! The files of jobs that earlier versions of Holdfast ran (`tests/fixtures/old.tar.zst`): read, or refused by their
//! version; never changed by a refusal.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::{files_below, fixtures};
use rustix::fs::{FlockOperation, flock};

use crate::pfs;
use crate::world::{Ran, World, state_of};

/// Where the jobs ran: their files contain absolute paths.
const HOME: &str = "/tmp/holdfast-old";
/// The version whose state this one does not read.
const REFUSED: &str = "6";
/// The version whose state this one reads.
const READ: &str = "7";

/// The directory of a job of an earlier version, in its place; only one test at a time has it.
struct OldJob {
    world: World,
    directory: PathBuf,
    _lock: File,
}

impl OldJob {
    fn new(version: &str, job: &str) -> Self {
        let _ = DirBuilder::new().mode(0o700).create(HOME);
        let lock = File::create(Path::new(HOME).join(format!("{version}-{job}.lock"))).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let home = Path::new(HOME).join(version);
        let _ = DirBuilder::new().mode(0o700).create(&home);
        let directory = home.join(job);
        let _ = fs::remove_dir_all(&directory);
        let mut copy = Command::new("cp");
        copy.args(["-r", "--preserve=mode,links"]).arg(fixtures("old").join(version).join(job)).arg(&home);
        assert!(copy.status().unwrap().success());
        OldJob { world: World::unchecked(), directory, _lock: lock }
    }

    fn prefix(&self) -> PathBuf {
        self.directory.join("pfs")
    }

    fn run(&self, words: &[&str], code: u8) -> Ran {
        let mut command = self.world.holdfast(words);
        command.env("HOME", &self.directory).env("TMPDIR", self.directory.join("tmp")).current_dir(&self.directory);
        self.world.run(command).with_code(code)
    }

    fn about(&self, words: &[&str], code: u8) -> Ran {
        self.run(&[words, &["job.yaml"]].concat(), code)
    }

    /// Runs the job to its end: from this checkpoint, with the result of a run without failures.
    fn finishes_from(&self, checkpoint: u64) {
        fs::write(self.directory.join("go-on"), "").unwrap();
        self.about(&["run"], 0);
        let events = self.world.events_of(&self.prefix());
        let started = events.iter().rfind(|event| event["event"] == "restarted").unwrap();
        assert_eq!(started["checkpoint"], checkpoint, "{started}");
        let reference = self.directory.join("reference.heat");
        let mut serial =
            self.world.holdfast(["example", "heat", "--step-delay", "0", "--steps", "40", "--size", "24x24"]);
        serial.arg("--output").arg(&reference).env("SCR_ENABLE", "0");
        self.world.run(serial).with_code(0);
        assert_eq!(fs::read(self.directory.join("end.heat")).unwrap(), fs::read(reference).unwrap());
        pfs::assert_current(&self.prefix(), 8);
    }

    /// All files with their content.
    fn content(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let read = |path: PathBuf| fs::read(&path).ok().map(|content| (path, content));
        files_below(&self.directory).into_iter().filter_map(read).collect()
    }

    fn remove_nodes(&self) {
        fs::remove_dir_all(self.directory.join("tmp")).unwrap();
        fs::create_dir(self.directory.join("tmp")).unwrap();
    }
}

impl Drop for OldJob {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn a_job_whose_state_has_another_version_is_refused_and_nothing_is_changed() {
    for job in ["halted", "container", "killed"] {
        let old = OldJob::new(REFUSED, job);
        let before = old.content();
        for words in [&["status"][..], &["drain"], &["run"], &["halt", "set", "--now"], &["run", "--dry-run"]] {
            let ran = old.about(words, 69);
            ran.prints(&["state version 6, this one reads 7", "with the version that began it", "job.json"]);
        }
        assert_eq!(old.content().keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "{job}");
        assert_eq!(old.content(), before, "{job}");
    }
}

#[test]
fn without_the_state_of_another_version_its_checkpoints_are_restarted_from_and_drained() {
    for job in ["halted", "container"] {
        let old = OldJob::new(REFUSED, job);
        fs::remove_file(old.prefix().join(".holdfast/job.json")).unwrap();
        old.finishes_from(4);
    }
    let old = OldJob::new(REFUSED, "killed");
    fs::remove_file(old.prefix().join(".holdfast/job.json")).unwrap();
    let workspace = fs::read_dir(old.directory.join("tmp")).unwrap().flatten().next().unwrap().path();
    let nodes = workspace.join("nodes");
    let control = fs::read_dir(nodes.join("node0/tmp/u")).unwrap().flatten().next().unwrap().file_name();
    let job_id = control.to_str().unwrap().strip_prefix("scr.").unwrap();
    let words = ["drain", "--prefix", "pfs", "--root", nodes.to_str().unwrap(), "--job-id", job_id, "--user", "u"];
    old.run(&words, 0).prints(&["checkpoint 4 is complete"]);
    old.finishes_from(4);
}

#[test]
fn a_finished_job_of_another_version_is_named_and_its_checkpoints_stay() {
    let old = OldJob::new(REFUSED, "finished");
    old.about(&["status"], 69).prints(&["was run by another version of Holdfast, and has ended: the job is finished"]);
    old.run(&["index", "list", "--prefix", "pfs"], 0).prints(&["scr.2026"]);
    old.about(&["run"], 0).prints(&["another version of Holdfast ran a job here"]);
    let new = OldJob::new(READ, "finished");
    new.about(&["status"], 0).prints(&["finished"]);
    new.about(&["run"], 0).prints(&["was finished in an earlier run"]);
}

#[test]
fn a_job_of_the_first_build_with_this_version_of_the_state_goes_on() {
    let halted = OldJob::new(READ, "halted");
    halted.about(&["status"], 0).prints(&["halted: USER_REQUEST; checkpoint 4 is complete"]);
    halted.about(&["drain"], 0).prints(&["nothing to drain"]);
    halted.finishes_from(4);
    // Without its nodes, from the container.
    let container = OldJob::new(READ, "container");
    container.remove_nodes();
    container.finishes_from(4);
    let killed = OldJob::new(READ, "killed");
    assert_eq!(state_of(&killed.prefix())["stage"]["stage"], "running");
    killed.about(&["status"], 69).prints(&["none of its agents answers"]);
    killed.about(&["drain"], 0).prints(&["checkpoint 4 is complete"]);
    pfs::assert_current(&killed.prefix(), 4);
    killed.finishes_from(4);
}
