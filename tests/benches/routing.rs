//! The cost of a routed file, from the rank's call to the answer, when the rank has thousands of files.

use crate::agents::{Cluster, Medium};
use crate::figures::{Samples, below, title};
use crate::{Extent, Result};

const NODES: usize = 2;
/// Aim for a file, milliseconds.
const AIM: f64 = 0.1;

pub fn run(extent: Extent) -> Result<()> {
    for medium in [Medium::Memory, Medium::Disk] {
        title(&format!("Routing, {NODES} nodes, {medium:?}"));
        for (ranks, files) in extent.routed.iter().copied() {
            let mut cluster = Cluster::start_on(medium, NODES, NODES * ranks)?;
            let (mut route, mut complete, mut cpu) = (Samples::default(), Samples::default(), Samples::default());
            cluster.launch_threads(NODES)?;
            // Of all files of a node, because its ranks route theirs at the same time.
            let milliseconds = |seconds: f64| seconds * 1e3 / (ranks * files) as f64;
            for _ in 0..extent.tries {
                cluster.all("start")?;
                let before = cluster.processor_seconds()?;
                route.add(milliseconds(cluster.all(&format!("route {files}"))?));
                cpu.add(milliseconds((cluster.processor_seconds()? - before) / NODES as f64));
                cluster.all("write")?;
                complete.add(milliseconds(cluster.all("complete")?));
            }
            let of = if ranks == 1 { String::new() } else { format!(" of {ranks} on a node") };
            route.show(&format!("route_file, {files} files a rank{of}"), "ms a file");
            cpu.show("  processor time of the agent", "ms a file");
            complete.show("complete_checkpoint", "ms a file");
            below("route_file", route.median(), AIM, "ms a file");
        }
    }
    Ok(())
}
