//! An allgather of the largest contributions: each is small, but the result is sent complete, once per node over
//! the network and then to each of its ranks.
//!
//! The ranks are threads of this process that read their result and keep none of it. With 64 GiB for 1,024 ranks, the
//! time is compared with that in which this machine copies the same bytes in memory.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::Instant;

use holdfast_model::{Generation, NodeName, Rank};
use holdfast_wire::frame::{self, HELLO};
use holdfast_wire::rank::{Call, Hello, Interface, LARGEST_CONTRIBUTION, TO_AGENT, ToAgent, ToRank};
use holdfast_wire::{VERSION, socket};

use crate::agents::{Cluster, JOB, Medium};
use crate::figures::{Samples, once, title};
use crate::{Extent, Result, loopback};

/// The stack of a rank.
const STACK: usize = 256 << 10;
/// The most bytes that are copied in memory for comparison: more take longer in proportion.
const COPIED: u64 = 4 << 30;
/// Size of a read.
const BUFFER: usize = 128 << 10;
/// Bits of a frame's prefix: the message continues; payload; the length.
const MORE: u32 = 1 << 31;
const RAW: u32 = 1 << 30;

pub fn run(extent: Extent) -> Result<()> {
    let (ranks, nodes) = extent.allgather;
    title(&format!("Allgather of {} KiB each from {ranks} ranks on {nodes} nodes", LARGEST_CONTRIBUTION >> 10));
    let mut cluster = Cluster::start_on(Medium::Memory, nodes, ranks)?;
    let (generation, sockets) = cluster.prepare_generation()?;
    let places: Vec<(NodeName, PathBuf)> =
        cluster.places.iter().map(|node| (node.clone(), sockets[node].clone())).collect();
    let result = (ranks * LARGEST_CONTRIBUTION) as u64;
    let moved = result * ranks as u64;
    let (mut seconds, mut processor, mut memory) = (Samples::default(), Samples::default(), Samples::default());
    let tries = extent.tries.min(3) as u64;
    let barrier = Barrier::new(ranks + 1);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (rank, (_, socket)) in (0u32..).zip(&places) {
            let barrier = &barrier;
            let play = move || {
                let mut connected = connect(socket, generation, Rank(rank), ranks);
                for seq in 1..=tries {
                    barrier.wait();
                    connected = connected.and_then(|mut stream| gather(&mut stream, seq, result).map(|()| stream));
                    // Every rank waits for all others, also for those that failed.
                    barrier.wait();
                }
                connected.map(drop)
            };
            threads.push(std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, play)?);
        }
        for _ in 0..tries {
            let before = cluster.processor_seconds()?;
            barrier.wait();
            let begun = Instant::now();
            barrier.wait();
            seconds.add(begun.elapsed().as_secs_f64());
            processor.add(cluster.processor_seconds()? - before);
            let copied = moved.min(COPIED);
            memory.add(loopback::memory(2, copied)? * (moved as f64 / copied as f64));
        }
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a rank failed")?)
    })?;
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (mut leader, mut member) = (Samples::default(), Samples::default());
    for (node, agent) in cluster.agents_by_node() {
        let peak = mebibytes(agent.peak_resident()?);
        if *node == cluster.places[0] { leader.add(peak) } else { member.add(peak) }
    }
    seconds.show_seconds("until the last rank has its result", Some(moved));
    processor.show_seconds("  processor time of the agents", None);
    memory.show_seconds("the same bytes copied in memory, 2 threads", Some(moved));
    once("the result", mebibytes(result), "MiB", "");
    leader.show("peak memory of the leader", "MiB");
    member.show("peak memory of the other agents", "MiB");
    Ok(())
}

fn connect(path: &std::path::Path, generation: Generation, rank: Rank, ranks: usize) -> Result<UnixStream> {
    let mut stream = socket::connect(path)?;
    let ranks = u32::try_from(ranks)?;
    let hello = Hello { version: VERSION, job: JOB.to_owned(), generation, rank, ranks, interface: Interface::Files };
    frame::send(&mut stream, &ToAgent::Hello(hello), HELLO)?;
    match frame::receive(&mut stream, HELLO)? {
        ToRank::Welcome { .. } => Ok(stream),
        other => Err(format!("rank {rank} is not welcome: {other:?}").into()),
    }
}

/// Makes the call, and reads the result without keeping it.
fn gather(stream: &mut UnixStream, seq: u64, expected: u64) -> Result<()> {
    let data = vec![seq as u8; LARGEST_CONTRIBUTION].into();
    let call = frame::encode(&ToAgent::Call { seq, call: Call::Allgather { data } }, TO_AGENT)?;
    call.pieces().try_for_each(|piece| stream.write_all(piece))?;
    let mut buffer = vec![0; BUFFER];
    let mut payload = 0;
    loop {
        let mut prefix = [0; 4];
        stream.read_exact(&mut prefix)?;
        let prefix = u32::from_be_bytes(prefix);
        let mut left = (prefix & (RAW - 1)) as usize;
        if prefix & RAW != 0 {
            payload += left as u64;
        }
        while left > 0 {
            let length = left.min(BUFFER);
            stream.read_exact(&mut buffer[..length])?;
            left -= length;
        }
        if prefix & MORE == 0 {
            break;
        }
    }
    // In the last piece: the contribution of this round.
    if payload != expected || buffer[0] != seq as u8 {
        return Err(format!("{payload} bytes were gathered, {expected} were given").into());
    }
    Ok(())
}
