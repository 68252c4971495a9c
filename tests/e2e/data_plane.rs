//! `checkpoint.data_plane`: what travels between agents is captured from the loopback interface, which needs root.

use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use holdfast_testkit::files_below;
use holdfast_testkit::harness::ignore;
use rustix::net::{
    AddressFamily, Protocol, RawProtocol, RecvFlags, SocketFlags, SocketType, recv, socket_with, sockopt,
};
use serde_json::json;

use crate::job::Job;
use crate::world::World;

/// All packets of the loopback interface, until it is stopped.
struct Capture {
    stop: Arc<AtomicBool>,
    reading: JoinHandle<Vec<Vec<u8>>>,
}

impl Capture {
    fn begin() -> Capture {
        let every_protocol = RawProtocol::new(u32::from(3_u16.to_be())).map(Protocol::from_raw);
        let kind = (AddressFamily::PACKET, SocketType::DGRAM, SocketFlags::CLOEXEC);
        let socket = match socket_with(kind.0, kind.1, kind.2, every_protocol) {
            Ok(socket) => socket,
            Err(error) => ignore(&format!("packets cannot be captured: {error}")),
        };
        // So that none is lost while the thread waits for a processor.
        sockopt::set_socket_recv_buffer_size_force(&socket, 256 << 20).unwrap();
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_millis(100))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        Capture { stop, reading: std::thread::spawn(move || packets(&socket, &stopped)) }
    }

    fn end(self) -> Vec<Vec<u8>> {
        self.stop.store(true, Ordering::Relaxed);
        self.reading.join().unwrap()
    }
}

fn packets(socket: &OwnedFd, stop: &AtomicBool) -> Vec<Vec<u8>> {
    let (mut packets, mut buffer) = (Vec::new(), vec![0; 1 << 17]);
    while !stop.load(Ordering::Relaxed) {
        if let Ok((_, length)) = recv(socket, &mut buffer[..], RecvFlags::empty()) {
            packets.push(buffer[..length].to_vec());
        }
    }
    packets
}

/// The part of a file with the most different bytes: longer than the rows that the ranks send to each other.
fn characteristic_part(file: &Path) -> Vec<u8> {
    let bytes = fs::read(file).unwrap();
    let different = |part: &&[u8]| part.iter().collect::<HashSet<_>>().len();
    bytes.windows(512).max_by_key(different).unwrap().to_vec()
}

/// An installation whose site allows `plain`.
fn installed(directory: &Path) -> PathBuf {
    for below in ["bin", "etc/holdfast"] {
        fs::create_dir_all(directory.join(below)).unwrap();
    }
    fs::write(directory.join("etc/holdfast/scr.conf"), "HOLDFAST_PLAIN_DATA=1\n").unwrap();
    let program = directory.join("bin/holdfast");
    fs::hard_link(env!("CARGO_BIN_EXE_holdfast"), &program).unwrap();
    program
}

/// A job whose checkpoints are copied to partner nodes and that loses a node: its result, and whether a part of a
/// checkpoint file was seen on its way.
fn is_seen_on_the_network(program: &Path, data_plane: &str, size: &'static str) -> bool {
    let world = World::unchecked();
    let mut job =
        Job::new(&world, 1).redundancy("[{scheme: partner}]").checkpoint(&format!("data_plane: {data_plane}"));
    job.size = size;
    let job = job.holding_after(3).faults("{node: 1, after_checkpoint: 3}");
    let capture = Capture::begin();
    let mut running = world.start(world.command(program).arg("run").arg(job.spec()));
    running.sees_checkpoint(3);
    let written = files_below(&world.node_root("node2"));
    let file = written.iter().find(|path| path.ends_with("checkpoint.3/rank_2.ckpt")).unwrap();
    let part = characteristic_part(file);
    running.sees_where("restarted", "generation", 2);
    job.finishes(running);
    let last = world.all("restarted").pop().unwrap();
    assert_eq!((&last["checkpoint"], &last["moved"]), (&json!(3), &json!([1])), "{data_plane}: {last}");
    world.assert_nothing_is_left();
    capture.end().iter().any(|packet| packet.windows(part.len()).any(|window| window == part))
}

#[test]
fn data_of_checkpoints_can_be_read_on_the_network_unless_they_are_encrypted() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = installed(directory.path());
    // Each has data of its own.
    assert!(!is_seen_on_the_network(&program, "encrypted", "31x37"));
    assert!(is_seen_on_the_network(&program, "authenticated", "37x31"));
    assert!(is_seen_on_the_network(&program, "plain", "35x33"));
}
