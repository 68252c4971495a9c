//! From the loss of a node to running ranks: `holdfast run` on virtual nodes of this machine, times from its
//! event log. Then a program that needs a second before its first call: how much sooner it runs again without that
//! second on the spare, as if a process had waited there, and without it on all nodes.

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

/// The number of ranks, one a node.
const RANKS: usize = 4;
/// The node that takes the rank of the lost one.
const SPARE: &str = "node4";

/// Which ranks need a second before their first call: the shell command that each runs first.
const SLOW_STARTS: &[(&str, &str)] = &[
    ("1 s to the first call, on all nodes", "sleep 1"),
    ("the same, none on the spare", "[ $HOLDFAST_NODE = node4 ] || sleep 1"),
    ("the same, none on any node after the loss", "[ $HOLDFAST_GENERATION -gt 1 ] || sleep 1"),
];

/// One relaunch after the loss of a node, in seconds.
struct Relaunch {
    /// Those of each step.
    steps: Vec<f64>,
    /// From the launch to the call of the last rank on nodes that had ranks before.
    stayed: f64,
    /// From the launch to the call of the rank on the spare.
    spare: f64,
}

impl Relaunch {
    fn whole(&self) -> f64 {
        self.steps.iter().sum()
    }
}

pub fn run(extent: Extent) -> Result<()> {
    title("From a node's death to ranks that run again, local cluster, 4 ranks and spares");
    let runs = if extent.tries > 1 { 6 } else { 1 };
    let (mut whole, mut stayed, mut spare) = (Samples::default(), Samples::default(), Samples::default());
    let mut steps: Vec<Samples> = STEPS.iter().map(|_| Samples::default()).collect();
    for relaunch in relaunches(runs, None)? {
        whole.add(relaunch.whole());
        stayed.add(relaunch.stayed);
        spare.add(relaunch.spare);
        for (samples, seconds) in steps.iter_mut().zip(relaunch.steps) {
            samples.add(seconds);
        }
    }
    for ((_, what), samples) in STEPS.iter().zip(&steps) {
        samples.show_seconds(what, None);
    }
    whole.show_seconds("from death to running again", None);
    below("from death to running again", whole.median(), 1.0, "s");
    stayed.show_seconds("of it: launch to first call, nodes that stay", None);
    spare.show_seconds("of it: launch to first call, spare", None);
    for (what, first) in SLOW_STARTS {
        let mut whole = Samples::default();
        relaunches(runs, Some(first))?.iter().for_each(|relaunch| whole.add(relaunch.whole()));
        whole.show_seconds(what, None);
    }
    Ok(())
}

/// The relaunches of as many jobs, whose ranks may run a shell command first.
fn relaunches(runs: u32, first: Option<&str>) -> Result<Vec<Relaunch>> {
    let mut found = Vec::new();
    for _ in 0..runs {
        let directory = tempfile::tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR")))?;
        run_job(directory.path(), first)?;
        found.extend(deaths(&directory.path().join("prefix/.holdfast/events.jsonl"))?);
    }
    Ok(found)
}

/// One of four nodes is killed; launches after another one soon afterwards would be spaced.
fn run_job(directory: &Path, first: Option<&str>) -> Result<()> {
    const HEAT: &str = "example heat --size 256x256 --steps 160 --checkpoint-every 20 --step-delay 5ms";
    let program = env!("CARGO_BIN_EXE_holdfast");
    let command = match first {
        None => format!("[holdfast, '{}']", HEAT.replace(' ', "', '")),
        Some(first) => format!("[sh, -c, {:?}]", format!("{first}; exec '{program}' {HEAT}")),
    };
    let spec = format!(
        "\
job: bench
prefix: prefix
allocation:
  manager: local
  nodes: 5
  faults: [{{node: 1, after_checkpoint: 2}}]
run:
  nodes: 4
  command: {command}
"
    );
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

/// The time of the last event of each name since a loss, and of the first call of each node's rank.
#[derive(Default)]
struct Times {
    events: BTreeMap<String, DateTime<FixedOffset>>,
    calls: BTreeMap<String, DateTime<FixedOffset>>,
}

/// The relaunch after each loss in the log.
fn deaths(log: &Path) -> Result<Vec<Relaunch>> {
    let mut deaths = Vec::new();
    let mut since: Option<Times> = None;
    for line in fs::read_to_string(log)?.lines() {
        let event: Value = serde_json::from_str(line)?;
        let name = event["event"].as_str().ok_or("an event without name")?;
        let time = DateTime::parse_from_rfc3339(event["time"].as_str().ok_or("an event without time")?)?;
        if name == "fault_injected" {
            since = Some(Times::default());
        }
        let Some(times) = &mut since else { continue };
        times.events.insert(name.to_owned(), time);
        if name == "rank_connected" {
            times.calls.insert(event["node"].as_str().unwrap_or_default().to_owned(), time);
        }
        // The agent of the last rank may report its call after that of the first rank has reported the restart.
        if ["generation_launched", "restarted"].iter().all(|name| times.events.contains_key(*name))
            && times.calls.len() == RANKS
        {
            deaths.push(relaunch(times)?);
            since = None;
        }
    }
    if deaths.is_empty() {
        return Err("the log has no node loss".into());
    }
    Ok(deaths)
}

fn relaunch(times: &Times) -> Result<Relaunch> {
    let at =
        |name: &str| times.events.get(name).copied().ok_or_else(|| format!("there is no event {name} after a death"));
    let seconds = |from: DateTime<FixedOffset>, to: DateTime<FixedOffset>| (to - from).num_milliseconds() as f64 / 1e3;
    let mut before = at("fault_injected")?;
    let mut steps = Vec::new();
    for (name, _) in STEPS {
        let time = at(name)?;
        steps.push(seconds(before, time));
        before = time;
    }
    let launched = at("generation_launched")?;
    let spare = times.calls.get(SPARE).copied().ok_or("no rank on the spare")?;
    let stayed = times.calls.iter().filter(|(node, _)| *node != SPARE).map(|(_, time)| *time).max();
    let stayed = stayed.ok_or("no rank on a node that stays")?;
    Ok(Relaunch { steps, stayed: seconds(launched, stayed), spare: seconds(launched, spare) })
}
