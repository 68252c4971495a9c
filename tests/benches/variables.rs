//! Checkpoints of variables through the agents, in both layouts: full, with one per cent of the data changed, and the
//! same bytes through the calls for files.

use holdfast_model::{Scheme, VariablesLayout};

use crate::agents::Cluster;
use crate::figures::{Samples, at_least, below, ratio, title};
use crate::{Extent, Result};

const NODES: usize = 2;

pub fn run(extent: Extent) -> Result<()> {
    let bytes = extent.bytes * NODES as u64;
    title(&format!("Checkpoints of variables, {NODES} × {} MiB, level 1", extent.bytes >> 20));
    let mut files = Samples::default();
    let mut cluster = Cluster::start(NODES)?;
    cluster.scheme = Scheme::new("LOCAL");
    cluster.launch(extent)?;
    for _ in 0..extent.tries {
        files.add(cluster.all("write")? + cluster.all("complete")?);
    }
    drop(cluster);
    files.show_seconds("the same bytes as files (SCR's calls)", Some(bytes));
    for (name, layout) in [("document", VariablesLayout::Document), ("chunked", VariablesLayout::Chunked)] {
        of_layout(extent, name, layout, files.median())?;
    }
    Ok(())
}

fn of_layout(extent: Extent, name: &str, layout: VariablesLayout, files: f64) -> Result<()> {
    let bytes = extent.bytes * NODES as u64;
    let (mut full, mut changed, mut written) = (Samples::default(), Samples::default(), Samples::default());
    let mut cluster = Cluster::start(NODES)?;
    cluster.scheme = Scheme::new("LOCAL");
    cluster.variables = Some(layout);
    cluster.launch(extent)?;
    for _ in 0..extent.tries {
        cluster.all("change 1000")?;
        full.add(cluster.all("checkpoint")?);
    }
    // From here on, the older file differs from the newest by one per cent, too.
    cluster.all("change 10")?;
    cluster.all("checkpoint")?;
    for _ in 0..extent.tries {
        cluster.all("change 10")?;
        changed.add(cluster.all("checkpoint")?);
        written.add(cluster.all("written")? * 100.0);
    }
    full.show_seconds(&format!("{name}: all data changed"), Some(bytes));
    changed.show_seconds(&format!("{name}: 1 % changed"), None);
    written.show(&format!("{name}: 1 % changed, bytes written"), "%");
    below("  bytes written", written.median(), 3.0, "%");
    below("  1 % changed / all changed", changed.median() / full.median(), 0.3, "");
    at_least("  speed of all changed / files", files / full.median(), 0.8);
    ratio("  time of 1 % changed / files", changed.median() / files);
    Ok(())
}
