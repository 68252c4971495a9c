//! What of a spec may change when `holdfast run` takes over a job whose orchestrator died.
//!
//! Copies go on meanwhile. What they were told when they were started, what is laid out in the shared memory of their
//! nodes, and the time of a lease must be the same; all else is used from the next start of a copy or job on.

use holdfast_model::NodeName;
use holdfast_model::pair::{JobConfig, PairConfig};
use serde::{Deserialize, Serialize};

use super::placement::{PairPlace, Placement};
use crate::spec::Replication;

/// What a job was begun with, without the names and nodes of its pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// In the order of [`Placement::pairs`].
    pairs: Vec<BegunPair>,
    jobs: Vec<BegunJob>,
    lease_ms: u64,
    pin_watcher: Option<u32>,
    /// Of environment and working directory.
    settings: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct BegunPair {
    checkpoint_bytes: u64,
    period_us: u64,
    /// Of everything.
    check: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct BegunJob {
    name: String,
    node: NodeName,
    order: u32,
    /// Of everything.
    check: u32,
}

/// Tells whether a value has changed; nothing depends on it but a message.
fn check(value: &impl Serialize) -> u32 {
    crc32fast::hash(&serde_json::to_vec(value).unwrap_or_default())
}

/// A key that must not change has changed, as a sentence.
type Refused = String;

impl Begun {
    /// What a job is begun with.
    pub fn new(placement: &Placement, settings: &Replication) -> Self {
        let pair = |config: &PairConfig| BegunPair {
            checkpoint_bytes: config.checkpoint_bytes,
            period_us: u64::try_from(config.period.as_micros()).unwrap_or(u64::MAX),
            check: check(config),
        };
        let job = |(config, node): &(JobConfig, NodeName)| BegunJob {
            name: config.name.clone(),
            node: node.clone(),
            order: config.order,
            check: check(config),
        };
        Begun {
            pairs: placement.configs().map(pair).collect(),
            jobs: placement.jobs().iter().map(job).collect(),
            lease_ms: u64::try_from(settings.lease.as_millis()).unwrap_or(u64::MAX),
            pin_watcher: settings.pin_watcher,
            settings: check(&(&settings.env, &settings.directory)),
        }
    }
}

/// Compares the pairs with those with which a job was begun.
///
/// # Errors
/// The first difference.
pub fn compare_places<'a>(begun: &[PairPlace], now: impl Iterator<Item = &'a PairPlace>) -> Result<(), Refused> {
    let now: Vec<&PairPlace> = now.collect();
    if let Some(gone) = begun.iter().find(|pair| !now.iter().any(|other| other.name == pair.name)) {
        return Err(format!("its pair `{}` is not in the spec", gone.name));
    }
    if let Some(new) = now.iter().find(|pair| !begun.iter().any(|other| other.name == pair.name)) {
        return Err(format!("the pair `{}` is new", new.name));
    }
    for (before, now) in begun.iter().zip(now) {
        if before.name != now.name {
            return Err(format!("the pair `{}` is where `{}` was: restore their order", now.name, before.name));
        }
        if before != now {
            let PairPlace { name, main, replica } = before;
            return Err(format!(
                "`nodes` of the pair `{name}` was [{main}, {replica}], and is [{}, {}]",
                now.main, now.replica
            ));
        }
    }
    Ok(())
}

impl Begun {
    /// Compares what a job was begun with with the present spec, whose pairs have the same names and nodes. Returns
    /// the names of pairs and jobs that changed in what may change, and `replication` if that did.
    ///
    /// # Errors
    /// The first difference that is not possible.
    pub fn compare(&self, now: &Begun, placement: &Placement) -> Result<Vec<String>, Refused> {
        let mut changed = Vec::new();
        for ((before, after), place) in self.pairs.iter().zip(&now.pairs).zip(placement.pairs()) {
            let name = &place.name;
            let differs = |key: &str, before: u64, after: u64, unit: &str| match before == after {
                true => Ok(()),
                false => Err(format!("`{key}` of the pair `{name}` was {before} {unit}, and is {after} {unit}")),
            };
            differs("checkpoint.size", before.checkpoint_bytes, after.checkpoint_bytes, "bytes")?;
            differs("heartbeat.period", before.period_us, after.period_us, "µs")?;
            if before.check != after.check {
                changed.push(name.clone());
            }
        }
        if let Some(gone) = self.jobs.iter().find(|job| !now.jobs.iter().any(|other| other.name == job.name)) {
            return Err(format!("its job `{}` is not in the spec", gone.name));
        }
        if let Some(new) = now.jobs.iter().find(|job| !self.jobs.iter().any(|other| other.name == job.name)) {
            return Err(format!("the job `{}` is new", new.name));
        }
        for (before, after) in self.jobs.iter().zip(&now.jobs) {
            if before.name != after.name {
                return Err(format!("the job `{}` is where `{}` was: restore their order", after.name, before.name));
            }
            let BegunJob { name, node, order, .. } = before;
            if *node != after.node {
                return Err(format!("`node` of the job `{name}` was {node}, and is {}", after.node));
            }
            if *order != after.order {
                return Err(format!("`order` of the job `{name}` was {order}, and is {}", after.order));
            }
            if before.check != after.check {
                changed.push(name.clone());
            }
        }
        if self.lease_ms != now.lease_ms {
            // The other copy is woken when the time of the lease is over: of the one that was granted.
            return Err(format!("`replication.lease` was {} ms, and is {} ms", self.lease_ms, now.lease_ms));
        }
        if self.pin_watcher != now.pin_watcher {
            let text = |cpu: Option<u32>| cpu.map_or_else(|| "not given".to_owned(), |cpu| cpu.to_string());
            let (before, after) = (text(self.pin_watcher), text(now.pin_watcher));
            return Err(format!("`replication.pin_watcher` was {before}, and is {after}"));
        }
        if self.settings != now.settings {
            changed.push("replication".to_owned());
        }
        Ok(changed)
    }
}
