//! How long a checkpoint blocks a rank, beside the plain write of its file; and what a computation loses meanwhile.

use holdfast_model::{AsyncRedundancy, Scheme};

use crate::agents::Cluster;
use crate::figures::{Samples, at_most, ratio, title};
use crate::{Extent, Result};

const NODES: usize = 4;
const UNLIMITED: AsyncRedundancy = AsyncRedundancy { bandwidth: 0, percent: 0.0 };

pub fn run(extent: Extent) -> Result<()> {
    title(&format!("Checkpoints of {NODES} × {} MiB: how long they block a rank", extent.bytes >> 20));
    let share = AsyncRedundancy { percent: 25.0, ..UNLIMITED };
    for (what, scheme, asynchronous) in [
        ("LOCAL", "LOCAL", None),
        ("XOR", "XOR", None),
        ("XOR, async: true", "XOR", Some(UNLIMITED)),
        ("XOR, async: true, percent: 25", "XOR", Some(share)),
    ] {
        println!("  {what}");
        measure(extent, Scheme::new(scheme), asynchronous)?;
    }
    Ok(())
}

fn measure(extent: Extent, scheme: Scheme, asynchronous: Option<AsyncRedundancy>) -> Result<()> {
    let mut cluster = Cluster::start(NODES)?;
    (cluster.scheme, cluster.asynchronous) = (scheme, asynchronous);
    cluster.launch(extent)?;
    let (mut plain, mut saved, mut blocked) = (Samples::default(), Samples::default(), Samples::default());
    let (mut alone, mut beside, mut lost) = (Samples::default(), Samples::default(), Samples::default());
    // The pages of the first files are new to the file system in memory.
    cluster.all("plain")?;
    for _ in 0..extent.tries * 4 {
        let (without, in_peace) = (cluster.all("plain")?, cluster.all("compute")?);
        let (with, meanwhile) = (cluster.all("save")?, cluster.all("compute")?);
        // What is left of the redundancy must not slow the next plain write.
        while cluster.is_encoding()? {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        plain.add(without);
        saved.add(with);
        blocked.add(with / without);
        alone.add(in_peace);
        beside.add(meanwhile);
        lost.add(100.0 * (meanwhile / in_peace - 1.0));
    }
    plain.show_seconds("  plain write", Some(extent.bytes));
    saved.show_seconds("  start, write, complete", Some(extent.bytes));
    if asynchronous.is_some() {
        at_most("  blocked / plain write, P50", blocked.median(), 1.1);
        at_most("  blocked / plain write, P95", blocked.percentile(95), 1.1);
    } else {
        ratio("  blocked / plain write, P50", blocked.median());
        ratio("  blocked / plain write, P95", blocked.percentile(95));
    }
    alone.show_seconds("  a computation, alone", None);
    beside.show_seconds("  the same after the checkpoint", None);
    lost.show("  what it loses", "%");
    Ok(())
}
