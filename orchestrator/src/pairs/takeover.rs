//! What of a spec may change when `holdfast run` takes over a job whose orchestrator died.
//!
//! Copies go on meanwhile. The settings that they read when they were started, the layout of the shared memory, and the
//! time of a lease must be the same. Commands and their environment are used when a process is started next, all else
//! from now on.

use holdfast_model::NodeName;
use holdfast_model::pair::{JobConfig, PairConfig};
use serde::{Deserialize, Serialize};

use super::placement::{PairPlace, Placement};
use crate::spec::Replication;

/// The spec with which a job was started, without the names and nodes of its pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitialSpec {
    /// In the order of [`Placement::pairs`].
    pairs: Vec<InitialPair>,
    jobs: Vec<InitialJob>,
    lease_ms: u64,
    pin_watcher: Option<u32>,
    /// Of environment and working directory.
    settings_check: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct InitialPair {
    checkpoint_bytes: u64,
    period_us: u64,
    /// Of everything but the commands.
    check: u32,
    #[serde(default)]
    commands_check: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct InitialJob {
    name: String,
    node: NodeName,
    order: u32,
    /// Of everything but the command.
    check: u32,
    #[serde(default)]
    command_check: u32,
}

/// What of a spec has changed: the names of pairs and jobs, and `replication`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Commands, and the environment and directory of all processes.
    pub at_start: Vec<String>,
    pub from_now_on: Vec<String>,
}

impl Changed {
    /// A line for each kind of change.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let kinds = [(&self.at_start, "when a process is started next"), (&self.from_now_on, "from now on")];
        kinds.into_iter().filter(|(names, _)| !names.is_empty()).map(|(names, when)| {
            let names = names.join(", ");
            format!("the spec has changed for {names}: used {when}")
        })
    }
}

/// A checksum that shows whether a value has changed. Only a message depends on it.
fn check(value: &impl Serialize) -> u32 {
    crc32fast::hash(&serde_json::to_vec(value).unwrap_or_default())
}

/// A key that must not change has changed, as a sentence.
type Refused = String;

impl InitialSpec {
    /// The spec of a job that is started.
    pub fn new(placement: &Placement, settings: &Replication) -> Self {
        let pair = |config: &PairConfig| InitialPair {
            checkpoint_bytes: config.checkpoint_bytes,
            period_us: u64::try_from(config.period.as_micros()).unwrap_or(u64::MAX),
            check: check(&PairConfig { main: Vec::new(), replica: Vec::new(), ..config.clone() }),
            commands_check: check(&(&config.main, &config.replica)),
        };
        let job = |(config, node): &(JobConfig, NodeName)| InitialJob {
            name: config.name.clone(),
            node: node.clone(),
            order: config.order,
            check: check(&JobConfig { command: Vec::new(), ..config.clone() }),
            command_check: check(&config.command),
        };
        InitialSpec {
            pairs: placement.configs().map(pair).collect(),
            jobs: placement.jobs.iter().map(job).collect(),
            lease_ms: u64::try_from(settings.lease.as_millis()).unwrap_or(u64::MAX),
            pin_watcher: settings.pin_watcher,
            settings_check: check(&(&settings.env, &settings.directory)),
        }
    }
}

/// Refuses names that have gone, are new, or have another order. `kind`: a pair or a job.
fn compare_names(kind: &str, before: &[&str], now: &[&str]) -> Result<(), Refused> {
    if let Some(gone) = before.iter().find(|name| !now.contains(name)) {
        return Err(format!("its {kind} `{gone}` is not in the spec"));
    }
    if let Some(new) = now.iter().find(|name| !before.contains(name)) {
        return Err(format!("the {kind} `{new}` is new"));
    }
    match before.iter().zip(now).find(|(before, now)| before != now) {
        Some((before, now)) => Err(format!("the {kind} `{now}` is where `{before}` was: restore their order")),
        None => Ok(()),
    }
}

/// Compares the pairs with those with which a job was started.
///
/// # Errors
/// The first difference.
pub fn compare_places<'a>(before: &[PairPlace], now: impl Iterator<Item = &'a PairPlace>) -> Result<(), Refused> {
    let now: Vec<&PairPlace> = now.collect();
    let names: Vec<&str> = before.iter().map(|pair| &*pair.name).collect();
    compare_names("pair", &names, &now.iter().map(|pair| &*pair.name).collect::<Vec<_>>())?;
    for (before, now) in before.iter().zip(now) {
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

impl InitialSpec {
    fn job_names(&self) -> Vec<&str> {
        self.jobs.iter().map(|job| &*job.name).collect()
    }

    /// Compares with the present spec, whose pairs have the same names and nodes. Returns what changed of what may
    /// change.
    ///
    /// # Errors
    /// The first difference that is not possible.
    pub fn compare(&self, now: &InitialSpec, placement: &Placement) -> Result<Changed, Refused> {
        let mut changed = Changed::default();
        for ((before, after), place) in self.pairs.iter().zip(&now.pairs).zip(placement.pairs()) {
            let name = &place.name;
            let differs = |key: &str, before: u64, after: u64, unit: &str| match before == after {
                true => Ok(()),
                false => Err(format!("`{key}` of the pair `{name}` was {before} {unit}, and is {after} {unit}")),
            };
            differs("checkpoint.size", before.checkpoint_bytes, after.checkpoint_bytes, "bytes")?;
            differs("heartbeat.period", before.period_us, after.period_us, "µs")?;
            if before.commands_check != after.commands_check {
                changed.at_start.push(name.clone());
            }
            if before.check != after.check {
                changed.from_now_on.push(name.clone());
            }
        }
        compare_names("job", &self.job_names(), &now.job_names())?;
        for (before, after) in self.jobs.iter().zip(&now.jobs) {
            let InitialJob { name, node, order, .. } = before;
            if *node != after.node {
                return Err(format!("`node` of the job `{name}` was {node}, and is {}", after.node));
            }
            if *order != after.order {
                return Err(format!("`order` of the job `{name}` was {order}, and is {}", after.order));
            }
            if before.command_check != after.command_check {
                changed.at_start.push(name.clone());
            }
            if before.check != after.check {
                changed.from_now_on.push(name.clone());
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
        if self.settings_check != now.settings_check {
            changed.at_start.push("replication".to_owned());
        }
        Ok(changed)
    }
}
