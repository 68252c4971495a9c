//! Datasets that the drain packs into SION containers.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::json;

use crate::job::Job;
use crate::pfs;
use crate::world::World;

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

#[test]
fn packs_files_rebuilds_lost_member_and_next_run_fetches_from_container() {
    let world = World::new();
    let job = draining(&world).heat("--files-per-rank 6").top("halt: {checkpoints_left: 4}");
    let job = job.chaos("{node: 2, during: copy}");
    job.run(75);
    assert_eq!(world.the("rebuilt_in_prefix")["rank"], 2);
    pfs::assert_current(&world.prefix(), 4);
    let directory = pfs::current(&world.prefix()).unwrap();
    let names = pfs::names(&directory);
    for container in ["holdfast-1.sion", "holdfast-1.sion.000001"] {
        assert!(names.iter().any(|name| name == container), "{names:?}");
    }
    let rebuilt = files_of_ranks(&directory);
    assert!(
        rebuilt.iter().all(|name| name.contains("rank_2.") || name.starts_with("3_of_") || name.starts_with("2.scr")),
        "{rebuilt:?}"
    );
    // Together they are the files that a plain copy has.
    let split = world.path("split");
    let arguments = ["sion", "split", "holdfast-1.sion", "--to", split.to_str().unwrap()];
    let mut command = world.holdfast(arguments);
    command.current_dir(&directory);
    world.run(command).with_code(0);
    let packed = files_of_ranks(&split);
    assert!(packed.is_disjoint(&rebuilt), "{packed:?} {rebuilt:?}");
    for rank in 0..4 {
        for file in [format!("{rank}.scrfilemap"), format!("{}_of_4_in_0.xor", rank + 1)] {
            assert!(packed.contains(&file) || rebuilt.contains(&file), "{file}: {packed:?} {rebuilt:?}");
        }
    }
    let mut next = draining(&world);
    next.heat.clone_from(&job.heat);
    next.run(0);
    job.assert_result();
    let last = world.all("restarted").pop().unwrap();
    assert_eq!((&last["checkpoint"], &last["source"]), (&json!(4), &json!("fetched")));
    world.assert_nothing_is_left();
}

/// The kinds of damage to a directory with a container.
type Damage = fn(&Path);

#[test]
fn flushes_into_containers_and_uses_older_one_when_newest_is_damaged() {
    let damages: [(&str, Damage); 4] = [
        ("a lost first file", |directory| fs::remove_file(directory.join("holdfast-1.sion")).unwrap()),
        ("a lost further file", |directory| fs::remove_file(directory.join("holdfast-1.sion.000001")).unwrap()),
        ("a file that was cut short", |directory| {
            let file = fs::File::options().write(true).open(directory.join("holdfast-1.sion")).unwrap();
            file.set_len(file.metadata().unwrap().len() - 9).unwrap();
        }),
        ("wrong byte counts", |directory| {
            let path = directory.join("holdfast-1.sion");
            let mut bytes = fs::read(&path).unwrap();
            let tail = bytes.len() - 8 * 5;
            bytes[tail..].fill(0x11);
            fs::write(path, bytes).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let world = World::new();
        flushing(&world).top("halt: {checkpoints_left: 4}").top("keep_cache: none").run(75);
        pfs::assert_current(&world.prefix(), 4);
        let directory = pfs::current(&world.prefix()).unwrap();
        assert_eq!(files_of_ranks(&directory), BTreeSet::new());
        damage(&directory);
        let job = flushing(&world);
        job.run(0);
        job.assert_result();
        let last = world.all("restarted").pop().unwrap();
        assert_eq!((&last["checkpoint"], &last["source"]), (&json!(2), &json!("fetched")), "{what}");
        world.assert_nothing_is_left();
    }
}

#[test]
fn index_add_verifies_container_and_finds_changed_byte() {
    let world = World::new();
    let job = draining(&world).holding_after(4);
    let mut running = job.start();
    running.sees_checkpoint(4);
    running.signal(Signal::TERM);
    running.ends_with(75);
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
    let ran = world.run(world.holdfast(add)).with_code(0);
    ran.prints(&["rank_0.ckpt", "CRC32"]);
    assert!(files_of_ranks(&directory).contains("rank_0.ckpt"));
    pfs::assert_current(&prefix, 4);
}

#[test]
fn drain_is_repeated_after_orchestrator_was_killed_and_leaves_one_container() {
    let world = World::new();
    let job = draining(&world).holding_after(4);
    let mut running = job.start();
    running.sees_checkpoint(4);
    let job_id = running.sees_event("job_started")["job_id"].as_str().unwrap().to_owned();
    let name = format!("scr.2026-01-02_03:04:05.{job_id}.4");
    let directory = world.prefix().join(&name);
    fs::create_dir(&directory).unwrap();
    let note = json!({"job_id": job_id, "checkpoint": 4, "directory": name});
    fs::write(world.prefix().join(".holdfast/drain.json"), note.to_string()).unwrap();
    // What a drain leaves that is killed between the renames of its last step.
    fs::write(directory.join("holdfast-1.sion.000001"), "a part without its first file").unwrap();
    running.signal(Signal::TERM);
    running.ends_with(75);
    assert_eq!(pfs::current(&world.prefix()).unwrap(), directory);
    pfs::assert_current(&world.prefix(), 4);
    let containers: Vec<String> =
        pfs::names(&directory).into_iter().filter(|name| name.starts_with("holdfast-")).collect();
    assert_eq!(containers, ["holdfast-2.sion", "holdfast-2.sion.000001"]);
    world.assert_nothing_is_left();
}
