//! The limits of this machine: memory, and the loopback with and without TLS.
//!
//! Processes in a ring, as many as there are agents, each with a thread that sends to the right and one that receives
//! from the left; no files and no computation are involved.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use holdfast_wire::run::TrustMaterial;
use holdfast_wire::trust;
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use serde::{Deserialize, Serialize};

use crate::{Failure, PART, Result};

const PIECE: usize = 256 << 10;

/// The commands for a process of the ring.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    /// With this: TLS; otherwise plain TCP.
    trust: Option<TrustMaterial>,
    /// The address of the right neighbour.
    right: SocketAddr,
    /// Bytes to send and to receive.
    bytes: u64,
}

/// Seconds in which `processes` send `bytes` each around the ring.
pub fn ring(processes: usize, bytes: u64, trust: Option<&TrustMaterial>) -> Result<f64> {
    let mut members = (0..processes).map(|_| Member::start()).collect::<Result<Vec<_>>>()?;
    let mut addresses = Vec::new();
    for member in &mut members {
        addresses.push(member.line()?.parse()?);
    }
    addresses.rotate_left(1);
    for (member, right) in members.iter_mut().zip(addresses) {
        let task = Task { trust: trust.cloned(), right, bytes };
        writeln!(member.orders, "{}", serde_json::to_string(&task)?)?;
    }
    for member in &mut members {
        member.expect("connected")?;
    }
    let begun = Instant::now();
    for member in &mut members {
        writeln!(member.orders)?;
    }
    for member in &mut members {
        member.expect("done")?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Seconds in which `threads` threads together copy `bytes` in memory; all pages were written before.
pub fn memory(threads: usize, bytes: u64) -> Result<f64> {
    let each = usize::try_from(bytes)? / threads;
    let mut buffers: Vec<_> = (0..threads).map(|_| (vec![1_u8; each], vec![2_u8; each])).collect();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for (from, to) in &mut buffers {
            scope.spawn(|| to.copy_from_slice(from));
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    std::hint::black_box(&buffers);
    Ok(seconds)
}

struct Member {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Member {
    fn start() -> Result<Member> {
        let mut process = Command::new(std::env::current_exe()?)
            .env(PART, "loopback")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(orders), Some(answers)) => Ok(Member { process, orders, answers: BufReader::new(answers) }),
            _ => Err("a process has no pipes".into()),
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    fn expect(&mut self, expected: &str) -> Result<()> {
        let line = self.line()?;
        if line == expected {
            Ok(())
        } else {
            Err(format!("a process of the ring printed {line:?} instead of {expected}").into())
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The role of one process.
pub fn play() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let mut orders = std::io::stdin().lock().lines();
    let task: Task = serde_json::from_str(&orders.next().ok_or("no task")??)?;
    let outgoing = TcpStream::connect(task.right)?;
    outgoing.set_nodelay(true)?;
    let (incoming, _) = listener.accept()?;
    match &task.trust {
        None => exchange(outgoing, incoming, task.bytes, orders),
        Some(trust) => {
            let config = Arc::new(trust::client_config(trust, &[b"bench"])?);
            let outgoing = StreamOwned::new(ClientConnection::new(config, trust::server_name())?, outgoing);
            let config = Arc::new(trust::server_config(trust, &[b"bench"])?);
            let incoming = StreamOwned::new(ServerConnection::new(config)?, incoming);
            exchange(outgoing, incoming, task.bytes, orders)
        }
    }
}

fn exchange(
    mut outgoing: impl Write + Send,
    mut incoming: impl Read + Send,
    bytes: u64,
    mut orders: impl Iterator<Item = std::io::Result<String>>,
) -> Result<()> {
    // One byte each way first, so that the handshake is not measured.
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| outgoing.write_all(&[1]).and_then(|()| outgoing.flush()));
        incoming.read_exact(&mut [0])?;
        sender.join().map_err(|_| "a thread failed")??;
        Ok::<_, Failure>(())
    })?;
    println!("connected");
    orders.next().ok_or("no command to begin")??;
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| -> std::io::Result<()> {
            let piece = vec![7; PIECE];
            for_each_piece(bytes, |length| outgoing.write_all(&piece[..length]))?;
            outgoing.flush()
        });
        let mut piece = vec![0; PIECE];
        for_each_piece(bytes, |length| incoming.read_exact(&mut piece[..length]))?;
        sender.join().map_err(|_| "a thread failed")??;
        Ok::<_, Failure>(())
    })?;
    println!("done");
    // The connections stay until all have read: closing one with a session ticket unread would reset it.
    orders.next().transpose()?;
    Ok(())
}

fn for_each_piece(bytes: u64, mut work: impl FnMut(usize) -> std::io::Result<()>) -> std::io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let length = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        work(length)?;
        left -= length as u64;
    }
    Ok(())
}
