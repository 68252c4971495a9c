//! What checksums cost: each path with and without them, in pairs, with cache and destination in memory, where the cost
//! of a checksum is least hidden behind other work.

use std::time::Instant;

use holdfast_model::{CrcOnCopy, CrcPolicy, Scheme};

use crate::agents::Cluster;
use crate::drain::drain;
use crate::figures::{Samples, title};
use crate::{Extent, Result};

const NODES: usize = 4;
const OFF: CrcPolicy = CrcPolicy { on_copy: CrcOnCopy::Never, on_flush: false, on_restart: false, on_delete: false };

/// Elapsed time and processor time of the agents, of pairs of tries.
#[derive(Default)]
struct Path {
    elapsed: Pairs,
    processor: Pairs,
}

#[derive(Default)]
struct Pairs {
    without: Samples,
    with: Samples,
    /// What the second of a pair takes in addition, percent of the first.
    cost: Samples,
}

impl Path {
    fn add(&mut self, [without, with]: [(f64, f64); 2]) {
        self.elapsed.add(without.0, with.0);
        self.processor.add(without.1, with.1);
    }

    fn show(&self, what: &str, bytes: u64) {
        self.elapsed.without.show_seconds(&format!("{what}, without"), Some(bytes));
        self.elapsed.with.show_seconds(&format!("{what}, with checksums"), Some(bytes));
        self.elapsed.cost.show("  cost", "%");
        self.processor.without.show_seconds("  processor time of the agents, without", None);
        self.processor.with.show_seconds("  processor time of the agents, with", None);
        self.processor.cost.show("  cost", "%");
    }
}

impl Pairs {
    fn add(&mut self, without: f64, with: f64) {
        self.without.add(without);
        self.with.add(with);
        self.cost.add((with / without - 1.0) * 100.0);
    }
}

/// What one round takes: (elapsed, processor) seconds of each path.
struct Round {
    complete: (f64, f64),
    copy: (f64, f64),
    restart: (f64, f64),
    rebuild: Option<(f64, f64)>,
}

pub fn run(extent: Extent) -> Result<()> {
    // A local checkpoint is read for its checksums only.
    of(extent, "XOR", CrcOnCopy::WithRedundancy)?;
    of(extent, "PARTNER", CrcOnCopy::WithRedundancy)?;
    of(extent, "LOCAL", CrcOnCopy::Always)
}

fn of(extent: Extent, scheme: &'static str, on_copy: CrcOnCopy) -> Result<()> {
    title(&format!("Checksums of {NODES} × {} MiB, {scheme}", extent.bytes >> 20));
    let mut cluster = Cluster::start(NODES)?;
    cluster.scheme = Scheme::new(scheme);
    cluster.launch(extent)?;
    let on = CrcPolicy { on_copy, on_flush: true, on_restart: true, on_delete: false };
    let (mut complete, mut copy) = (Path::default(), Path::default());
    let (mut restart, mut rebuild) = (Path::default(), Path::default());
    let mut checkpoint = 0;
    for round in 0..extent.tries * 2 {
        let mut of_policy = |policy| {
            checkpoint += 1;
            measure(&mut cluster, extent, policy, checkpoint, scheme != "LOCAL")
        };
        // The first of a pair is not always the same.
        let (without, with) = if round % 2 == 0 {
            let without = of_policy(OFF)?;
            (without, of_policy(on)?)
        } else {
            let with = of_policy(on)?;
            (of_policy(OFF)?, with)
        };
        complete.add([without.complete, with.complete]);
        copy.add([without.copy, with.copy]);
        restart.add([without.restart, with.restart]);
        if let (Some(without), Some(with)) = (without.rebuild, with.rebuild) {
            rebuild.add([without, with]);
        }
    }
    let bytes = extent.bytes * NODES as u64;
    complete.show("complete_checkpoint", bytes);
    copy.show("copy: flush, drain, fetch", bytes);
    restart.show("restart in place: init", bytes);
    if scheme != "LOCAL" {
        rebuild.show("restart of a lost node: init", bytes);
    }
    Ok(())
}

fn measure(
    cluster: &mut Cluster,
    extent: Extent,
    policy: CrcPolicy,
    checkpoint: u64,
    protected: bool,
) -> Result<Round> {
    // The last checkpoint was made with the other policy: it is loaded before anything is measured.
    cluster.crc = policy;
    cluster.end_ranks()?;
    cluster.launch(extent)?;
    cluster.all("write")?;
    let complete = timed(cluster, |cluster| cluster.all("complete").map(Some))?;
    let destination = cluster.prefix.join(format!("scr.2026-01-01_00:00:00.77.{checkpoint}"));
    let copy = timed(cluster, |cluster| drain(cluster, checkpoint, &destination, policy.on_flush).map(|()| None))?;
    std::fs::remove_dir_all(&destination)?;
    cluster.end_ranks()?;
    let restart = timed(cluster, |cluster| cluster.launch(extent).map(Some))?;
    let rebuild = if protected {
        cluster.lose_node_of(checkpoint as usize % NODES)?;
        Some(timed(cluster, |cluster| cluster.launch(extent).map(Some))?)
    } else {
        None
    };
    Ok(Round { complete, copy, restart, rebuild })
}

/// Elapsed seconds, those of the slowest rank if the work returns them, and processor seconds of the agents.
fn timed(cluster: &mut Cluster, work: impl FnOnce(&mut Cluster) -> Result<Option<f64>>) -> Result<(f64, f64)> {
    let before = cluster.processor_seconds()?;
    let begun = Instant::now();
    let slowest = work(cluster)?;
    let elapsed = begun.elapsed().as_secs_f64();
    Ok((slowest.unwrap_or(elapsed), cluster.processor_seconds()? - before))
}
