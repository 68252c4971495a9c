//! From the loss of a node to running ranks: `holdfast run` on virtual nodes of this machine, times from its
//! event log.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use chrono::{DateTime, FixedOffset};
use serde_json::Value;

use crate::figures::{Samples, below, title};
use crate::{Extent, Result};

/// The steps in order: the event that ends each step, and the step's name in the output.
const STEPS: &[(&str, &str)] = &[
    ("generation_ending", "seen: the agent is gone, the ranks are killed"),
    ("generation_ended", "all ranks of the old generation are gone"),
    ("generation_launched", "placed, agents prepared, ranks launched"),
    ("rank_connected", "the last rank has connected"),
    ("restarted", "lost files rebuilt, all ranks run"),
];

pub fn run(extent: Extent) -> Result<()> {
    title("From a node's death to ranks that run again, local cluster, 4 ranks and spares");
    let runs = if extent.tries > 1 { 6 } else { 1 };
    let mut whole = Samples::default();
    let mut steps: Vec<Samples> = STEPS.iter().map(|_| Samples::default()).collect();
    for _ in 0..runs {
        let directory = tempfile::tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR")))?;
        run_job(directory.path())?;
        for death in deaths(&directory.path().join("prefix/.holdfast/events.jsonl"))? {
            whole.add(death.iter().sum());
            for (samples, seconds) in steps.iter_mut().zip(death) {
                samples.add(seconds);
            }
        }
    }
    for ((_, what), samples) in STEPS.iter().zip(&steps) {
        samples.show_seconds(what, None);
    }
    whole.show_seconds("from death to running again", None);
    below("from death to running again", whole.median(), 1.0, "s");
    Ok(())
}

/// One of four nodes is killed; launches after another one soon afterwards would be spaced.
fn run_job(directory: &Path) -> Result<()> {
    let spec = "\
job: bench
prefix: prefix
allocation:
  manager: local
  nodes: 5
  faults: [{node: 1, after_checkpoint: 2}]
run:
  nodes: 4
  command: [holdfast, example, heat, --size, 256x256, --steps, '160', --checkpoint-every, '20', --step-delay, 5ms]
";
    fs::write(directory.join("job.yaml"), spec)?;
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["run", "job.yaml"])
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("holdfast run ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

/// The seconds of each step, for each loss in the log.
fn deaths(log: &Path) -> Result<Vec<Vec<f64>>> {
    let mut deaths = Vec::new();
    // The time of the last event of each name since the last loss.
    let mut since: Option<BTreeMap<String, DateTime<FixedOffset>>> = None;
    for line in fs::read_to_string(log)?.lines() {
        let event: Value = serde_json::from_str(line)?;
        let name = event["event"].as_str().ok_or("an event without name")?;
        let time = DateTime::parse_from_rfc3339(event["time"].as_str().ok_or("an event without time")?)?;
        if name == "fault_injected" {
            since = Some(BTreeMap::from([(name.to_owned(), time)]));
        } else if let Some(times) = &mut since {
            times.insert(name.to_owned(), time);
            if name == "restarted" && times.contains_key("generation_launched") {
                deaths.push(steps(times)?);
                since = None;
            }
        }
    }
    if deaths.is_empty() {
        return Err("the log has no node loss".into());
    }
    Ok(deaths)
}

fn steps(times: &BTreeMap<String, DateTime<FixedOffset>>) -> Result<Vec<f64>> {
    let at = |name: &str| times.get(name).copied().ok_or_else(|| format!("there is no event {name} after a death"));
    let mut before = at("fault_injected")?;
    let mut seconds = Vec::new();
    for (name, _) in STEPS {
        let time = at(name)?;
        seconds.push((time - before).num_milliseconds() as f64 / 1e3);
        before = time;
    }
    Ok(seconds)
}
