//! A set through real agents, with files and redundancy in memory: encoding, and the restart after the loss of some of
//! its nodes.

use crate::agents::Cluster;
use crate::figures::Samples;
use crate::{Extent, Result};

/// What encoding and restarts took, and the processor time of the agents in each.
#[derive(Default)]
pub struct Protected {
    /// The first checkpoint of a generation.
    pub encode: Samples,
    encode_cpu: Samples,
    /// The next one.
    next: Samples,
    next_cpu: Samples,
    pub restart: Samples,
    restart_cpu: Samples,
    failures: usize,
}

impl Protected {
    /// Launches ranks, of which each has one file; in each round, this many nodes are lost. `beside` is called after
    /// it.
    pub fn measure(
        cluster: &mut Cluster,
        extent: Extent,
        failures: usize,
        mut beside: impl FnMut() -> Result<()>,
    ) -> Result<Protected> {
        let mut taken = Protected { failures, ..Protected::default() };
        cluster.launch(extent)?;
        let nodes = cluster.places.len();
        for round in 0..extent.tries {
            for (elapsed, cpu) in [(&mut taken.encode, &mut taken.encode_cpu), (&mut taken.next, &mut taken.next_cpu)] {
                cluster.all("write")?;
                let before = cluster.processor_seconds()?;
                elapsed.add(cluster.all("complete")?);
                cpu.add(cluster.processor_seconds()? - before);
            }
            // Not neighbours.
            for member in 0..failures {
                cluster.lose_node_of((round + 2 * member) % nodes)?;
            }
            let before = cluster.processor_seconds()?;
            taken.restart.add(cluster.launch(extent)?);
            taken.restart_cpu.add(cluster.processor_seconds()? - before);
            beside()?;
        }
        Ok(taken)
    }

    /// Prints the figures; so many bytes were moved in each.
    pub fn show(&self, bytes: u64) {
        for (name, elapsed, cpu) in [("first", &self.encode, &self.encode_cpu), ("next", &self.next, &self.next_cpu)] {
            elapsed.show_seconds(&format!("encode, {name} of a generation: complete_checkpoint"), Some(bytes));
            cpu.show_seconds("  processor time of the agents", None);
        }
        self.restart.show_seconds(&format!("restart with {} lost: init, all of it", self.failures), Some(bytes));
        self.restart_cpu.show_seconds("  processor time of the agents", None);
    }
}
