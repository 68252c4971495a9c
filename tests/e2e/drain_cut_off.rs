//! A flush is killed in the middle of its files: the drain goes on where their copies end.

use std::fs;
use std::path::Path;

use holdfast_testkit::files_below;
use rustix::process::Signal;

use crate::job::Job;
use crate::pfs;
use crate::world::{Running, World, signal};

/// Files of 512 KiB that are flushed slowly, in small pieces.
const SLOW: &str = "{every: 4, mode: async, bandwidth: 200KB/s}";
const CUT_OFF_AFTER: u64 = 64 << 10;

/// The copies below the prefix directory that have no name yet.
fn cut_off(prefix: &Path) -> Vec<u64> {
    let is_cut_off = |path: &std::path::PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(".hf-"))
    };
    let sizes = files_below(prefix).into_iter().filter(is_cut_off).map(|path| fs::metadata(path).map(|it| it.len()));
    sizes.filter_map(Result::ok).collect()
}

/// Each agent has gone on with a copy.
#[track_caller]
fn assert_continued(world: &World) {
    for node in 0..4 {
        let log = world.prefix().join(format!(".holdfast/agents/node{node}.log"));
        let log = fs::read_to_string(log).unwrap();
        let line = log.lines().find(|line| line.contains("copy_continued")).unwrap_or_else(|| panic!("{log}"));
        let kept = line.split("bytes=").nth(1).unwrap().split_whitespace().next().unwrap();
        assert!(kept.parse::<u64>().unwrap() >= CUT_OFF_AFTER, "{line}");
    }
}

/// A job whose flush of checkpoint 4 has copied a part of every file.
fn flushed_in_part(world: &World) -> (Job<'_>, Running<'_>) {
    let mut job = Job::new(world, 0).flush(SLOW).checkpoint("copy_buffer: 4KiB").holding_after(4);
    job.size = "512x512";
    let running = job.reaches(4);
    world.wait("a part of every file", || {
        let left = cut_off(&world.prefix());
        (left.iter().filter(|bytes| **bytes >= CUT_OFF_AFTER).count() == 4).then_some(())
    });
    (job, running)
}

#[test]
fn drain_completes_files_that_a_killed_flush_has_copied_in_part(world: &World) {
    let (job, running) = flushed_in_part(world);
    // At one instant: an agent that sees others end cancels its copy.
    world.processes().into_iter().for_each(|(pid, _)| signal(pid, Signal::STOP));
    world.kill(|_| true);
    running.end();
    let directory = pfs::directory_of(&world.prefix(), 4).unwrap();
    job.command(&["drain"], 0).prints(&["checkpoint 4 is complete in"]);
    pfs::assert_current(&world.prefix(), 4);
    assert_eq!(pfs::current(&world.prefix()).unwrap(), directory);
    assert_continued(world);
    assert!(cut_off(&world.prefix()).is_empty());
}

#[test]
fn drain_completes_files_of_a_flush_that_the_end_of_the_job_cancels(world: &World) {
    let (_job, running) = flushed_in_part(world);
    running.terminated();
    pfs::assert_current(&world.prefix(), 4);
    assert_continued(world);
    assert!(cut_off(&world.prefix()).is_empty());
}
