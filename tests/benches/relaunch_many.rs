//! The relaunch of a job of thousands of nodes: its cost for the orchestrator, and its duration.
//!
//! The job is driven by the real driver in this process; agents and ranks are simulated in another one. With 10,000
//! agents both share this machine, so that times are those of both; processor time, bytes and syncs are the
//! orchestrator's.
//!
//!     cargo bench -p holdfast --bench speed -- relaunch_many

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_core::io_count::{self, IoCount};

use crate::figures::{once, title};
use crate::polls::processor_seconds;
use crate::simulated::job::{Job, Size};
use crate::simulated_agents::SimulatedAgents;
use crate::{Extent, Result};

const SIZES: [Size; 3] = [
    Size { nodes: 64, ranks: 420, poll: Duration::from_millis(250) },
    Size { nodes: 1_000, ranks: 6_554, poll: Duration::from_millis(250) },
    Size { nodes: 10_000, ranks: 65_536, poll: Duration::from_secs(1) },
];
const SMOKE: [Size; 1] = [Size { nodes: 8, ranks: 16, poll: Duration::from_millis(50) }];

pub fn run(extent: Extent) -> Result<()> {
    let sizes: &[_] = if extent.tries > 1 { &SIZES } else { &SMOKE };
    for size in sizes {
        title(&format!("One of {} nodes lost, {} ranks, simulated", size.nodes, size.ranks));
        measure(*size)?;
    }
    Ok(())
}

/// The resources used up to a moment.
struct Used {
    at: Instant,
    io: IoCount,
    processor: f64,
    sent: u64,
}

impl Used {
    fn now(agents: &SimulatedAgents) -> Result<Self> {
        Ok(Used { at: Instant::now(), io: io_count::now(), processor: processor_seconds()?, sent: agents.received()? })
    }

    fn show_since(&self, earlier: &Used, what: &str) {
        let (syncs, written) = (self.io.syncs - earlier.io.syncs, self.io.bytes - earlier.io.bytes);
        let seconds = (self.at - earlier.at).as_secs_f64();
        let processor = self.processor - earlier.processor;
        let (written, sent) = (written as f64 / 1024.0, (self.sent - earlier.sent) as f64 / 1024.0);
        let remark = format!("   {syncs} syncs, {written:.0} KiB written, {sent:.0} KiB sent");
        once(what, seconds, "s", &remark);
        once(&format!("processor {what}"), processor, "s", "");
    }
}

fn measure(size: Size) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let agents = SimulatedAgents::new(size.nodes as usize + 1);
    let supervisor = Path::new(env!("CARGO_BIN_EXE_holdfast"));
    let begun = Instant::now();
    let mut job = Job::launch(size, Box::new(agents.clone()), directory.path(), supervisor)?;
    once("agents connected, ranks placed, launched", begun.elapsed().as_secs_f64(), "s", "");
    job.ranks_run(1)?;
    // Data of the start of the ranks that is not on disk yet.
    thread::sleep(2 * size.poll);
    let before = Used::now(&agents)?;
    job.lose(1, 2)?;
    let launched = Used::now(&agents)?;
    launched.show_since(&before, "from the loss to the next launch");
    job.ranks_run(2)?;
    Used::now(&agents)?.show_since(&launched, "until all ranks have reported");
    let before_end = Instant::now();
    let report = job.finish()?;
    once("to the end of the job", before_end.elapsed().as_secs_f64(), "s", "");
    if report.exit_code == 0 { Ok(()) } else { Err(format!("the job ended with {}", report.exit_code).into()) }
}
