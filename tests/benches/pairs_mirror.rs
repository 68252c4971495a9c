//! How old the checkpoints on the second node of a pair are: two agents, mains that store 400 kB each 10 ms on one,
//! replicas on the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_model::pair::{CopyState, Grant, PairConfig, RestartBackOff, Term};
use holdfast_shm::Registry;
use holdfast_wire::pairs::{PairOnNode, PairsPlan, PairsStop, PairsSync, SidesOnNode};

use crate::agents::Cluster;
use crate::figures::below;
use crate::pairs::{self, CHECKPOINT, LIMIT, PERIOD, TOGETHER, percentiles, this_program};
use crate::pairs_copy::{self, BETWEEN};
use crate::{Extent, PART, Result};

/// A pair of this program.
fn config() -> Result<PairConfig> {
    let command = vec![this_program()?];
    Ok(PairConfig {
        spec_index: 0,
        name: String::new(),
        main: command.clone(),
        replica: command,
        period: PERIOD,
        // Whether heartbeats come in time is not measured here.
        misses: 10_000,
        checkpoint_bytes: CHECKPOINT as u64,
        checkpoint_period: BETWEEN,
        restart: RestartBackOff { first: LIMIT, most: LIMIT, attempts: None },
        stop_grace: Duration::from_millis(50),
        start_within: LIMIT,
        suspends: None,
    })
}

fn plan(pairs: Vec<PairOnNode>) -> PairsPlan {
    pairs::plan(pairs, &[(PART, "copy"), (pairs_copy::CHECKPOINT, &CHECKPOINT.to_string())])
}

/// Two agents with the copies of the same pairs, mains on the first one.
struct TwoNodes {
    cluster: Cluster,
    addresses: [SocketAddr; 2],
}

/// Copies do not end with their agents.
impl Drop for TwoNodes {
    fn drop(&mut self) {
        for address in self.addresses {
            let stop = PairsStop { epoch: 1, at_once: false };
            let stop = self.cluster.client.pairs_stop(address, &stop, Duration::ZERO);
            let _ = self.cluster.runtime.block_on(stop);
        }
    }
}

impl TwoNodes {
    /// The mains are awake when this returns. Also returns the registries.
    fn start(pairs: u32) -> Result<(TwoNodes, [Registry; 2])> {
        let cluster = Cluster::start(2)?;
        let addresses: Vec<SocketAddr> = cluster.agents().map(|agent| agent.address).collect();
        let nodes = TwoNodes { cluster, addresses: addresses.try_into().map_err(|_| "two agents are needed")? };
        let config = config()?;
        let mut registries = Vec::new();
        for (at, sides) in [SidesOnNode::Main, SidesOnNode::Replica].into_iter().enumerate() {
            let on_node = |index| PairOnNode {
                restore: false,
                index,
                config: PairConfig { name: format!("pair{index}"), ..config.clone() },
                sides,
                peer: Some(nodes.addresses[1 - at]),
            };
            let plan = plan((0..pairs).map(on_node).collect());
            let accepted = nodes.cluster.client.pairs_plan(nodes.addresses[at], &plan);
            registries.push(Registry::open(&nodes.cluster.runtime.block_on(accepted)?.registry)?);
        }
        nodes.wake_mains(pairs)?;
        // They show the copies that were expected when they are opened; checkpoints are shown at any time.
        let registries = registries.try_into().map_err(|_| "two registries are needed")?;
        Ok((nodes, registries))
    }

    fn wake_mains(&self, pairs: u32) -> Result<()> {
        let begun = Instant::now();
        let mut sync = PairsSync { epoch: 1, ..PairsSync::default() };
        loop {
            let answer = self.cluster.client.pairs_sync(self.addresses[0], &sync, LIMIT);
            let report = self.cluster.runtime.block_on(answer)?;
            let number =
                |state| report.pairs.iter().filter(|pair| pair.main.is_some_and(|main| main.state == state)).count();
            if number(CopyState::Awake) == pairs as usize {
                return Ok(());
            }
            if number(CopyState::Asleep) == pairs as usize {
                let until = Duration::from_millis(report.clock) + 10 * LIMIT;
                let term = Term { epoch: 1, number: 1 };
                let grant = |pair| Grant { pair, term, until, after: None, cause: None };
                sync = PairsSync { instance: report.instance, leases: (0..pairs).map(grant).collect(), ..sync };
            }
            if begun.elapsed() > LIMIT {
                return Err(format!("the mains are not awake: {:?}", report.pairs).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The time from the moment at which a checkpoint is stored to the moment at which it, or a newer one, is on the other
/// node. Both registries note these times, of the same clock.
pub fn lag(extent: Extent) -> Result<()> {
    let (_nodes, registries) = TwoNodes::start(TOGETHER)?;
    let seconds = extent.idle_seconds.min(10);
    let mut stored: Vec<[BTreeMap<u64, u64>; 2]> = (0..TOGETHER).map(|_| Default::default()).collect();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        for (pair, times) in (0..TOGETHER).zip(&mut stored) {
            for (registry, times) in registries.iter().zip(times) {
                times.extend(registry.newest(pair).map(|newest| (newest.sequence, newest.stored_at)));
            }
        }
        thread::sleep(Duration::from_micros(500));
    }
    let (mut lags, mut skipped) = (Vec::new(), 0);
    for [here, there] in &stored {
        let begins = there.first_key_value().map_or(u64::MAX, |(sequence, _)| *sequence);
        for (sequence, at) in here.range(begins..) {
            // The last ones may be under way.
            let Some((arrived, then)) = there.range(sequence..).next() else { continue };
            skipped += usize::from(arrived != sequence);
            lags.push(then.saturating_sub(*at) as f64 / 1e6);
        }
    }
    if lags.is_empty() {
        return Err("no checkpoint has arrived".into());
    }
    println!("  {} checkpoints in {seconds} s, {skipped} of them replaced by a newer one on their way", lags.len());
    let p99 = percentiles("stored to present on the other node", lags);
    below("p99", p99, BETWEEN.as_secs_f64() * 1e3, "ms");
    Ok(())
}
