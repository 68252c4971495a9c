//! Both rounds of a drain, interrupted at every call of the agents' copies and of the orchestrator's own steps on the
//! prefix directory: a directory that counts as complete has all its files, and another drain completes the rest.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use chrono::NaiveDateTime;
use holdfast_agent::agent::inventory;
use holdfast_agent::copy::drain::copy_alone;
use holdfast_agent::directories::paths::Paths;
use holdfast_agent::store::Store;
use holdfast_core::crash::{ALL_ERRORS, EXHAUSTED, Subject, Tried};
use holdfast_core::kvtree::file as hash_file;
use holdfast_core::prefix::index::{self, IndexEntry};
use holdfast_core::prefix::inspect::{Completeness, Inspection, inspect};
use holdfast_core::prefix::rank_filemap::RankFilemap;
use holdfast_core::prefix::scan::Scan;
use holdfast_core::store::{DatasetStore, DirectoryName, PosixStore};
use holdfast_core::temporary;
use holdfast_model::{CheckpointId, NodeName};
use holdfast_wire::agent::CopyRequest;
use holdfast_wire::run::AgentStart;
use serde_json::json;

use crate::drain::Answer;
use crate::drain::action::{DrainRequest, Findings};
use crate::drain::prefix_steps::PrefixSteps;
use crate::drain::resume;

const JOB: &str = "1145655";
const NODES: [&str; 4] = ["node0", "node1", "node2", "node3"];
/// Its files are lost in the drain that is interrupted.
const LOST: &str = "node2";
const RANKS: usize = 4;

fn text<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

/// What is drained: datasets of the fixtures, each of four nodes with one rank.
#[derive(Clone, Copy)]
struct Drained {
    fixture: &'static str,
    id: CheckpointId,
}

/// The lost member is rebuilt.
const XOR: Drained = Drained { fixture: "a-xor4/killed-before-flush", id: CheckpointId(3) };
/// The lost files are copied by the partner, in the second round.
const PARTNER: Drained = Drained { fixture: "c-partner/hop2-killed-before-flush", id: CheckpointId(1) };
/// Complete in the prefix directory, whatever is interrupted.
const OLDER: Drained = Drained { fixture: "a-xor4/killed-before-flush", id: CheckpointId(2) };

fn base(node: &str) -> String {
    format!("/tmp/scr-fixture/{node}")
}

fn lay_out(nodes: &Path, drained: Drained) {
    for node in NODES {
        let home = nodes.join("tmp/scr-fixture").join(node);
        fs::create_dir_all(&home).unwrap();
        let source = holdfast_testkit::fixtures("scr").join(drained.fixture).join("tree").join(node);
        holdfast_testkit::copy_tree(&source, &home).unwrap();
    }
}

/// The files of a node, as an agent that starts finds them.
fn store(nodes: &Path, node: &str) -> Result<Store, String> {
    let start: AgentStart = serde_json::from_value(json!({
        "version": holdfast_wire::VERSION, "job": "heat", "job_id": JOB, "user": "user1", "node": node,
        "root": nodes, "prefixes": [], "control_base": base(node), "cache_bases": {base(node): null},
        "control_bytes": null, "listen": "127.0.0.1:0", "trust": {"certificate": "", "key": "", "token": ""},
        "disk_timeout": 30_000, "abandon_after": 60_000,
    }))
    .unwrap();
    Store::open(Paths::new(&start), vec![base(node)]).map_err(text)
}

/// All steps of a drain of one dataset, from the nodes that are left.
fn drain(prefix: &Path, nodes: &Path, drained: Drained, left: &[&str]) -> Result<(), String> {
    let steps = steps(prefix);
    let carry_out = |step| steps.carry_out(step, NaiveDateTime::default()).map_err(|failure| failure.reason);
    // The nodes have noted that it is drained.
    let is_under_way = resume::under_way(&PosixStore::open(prefix).map_err(text)?).is_some();
    if !is_under_way && is_complete(prefix, drained.id)? {
        return Ok(());
    }
    let open = DrainRequest::OpenDirectory { checkpoint: drained.id, name: None, container: None };
    let Answer::DirectoryOpened { directory, .. } = carry_out(open)? else { panic!("not the answer") };
    let down: Vec<NodeName> = NODES.iter().filter(|node| !left.contains(node)).map(|node| (*node).into()).collect();
    for partners_only in [false, true] {
        for node in left {
            let request = CopyRequest {
                checkpoint: drained.id,
                directory: prefix.join(directory.as_str()),
                crc: true,
                on_behalf_of: if partners_only { down.clone() } else { Vec::new() },
                partners_only,
                buffer_bytes: 4 << 10,
                threads: Some(1),
                container: None,
            };
            let reply = copy_alone(&store(nodes, node)?, prefix, &request).map_err(text)?;
            if let Some((rank, fault)) = reply.failed.first_key_value() {
                return Err(format!("rank {rank}: {fault}"));
            }
        }
    }
    for set in judge(prefix, &directory)?.1.rebuildable {
        let (checkpoint, directory) = (drained.id, directory.clone());
        carry_out(DrainRequest::Rebuild { agent: None, checkpoint, directory, set })?;
    }
    let (scan, inspection) = judge(prefix, &directory)?;
    let is_complete = inspection.completeness == Completeness::Complete;
    let findings = Box::new(Findings { directory: directory.clone(), scan, inspection, make_current: true });
    carry_out(DrainRequest::Publish { findings })?;
    if !is_complete {
        return Err("it is not complete".to_owned());
    }
    carry_out(DrainRequest::CloseDirectory).map(drop)
}

fn steps(prefix: &Path) -> PrefixSteps {
    PrefixSteps::at(prefix.to_owned(), JOB.to_owned(), true, false)
}

fn judge(prefix: &Path, directory: &DirectoryName) -> Result<(Scan, Inspection), String> {
    let scan = steps(prefix).carry_out(DrainRequest::Scan { directory: directory.clone() }, NaiveDateTime::default());
    let Answer::Scanned(mut scan) = scan.map_err(|failure| failure.reason)? else { panic!("not the answer") };
    scan.verify(1, &|_| {});
    let inspection = inspect(&scan);
    Ok((*scan, inspection))
}

fn entries(prefix: &Path) -> Result<Vec<IndexEntry>, String> {
    let store = PosixStore::open(prefix).map_err(text)?;
    Ok(index::read(&store).map_err(text)?.unwrap_or_default().entries())
}

fn is_complete(prefix: &Path, id: CheckpointId) -> Result<bool, String> {
    Ok(entries(prefix)?.iter().any(|entry| entry.id == id && entry.complete == Some(true)))
}

/// What the index has as complete has all files with their content, and so has the current dataset. The caches of the
/// nodes that are left are complete.
fn check(prefix: &Path, nodes: &Path, drained: Drained) -> Result<(), String> {
    let entries = entries(prefix)?;
    let complete: Vec<_> = entries.into_iter().filter(|entry| entry.complete == Some(true)).collect();
    if !complete.iter().any(|entry| entry.id == OLDER.id) {
        return Err("the older dataset is lost".to_owned());
    }
    for entry in &complete {
        let (scan, inspection) = judge(prefix, &entry.directory)?;
        if inspection.completeness != Completeness::Complete || scan.ranks.len() != RANKS || !scan.damaged.is_empty() {
            return Err(format!("{} is not complete: {inspection:?}", entry.directory));
        }
    }
    let current = PosixStore::open(prefix).map_err(text)?.current().map_err(text)?;
    if !complete.iter().any(|entry| Some(&entry.directory) == current.as_ref()) {
        return Err(format!("scr.current leads to {current:?}"));
    }
    for node in NODES.into_iter().filter(|node| *node != LOST) {
        let held = inventory::of_store(&node.into(), &store(nodes, node)?).map_err(text)?;
        let own = held.holdings.iter().find(|held| held.checkpoint == drained.id && held.partner_of.is_none());
        if !held.faults.is_empty() || own.is_none_or(|own| !own.complete && !own.files.is_empty()) {
            return Err(format!("{node}: {:?} {own:?}", held.faults));
        }
    }
    Ok(())
}

/// Every file and directory below the prefix directory, with the id of a dataset for its name, which has the time.
fn result(prefix: &Path) -> String {
    let entries = entries(prefix).unwrap();
    let named = |path: &Path| {
        let name = path.strip_prefix(prefix).unwrap().to_string_lossy().into_owned();
        let id = |name: String, entry: &IndexEntry| name.replace(entry.directory.as_str(), &format!("{}", entry.id));
        entries.iter().fold(name, id)
    };
    let mut listed: BTreeSet<String> =
        entries.iter().map(|entry| format!("{} {:?}", entry.id, entry.complete)).collect();
    let mut directories = vec![prefix.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let content = if path.is_symlink() {
                named(&prefix.join(fs::read_link(&path).unwrap()))
            } else if path.is_dir() {
                directories.push(path.clone());
                "a directory".to_owned()
            } else {
                content(&path)
            };
            listed.insert(format!("{}: {content}", named(&path)));
        }
    }
    format!("{listed:#?}")
}

/// The elements of a filemap may be in either of two orders; those of the index are listed.
fn content(path: &Path) -> String {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("scrfilemap") => format!("{:?}", RankFilemap::from_tree(&hash_file::read(path).unwrap(), path).unwrap()),
        _ if path.file_name().is_some_and(|name| name == index::INDEX_FILE) => String::new(),
        _ => format!("{:#x}", crc32fast::hash(&fs::read(path).unwrap())),
    }
}

fn nodes_left() -> Vec<&'static str> {
    NODES.into_iter().filter(|node| *node != LOST).collect()
}

/// Interrupts the drain; the caches are below `nodes`, or in the directory that is interrupted too. If it `continues`,
/// an earlier drain was killed before it had copied all files.
fn interrupt(name: &str, drained: Drained, nodes: Option<&Path>, continues: bool) -> Tried {
    let place = |root: &Path| match nodes {
        Some(nodes) => (root.to_owned(), nodes.to_owned()),
        None => (root.join("prefix"), root.join("nodes")),
    };
    let caches = tempfile::tempdir().unwrap();
    lay_out(caches.path(), OLDER);
    let prepare = |root: &Path| {
        let (prefix, nodes) = place(root);
        fs::create_dir_all(&prefix).unwrap();
        lay_out(&nodes, drained);
        drain(&prefix, caches.path(), OLDER, &NODES).unwrap();
        if continues {
            drain(&prefix, &nodes, drained, &nodes_left()[..1]).unwrap_err();
        }
    };
    let work = |root: &Path| {
        let (prefix, nodes) = place(root);
        temporary::remove_abandoned_below(&nodes).map_err(text)?;
        drain(&prefix, &nodes, drained, &nodes_left())
    };
    let check = |root: &Path| {
        let (prefix, nodes) = place(root);
        check(&prefix, &nodes, drained)
    };
    let result = |root: &Path| result(&place(root).0);
    // A node that has lost its power has lost its cache; the file system of the prefix directory has not.
    let (power, errors) = if nodes.is_some() { (true, ALL_ERRORS) } else { (false, EXHAUSTED) };
    let subject = Subject { name, prepare: &prepare, work: &work, check: &check, result: &result, power, errors };
    subject.interrupt()
}

#[test]
fn crash_a_drain_that_rebuilds_a_lost_member() {
    let nodes = tempfile::tempdir().unwrap();
    let tried = interrupt("drain, lost member", XOR, Some(nodes.path()), false);
    assert!(tried.kills > 50 && tried.losses > 100 && tried.errors > 200, "{tried:?}");
}

#[test]
fn crash_both_rounds_of_a_drain() {
    let tried = interrupt("drain, two rounds", PARTNER, None, false);
    assert!(tried.kills > 50 && tried.errors > 200, "{tried:?}");
}

#[test]
fn crash_a_drain_that_continues_a_killed_one() {
    let tried = interrupt("drain, continued", PARTNER, None, true);
    assert!(tried.kills > 50 && tried.errors > 200, "{tried:?}");
}
