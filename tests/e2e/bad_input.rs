//! Unusable directories and invalid files: a clear error, nothing lost, no incomplete file.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use holdfast_core::kvtree::{Tree, file};
use holdfast_testkit::{copy_tree, files_below, fixtures};
use serde_json::{Value, json};

use crate::disk::Disk;
use crate::job::Job;
use crate::pfs;
use crate::world::World;

#[test]
fn full_cache_drops_checkpoints_but_job_continues() {
    full_cache_drops_checkpoints("scr", "", "cannot write checkpoint 1");
    full_cache_drops_checkpoints("variables", "--variables", "File too large");
}

fn full_cache_drops_checkpoints(source: &str, heat: &str, reason: &str) {
    let world = World::new();
    let mut job = Job::new(&world, 0).checkpoint(&format!("source: {source}")).heat(heat);
    // 128 KiB a rank, and files are limited to 64 KiB: writes fail as on a full file system.
    job.size = "256x256";
    let spec = job.yaml();
    let without_output = {
        let (before, rest) = spec.split_once(r#""--output", ""#).unwrap();
        let (_, after) = rest.split_once('"').unwrap();
        format!("{}{}", before.trim_end_matches([' ', ',']), after)
    };
    let spec = world.write("full.yaml", &without_output);
    let mut command = world.command("bash");
    command.args(["-c", "ulimit -f 64; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_holdfast"), "run"]);
    command.arg(spec);
    let ran = world.run(command).with_code(65);
    ran.prints(&[reason, "dropped", "the job is finished"]);
    assert_eq!(world.all("all_datasets_dropped").len(), 1);
    let failed = world.all("checkpoint_failed");
    assert_eq!(failed.len(), 8);
    if source == "variables" {
        let reasons: Vec<&str> = failed.iter().map(|event| event["reason"].as_str().unwrap()).collect();
        assert!(reasons.iter().all(|text| text.contains(".fti") && text.contains(reason)), "{reasons:#?}");
    }
    assert_eq!(world.all("checkpoint_complete").len(), 0);
    assert_eq!(pfs::current_id(&world.prefix()), None);
    let serial = ["example", "heat", "--step-delay", "0", "--steps", "40", "--size", "256x256"];
    let serial = world.run(world.holdfast(serial).env("SCR_ENABLE", "0")).with_code(0);
    let checksum = serial.out.lines().find(|line| line.contains("checksum")).unwrap();
    ran.prints(&[checksum]);
}

/// On node 1 the path of the cache becomes a file before the first launch: it cannot be written to, even by root.
fn with_a_cache_that_cannot_be_written(world: &World, spares: u32) -> Job<'_> {
    let replace = "for n in $TMPDIR/holdfast-*/nodes/node1; do rm -rf $n/cache; touch $n/cache; done; \
                   until grep -q 'event\":\"node_down' $HOLDFAST_PREFIX/.holdfast/events.jsonl; do sleep 0.05; done";
    Job::new(world, spares)
        .checkpoint("cache: [{base: /cache}]")
        .top(&format!("before: [{{command: [sh, -c, {replace:?}]}}]"))
}

#[test]
fn spare_replaces_node_with_unwritable_cache(world: &World) {
    let job = with_a_cache_that_cannot_be_written(world, 1);
    job.run_to_result();
    let down = world.the("node_down");
    assert_eq!(down["node"], "node1");
    assert!(down.to_string().contains("/cache"), "{down}");
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn reports_unusable_directory_without_spare(world: &World) {
    let job = with_a_cache_that_cannot_be_written(world, 0);
    job.run(75).prints(&["node1", "/cache", "too few healthy nodes: 3 left, 4 needed"]);
    assert_eq!(world.all("generation_launched").len(), 0);
}

#[test]
fn excludes_node_with_cache_smaller_than_required(world: &World) {
    let job = Job::new(world, 0).checkpoint("cache: [{base: /cache, bytes: 900TiB}]");
    // Another allocation would not have the space either.
    job.run(69).prints(&["/cache", "expected are", "no generation could start"]);
    assert_eq!(world.all("generation_launched").len(), 0);
}

#[test(unchecked)]
fn run_creates_missing_prefix_and_other_commands_reject_it(world: &World) {
    for command in [
        &["drain", "--prefix", "nowhere"][..],
        &["status", "--prefix", "nowhere"],
        &["index", "list", "--prefix", "nowhere"],
    ] {
        let ran = world.run(world.holdfast(command)).with_code(69);
        assert!(ran.err.contains("nowhere"), "{}", ran.err);
        assert!(!world.path("nowhere").exists());
    }
    Job::new(world, 0).run(0);
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn rejects_prefix_that_cannot_be_created_before_start(world: &World) {
    world.write("pfs", "a file");
    let ran = Job::new(world, 0).run(69);
    assert!(ran.err.contains("pfs") && ran.err.contains("prefix"), "{}", ran.err);
    assert_eq!(fs::read_to_string(world.prefix()).unwrap(), "a file");
}

/// Each number of files that can still be made in the temporary directory ends the start at another place.
#[test(unchecked)]
fn rejects_full_temporary_directory_and_leaves_nothing_in_it(world: &World) {
    let mut disk = Disk::new(world);
    let temporary = world.temporary();
    disk.mount_over(temporary.clone());
    let fill = |number: u32| temporary.join(format!("fill{number}"));
    let made = (0..1_000_000).take_while(|number| fs::File::create(fill(*number)).is_ok()).last().unwrap();
    let mut names = BTreeSet::new();
    // The workspace, its marker, the directory of the nodes, and those of four nodes.
    for free in 1..=6 {
        fs::remove_file(fill(made + 1 - free)).unwrap();
        let ran = Job::new(world, 0).run(69);
        names.extend(ran.err.lines().filter(|line| line.contains("No space left")).map(str::to_owned));
        let left: Vec<String> = fs::read_dir(&temporary).unwrap().map(|entry| name_of(&entry.unwrap())).collect();
        let left: Vec<&String> = left.iter().filter(|name| name.starts_with("holdfast")).collect();
        assert_eq!(left, [] as [&String; 0], "{free} free: {}", ran.err);
    }
    assert!(names.len() > 1, "{names:?}");
}

fn name_of(entry: &fs::DirEntry) -> String {
    entry.file_name().to_string_lossy().into_owned()
}

/// Replaces all occurrences of a key in a hash file.
fn rename_key(path: &Path, old: &str, new: &str) {
    fn renamed(tree: &Tree, old: &str, new: &str) -> Tree {
        let mut out = Tree::new();
        for (key, value) in tree.iter().rev() {
            out.set(if key == old { new } else { key }, renamed(value, old, new));
        }
        out
    }
    let tree = pfs::tree(path);
    let changed = renamed(&tree, old, new);
    assert!(changed != tree, "{old} is not in {}", path.display());
    file::write(path, &changed).unwrap();
}

/// A job that stopped after checkpoint 4, with an older checkpoint on the prefix.
fn stopped(world: &World) -> (Job<'_>, PathBuf) {
    Job::new(world, 0).flush("{every: 2}").top("halt: {checkpoints_left: 4}").top("keep_cache: none").run(75);
    pfs::assert_current(&world.prefix(), 4);
    (Job::new(world, 0).flush("{every: 2}"), pfs::current(&world.prefix()).unwrap())
}

#[test]
fn rejects_summary_with_outside_file_and_uses_older_checkpoint() {
    for outside in ["../../etc/passwd", "/etc/passwd", "..", "a/b"] {
        let world = World::new();
        let (job, directory) = stopped(&world);
        rename_key(&directory.join("summary.scr"), "rank_1.ckpt", outside);
        let before = fs::read("/etc/passwd").unwrap();
        let ran = job.run_to_result();
        let last = world.all("restarted").pop().unwrap();
        assert_eq!((&last["checkpoint"], &last["source"]), (&json!(2), &json!("fetched")), "{outside}");
        ran.prints(&["checkpoint 4 from"]);
        assert_eq!(fs::read("/etc/passwd").unwrap(), before);
    }
}

/// The kinds of damage to a checkpoint directory.
type Damage = fn(&Path);

#[test]
fn uses_older_checkpoint_when_prefix_files_are_damaged() {
    let damages: [(&str, Damage); 4] = [
        ("a truncated summary", |directory| {
            let path = directory.join("summary.scr");
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("no summary", |directory| fs::remove_file(directory.join("summary.scr")).unwrap()),
        ("a file with another byte", |directory| {
            let path = directory.join("rank_2.ckpt");
            let mut bytes = fs::read(&path).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(&path, bytes).unwrap();
        }),
        ("a file that is gone", |directory| fs::remove_file(directory.join("rank_0.ckpt")).unwrap()),
    ];
    for (what, damage) in damages {
        let world = World::new();
        let (job, directory) = stopped(&world);
        damage(&directory);
        job.run_to_result();
        assert_eq!(world.all("restarted").pop().unwrap()["checkpoint"], 2, "{what}");
    }
}

#[test(unchecked)]
fn rejects_invalid_index_without_changing_it(world: &World) {
    let (job, _) = stopped(world);
    let index = world.prefix().join("index.scr");
    fs::write(&index, b"not an index").unwrap();
    let started = world.all("generation_launched").len();
    for words in [&["check"][..], &["run", "--dry-run"], &["run"], &["run", "--checkpoint", "ckpt.2"]] {
        let message = ["cannot be used for a restart", "index.scr is not a readable SCR file", "holdfast index add"];
        job.command(words, 69).prints(&message);
    }
    assert_eq!(world.all("generation_launched").len(), started);
    assert_eq!(fs::read(&index).unwrap(), b"not an index");
    assert_eq!(world.processes(), []);
}

/// Drains the nodes of a fixture after a change of the filemap on node 1.
fn drained_with_filemap(world: &World, change: impl Fn(&Path)) -> (Vec<String>, Value) {
    let trees = fixtures("scr").join("a-xor4/killed-before-flush/tree");
    for node in ["node0", "node1", "node2", "node3"] {
        let root = world.path("nodes").join(node).join("tmp/scr-fixture").join(node);
        fs::create_dir_all(&root).unwrap();
        copy_tree(&trees.join(node), &root).unwrap();
    }
    let filemap = files_below(&world.path("nodes/node1")).into_iter().find(|path| path.ends_with("filemap_0.scrinfo"));
    change(&filemap.unwrap());
    fs::create_dir(world.prefix()).unwrap();
    let spec = format!(
        "prefix: {:?}\nrun: {{command: ['true']}}\ncheckpoint:\n  \
         control: {{base: '/tmp/scr-fixture/{{node}}'}}\n  cache: [{{base: '/tmp/scr-fixture/{{node}}'}}]\n",
        world.prefix()
    );
    let spec = world.write("scr.yaml", &spec);
    let mut command =
        world.holdfast(["drain", "--job-id", "1145655", "--user", "user1", "--json", "--checkpoint", "3"]);
    command.arg("--root").arg(world.path("nodes")).arg(spec);
    let document = world.run(command).with_code(0).json();
    pfs::assert_current(&world.prefix(), 3);
    world.assert_nothing_is_left();
    (pfs::names(&pfs::current(&world.prefix()).unwrap()), document)
}

#[test]
fn does_not_copy_outside_file_of_filemap_and_rebuilds_its_rank() {
    let own = "/tmp/scr-fixture/node1/user1/scr.1145655/index.0/checkpoint.3/rank_1.ckpt";
    for outside in ["/etc/passwd", "../../../etc/passwd", "/tmp/scr-fixture/node1/../../../etc/passwd"] {
        let world = World::unchecked();
        // The node's own /etc/passwd, which must not be copied either.
        fs::create_dir_all(world.path("nodes/node1/etc")).unwrap();
        fs::write(world.path("nodes/node1/etc/passwd"), "root").unwrap();
        let (names, document) = drained_with_filemap(&world, |filemap| rename_key(filemap, own, outside));
        assert!(!names.iter().any(|name| name.contains("passwd")), "{names:?}");
        assert_eq!(document["rebuilt_ranks"], json!([1]), "{outside}");
        let rebuilt = fs::read(pfs::current(&world.prefix()).unwrap().join("rank_1.ckpt")).unwrap();
        assert_eq!(rebuilt, holdfast_testkit::application_bytes(3, 1, 0, rebuilt.len()));
    }
}

#[test]
fn damaged_filemap_counts_as_lost_node() {
    let damages: [fn(&Path); 4] = [
        |path| fs::write(path, b"").unwrap(),
        |path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() - 9]).unwrap();
        },
        |path| {
            let mut bytes = fs::read(path).unwrap();
            bytes[40] ^= 0x20;
            fs::write(path, bytes).unwrap();
        },
        |path| {
            // A count of four billion.
            let mut bytes = fs::read(path).unwrap();
            bytes[20..24].fill(0xff);
            let end = bytes.len() - 4;
            let crc = crc32fast::hash(&bytes[..end]);
            bytes[end..].copy_from_slice(&crc.to_be_bytes());
            fs::write(path, bytes).unwrap();
        },
    ];
    for damage in damages {
        let world = World::unchecked();
        let (_, document) = drained_with_filemap(&world, damage);
        assert_eq!(document["rebuilt_ranks"], json!([1]));
        let rebuilt = fs::read(pfs::current(&world.prefix()).unwrap().join("rank_1.ckpt")).unwrap();
        assert_eq!(rebuilt, holdfast_testkit::application_bytes(3, 1, 0, rebuilt.len()));
    }
}

#[test(unchecked)]
fn machine_of_slurm_without_an_allocation_is_refused_unless_virtual_nodes_are_asked_for(world: &World) {
    let bin = world.path("bin");
    fs::create_dir(&bin).unwrap();
    let srun = bin.join("srun");
    fs::write(&srun, "#!/bin/sh\nexit 9\n").unwrap();
    fs::set_permissions(&srun, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let job = "job: j\nprefix: pfs\nrun: {nodes: 1, command: [\"true\"]}\ncheckpoint: {source: none}\n";
    let spec = world.write("job.yaml", job);
    for words in [vec!["run"], vec!["run", "--dry-run"]] {
        let ran = world.run(world.holdfast(words).arg(&spec).env("PATH", &path)).with_code(78);
        ran.prints(&["this is a machine of Slurm", "in no allocation", "`salloc -N NODES", "`manager: local`"]);
    }
    let spec = world.write("job.yaml", &format!("{job}allocation: {{manager: local}}\n"));
    world.run(world.holdfast(["run"]).arg(&spec).env("PATH", &path)).with_code(0);
}
