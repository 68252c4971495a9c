use super::*;

use std::path::Path;

use holdfast_model::Inventory;
use holdfast_wire::agent::{Empty, INVENTORY, STOP};
use holdfast_wire::trust;

use crate::fixtures::{fixture_start, lay_out};
use crate::server::client::ask;

struct Running {
    ready: AgentReady,
    start: AgentStart,
    agent: std::thread::JoinHandle<Result<(), DaemonError>>,
}

/// Runs an agent on a thread, as the orchestrator runs it as a process.
fn launch(root: &Path, node: &str) -> Running {
    let mut start = fixture_start(root, node);
    start.trust = trust::generate().unwrap();
    let line = serde_json::to_string(&start).unwrap() + "\n";
    let (reader, writer) = io::pipe().unwrap();
    let agent = std::thread::spawn(move || run(line.as_bytes(), writer));
    let mut ready = String::new();
    io::BufReader::new(reader).read_line(&mut ready).unwrap();
    Running { ready: serde_json::from_str(&ready).unwrap(), start, agent }
}

fn in_runtime<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn an_agent_reports_its_address_serves_what_it_finds_and_keeps_it_when_it_is_stopped() {
    let root = tempfile::tempdir().unwrap();
    lay_out(root.path(), "a-xor4/killed-before-flush", "node1");
    let Running { ready, start, agent } = launch(root.path(), "node1");
    assert_eq!((ready.version, ready.node.as_str(), ready.pid), (VERSION, "node1", std::process::id()));
    let inventory: Inventory = in_runtime(ask(ready.address, &start.trust, INVENTORY, None::<&Empty>));
    assert_eq!(inventory.holdings.iter().filter(|holding| holding.complete).count(), 2);
    let _: Empty = in_runtime(ask(ready.address, &start.trust, STOP, Some(&StopRequest { remove: false })));
    agent.join().unwrap().unwrap();
    let control = Paths::new(&start).control();
    assert!(control.join("filemap_0.scrinfo").exists() && !control.join("agent.sock").exists());
}

#[test]
fn a_job_that_is_over_leaves_nothing_on_the_node() {
    let root = tempfile::tempdir().unwrap();
    lay_out(root.path(), "a-xor4/killed-before-flush", "node1");
    let Running { ready, start, agent } = launch(root.path(), "node1");
    let _: Empty = in_runtime(ask(ready.address, &start.trust, STOP, Some(&StopRequest { remove: true })));
    agent.join().unwrap().unwrap();
    assert!(!Paths::new(&start).control().exists());
    assert!(root.path().join("tmp/scr-fixture/node1").exists(), "the base is not ours");
}

#[test]
fn an_abandoned_agent_ends_by_itself() {
    let root = tempfile::tempdir().unwrap();
    let mut start = fixture_start(root.path(), "node0");
    start.trust = trust::generate().unwrap();
    start.abandon_after = Duration::from_millis(1);
    let line = serde_json::to_string(&start).unwrap() + "\n";
    run(line.as_bytes(), io::sink()).unwrap();
    assert!(Paths::new(&start).control().exists(), "checkpoints are kept");
}

#[test]
fn refuses_invalid_start_lines_with_the_reason() {
    let refused = |line: &str| run(line.as_bytes(), io::sink()).unwrap_err().to_string();
    assert!(refused("").contains("no start message"));
    assert!(refused("{}\n").contains("no version"));
    assert!(refused("{\"version\":99}\n").contains("version 99"));
    assert!(refused(&"x".repeat(2 << 20)).contains("longer"));
    let root = tempfile::tempdir().unwrap();
    let mut start = fixture_start(root.path(), "node0");
    start.job_id = "../../etc".to_owned();
    assert!(refused(&serde_json::to_string(&start).unwrap()).contains("job id"));
}
