//! How many bytes a node writes to record routed files.

// A test reports by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cluster;

use holdfast_client::{Client, DatasetOptions};
use holdfast_core::io_count;
use holdfast_model::Rank;

use cluster::Cluster;

/// The bytes that are written while this many files of a dataset are routed.
fn bytes_of_routing(client: &mut Client, bypass: bool, files: u64) -> u64 {
    client.start_output(&DatasetOptions { output: true, bypass, ..DatasetOptions::default() }).unwrap();
    let before = io_count::now();
    // Each output has files of its own.
    let name = |file| format!("output_{files}_{bypass}/file_{file:04}");
    let paths: Vec<_> = (0..files).map(|file| client.route_file(name(file)).unwrap()).collect();
    let bytes = io_count::now().bytes - before.bytes;
    for path in paths {
        std::fs::write(path, "content").unwrap();
    }
    assert!(client.complete_checkpoint(true).unwrap().kept);
    bytes
}

// The only test of its process: the bytes of the entire process are counted.
#[test]
fn the_bytes_written_for_routed_files_grow_in_proportion_to_the_files() {
    let cluster = Cluster::start("routing", 1, 1, "LOCAL");
    let mut client = cluster.client(0, Rank(0));
    for bypass in [false, true] {
        let (few, many) = (bytes_of_routing(&mut client, bypass, 50), bytes_of_routing(&mut client, bypass, 400));
        assert!(few > 50 * 9, "bypass {bypass}: the names alone are more than {few} bytes");
        assert!(many < 10 * few, "bypass {bypass}: {few} bytes for 50 files, {many} for 400");
    }
}
