//! Agents on threads of this process, a run that they serve, and ranks of it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_agent::daemon;
use holdfast_client::{AgentAddress, Client, Environment};
use holdfast_model::{Generation, NodeName, Placement, Rank, RunNode, Scheme};
use holdfast_wire::agent::{RUN, RunAccepted};
use holdfast_wire::plan::PlanParts;
use holdfast_wire::run::{AgentReady, AgentStart, TrustMaterial};
use holdfast_wire::{ALPN_HTTP, VERSION, fixtures, trust};
use rustls::{ClientConnection, StreamOwned};
use tempfile::TempDir;

pub const GENERATION: Generation = Generation(1);

pub struct Cluster {
    _directory: TempDir,
    pub job: String,
    /// The socket of each node, and its ranks.
    pub nodes: Vec<(PathBuf, Vec<Rank>)>,
    pub ranks: u32,
}

impl Cluster {
    /// `scheme` protects checkpoints, in groups with one rank a node.
    pub fn start(job: &str, nodes: u32, ranks_per_node: u32, scheme: &'static str) -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path().join("prefix");
        // As the orchestrator does: the agents check for it.
        std::fs::create_dir_all(prefix.join(".holdfast")).unwrap();
        let trust = trust::generate().unwrap();
        let run_nodes = (0..nodes).map(|at| {
            let name = NodeName::new(format!("node{at}"));
            let root = directory.path().join(name.as_str());
            std::fs::create_dir(&root).unwrap();
            let address = start_agent(job, name.clone(), root, prefix.clone(), &trust);
            let ranks = (at * ranks_per_node..(at + 1) * ranks_per_node).map(Rank).collect();
            RunNode { failure_domain: name.to_string(), name, address, ranks }
        });
        let placement = Arc::new(Placement { nodes: run_nodes.collect(), leader: NodeName::new("node0") });
        let mut settings = fixtures::settings(prefix, "/tmp", 1, Scheme::new(scheme));
        settings.redundancy_width = 8;
        let plan = PlanParts::new(GENERATION, 1, placement.clone(), &settings).unwrap();
        let accepted = placement.nodes.iter().map(|node| {
            let accepted = prepare(node.address, &trust, &plan.request_to(&node.name).unwrap());
            (accepted.socket, node.ranks.clone())
        });
        Cluster { nodes: accepted.collect(), job: job.to_owned(), ranks: nodes * ranks_per_node, _directory: directory }
    }

    /// A rank with the client library, after `init`.
    pub fn client(&self, node: usize, rank: Rank) -> Client {
        let agent = AgentAddress { socket: self.nodes[node].0.clone(), job: self.job.clone(), generation: GENERATION };
        let environment =
            Environment { rank, ranks: self.ranks, node: None, agent: Some(agent), reconnect: Duration::from_secs(10) };
        Client::builder().environment(environment).init().unwrap()
    }
}

/// Runs an agent on threads of this process, as the orchestrator runs it as a process; it ends with the test's process.
fn start_agent(job: &str, node: NodeName, root: PathBuf, prefix: PathBuf, trust: &TrustMaterial) -> SocketAddr {
    let start = AgentStart {
        version: VERSION,
        job: "gather".to_owned(),
        job_id: job.to_owned(),
        step: None,
        allocation: None,
        user: "user1".to_owned(),
        node,
        shared: None,
        root: Some(root),
        prefixes: vec![prefix],
        control_base: "/tmp".to_owned(),
        cache_bases: BTreeMap::from([("/tmp".to_owned(), None)]),
        control_bytes: None,
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        trust: trust.clone(),
        disk_timeout: Duration::from_secs(30),
        abandon_after: Duration::from_secs(600),
        umask: None,
        drains_only: false,
        fault_injections: Vec::new(),
    };
    let line = serde_json::to_string(&start).unwrap() + "\n";
    let (reader, writer) = std::io::pipe().unwrap();
    std::thread::spawn(move || daemon::run(line.as_bytes(), writer));
    let mut ready = String::new();
    BufReader::new(reader).read_line(&mut ready).unwrap();
    serde_json::from_str::<AgentReady>(&ready).unwrap().address
}

/// Sends a run plan as the orchestrator does.
fn prepare(address: SocketAddr, trust: &TrustMaterial, body: &[u8]) -> RunAccepted {
    let config = Arc::new(trust::client_config(trust, &[ALPN_HTTP]).unwrap());
    let connection = ClientConnection::new(config, trust::server_name()).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address).unwrap());
    let token = serde_json::to_value(&trust.token).unwrap();
    let (token, length) = (token.as_str().unwrap(), body.len());
    write!(
        stream,
        "POST {RUN} HTTP/1.1\r\nhost: agent\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
         content-length: {length}\r\n\r\n"
    )
    .unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    // The connection may end without a close_notify of TLS.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).unwrap()
}
