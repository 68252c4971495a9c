//! Control and cache directories that SCR wrote are drained by the real binary, and the result is that of
//! SCR's tools, or a better one where those are known to be wrong.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_core::kvtree::{json, packed};
use holdfast_core::prefix::index;
use holdfast_core::store;
use holdfast_testkit::{copy_tree, files_below, fixtures};
use serde_json::Value;

use crate::pfs;
use crate::world::{Ran, World};

const JOB: &str = "1145655";
/// The base of the directories of the fixtures' nodes; see the fixtures' README.
const BASE: &str = "/tmp/scr-fixture";

/// The nodes of a fixture, laid out as virtual nodes.
struct Nodes<'a> {
    world: &'a World,
    /// All nodes of the tree, present or not.
    count: usize,
    /// Below `checkpoint:` in the spec.
    places: &'static str,
    /// The drain is given a list of the nodes.
    listed: bool,
}

impl<'a> Nodes<'a> {
    /// The nodes `present` of a source tree (`a-xor4/killed-before-flush`).
    fn lay_out(world: &'a World, source: &str, present: &[usize]) -> Self {
        let trees = tree_of(source);
        let count = nodes_of(&trees).last().unwrap() + 1;
        let scenario = source.split('/').next().unwrap();
        let same_path = ["a3-same-path-and-restart", "e-multi-descriptor", "s-srun-end-to-end"].contains(&scenario);
        for node in present {
            let name = format!("node{node}");
            let base = if same_path { "local" } else { &name };
            let root = world.path("nodes").join(&name).join(BASE.trim_start_matches('/')).join(base);
            fs::create_dir_all(&root).unwrap();
            copy_tree(&trees.join(&name), &root).unwrap();
        }
        fs::create_dir(world.prefix()).unwrap();
        let places = match scenario {
            "e-multi-descriptor" => {
                "control: {base: /tmp/scr-fixture/local/cntl}\n  \
                 cache: [{base: /tmp/scr-fixture/local/ram}, {base: /tmp/scr-fixture/local/ssd}]"
            }
            _ if same_path => "control: {base: /tmp/scr-fixture/local}\n  cache: [{base: /tmp/scr-fixture/local}]",
            _ => "control: {base: '/tmp/scr-fixture/{node}'}\n  cache: [{base: '/tmp/scr-fixture/{node}'}]",
        };
        Nodes { world, count, places, listed: true }
    }

    /// All nodes of a source tree.
    fn all(world: &'a World, source: &str) -> Self {
        Nodes::lay_out(world, source, &nodes_of(&tree_of(source)))
    }

    /// The real path of a node's path.
    fn real(&self, node: usize, path: &str) -> PathBuf {
        self.world.path("nodes").join(format!("node{node}")).join(path.trim_start_matches('/'))
    }

    fn drain(&self, further: &[&str]) -> Ran {
        let spec =
            format!("prefix: {:?}\nrun: {{command: ['true']}}\ncheckpoint:\n  {}\n", self.world.prefix(), self.places);
        let spec = self.world.write("scr.yaml", &spec);
        let hosts = format!("node[0-{}]", self.count - 1);
        let root = self.world.path("nodes");
        let mut command = self.world.holdfast(["drain", "--job-id", JOB, "--user", "user1"]);
        if self.listed {
            command.args(["--nodes", &hosts]);
        }
        command.arg("--root").arg(root).args(further).arg(spec);
        self.world.run(command)
    }

    /// Every checkpoint in a cache of these nodes: its file names and their paths.
    fn cached(&self, id: u64) -> Vec<PathBuf> {
        let of_id = format!("/checkpoint.{id}/");
        files_below(&self.world.path("nodes"))
            .into_iter()
            .filter(|path| path.to_string_lossy().contains(&of_id))
            .collect()
    }
}

fn tree_of(source: &str) -> PathBuf {
    let state = fixtures("scr").join(source);
    // The complete runs also contain the caches from before SCR's drain.
    let before = state.join("after-run");
    if before.is_dir() { before } else { state.join("tree") }
}

/// The nodes with files in a tree; the others were wiped.
fn nodes_of(trees: &Path) -> Vec<usize> {
    (0..32).filter(|node| trees.join(format!("node{node}")).is_dir()).collect()
}

/// The checkpoint directory of a tree that SCR drained.
fn drained_by_scr(source: &str) -> (u64, PathBuf) {
    let prefix = fixtures("scr").join(source).join("tree/pfs");
    let index = index::read(&*store::open(&prefix).unwrap()).unwrap().unwrap();
    let newest = index.entries().into_iter().max_by_key(|entry| entry.id).unwrap();
    assert_eq!(newest.complete, Some(true));
    (newest.id.0, prefix.join(newest.directory.as_str()))
}

/// One drain of the fixtures, as described by its `scenario.txt`.
#[derive(Clone)]
struct Drain {
    name: String,
    source: String,
    id: u64,
    present: Vec<usize>,
    /// Damage to a cache before the copy.
    before: Option<String>,
    /// Damage to the prefix after it.
    after: Option<String>,
}

fn drains() -> Vec<Drain> {
    let root = fixtures("scr");
    let mut drains = Vec::new();
    for scenario in ["f-drain-xor", "f2-drain-xor-8nodes", "f3-drain-xor-remainder", "g-drain-partner"] {
        for state in fs::read_dir(root.join(scenario)).unwrap().flatten() {
            let name = format!("{scenario}/{}", state.file_name().to_str().unwrap());
            let Ok(text) = fs::read_to_string(state.path().join("logs/scenario.txt")) else { continue };
            let find =
                |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned());
            drains.push(Drain {
                name,
                source: find("source tree:").unwrap(),
                id: find("checkpoint id:").unwrap().parse().unwrap(),
                present: find("nodes present:").unwrap().split(' ').map(|node| node.parse().unwrap()).collect(),
                before: find("before copy:"),
                after: find("after copy:"),
            });
        }
    }
    drains.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(drains.len() >= 30, "only {} drains", drains.len());
    drains
}

impl Drain {
    fn expected(&self) -> PathBuf {
        fixtures("scr").join(&self.name).join("expected/tree/pfs")
    }

    fn expected_directory(&self) -> PathBuf {
        let end = format!(".{JOB}.{}", self.id);
        let below = fs::read_dir(self.expected()).unwrap().flatten().map(|entry| entry.path());
        below.filter(|path| path.is_dir() && path.to_string_lossy().ends_with(&end)).max().unwrap()
    }

    fn expected_complete(&self) -> bool {
        pfs::indexed(&self.expected())[&self.id] == Some(true)
    }

    /// Repeats the damage that was done to a cache.
    fn damage_cache(&self, nodes: &Nodes<'_>) {
        let Some(command) = &self.before else { return };
        let path = command.split([' ', '=']).find(|item| item.starts_with(BASE)).unwrap();
        let node: usize = path[BASE.len() + "/node".len()..].split('/').next().unwrap().parse().unwrap();
        damage(&nodes.real(node, path), command);
    }
}

/// `rm`, `truncate -s 1000`, or one byte at 500 set to `X`.
fn damage(path: &Path, command: &str) {
    if command.starts_with("rm ") {
        fs::remove_file(path).unwrap();
    } else if command.starts_with("truncate -s 1000") {
        fs::File::options().write(true).open(path).unwrap().set_len(1000).unwrap();
    } else {
        assert!(command.contains("seek=500"), "{command}");
        let mut bytes = fs::read(path).unwrap();
        assert_ne!(bytes[500], b'X');
        bytes[500] = b'X';
        fs::write(path, bytes).unwrap();
    }
}

/// The directory that was drained.
fn drained(world: &World, id: u64) -> PathBuf {
    let end = format!(".{JOB}.{id}");
    let below = fs::read_dir(world.prefix()).unwrap().flatten().map(|entry| entry.path());
    below.filter(|path| path.is_dir() && path.to_string_lossy().ends_with(&end)).max().unwrap()
}

fn parsed_front(bytes: &[u8]) -> (Value, &[u8]) {
    let (tree, length) = packed::decode(bytes).unwrap();
    (json::value(&tree), &bytes[length..])
}

/// One file: hash files parsed, `.xor` files header and data, all others to the byte.
#[track_caller]
fn same_file(drain: &str, ours: &Path, theirs: &Path) {
    let name = theirs.file_name().unwrap().to_str().unwrap();
    let (mine, original) = (fs::read(ours).unwrap(), fs::read(theirs).unwrap());
    let hash_file = [".scr", ".scrfilemap", ".xor"].iter().any(|end| name.ends_with(end));
    if hash_file {
        let ((mine, my_data), (original, their_data)) = (parsed_front(&mine), parsed_front(&original));
        assert_eq!(mine, original, "{drain}: {name}");
        assert!(my_data == their_data, "{drain}: data of {name}");
    } else {
        assert!(mine == original, "{drain}: {name} differs");
    }
}

#[track_caller]
fn same_checkpoint(drain: &str, ours: &Path, theirs: &Path) {
    assert_eq!(pfs::names(ours), pfs::names(theirs), "{drain}");
    for name in pfs::names(theirs) {
        same_file(drain, &ours.join(&name), &theirs.join(&name));
    }
}

/// Drains whose result is better than SCR's; each has its own test below.
const BETTER: [&str; 4] = [
    // SCR copies nothing of a directory that is on the prefix already.
    "f-drain-xor/already-flushed",
    // A checkpoint that was never finished: SCR makes an empty directory.
    "f-drain-xor/mid-checkpoint-id2",
    // SCR copies nothing of a node with one damaged file, and rebuilds all its files.
    "f-drain-xor/multi-cache-file-lost-on-up-node",
    // SCR rebuilds the one set but lists the files from before.
    "f2-drain-xor-8nodes/group0-loses-two-group4-loses-one",
];

fn compare_with_drains_of_scr(part: usize, parts: usize) {
    let ordinary = drains().into_iter().filter(|drain| drain.after.is_none() && !BETTER.contains(&drain.name.as_str()));
    let mut compared = 0;
    let part = ordinary.enumerate().filter(|(at, _)| at % parts == part).map(|(_, drain)| drain);
    // A lost node is found without a list of the nodes too: by what the others hold of it.
    let both: Vec<(Drain, bool)> = part.flat_map(|drain| [(drain.clone(), true), (drain, false)]).collect();
    for (drain, listed) in both {
        let world = World::unchecked();
        let nodes = Nodes { listed, ..Nodes::lay_out(&world, &drain.source, &drain.present) };
        drain.damage_cache(&nodes);
        let ran = nodes.drain(&["--checkpoint", &drain.id.to_string()]);
        let complete = drain.expected_complete();
        assert_eq!(ran.status.code(), Some(if complete { 0 } else { 65 }), "{}: {} {}", drain.name, ran.out, ran.err);
        assert_eq!(pfs::indexed(&world.prefix()).get(&drain.id), Some(&Some(complete)), "{}", drain.name);
        let (ours, theirs) = (drained(&world, drain.id), drain.expected_directory());
        if complete {
            same_checkpoint(&drain.name, &ours, &theirs);
            pfs::assert_current(&world.prefix(), drain.id);
        } else {
            // Holdfast may save more than SCR, not less.
            assert_eq!(pfs::current_id(&world.prefix()), None, "{}", drain.name);
            let (saved, theirs_saved): (BTreeSet<_>, BTreeSet<_>) =
                (pfs::names(&ours).into_iter().collect(), pfs::names(&theirs).into_iter().collect());
            assert!(theirs_saved.is_subset(&saved), "{}: {saved:?} without some of {theirs_saved:?}", drain.name);
            for name in theirs_saved.iter().filter(|name| *name != "summary.scr") {
                same_file(&drain.name, &ours.join(name), &theirs.join(name));
            }
            let summary = pfs::parsed(&ours.join("summary.scr"));
            assert!(summary["CKPT"][drain.id.to_string()].get("COMPLETE").is_none(), "{}: {summary}", drain.name);
        }
        world.assert_nothing_is_left();
        compared += 1;
    }
    assert!(compared >= 5, "only {compared} drains were compared");
}

#[test]
fn drains_of_fixtures_end_as_with_scr_1() {
    compare_with_drains_of_scr(0, 3);
}

#[test]
fn drains_of_fixtures_end_as_with_scr_2() {
    compare_with_drains_of_scr(1, 3);
}

#[test]
fn drains_of_fixtures_end_as_with_scr_3() {
    compare_with_drains_of_scr(2, 3);
}

/// Files that were damaged on the prefix after an interrupted drain had copied them: SCR's index tool repairs
/// those that it detects (all but one); a resumed drain has the caches, and repairs all of them.
#[test]
fn resumed_drain_repairs_copied_files() {
    let mut repaired = 0;
    for drain in drains().into_iter().filter(|drain| drain.after.is_some()) {
        let world = World::unchecked();
        let nodes = Nodes::lay_out(&world, &drain.source, &drain.present);
        let input = fixtures("scr").join(&drain.name).join("input/tree/pfs");
        copy_tree(&input, &world.prefix()).unwrap();
        let name = drain.expected_directory().file_name().unwrap().to_str().unwrap().to_owned();
        fs::create_dir(world.prefix().join(".holdfast")).unwrap();
        let note = serde_json::json!({"job_id": JOB, "checkpoint": drain.id, "directory": name});
        fs::write(world.prefix().join(".holdfast/drain.json"), note.to_string()).unwrap();
        nodes.drain(&[]).with_code(0);
        pfs::assert_current(&world.prefix(), drain.id);
        assert_eq!(pfs::current(&world.prefix()).unwrap(), world.prefix().join(&name), "{}", drain.name);
        // The result of a drain of the same nodes without damage.
        let twin = drains().into_iter().find(|other| {
            other.source == drain.source
                && other.id == drain.id
                && other.present == drain.present
                && other.before.is_none()
                && other.after.is_none()
        });
        same_checkpoint(&drain.name, &world.prefix().join(&name), &twin.unwrap().expected_directory());
        world.assert_nothing_is_left();
        repaired += 1;
    }
    assert!(repaired >= 6, "only {repaired}");
}

#[test]
fn does_not_rebuild_from_file_with_wrong_checksum(world: &World) {
    let nodes = Nodes::lay_out(world, "a-xor4/crc-on-copy", &[0, 1, 3]);
    let survivor = nodes.cached(1).into_iter().find(|path| path.ends_with("rank_1.ckpt")).unwrap();
    damage(&survivor, "seek=500");
    nodes.drain(&[]).with_code(65).prints(&["not complete"]);
    assert_eq!(pfs::indexed(&world.prefix())[&1], Some(false));
    assert!(!drained(world, 1).join("rank_2.ckpt").exists(), "rank 2 was computed from a damaged file");
    assert_eq!(pfs::current_id(&world.prefix()), None);
}

#[test]
fn one_damaged_file_does_not_exclude_its_node(world: &World) {
    // Node 1 has ranks 2 and 3, of two sets; a file of rank 2 and node 3, with a member of each set, are lost.
    let nodes = Nodes::lay_out(world, "b-xor4-2groups/killed-before-flush", &[0, 1, 2]);
    let lost = nodes.cached(3).into_iter().find(|path| path.ends_with("aa_first.dat")).unwrap();
    fs::remove_file(lost).unwrap();
    nodes.drain(&["--checkpoint", "3"]).with_code(65).prints(&["not complete"]);
    let there = pfs::names(&drained(world, 3));
    // All other files of node 1 were saved: rank 3, whose set is complete again, and the intact files of rank 2.
    for name in ["rank_3.0.ckpt", "rank_3.1.ckpt", "rank_3.2.ckpt", "zz_last.dat", "mid.dat"] {
        assert!(there.iter().any(|other| other == name), "{name} is not in {there:?}");
    }
}

#[test]
fn rebuilds_only_rank_of_damaged_file(world: &World) {
    let drain = drains().into_iter().find(|drain| drain.name.ends_with("multi-cache-file-lost-on-up-node")).unwrap();
    let nodes = Nodes::lay_out(world, &drain.source, &drain.present);
    drain.damage_cache(&nodes);
    let document = nodes.drain(&["--json"]).with_code(0).json();
    assert_eq!(document["rebuilt_ranks"], serde_json::json!([2]));
    pfs::assert_current(&world.prefix(), drain.id);
    let (ours, theirs) = (drained(world, drain.id), drain.expected_directory());
    assert_eq!(pfs::names(&ours), pfs::names(&theirs));
    // All but rank 3's XOR file, whose header SCR rewrote, and the files with its checksum.
    let rewritten = ["2_of_4_in_1.xor", "2_of_4_in_1.xor.scr", "summary.scr"];
    for name in pfs::names(&theirs).iter().filter(|name| !rewritten.contains(&name.as_str())) {
        same_file(&drain.name, &ours.join(name), &theirs.join(name));
    }
    same_file(&drain.name, &ours.join(rewritten[0]), &theirs.join(rewritten[0]));
    let cached = nodes.cached(drain.id).into_iter().find(|path| path.ends_with(rewritten[0])).unwrap();
    assert_eq!(fs::read(ours.join(rewritten[0])).unwrap(), fs::read(cached).unwrap());
}

#[test]
fn drains_newest_completable_checkpoint(world: &World) {
    // Checkpoint 3 lost two members; checkpoint 2 lost one node.
    let nodes = Nodes::lay_out(world, "a-xor4/killed-before-flush", &[0, 1, 2]);
    let lost = nodes.cached(3).into_iter().find(|path| path.ends_with("rank_1.ckpt")).unwrap();
    fs::remove_file(lost).unwrap();
    nodes.drain(&[]).with_code(0).prints(&["checkpoint 3 skipped", "checkpoint 2 is complete"]);
    pfs::assert_current(&world.prefix(), 2);
}

#[test]
fn saves_rebuildable_set_although_another_is_lost(world: &World) {
    let drain = drains().into_iter().find(|drain| drain.name.ends_with("group0-loses-two-group4-loses-one")).unwrap();
    Nodes::lay_out(world, &drain.source, &drain.present).drain(&[]).with_code(65);
    assert_eq!(pfs::indexed(&world.prefix())[&drain.id], Some(false));
    let summary = pfs::parsed(&drained(world, drain.id).join("summary.scr"));
    let listed: Vec<&String> = summary["CKPT"][drain.id.to_string()]["RANK"].as_object().unwrap().keys().collect();
    assert!(listed.iter().any(|rank| *rank == "4"), "{listed:?}");
    assert!(!listed.iter().any(|rank| ["0", "1"].contains(&rank.as_str())), "{listed:?}");
}

/// A complete tree: the newest finished checkpoint is drained, with the bytes of the caches.
fn is_drained(source: &str, id: u64) {
    let world = World::unchecked();
    let nodes = Nodes::all(&world, source);
    nodes.drain(&[]).with_code(0);
    pfs::assert_current(&world.prefix(), id);
    let directory = pfs::current(&world.prefix()).unwrap();
    let mut compared = 0;
    for path in nodes.cached(id).iter().filter(|path| !path.to_string_lossy().ends_with(".scr")) {
        let name = path.file_name().unwrap();
        assert!(fs::read(path).unwrap() == fs::read(directory.join(name)).unwrap(), "{source}: {name:?}");
        compared += 1;
    }
    assert!(compared > 0, "{source}");
    world.assert_nothing_is_left();
    // The nodes have recorded the flush.
    nodes.drain(&[]).with_code(0).prints(&["nothing to drain"]);
}

#[test]
fn drains_every_unflushed_tree_of_scr() {
    is_drained("a-xor4/killed-before-flush", 3);
    is_drained("a-xor4/killed-mid-checkpoint", 1);
    is_drained("a-xor4/crc-on-copy", 1);
    is_drained("a2-checkpoint-marked-invalid/after-kill", 1);
    is_drained("b-xor4-2groups/killed-before-flush", 3);
    is_drained("b4-xor-uneven-ppn/killed-before-flush", 1);
    is_drained("d-local/killed-before-flush", 2);
    is_drained("d2-single-node-forced-local/killed-before-flush", 1);
}

#[test]
fn trees_of_many_nodes_are_drained() {
    is_drained("b2-xor4-8nodes/killed-before-flush", 1);
    is_drained("b3-xor-remainder-group/killed-before-flush", 1);
}

#[test]
fn trees_with_the_same_path_on_every_node_and_moved_ranks_are_drained() {
    is_drained("a3-same-path-and-restart/1-killed", 3);
    is_drained("a3-same-path-and-restart/2-restarted-on-node0-1-3-4", 3);
}

#[test]
fn trees_with_partner_copies_are_drained_once_each() {
    is_drained("c-partner/killed-before-flush", 2);
    is_drained("c-partner/hop2-killed-before-flush", 1);
}

#[test]
fn trees_with_several_descriptors_in_several_caches_are_drained() {
    is_drained("e-multi-descriptor/killed-before-flush", 5);
    is_drained("e-multi-descriptor/killed-after-flush", 7);
}

#[test]
fn uses_newest_checkpoint_that_survives_node_loss(world: &World) {
    // Checkpoint 5 is LOCAL, 4 is XOR, 2 is PARTNER.
    let nodes = Nodes::lay_out(world, "e-multi-descriptor/killed-before-flush", &[0, 1, 3]);
    nodes.drain(&[]).with_code(0).prints(&["checkpoint 5 skipped"]);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn drains_only_checkpoints_not_flushed_by_scr() {
    is_drained("a-xor4/killed-after-flush", 3);
    for source in ["a-xor4/finalized", "c-partner/killed-after-flush"] {
        let world = World::new();
        let nodes = Nodes::all(&world, source);
        let ran = nodes.drain(&[]);
        let newest_is_flushed = ran.out.contains("nothing was drained");
        assert_eq!(newest_is_flushed, pfs::current_id(&world.prefix()).is_none(), "{source}");
        if source == "a-xor4/finalized" {
            assert!(newest_is_flushed, "{}", ran.out);
        }
        // SCR copied it to another prefix directory than this one.
        ran.with_code(if newest_is_flushed { 69 } else { 0 });
    }
}

#[test]
fn recorded_run_of_scr_scripts_has_same_result(world: &World) {
    let source = "s-srun-end-to-end/drain-one-node-down";
    // Node 2 was down, node 4 a spare without files.
    let nodes = Nodes::lay_out(world, source, &[0, 1, 3]);
    nodes.drain(&[]).with_code(0);
    pfs::assert_current(&world.prefix(), 3);
    let (id, theirs) = drained_by_scr(source);
    assert_eq!(id, 3);
    same_checkpoint(source, &pfs::current(&world.prefix()).unwrap(), &theirs);
}

#[test]
fn drains_node_unreachable_in_round_1_as_scr_does(world: &World) {
    let source = "s-srun-end-to-end/drain-pdsh-failure";
    let (id, theirs) = drained_by_scr(source);
    // The tree is that after the drain: its flush file lists nothing to drain, so the checkpoint is named.
    let nodes = Nodes::lay_out(world, source, &[0, 1, 3]);
    nodes.drain(&["--checkpoint", &id.to_string()]).with_code(0);
    pfs::assert_current(&world.prefix(), id);
    same_checkpoint(source, &pfs::current(&world.prefix()).unwrap(), &theirs);
}

#[test]
fn does_not_drain_files_of_another_job(world: &World) {
    // The application is a script that leaves the files of another job's library.
    let source = fixtures("scr").join("a-xor4/killed-before-flush/tree");
    let script = format!(
        "set -e; d=$TMPDIR/holdfast-*/nodes/$HOLDFAST_NODE/tmp/u; mkdir -p $d; \
         cp -r {}/$HOLDFAST_NODE/user1/scr.{JOB} $d/copied; exit 9",
        source.display()
    );
    let spec = format!(
        "prefix: {:?}\nallocation: {{manager: local, nodes: 4}}\nrun: {{nodes: 4, command: [sh, -c, {script:?}]}}\n\
         relaunch: {{attempts: 0}}\n",
        world.prefix()
    );
    let ran = world.run_spec(&spec);
    // Those files name another job's directories: there is nothing of this job to drain.
    ran.with_code(90).prints(&["exit code 9"]);
}
