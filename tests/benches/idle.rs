//! The cost of an idle agent: a run is prepared, ranks compute, the orchestrator polls.

use std::time::{Duration, Instant};

use crate::agents::{Agent, Cluster, ThreadTimes};
use crate::figures::{Samples, below, title};
use crate::{Extent, Result};

const NODES: usize = 4;
/// The interval of the polls.
const POLL: Duration = Duration::from_millis(250);

/// The kernel's names of what is measured. The pages of files can be read again, and other processes share them.
const MEMORY: [(&str, &str); 3] =
    [("RssFile:", "pages of files in memory"), ("RssAnon:", "other memory"), ("VmRSS:", "resident memory")];

pub fn run(extent: Extent) -> Result<()> {
    let observed = extent.observed_seconds()?;
    title(&format!("An idle agent: {observed} s of nothing but polls"));
    let mut cluster = Cluster::start(NODES)?;
    cluster.launch(Extent { bytes: 1 << 20, ..extent })?;
    cluster.all("write")?;
    cluster.all("complete")?;
    let (mut processor, mut runs) = (Samples::default(), Samples::default());
    let mut fleet = cluster.polled(POLL)?;
    let before: Vec<ThreadTimes> = cluster.agents().map(Agent::thread_times).collect::<Result<_>>()?;
    let begun = Instant::now();
    cluster.answered_for(&mut fleet, Duration::from_secs(observed))?;
    let seconds = begun.elapsed().as_secs_f64();
    for (agent, before) in cluster.agents().zip(before) {
        let after = agent.thread_times()?;
        processor.add((after.seconds - before.seconds) / seconds * 100.0);
        runs.add((after.runs - before.runs) / seconds);
    }
    processor.show("processor, of one core", "%");
    runs.show("runs of a thread, each second", "");
    let mut memory = Samples::default();
    for (figure, what) in MEMORY {
        memory = Samples::default();
        for agent in cluster.agents() {
            memory.add(agent.memory(figure)? as f64 / f64::from(1 << 20));
        }
        memory.show(what, "MiB");
    }
    below("processor", processor.median(), 0.05, "%");
    below("memory", memory.median(), 12.0, "MiB");
    Ok(())
}
