//! Reed-Solomon through real agents, beside XOR: encoding, and the restart after the loss of as many nodes of a set as
//! it survives. Files and redundancy are in memory.

use holdfast_core::redundancy::numbers::SET_SIZE;
use holdfast_core::redundancy::{rs, xor};
use holdfast_model::Scheme;

use crate::agents::Cluster;
use crate::figures::title;
use crate::protected::Protected;
use crate::{Extent, Result};

pub fn run(extent: Extent) -> Result<()> {
    for (scheme, nodes, failures) in
        [(xor::NAME, 4, 1), (rs::NAME, 4, 2), (xor::NAME, 8, 1), (rs::NAME, 8, 2), (rs::NAME, 10, 2), (rs::NAME, 14, 4)]
    {
        // As many bytes in all sets.
        let bytes = extent.bytes * 4 / nodes as u64;
        measure(Extent { bytes, ..extent }, scheme, nodes, failures)?;
    }
    Ok(())
}

fn measure(extent: Extent, scheme: Scheme, nodes: usize, failures: usize) -> Result<()> {
    let data = nodes - failures;
    title(&format!("{scheme} {data}+{failures}: {nodes} agents × {} MiB", extent.bytes >> 20));
    let mut cluster = Cluster::start(nodes)?;
    cluster.scheme = scheme;
    let (size, lost) = (u32::try_from(nodes)?, u32::try_from(failures)?);
    let failures_of_rs = (scheme == rs::NAME).then_some((rs::FAILURES.name, lost));
    cluster.numbers = [(SET_SIZE.name, size)].into_iter().chain(failures_of_rs).collect();
    Protected::measure(&mut cluster, extent, failures, || Ok(()))?.show(extent.bytes * nodes as u64);
    Ok(())
}
