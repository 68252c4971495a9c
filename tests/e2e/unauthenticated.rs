//! Connections without the job's token to an agent's port are rejected and counted, and do not affect the job.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use holdfast_wire::agent::{POLL, PollReply, STOP};
use holdfast_wire::run::TrustMaterial;
use holdfast_wire::trust;
use rustls::{ClientConnection, StreamOwned};
use serde_json::Value;

use crate::job::Job;
use crate::pfs;
use crate::world::World;

/// The absence of an answer is also a refusal, but a test must not wait for ever.
const PATIENCE: Duration = Duration::from_secs(60);

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A request over TLS; the answer's status and body.
pub fn ask(
    address: SocketAddr,
    trust: &TrustMaterial,
    token: Option<&str>,
    path: &str,
    body: &str,
) -> (String, String) {
    let config = Arc::new(trust::client_config(trust, &[b"http/1.1"]).unwrap());
    let connection = ClientConnection::new(config, trust::server_name()).unwrap();
    let mut stream = StreamOwned::new(connection, connect(address));
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n{token}");
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = Vec::new();
    // The connection may end without a close_notify of TLS.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

#[test]
fn rejects_and_counts_unauthenticated_connections(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let mut running = job.reaches(4);
    let state = world.state();
    let address: SocketAddr = state["running"]["node1"]["address"].as_str().unwrap().parse().unwrap();
    let secret = world.secret();
    let trust: TrustMaterial = serde_json::from_value(secret["trust"].clone()).unwrap();
    let token = secret["trust"]["token"].as_str().unwrap();
    let rejected = || {
        let (status, body) = ask(address, &trust, Some(token), POLL, r#"{"after":0,"wait_ms":0}"#);
        assert!(status.contains("200"), "{status} {body}");
        serde_json::from_str::<PollReply>(&body).unwrap().health.unauthenticated
    };
    // Not always none: the orchestrator opens a connection to see whether the machine of an agent that is late answers.
    let before = rejected();

    // Bytes that are not TLS; the connection is closed without a meaningful answer.
    let mut raw = connect(address);
    raw.write_all(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = raw.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"));
    // TLS without a token, then with a wrong one; both request the most destructive action.
    let wrong = serde_json::to_value(trust::generate().unwrap()).unwrap()["token"].as_str().unwrap().to_owned();
    for token in [None, Some(wrong.as_str())] {
        let (status, body) = ask(address, &trust, token, STOP, r#"{"remove":true}"#);
        assert!(status.contains("401"), "{status}");
        assert!(serde_json::from_str::<Value>(&body).unwrap()["message"].as_str().unwrap().contains("token"));
    }
    // A port scan: connections that send nothing and close.
    for _ in 0..20 {
        drop(connect(address));
    }
    world.wait("all are counted", || (rejected() >= before + 23).then_some(()));
    running.sees_event("unauthenticated_connection");

    job.goes_on_to_its_end(running).prints(&["refused an unauthenticated connection"]);
    job.assert_result();
    assert_eq!(world.all("generation_launched").len(), 1);
    assert_eq!(world.all("agent_lost").len(), 0);
    assert!(world.all("unauthenticated_connection").iter().all(|event| event["node"] == "node1"));
    pfs::assert_current(&world.prefix(), 8);
}

#[test(unchecked)]
fn token_is_not_in_command_lines_and_state_is_private(world: &World) {
    use std::os::unix::fs::PermissionsExt as _;
    let job = Job::new(world, 0).holding_after(4);
    let running = job.reaches(4);
    let (state, secret) = (world.state().to_string(), world.secret());
    let token = secret["trust"]["token"].as_str().unwrap();
    assert!(!state.contains(token));
    for (pid, line) in world.processes() {
        assert!(!line.contains(token), "{line}");
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&environment).contains(token), "{line}");
    }
    let mode = |path: std::path::PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(world.prefix().join(".holdfast")), 0o700);
    for name in ["job.json", "job.journal", "job.secret", "events.jsonl", "lock"] {
        assert_eq!(mode(world.prefix().join(".holdfast").join(name)), 0o600, "{name}");
    }
    job.goes_on_to_its_end(running);
    assert!(!world.prefix().join(".holdfast/job.secret").exists());
}
