//! Nodes of the SCR fixtures and messages to their agents, for tests. In the fixtures all nodes share one file system,
//! and each has its own base.

use std::fs;
use std::path::Path;

use holdfast_model::{Generation, Rank, Scheme};
use holdfast_wire::fixtures::settings;
use holdfast_wire::plan::{MemberPlan, OwnPlan, RunRequest, SharedPlan};
use holdfast_wire::run::AgentStart;
use serde_json::json;

/// The orchestrator's start message for the agent of that node. Directories of tests count as below a prefix directory.
pub(crate) fn fixture_start(root: &Path, node: &str) -> AgentStart {
    serde_json::from_value(json!({
        "version": holdfast_wire::VERSION, "job": "heat", "job_id": "1145655", "user": "user1", "node": node,
        "root": root, "prefixes": ["/p", std::env::temp_dir()], "control_base": base(node),
        "cache_bases": {base(node): null}, "control_bytes": null,
        "listen": "127.0.0.1:0", "trust": {"certificate": "", "key": "", "token": ""},
        "disk_timeout": 30_000, "abandon_after": 60_000,
    }))
    .unwrap()
}

pub(crate) fn base(node: &str) -> String {
    format!("/tmp/scr-fixture/{node}")
}

/// Copies a node of a fixture below `root`.
pub(crate) fn lay_out(root: &Path, tree: &str, node: &str) {
    let home = root.join("tmp/scr-fixture").join(node);
    fs::create_dir_all(&home).unwrap();
    let source = holdfast_testkit::fixtures("scr").join(tree).join("tree").join(node);
    holdfast_testkit::copy_tree(&source, &home).unwrap();
}

/// A run with these ranks on one node, led from another node that cannot be reached.
pub(crate) fn fixture_plan(generation: Generation, node: &str, ranks: &[u32]) -> MemberPlan {
    let accepted = fixture_request(generation, node, ranks).accept(&node.into()).unwrap();
    (*accepted.member).clone()
}

/// The same, as the orchestrator sends it.
pub(crate) fn fixture_request(generation: Generation, node: &str, ranks: &[u32]) -> RunRequest {
    let mut settings = settings("/p", &base(node), 1, Scheme::new("LOCAL"));
    settings.descriptors.clear();
    settings.restart.fetch = false;
    let shared = SharedPlan {
        generation,
        ranks: ranks.iter().max().map_or(0, |last| last + 1),
        used_nodes: 1,
        leader: "elsewhere".into(),
        leader_address: "127.0.0.1:1".parse().unwrap(),
        settings,
    };
    let own = OwnPlan { node: node.into(), ranks: ranks.iter().copied().map(Rank).collect() };
    RunRequest { issued: 1, shared, own, nodes: None }
}
