//! A byte of a file changes after a checkpoint was completed: wherever the file is used next, it counts as lost. It is
//! rebuilt or replaced by its copy, or an older checkpoint is used; no result is computed from it.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_core::control::meta::Meta;
use holdfast_core::redundancy::parity::file::ParityFile;
use holdfast_core::redundancy::xor;
use holdfast_testkit::files_below;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::job::Job;
use crate::pfs;
use crate::world::{Running, World};

/// A file of a checkpoint in the cache of a node, by the end of its name.
#[track_caller]
fn cached(world: &World, node: &str, checkpoint: u64, name: &str) -> PathBuf {
    let directory = format!("checkpoint.{checkpoint}");
    let is_it = |path: &PathBuf| {
        path.parent().is_some_and(|parent| parent.ends_with(&directory)) && path.to_string_lossy().ends_with(name)
    };
    let mut found: Vec<PathBuf> = files_below(&world.node_root(node)).into_iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{name} of checkpoint {checkpoint} on {node}: {found:?}");
    found.remove(0)
}

/// Changes a bit of the last byte.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// The ranks are killed, and the job goes on in a new generation.
fn relaunch(world: &World, job: &Job<'_>) {
    assert!(world.kill(|line| line.contains(" example heat ")) > 0, "no rank runs");
    job.go_on();
}

/// What the second generation restarted from, when the job has ended with the right result.
fn restarted(world: &World, job: &Job<'_>, running: Running<'_>) -> Value {
    running.ends_with(0);
    job.assert_result();
    let last = world.all("restarted").pop().unwrap();
    pfs::assert_current(&world.prefix(), 8);
    world.assert_nothing_is_left();
    last
}

fn attempts(world: &World) -> Vec<(u64, String)> {
    let attempts = world.all("restart_attempt").into_iter();
    attempts.map(|event| (event["checkpoint"].as_u64().unwrap(), event["reason"].as_str().unwrap().into())).collect()
}

#[test(unchecked)]
fn changed_file_in_cache_is_rebuilt_before_its_rank_reads_it(world: &World) {
    let job = Job::new(world, 0).holding_after(5);
    let running = job.reaches(5);
    flip(&cached(world, "node1", 5, "rank_1.ckpt"));
    relaunch(world, &job);
    let last = restarted(world, &job, running);
    assert_eq!((&last["checkpoint"], &last["rebuilt"]), (&json!(5), &json!([1])), "{last}");
    let notice = world.all("notice").into_iter().map(|event| event["message"].to_string());
    assert!(notice.into_iter().any(|text| text.contains("checkpoint 5") && text.contains("rank_1.ckpt is damaged")));
}

#[test]
fn changed_survivor_is_not_used_and_older_checkpoint_is_loaded() {
    // What the survivor wrote, and its XOR data.
    for changed in ["rank_2.ckpt", "3_of_4_in_0.xor"] {
        let world = World::unchecked();
        let job = Job::new(&world, 0).holding_after(5);
        let running = job.reaches(5);
        fs::remove_file(cached(&world, "node1", 5, "rank_1.ckpt")).unwrap();
        flip(&cached(&world, "node2", 5, changed));
        relaunch(&world, &job);
        let last = restarted(&world, &job, running);
        assert_eq!((&last["checkpoint"], &last["source"]), (&json!(4), &json!("cache")), "{changed}: {last}");
        let [(5, reason)] = &attempts(&world)[..] else { panic!("{:?}", attempts(&world)) };
        assert!(reason.contains("were lost (1 and 2)") && reason.contains(changed), "{reason}");
    }
}

#[test]
fn changed_file_of_local_checkpoint_is_found_only_if_the_spec_requests_its_checksum() {
    for (on_copy, is_found) in [("redundancy", false), ("true", true)] {
        let world = World::unchecked();
        let job = Job::new(&world, 0).redundancy("[{scheme: local}]").holding_after(5);
        let job = job.checkpoint(&format!("crc: {{on_copy: {on_copy}}}"));
        let running = job.reaches(5);
        flip(&cached(&world, "node1", 5, "rank_1.ckpt"));
        relaunch(&world, &job);
        running.ends_with(0);
        let found = attempts(&world).iter().any(|(_, reason)| reason.contains("rank_1.ckpt is damaged"));
        // Otherwise the application gets the changed file. That of this test has checksums of its own.
        let second = world.all("restarted").into_iter().find(|event| event["generation"] == 2).unwrap();
        assert_eq!((found, &second["checkpoint"]), (is_found, &json!(if is_found { 4 } else { 5 })), "{on_copy}");
    }
}

#[test(unchecked)]
fn partner_copy_replaces_changed_file(world: &World) {
    let job = Job::new(world, 0).redundancy("[{scheme: partner}]").holding_after(5);
    let running = job.reaches(5);
    flip(&cached(world, "node1", 5, "rank_1.ckpt"));
    relaunch(world, &job);
    let last = restarted(world, &job, running);
    assert_eq!((&last["checkpoint"], &last["moved"]), (&json!(5), &json!([1])), "{last}");
}

#[test(unchecked)]
fn changed_partner_copy_is_not_moved_back(world: &World) {
    let job = Job::new(world, 0).redundancy("[{scheme: partner}]").holding_after(5);
    let running = job.reaches(5);
    fs::remove_file(cached(world, "node1", 5, "rank_1.ckpt")).unwrap();
    flip(&cached(world, "node2", 5, "rank_1.ckpt"));
    relaunch(world, &job);
    let last = restarted(world, &job, running);
    assert_eq!(last["checkpoint"], 4, "{last}");
    let [(5, reason)] = &attempts(world)[..] else { panic!("{:?}", attempts(world)) };
    assert!(reason.contains("rank_1.ckpt"), "{reason}");
}

/// A job that is stopped after checkpoint 4 and drained, in which `change` changed a file before. Nothing stays in
/// cache.
fn drained<'a>(world: &'a World, job: Job<'a>, change: impl Fn()) -> Job<'a> {
    let job = job.holding_after(4).top("keep_cache: none");
    let running = job.reaches(4);
    change();
    running.terminated();
    world.assert_nothing_is_left();
    job
}

/// The next run fetches the checkpoint, and ends with the right result.
fn finishes(world: &World, job: &Job<'_>, checkpoint: u64) {
    job.go_on();
    job.run_to_result();
    world.assert_restarted(checkpoint, "fetched");
}

#[test]
fn drain_rebuilds_changed_file() {
    for changed in ["rank_1.ckpt", "2_of_4_in_0.xor"] {
        let world = World::unchecked();
        let job = drained(&world, Job::new(&world, 0), || flip(&cached(&world, "node1", 4, changed)));
        let copied = world.all("copied").into_iter().find(|event| event["node"] == "node1").unwrap();
        assert!(copied.to_string().contains(&format!("{changed} is damaged")), "{copied}");
        assert_eq!(world.the("rebuilt_in_prefix")["rank"], 1);
        pfs::assert_current(&world.prefix(), 4);
        finishes(&world, &job, 4);
    }
}

#[test(unchecked)]
fn drain_takes_partner_copy_of_changed_file(world: &World) {
    let job = Job::new(world, 0).redundancy("[{scheme: partner}]");
    let job = drained(world, job, || flip(&cached(world, "node1", 4, "rank_1.ckpt")));
    let second: Vec<Value> = world.all("copied").into_iter().filter(|event| event["round"] == 2).collect();
    assert!(second.iter().any(|event| event["node"] == "node2" && event["ranks"] == json!([1])), "{second:#?}");
    pfs::assert_current(&world.prefix(), 4);
    finishes(world, &job, 4);
}

#[test(unchecked)]
fn drain_falls_back_to_older_checkpoint_when_second_copy_is_changed_too(world: &World) {
    let job = Job::new(world, 0).redundancy("[{scheme: partner}]");
    let job = drained(world, job, || {
        flip(&cached(world, "node1", 4, "rank_1.ckpt"));
        flip(&cached(world, "node2", 4, "rank_1.ckpt"));
    });
    assert_eq!(pfs::indexed(&world.prefix())[&4], Some(false));
    pfs::assert_current(&world.prefix(), 3);
    finishes(world, &job, 3);
}

#[test(unchecked)]
fn flush_of_changed_file_is_not_complete(world: &World) {
    // Not compared at the restart: the flush is the first that reads the file.
    let job = Job::new(world, 0)
        .holding_after(5)
        .flush("{every: 1000, on_restart: true}")
        .checkpoint("crc: {on_restart: false}");
    let mut running = job.reaches(5);
    flip(&cached(world, "node1", 5, "rank_1.ckpt"));
    assert!(world.kill(|line| line.contains(" example heat ")) > 0, "no rank runs");
    let failed = running.sees_event("flush_failed");
    assert_eq!(failed["checkpoint"], 5);
    assert!(failed["reason"].as_str().unwrap().contains("rank_1.ckpt is damaged"), "{failed}");
    // What was copied is removed when the application cannot read the checkpoint either.
    assert_ne!(pfs::indexed(&world.prefix()).get(&5), Some(&Some(true)));
    // The application notices the damage itself, as it has checksums of its own. The next generation may have flushed
    // checkpoint 4 already.
    assert_ne!(pfs::current_id(&world.prefix()), Some(5));
    job.go_on();
    restarted(world, &job, running);
}

/// The files of checkpoint 1 on a node that have a checksum, and those that have none.
fn with_and_without_checksum(job: &Job<'_>, world: &World, node: &str) -> (Vec<String>, Vec<String>) {
    let job = job.clone().holding_after(1);
    let running = job.reaches(1);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for path in files_below(&world.node_root(node)) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let is_meta = path.extension().is_some_and(|extension| extension == "scr");
        if is_meta || !path.parent().unwrap().ends_with("checkpoint.1") {
            continue;
        }
        match Meta::read(&path).unwrap().crc {
            Some(crc) => {
                assert_eq!(crc, crc32fast::hash(&fs::read(&path).unwrap()), "{name}");
                with.push(name);
            }
            None => without.push(name),
        }
    }
    running.signal(Signal::TERM);
    running.end();
    (with, without)
}

#[test]
fn checksums_are_computed_as_the_spec_requests() {
    let none: [&str; 0] = [];
    let xor: &[&str] = &["2_of_4_in_0.xor", "rank_1.ckpt"];
    let partner: &[&str] = &["rank_0.ckpt", "rank_1.ckpt"];
    let local: &[&str] = &["rank_1.ckpt"];
    let cases: [(&str, &str, &[&str], &[&str]); 8] = [
        ("xor", "redundancy", xor, &none),
        ("partner", "redundancy", partner, &none),
        ("local", "redundancy", &none, local),
        ("xor", "true", xor, &none),
        ("partner", "true", partner, &none),
        ("local", "true", local, &none),
        ("xor", "false", &none, xor),
        ("partner", "false", &none, partner),
    ];
    for (scheme, on_copy, with, without) in cases {
        let world = World::unchecked();
        let job = Job::new(&world, 0).redundancy(&format!("[{{scheme: {scheme}}}]"));
        let job = job.checkpoint(&format!("crc: {{on_copy: {on_copy}}}"));
        let found = with_and_without_checksum(&job, &world, "node1");
        let expected = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(found, (expected(with), expected(without)), "{scheme}, on_copy: {on_copy}");
    }
}

#[test(unchecked)]
fn neighbour_s_xor_header_has_the_checksums_of_a_rank(world: &World) {
    let job = Job::new(world, 0).heat("--files-per-rank 3").holding_after(1);
    let running = job.reaches(1);
    let xor = cached(world, "node2", 1, "3_of_4_in_0.xor");
    let file = ParityFile::open(&xor::PARITY, xor.parent().unwrap(), "3_of_4_in_0.xor").unwrap();
    let files = &file.header.left[0].files;
    assert_eq!(files.len(), 3);
    for meta in files {
        let bytes = fs::read(cached(world, "node1", 1, &format!("/{}", meta.file))).unwrap();
        assert_eq!(meta.crc, Some(crc32fast::hash(&bytes)), "{}", meta.file);
    }
    running.signal(Signal::TERM);
    running.end();
}

#[test]
fn changed_file_in_cache_is_reported_before_it_is_deleted(world: &World) {
    let job = Job::new(world, 0).holding_after(5);
    let mut running = world.start(job.command_line().env("SCR_CRC_ON_DELETE", "1"));
    running.sees_checkpoint(5);
    flip(&cached(world, "node1", 5, "rank_1.ckpt"));
    job.finishes(running);
    let notices = world.all("notice");
    let changed: Vec<&str> = notices
        .iter()
        .filter_map(|event| event["message"].as_str())
        .filter(|text| text.contains("a file of rank 1 changed in cache, found before dataset 5 was deleted"))
        .collect();
    assert!(matches!(changed[..], [one] if one.contains("node node1") && one.contains("rank_1.ckpt")), "{notices:?}");
}
