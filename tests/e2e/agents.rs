//! An agent that ends alone is restarted and adopts its node's state; the run continues.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use holdfast_core::control::halt::HaltFile;
use holdfast_model::HaltCondition;
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::process::Signal;

use crate::job::Job;
use crate::pfs;
use crate::world::{USER, World, signal};

/// The job finishes in its first generation.
fn is_survived(job: &Job<'_>, world: &World, node: &str) {
    let mut running = job.start();
    running.sees_agent_again(node);
    job.finishes(running);
    assert_eq!(world.all("generation_launched").len(), 1);
    assert_eq!(world.all("node_down").len(), 0);
    pfs::assert_current(&world.prefix(), 8);
    world.assert_nothing_is_left();
}

#[test(unchecked)]
fn killed_agent_is_restarted_and_run_continues(world: &World) {
    let job = Job::new(world, 1).holding_after(4).faults("{node: 2, after_checkpoint: 4, action: kill-agent}");
    is_survived(&job, world, "node2");
}

#[test(unchecked)]
fn killed_leader_agent_is_restarted_and_run_continues(world: &World) {
    let job = Job::new(world, 1).holding_after(4).faults("{node: 0, after_checkpoint: 4, action: kill-agent}");
    is_survived(&job, world, "node0");
}

#[test]
fn externally_killed_agent_is_restarted(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let mut running = job.reaches(4);
    signal(world.agent_pid("node3"), Signal::KILL);
    running.sees_where("agent_ready", "again", true);
    job.finishes(running);
    assert_eq!(world.all("generation_launched").len(), 1);
}

#[test]
fn an_agent_without_work_gives_back_the_memory_of_the_code_that_it_does_not_use(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let running = job.reaches(4);
    let status = format!("/proc/{}/status", world.agent_pid("node3"));
    let resident_kb = || {
        let status = fs::read_to_string(&status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let most = resident_kb();
    world.wait("a smaller agent", || (resident_kb() < most * 3 / 4).then_some(()));
    job.goes_on_to_its_end(running);
    job.assert_result();
}

#[test]
fn socket_of_a_living_agent_that_was_removed_is_there_again_for_the_next_generation(world: &World) {
    let job = Job::new(world, 1).holding_after(4);
    let running = job.reaches(4);
    let socket = control(world, "node1").join("agent.sock");
    fs::remove_file(&socket).unwrap();
    world.wait("the socket is there again", || socket.exists().then_some(()));
    assert!(world.kill(|line| line.contains("example heat")) > 0);
    job.finishes(running);
    assert_eq!(world.all("generation_launched").len(), 2);
    assert_eq!(world.all("node_down").len(), 0);
}

/// The control directory of the job on a node.
fn control(world: &World, node: &str) -> PathBuf {
    let job_id = world.state()["agents"]["job_id"].as_str().unwrap().to_owned();
    world.node_root(node).join("tmp").join(USER).join(format!("scr.{job_id}"))
}

/// Waits until a file was opened so often.
fn opened(world: &World, path: &Path, times: usize) {
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, path, inotify::WatchFlags::OPEN).unwrap();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    for time in 0..times {
        world.wait(&format!("{} is opened, time {time}", path.display()), || match events.next() {
            Ok(event) => Some(event.events()),
            Err(Errno::AGAIN) => None,
            Err(error) => panic!("{error}"),
        });
    }
}

#[test]
fn agent_reads_the_halt_file_every_second_though_nobody_asks_for_its_health(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let running = job.reaches(4);
    // Of a node whose halt file is read for its health reports only.
    let file = control(world, "node1").join("halt.scrinfo");
    HaltFile::update(&file, |halt| halt.set_number(HaltCondition::CheckpointsLeft, 100)).unwrap();
    running.signal(Signal::STOP);
    // The report of a request that was on its way may have it read once.
    opened(world, &file, 3);
    running.signal(Signal::CONT);
    job.finishes(running);
}

#[test]
fn agent_renews_its_claim_of_the_control_directory(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let running = job.reaches(4);
    let lock = File::open(control(world, "node1").join("agent.lock")).unwrap();
    let modified = || lock.metadata().unwrap().modified().unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    lock.set_modified(long_ago).unwrap();
    world.wait("the claim is renewed", || {
        modified().elapsed().is_ok_and(|age| age < Duration::from_secs(1800)).then_some(())
    });
    job.finishes(running);
}

fn stopped_agent_is_replaced(world: &World, job: &Job<'_>, why: &str) {
    let mut running = job.reaches(4);
    signal(world.agent_pid("node2"), Signal::STOP);
    let lost = running.sees_event("agent_lost");
    assert_eq!(lost["node"], "node2");
    let reason = lost["reason"].as_str().unwrap();
    assert!(reason.ends_with(why), "the time is written: {reason}");
    running.sees_agent_again("node2");
    job.finishes(running);
}

#[test]
fn hanging_agent_is_replaced_and_run_continues(world: &World) {
    let mut job = Job::new(world, 0).holding_after(4).health("replace_after: 3s");
    job.down_after = "1s";
    stopped_agent_is_replaced(world, &job, "and its process exists");
}

#[test]
fn agent_that_other_agents_find_stopped_is_replaced_before_replace_after(world: &World) {
    let mut job = Job::new(world, 0).holding_after(4);
    // After twice this time, for which one check of several is enough; one that exists only is replaced after 10 s.
    job.down_after = "2s";
    stopped_agent_is_replaced(world, &job, "and its process does not run, as other agents find too");
}

#[test]
fn agent_killed_during_encode_drops_at_most_that_checkpoint(world: &World) {
    let job = Job::new(world, 0).faults("{node: 1, during: encode, checkpoint: 3, action: kill-agent}");
    job.run_to_result();
    let injected = world.the("fault_injected");
    assert_eq!((&injected["node"], &injected["action"]), (&"node1".into(), &"kill-agent".into()));
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn agent_killed_during_write_drops_at_most_that_checkpoint(world: &World) {
    let job = Job::new(world, 0).faults("{node: 1, during: write, checkpoint: 3, action: kill-agent}");
    job.run_to_result();
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn agent_killed_during_rebuild_is_restarted_and_rebuilds(world: &World) {
    let job = Job::new(world, 1)
        .holding_after(4)
        .faults("{node: 1, after_checkpoint: 4}")
        .faults("{node: 4, during: rebuild, action: kill-agent}");
    job.finishes(job.start_to("agent_ready", "again", true));
    let last = world.all("restarted").pop().unwrap();
    assert_eq!(last["checkpoint"], 4);
}

#[test]
fn restarts_all_killed_agents(world: &World) {
    let job = Job::new(world, 1).holding_after(4);
    let running = job.reaches(4);
    assert_eq!(world.kill(|line| line.split(' ').nth(1) == Some("agent")), 5);
    world.wait("all agents are back", || (world.all("agent_ready").len() >= 10).then_some(()));
    job.finishes(running);
    assert_eq!(world.all("generation_launched").len(), 1);
}

/// The complete files of a checkpoint directory, those with a meta file, each with its inode.
fn copied(directory: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    let complete = names.iter().filter(|name| names.contains(&format!("{name}.scr")));
    complete.map(|name| (name.clone(), fs::metadata(directory.join(name)).unwrap().ino())).collect()
}

#[test]
fn flush_resumes_after_leader_is_killed(world: &World) {
    // Held: a flush that the end of the job waits for has no limit.
    let job = Job::new(world, 0).heat("--files-per-rank 6").holding_after(8);
    let mut job = job.flush("{every: 8, mode: async, bandwidth: 1KB/s}");
    job.size = "64x64";
    let running = job.start();
    let directories = || -> Vec<PathBuf> {
        let entries = fs::read_dir(world.prefix()).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|id| id == "8")).collect()
    };
    let (directory, before) = world.wait("a part of the flush", || {
        let directory = directories().into_iter().next()?;
        let copied = copied(&directory);
        (copied.len() >= 4).then_some((directory, copied))
    });
    assert!(before.len() < 24, "nothing is left to resume: {before:?}");
    signal(world.agent_pid("node0"), Signal::KILL);
    job.finishes(running);
    assert_eq!(directories(), std::slice::from_ref(&directory), "the flush began again in a new directory");
    pfs::assert_current(&world.prefix(), 8);
    let after = copied(&directory);
    assert_eq!(after.len(), 24);
    assert_eq!(before.iter().filter(|(name, inode)| after[*name] != **inode).count(), 0, "copied again");
}
