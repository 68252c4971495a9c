//! The cost of an idle agent: a run is prepared, ranks compute, the orchestrator polls.

use std::time::{Duration, Instant};

use crate::agents::Cluster;
use crate::figures::{Samples, below, title};
use crate::{Extent, Result};

const NODES: usize = 4;
/// The interval of the polls.
const POLL: Duration = Duration::from_millis(250);

pub fn run(extent: Extent) -> Result<()> {
    title(&format!("An idle agent: {} s of nothing but polls", extent.idle_seconds));
    let mut cluster = Cluster::start(NODES)?;
    cluster.launch(Extent { bytes: 1 << 20, ..extent })?;
    cluster.all("write")?;
    cluster.all("complete")?;
    let (mut processor, mut memory) = (Samples::default(), Samples::default());
    let mut fleet = cluster.polled(POLL)?;
    let before: Vec<f64> = cluster.agents().map(|agent| agent.living_threads_seconds()).collect::<Result<_>>()?;
    let begun = Instant::now();
    cluster.answered_for(&mut fleet, Duration::from_secs(extent.idle_seconds))?;
    let seconds = begun.elapsed().as_secs_f64();
    for (agent, before) in cluster.agents().zip(before) {
        processor.add((agent.living_threads_seconds()? - before) / seconds * 100.0);
        memory.add(agent.resident()? as f64 / f64::from(1 << 20));
    }
    processor.show("processor, of one core", "%");
    memory.show("resident memory", "MiB");
    below("processor", processor.median(), 0.05, "%");
    below("memory", memory.median(), 12.0, "MiB");
    Ok(())
}
