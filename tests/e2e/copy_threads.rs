//! The number of files that an agent copies at a time, seen in the temporary files of the checkpoint directory.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::job::Job;
use crate::world::World;

/// Larger than files that describe a checkpoint.
const SMALLEST_DATA: u64 = 64 << 10;

/// Temporary files of at least this size in a directory. Files may vanish meanwhile.
fn temporary_files(directory: &Path, smallest: u64) -> usize {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = files.filter(|file| file.file_name().to_string_lossy().starts_with(".hf-"));
    files.filter(|file| file.metadata().is_ok_and(|found| found.is_file() && found.len() >= smallest)).count()
}

/// Files that are being copied to the checkpoint directories.
fn copies(world: &World, smallest: u64) -> usize {
    let directories = fs::read_dir(world.prefix()).into_iter().flatten().flatten();
    let directories = directories.filter(|found| found.file_name().to_string_lossy().starts_with("scr.2"));
    directories.map(|directory| temporary_files(&directory.path(), smallest)).sum()
}

/// Four ranks on one node, whose files are not protected.
fn job(world: &World, threads: usize) -> Job<'_> {
    let mut job = Job::new(world, 0).redundancy("[{scheme: local}]").checkpoint(&format!("copy_threads: {threads}"));
    (job.nodes, job.on, job.per_node) = (1, 1, 4);
    job
}

/// Begins a flush that is so slow that none of its copies ends, and waits for so many copies; there are never more.
#[track_caller]
fn assert_copies_at_a_time(threads: usize) {
    let world = World::unchecked();
    let job = job(&world, threads).flush("{every: 1, mode: async, bandwidth: 1}").holding_after(1);
    let running = job.reaches(1);
    world.wait("the copies", || (copies(&world, 0) >= threads).then_some(()));
    for _ in 0..20 {
        assert_eq!(copies(&world, 0), threads);
        std::thread::sleep(Duration::from_millis(25));
    }
    job.finishes(running);
}

#[test]
fn one_thread_copies_one_file_at_a_time() {
    assert_copies_at_a_time(1);
}

#[test]
fn setting_allows_more_copies_than_processors() {
    assert_copies_at_a_time(4);
}

#[test(unchecked)]
fn drain_copies_as_many_files_at_a_time_as_flush(world: &World) {
    let mut job = job(world, 1);
    (job.size, job.steps, job.every) = ("2048x4096", 1, 1);
    let (mut running, mut most) = (job.start(), 0);
    while running.is_running() {
        most = most.max(copies(world, SMALLEST_DATA));
    }
    running.ends_with(0);
    assert_eq!(world.the("drained")["checkpoint"], 1);
    assert_eq!(most, 1);
}
