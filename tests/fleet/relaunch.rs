//! The cost of a relaunch: the number of synchronisations does not depend on the number of nodes, and the bytes are
//! proportional to it.

use std::path::Path;
use std::time::Duration;

use holdfast_core::io_count;
use holdfast_wire::agent::{HALT, KILL, RUN};

use crate::here::Here;
use crate::simulated::job::{Job, Size};

/// The costs from the loss of a node until all ranks run again.
struct Cost {
    syncs: u64,
    bytes: u64,
    /// Bodies of the requests that prepare the nodes.
    sent: u64,
}

/// Loses a node of a job with this many nodes, two ranks each.
fn relaunch(nodes: u32) -> Cost {
    let directory = tempfile::tempdir().unwrap();
    let size = Size { nodes, ranks: 2 * nodes, poll: Duration::from_millis(250) };
    let here = Here::new(nodes as usize + 1);
    let supervisor = Path::new(env!("CARGO_BIN_EXE_holdfast"));
    let mut job = Job::launch(size, Box::new(here.clone()), directory.path(), supervisor).unwrap();
    job.ranks_run(1).unwrap();
    let (before, received) = (io_count::now(), here.agents().received());
    let (prepared, asked) = (received[RUN], received[HALT]);
    job.lose(1, 2).unwrap();
    job.ranks_run(2).unwrap();
    let after = io_count::now();
    let received = here.agents().received();
    assert_eq!(received[KILL].requests, u64::from(nodes) - 1, "the ranks of each node that is left are killed once");
    assert_eq!(received[RUN].requests - prepared.requests, u64::from(nodes), "each node is prepared once");
    assert_eq!(received[HALT].requests - asked.requests, 1, "the spare: the others report with the end of their ranks");
    let sent = received[RUN].bytes - prepared.bytes;
    assert_eq!(job.finish().unwrap().exit_code, 0);
    Cost { syncs: after.syncs - before.syncs, bytes: after.bytes - before.bytes, sent }
}

#[test]
fn a_relaunch_costs_as_many_syncs_on_256_nodes_as_on_8_and_bytes_in_proportion() {
    let (few, many) = (relaunch(8), relaunch(256));
    assert_eq!(few.syncs, many.syncs);
    assert!(few.syncs > 0, "the state for a successor is on disk");
    // Numbers of larger ranks have more digits; if it grew with the square of the nodes, it would be a thousand times
    // as much.
    let times = 2 * 256 / 8;
    assert!(many.bytes <= few.bytes * times, "{} bytes on 8 nodes, {} on 256", few.bytes, many.bytes);
    assert!(many.sent <= few.sent * times, "{} bytes to 8 nodes, {} to 256", few.sent, many.sent);
}
