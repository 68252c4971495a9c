//! Datasets that the drain packs into SION containers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::job::Job;
use crate::pfs;
use crate::world::{Running, World, signal};

const CONTAINER: &str = "container: {kind: sion, files: 2}";

/// A job whose drain packs the files.
fn draining(world: &World) -> Job<'_> {
    Job::new(world, 0).checkpoint(&format!("drain: {{{CONTAINER}}}"))
}

/// A job whose flushes pack the files.
fn flushing(world: &World) -> Job<'_> {
    Job::new(world, 0).flush(&format!("{{every: 2, {CONTAINER}}}"))
}

/// The files of a directory besides those of containers and of the prefix directory itself.
fn files_of_ranks(directory: &Path) -> BTreeSet<String> {
    let all = pfs::names(directory).into_iter();
    all.filter(|name| !name.starts_with("holdfast-") && !["summary.scr", "dataset.scr"].contains(&name.as_str()))
        .collect()
}

/// The files of all containers of a directory.
fn packed_files(world: &World, directory: &Path) -> BTreeSet<String> {
    let containers = pfs::names(directory).into_iter().filter(|name| name.ends_with(".sion"));
    let mut packed = BTreeSet::new();
    for container in containers {
        let split = world.path(&format!("split-{container}"));
        let arguments = ["sion", "split", &container, "--to", split.to_str().unwrap()];
        world.run(world.holdfast(arguments).current_dir(directory)).with_code(0);
        packed.extend(files_of_ranks(&split));
    }
    packed
}

#[test(unchecked)]
fn packs_files_with_those_of_lost_member_and_next_run_fetches_from_containers(world: &World) {
    let job = draining(world).heat("--files-per-rank 6").top("halt: {checkpoints_left: 4}");
    let job = job.faults("{node: 2, during: copy}");
    job.run(75);
    assert_eq!(world.the("rebuilt_in_prefix")["rank"], 2);
    pfs::assert_current(&world.prefix(), 4);
    let directory = pfs::current(&world.prefix()).unwrap();
    let names = pfs::names(&directory);
    // The second container has the files of the lost node.
    for container in ["holdfast-1.sion", "holdfast-1.sion.000001", "holdfast-2.sion"] {
        assert!(names.iter().any(|name| name == container), "{names:?}");
    }
    assert_eq!(files_of_ranks(&directory), BTreeSet::new());
    // Together they have the files that a plain copy has.
    let packed = packed_files(world, &directory);
    for rank in 0..4 {
        for file in [format!("{rank}.scrfilemap"), format!("{}_of_4_in_0.xor", rank + 1)] {
            assert!(packed.contains(&file), "{file}: {packed:?}");
        }
    }
    assert!(packed.iter().any(|name| name.contains("rank_2.")), "{packed:?}");
    let arguments = ["verify", directory.to_str().unwrap()];
    world.run(world.holdfast(arguments)).with_code(0);
    let mut next = draining(world);
    next.heat.clone_from(&job.heat);
    next.run(0);
    job.assert_result();
    world.assert_restarted(4, "fetched");
    assert_eq!(world.all("plain_files_kept").len(), 0);
    world.assert_nothing_is_left();
    // Without its first file, the files in the first container are lost, and the second one does not replace them.
    fs::remove_file(directory.join("holdfast-1.sion")).unwrap();
    let missing = ["holdfast-1.sion.000001: ", "the first file of its set, holdfast-1.sion, is missing"];
    world.run(world.holdfast(arguments)).with_code(65).prints(&missing);
    let (name, prefix) = (directory.file_name().unwrap().to_str().unwrap(), world.prefix());
    let add = ["index", "add", name, "--rescan", "--prefix", prefix.to_str().unwrap()];
    world.run(world.holdfast(add)).with_code(65).prints(&missing);
    world.run(world.holdfast(arguments)).with_code(65).prints(&missing);
    let part = directory.join("holdfast-1.sion.000001");
    assert!(part.exists());
}

#[test]
fn an_agent_that_is_started_again_during_the_copy_goes_on_where_the_stream_ends(world: &World) {
    let job = draining(world).heat("--files-per-rank 6").top("halt: {checkpoints_left: 4}");
    job.faults("{node: 2, during: copy, action: kill-agent}").run(75);
    assert_eq!(world.all("rebuilt_in_prefix").len(), 0);
    let log = fs::read_to_string(world.prefix().join(".holdfast/agents/node2.log")).unwrap();
    let continued = log.lines().find(|line| line.contains("copy_continued")).unwrap_or_else(|| panic!("{log}"));
    // At least the file after which the agent was killed.
    assert!(continued.contains(" container=") && !continued.contains(" bytes=0"), "{continued}");
    let directory = pfs::current(&world.prefix()).unwrap();
    assert_eq!(files_of_ranks(&directory), BTreeSet::new(), "everything is in the container");
    world.run(world.holdfast(["verify", directory.to_str().unwrap()])).with_code(0);
}

#[test(unchecked)]
fn index_add_restores_lost_part_and_verify_is_content(world: &World) {
    let drain = "drain: {container: {kind: sion, files: 4}}";
    let job = Job::new(world, 0).checkpoint(drain).top("halt: {checkpoints_left: 4}");
    job.run(75);
    let directory = pfs::current(&world.prefix()).unwrap();
    let verify = ["verify", "--details", directory.to_str().unwrap()];
    world.run(world.holdfast(verify)).with_code(0);
    fs::remove_file(directory.join("holdfast-1.sion.000001")).unwrap();
    world.run(world.holdfast(verify)).with_code(65).prints(&["holdfast-1.sion.000001: the files of rank"]);
    let (name, prefix) = (directory.file_name().unwrap().to_str().unwrap(), world.prefix());
    let add = ["index", "add", name, "--rescan", "--prefix", prefix.to_str().unwrap()];
    world.run(world.holdfast(add)).with_code(0).prints(&["complete"]);
    world.run(world.holdfast(verify)).with_code(0).prints(&["note: holdfast-1.sion.000001: other files"]);
}

/// The kinds of damage to a directory with a container.
type Damage = fn(&Path);

#[test]
fn flushes_into_containers_and_uses_older_one_when_newest_is_damaged() {
    let damages: [(&str, &str, Damage); 4] = [
        ("a lost first file", "the first file of its set, holdfast-1.sion, is missing", |directory| {
            fs::remove_file(directory.join("holdfast-1.sion")).unwrap()
        }),
        ("a lost further file", "holdfast-1.sion.000001", |directory| {
            fs::remove_file(directory.join("holdfast-1.sion.000001")).unwrap()
        }),
        ("a file that was cut short", "it is in no file that can be used: holdfast-1.sion: ", |directory| {
            let file = fs::File::options().write(true).open(directory.join("holdfast-1.sion")).unwrap();
            file.set_len(file.metadata().unwrap().len() - 9).unwrap();
        }),
        ("wrong byte counts", "it is in no file that can be used: holdfast-1.sion: ", |directory| {
            let path = directory.join("holdfast-1.sion");
            let mut bytes = fs::read(&path).unwrap();
            let tail = bytes.len() - 8 * 5;
            bytes[tail..].fill(0x11);
            fs::write(path, bytes).unwrap();
        }),
    ];
    for (what, reason, damage) in damages {
        let world = World::new();
        flushing(&world).top("halt: {checkpoints_left: 4}").top("keep_cache: none").run(75);
        pfs::assert_current(&world.prefix(), 4);
        let directory = pfs::current(&world.prefix()).unwrap();
        assert_eq!(files_of_ranks(&directory), BTreeSet::new());
        damage(&directory);
        let job = flushing(&world);
        job.run_to_result();
        let refused = world.the("restart_attempt");
        assert_eq!(refused["checkpoint"], 4, "{what}");
        assert!(refused["reason"].as_str().unwrap().contains(reason), "{what}: {refused}");
        let last = world.all("restarted").pop().unwrap();
        assert_eq!((&last["checkpoint"], &last["source"]), (&json!(2), &json!("fetched")), "{what}");
    }
}

#[test(unchecked)]
fn index_add_verifies_container_and_finds_changed_byte(world: &World) {
    let job = draining(world).holding_after(4);
    job.reaches(4).terminated();
    let directory = pfs::current(&world.prefix()).unwrap();
    assert_eq!(files_of_ranks(&directory), BTreeSet::new());
    let name = directory.file_name().unwrap().to_str().unwrap();
    let prefix = world.prefix();
    let add = ["index", "add", name, "--rescan", "--prefix", prefix.to_str().unwrap()];
    world.run(world.holdfast(add)).with_code(0).prints(&["complete"]);
    let path = directory.join("holdfast-1.sion");
    let mut bytes = fs::read(&path).unwrap();
    // In the data of rank 0, of which one block is the head.
    let at = 4096 + 2000;
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    // The redundancy of the set restores the rank, as plain files that replace the packed ones.
    world.run(world.holdfast(add)).with_code(0).prints(&["rank_0.ckpt", "CRC32"]);
    assert!(files_of_ranks(&directory).contains("rank_0.ckpt"));
    pfs::assert_current(&prefix, 4);
}

/// Has the drain of checkpoint 4 continue in a directory that this makes.
fn begun_drain(world: &World, running: &mut Running<'_>) -> PathBuf {
    let job_id = running.sees_event("job_started")["job_id"].as_str().unwrap().to_owned();
    let name = format!("scr.2026-01-02_03:04:05.{job_id}.4");
    let directory = world.prefix().join(&name);
    fs::create_dir(&directory).unwrap();
    let note = json!({"job_id": job_id, "checkpoint": 4, "directory": name});
    fs::write(world.prefix().join(".holdfast/drain.json"), note.to_string()).unwrap();
    directory
}

/// The temporary files in a directory.
fn temporary(directory: &Path) -> BTreeSet<String> {
    pfs::names(directory).into_iter().filter(|name| name.starts_with(".hf-")).collect()
}

/// The directory of checkpoint 4, in which a flush has created the two files of a container.
fn sees_flush_into_container(world: &World) -> PathBuf {
    world.wait("the flush of checkpoint 4 into a container", || {
        let directory = pfs::directory_of(&world.prefix(), 4)?;
        (temporary(&directory).len() == 2).then_some(directory)
    })
}

/// In the way of a container: there is no higher number.
fn obstruct(directory: &Path) {
    fs::create_dir(directory.join("holdfast-4294967295.sion")).unwrap();
}

#[test]
fn drain_without_container_copies_plain_files_and_warns(world: &World) {
    let job = draining(world).holding_after(4);
    let mut running = job.reaches(4);
    let directory = begun_drain(world, &mut running);
    obstruct(&directory);
    let ran = running.terminated();
    ran.prints(&["warning: files of checkpoint 4 in", "are not in a container", "holdfast-4294967295.sion"]);
    let warned = world.the("plain_files_kept");
    assert_eq!((&warned["checkpoint"], &warned["node"]), (&json!(4), &Value::Null), "{warned}");
    assert_eq!(directory.file_name().unwrap().to_str(), warned["directory"].as_str());
    pfs::assert_current(&world.prefix(), 4);
    let files = files_of_ranks(&directory);
    assert!((0..4).all(|rank| files.contains(&format!("{rank}.scrfilemap"))), "{files:?}");
    let next = draining(world);
    next.run_to_result();
}

#[test]
fn flush_without_container_copies_plain_files_and_warns(world: &World) {
    // The flush would need hours.
    let slow = format!("{{every: 4, mode: async, bandwidth: 1, {CONTAINER}}}");
    let job = Job::new(world, 0).flush(&slow).holding_after(4);
    let mut running = job.reaches(4);
    let directory = sees_flush_into_container(world);
    let of_container = temporary(&directory);
    obstruct(&directory);
    signal(world.agent_pid("node0"), Signal::KILL);
    let warned = running.sees_event("plain_files_kept");
    assert_eq!((&warned["checkpoint"], &warned["node"]), (&json!(4), &json!("node0")), "{warned}");
    // Each node copies a file; those of the container of the killed leader are gone.
    world.wait("plain copies", || {
        let now = temporary(&directory);
        (now.len() == 4 && now.is_disjoint(&of_container)).then_some(())
    });
    running.terminated();
    pfs::assert_current(&world.prefix(), 4);
    assert_eq!(pfs::current(&world.prefix()).unwrap(), directory);
    assert_eq!(temporary(&directory), BTreeSet::new());
}

#[test]
fn flush_into_container_is_continued_after_death_of_leader_and_is_not_complete_before(world: &World) {
    let slow = format!("{{every: 4, mode: async, bandwidth: 1, {CONTAINER}}}");
    let job = Job::new(world, 0).flush(&slow).checkpoint(&format!("drain: {{{CONTAINER}}}")).holding_after(4);
    let running = job.reaches(4);
    let directory = sees_flush_into_container(world);
    let of_container = temporary(&directory);
    signal(world.agent_pid("node0"), Signal::KILL);
    world.wait("the container of the restarted leader", || {
        let now = temporary(&directory);
        (now.len() == 2 && now.is_disjoint(&of_container)).then_some(())
    });
    assert_eq!(pfs::indexed(&world.prefix()).get(&4), Some(&None));
    running.terminated();
    assert_eq!(pfs::current(&world.prefix()).unwrap(), directory);
    pfs::assert_current(&world.prefix(), 4);
    assert_eq!(files_of_ranks(&directory), BTreeSet::new());
    assert_eq!(temporary(&directory), BTreeSet::new());
}

#[test]
fn drain_is_repeated_after_orchestrator_was_killed_and_leaves_one_container(world: &World) {
    let job = draining(world).holding_after(4);
    let mut running = job.reaches(4);
    let directory = begun_drain(world, &mut running);
    // What a drain leaves that is killed between the renames of its last step; it may still be under way for a day.
    for (name, days) in [("holdfast-1.sion.000001", 2), ("holdfast-2.sion.000001", 0)] {
        fs::write(directory.join(name), "a part without its first file").unwrap();
        let written = SystemTime::now() - Duration::from_secs(days * 86_400);
        fs::File::options().write(true).open(directory.join(name)).unwrap().set_modified(written).unwrap();
    }
    running.terminated();
    assert_eq!(pfs::current(&world.prefix()).unwrap(), directory);
    pfs::assert_current(&world.prefix(), 4);
    let containers: Vec<String> =
        pfs::names(&directory).into_iter().filter(|name| name.starts_with("holdfast-")).collect();
    assert_eq!(containers, ["holdfast-2.sion.000001", "holdfast-3.sion", "holdfast-3.sion.000001"]);
}
