//! Connections to an agent, as bytes: what a client of the project would never send can be sent.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use holdfast_wire::run::TrustMaterial;
use holdfast_wire::{ALPN_HTTP, trust};
use rustls::{ClientConnection, StreamOwned};

use crate::agent::AgentProcess;

pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// An agent that does not answer within this hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn tcp(agent: &AgentProcess) -> TcpStream {
    let socket = TcpStream::connect(agent.address).unwrap();
    limit(&socket);
    socket
}

fn limit(socket: &TcpStream) {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket.set_nodelay(true).unwrap();
}

/// A TLS connection on this socket, with the handshake done.
pub fn tls_on(agent: &AgentProcess, socket: TcpStream, protocol: &[u8]) -> io::Result<Tls> {
    limit(&socket);
    let config = Arc::new(trust::client_config(&agent.trust, &[protocol]).unwrap());
    let connection = ClientConnection::new(config, trust::server_name()).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

pub fn tls(agent: &AgentProcess, protocol: &[u8]) -> io::Result<Tls> {
    tls_on(agent, TcpStream::connect(agent.address)?, protocol)
}

/// The head of a request, without the empty line at its end.
pub fn head(trust: Option<&TrustMaterial>, method: &str, path: &str) -> String {
    let token = trust.map(|trust| {
        let token = serde_json::to_value(&trust.token).unwrap();
        format!("authorization: Bearer {}\r\n", token.as_str().unwrap())
    });
    format!("{method} {path} HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n{}", token.unwrap_or_default())
}

/// Sends one request; returns status and body of the answer.
pub fn request(
    agent: &AgentProcess,
    trust: Option<&TrustMaterial>,
    method: &str,
    path: &str,
    body: &[u8],
) -> io::Result<(u16, Vec<u8>)> {
    request_on(agent, TcpStream::connect(agent.address)?, trust, method, path, body)
}

/// As [`request`], on this socket.
pub fn request_on(
    agent: &AgentProcess,
    socket: TcpStream,
    trust: Option<&TrustMaterial>,
    method: &str,
    path: &str,
    body: &[u8],
) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = tls_on(agent, socket, ALPN_HTTP)?;
    let head = format!("{}content-length: {}\r\n\r\n", head(trust, method, path), body.len());
    stream.write_all(&[head.as_bytes(), body].concat())?;
    answer(&mut stream)
}

/// Reads an answer to its end.
pub fn answer(stream: &mut Tls) -> io::Result<(u16, Vec<u8>)> {
    let mut answer = Vec::new();
    // The agent may close the connection without a TLS close notification.
    match stream.read_to_end(&mut answer) {
        Err(error) if answer.is_empty() => return Err(error),
        _ => {}
    }
    let end = answer.windows(4).position(|at| at == b"\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = String::from_utf8_lossy(&answer[..end]).split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, answer.split_off(end + 4)))
}

/// A frame: its length with flags, then bytes.
pub fn frame(length: u32, bytes: &[u8]) -> Vec<u8> {
    [&length.to_be_bytes()[..], bytes].concat()
}

/// Waits until the agent has closed a connection; whatever it sends before is not expected to be more than a refusal.
pub fn is_closed(stream: &mut impl Read) -> bool {
    let mut rest = Vec::new();
    match stream.take(1 << 20).read_to_end(&mut rest) {
        Ok(_) => rest.len() < 1 << 20,
        Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
    }
}
