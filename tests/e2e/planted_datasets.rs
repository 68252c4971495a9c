//! What another member of a project's group can put into a prefix directory that the group may write to: names of
//! temporary files, datasets and records. Nothing outside what is this user's is placed, replaced or removed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use chrono::NaiveDate;
use holdfast_core::prefix::{index, summary};
use holdfast_core::store::{DirectoryName, PosixDataset, PosixStore};
use holdfast_model::{CheckpointId, OutputPath};
use rustix::process::geteuid;

use crate::foreign_directories::give_away;
use crate::job::Job;
use crate::pfs;
use crate::world::World;

const PROGRAM: &str = "victim/run.sh";

/// A job that halted after checkpoint 4, which is on the prefix.
fn halted(world: &World) -> Job<'_> {
    let job = Job::new(world, 0).holding_after(4);
    job.reaches(4).terminated();
    pfs::assert_current(&world.prefix(), 4);
    fs::create_dir(world.prefix().join("victim")).unwrap();
    fs::write(world.prefix().join(PROGRAM), "of the victim").unwrap();
    job
}

fn index_command(world: &World, words: &[&str]) -> (bool, String) {
    let ran = world.run(world.holdfast(["index"]).args(words).arg("--prefix").arg(world.prefix()));
    (ran.status.success(), ran.out + &ran.err)
}

#[track_caller]
fn assert_intact(world: &World) {
    assert_eq!(fs::read_to_string(world.prefix().join(PROGRAM)).unwrap(), "of the victim");
}

#[test]
fn a_directory_with_the_name_of_a_temporary_file_is_not_removed(world: &World) {
    let job = halted(world);
    let renamed = world.prefix().join(".hf-1.tmp");
    fs::rename(world.prefix().join("victim"), &renamed).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(7 * 86_400);
    fs::File::open(&renamed).unwrap().set_modified(long_ago).unwrap();
    // Each changes the index, and removes what killed processes left.
    let (done, printed) = index_command(world, &["current", "--unset"]);
    assert!(done, "{printed}");
    job.go_on();
    job.run(0);
    let name = pfs::directory_of(&world.prefix(), 4).unwrap();
    let (done, printed) = index_command(world, &["delete", "--yes", name.file_name().unwrap().to_str().unwrap()]);
    assert!(done, "{printed}");
    assert!(!name.exists(), "{}", name.display());
    assert_eq!(fs::read_to_string(renamed.join("run.sh")).unwrap(), "of the victim");
}

/// A dataset of the running job by its name, complete by its summary, with a file whose path is that of a program of
/// the victim; the index has it as an unfinished flush.
fn plant(world: &World, job_id: &str) -> (PathBuf, DirectoryName) {
    let name = DirectoryName::new(format!("scr.2026-11-20_10:00:00.{job_id}.900")).unwrap();
    let directory = world.prefix().join(name.as_str());
    let original = pfs::directory_of(&world.prefix(), 4).unwrap();
    fs::create_dir(&directory).unwrap();
    for file in pfs::names(&original) {
        if !file.ends_with(".scrfilemap") {
            fs::copy(original.join(&file), directory.join(&file)).unwrap();
        }
    }
    let dataset = PosixDataset::at(&directory).unwrap();
    let mut of_attacker = summary::read(&dataset).unwrap();
    of_attacker.id = CheckpointId(900);
    let file = &mut of_attacker.by_rank.values_mut().next().unwrap().files[0];
    fs::rename(directory.join(&file.name), directory.join("run.sh")).unwrap();
    file.name = "run.sh".to_owned();
    file.output_path = Some(OutputPath::parse(PROGRAM).unwrap());
    summary::write(&dataset, &of_attacker).unwrap();
    let flushed = NaiveDate::from_ymd_opt(2026, 11, 20).unwrap().and_hms_opt(10, 0, 0).unwrap();
    let store = PosixStore::open(world.prefix()).unwrap();
    index::update(&store, |index| index.add(CheckpointId(900), &name, flushed)).unwrap();
    (directory, name)
}

#[test]
fn a_flush_of_another_user_is_neither_completed_nor_removed() {
    for whole in [true, false] {
        let world = World::new();
        let job = halted(&world);
        let job_id = world.the("job_started")["job_id"].as_str().unwrap().to_owned();
        let (directory, name) = plant(&world, &job_id);
        // The directory, or only the summary, in a directory of the victim that the group may write to.
        give_away(&if whole { directory.clone() } else { directory.join("summary.scr") });
        job.go_on();
        job.run_to_result();
        assert_intact(&world);
        assert!(directory.join("run.sh").exists(), "{whole}");
        let (done, printed) = index_command(&world, &["delete", "--yes", name.as_str()]);
        assert!(!done && printed.contains("user"), "{printed}");
        for words in [["prune", "--dry-run"], ["prune", "--yes"]] {
            let (done, printed) = index_command(&world, &[&words[..], &["--incomplete", "--keep", "1"]].concat());
            assert!(done && !printed.contains(name.as_str()) && !printed.contains(PROGRAM), "{printed}");
        }
        assert_intact(&world);
        // From the files that are in a directory of the victim, it writes a summary of its own.
        let (done, printed) = index_command(&world, &["add", name.as_str()]);
        assert!(done != whole && (done || printed.contains("--copy")), "{printed}");
        assert_intact(&world);
        assert!(directory.join("run.sh").exists(), "{whole}");
        if whole {
            let before = pfs::names(&directory);
            let (done, printed) = index_command(&world, &["add", "--copy", name.as_str()]);
            assert!(done && printed.contains("checkpoint 4"), "{printed}");
            assert_eq!(pfs::names(&directory), before);
            assert_intact(&world);
            // A copy of files that a run wrote: the attacker renamed one.
            let names = fs::read_dir(world.prefix()).unwrap().map(|entry| entry.unwrap().file_name());
            let copied = names.into_iter().find(|name| name.to_string_lossy().contains(".copy.")).unwrap();
            let copied = world.prefix().join(copied);
            assert_eq!(pfs::names(&copied).iter().filter(|name| *name == "run.sh").count(), 1);
            assert_eq!(fs::symlink_metadata(&copied).unwrap().uid(), geteuid().as_raw());
        }
    }
}
