//! Start, routing and complete of many ranks with one small file each: the cost of the calls, not of the bytes.
//!
//! All nodes are virtual nodes of this machine and their agents share its processors, so the processor time is
//! shown with the elapsed time. The ranks are threads of a few processes.

use crate::agents::{Cluster, Medium};
use crate::figures::{Samples, below, title};
use crate::{Extent, Result};

/// Processes that run the ranks.
const PROCESSES: usize = 2;
/// Aims for a complete: ranks, nodes, seconds.
const AIMS: &[(usize, usize, f64)] = &[(256, 64, 0.35), (1024, 16, 1.5)];

pub fn run(extent: Extent) -> Result<()> {
    for (ranks, nodes) in extent.checkpoints.iter().copied() {
        for medium in [Medium::Memory, Medium::Disk] {
            of(extent, medium, ranks, nodes)?;
        }
    }
    Ok(())
}

fn of(extent: Extent, medium: Medium, ranks: usize, nodes: usize) -> Result<()> {
    title(&format!("Checkpoints of {ranks} ranks ({PROCESSES} processes) on {nodes} nodes, XOR, {medium:?}"));
    let mut cluster = Cluster::start_on(medium, nodes, ranks)?;
    let (mut start, mut route, mut complete) = (Samples::default(), Samples::default(), Samples::default());
    let (mut start_cpu, mut complete_cpu) = (Samples::default(), Samples::default());
    let mut init = Samples::default();
    init.add(cluster.launch_threads(PROCESSES)?);
    for _ in 0..extent.tries {
        let before = cluster.processor_seconds()?;
        start.add(cluster.all("start")?);
        route.add(cluster.all("route 1")?);
        start_cpu.add(cluster.processor_seconds()? - before);
        cluster.all("write")?;
        let before = cluster.processor_seconds()?;
        complete.add(cluster.all("complete")?);
        complete_cpu.add(cluster.processor_seconds()? - before);
    }
    init.show_seconds("init", None);
    start.show_seconds("start_checkpoint", None);
    route.show_seconds("route_file, one a rank", None);
    start_cpu.show_seconds("  processor time of the agents, of both", None);
    complete.show_seconds("complete_checkpoint", None);
    complete_cpu.show_seconds("  processor time of the agents", None);
    let aim = AIMS.iter().find(|(of, on, _)| (*of, *on) == (ranks, nodes));
    if let Some((_, _, limit)) = aim {
        below("complete_checkpoint", complete.median(), *limit, "s");
    }
    Ok(())
}
