//! The time from the loss of a node until all ranks run again from the rebuilt checkpoint, step by step:
//! `cargo bench -p holdfast --bench relaunch_latency`. Needs a Docker engine; the cluster is made where it is missing.
//! `-- --smoke` measures once, with little data, and compares with no aim: for CI, on any machine.

use std::time::{SystemTime, UNIX_EPOCH};

use chrono::DateTime;
use holdfast_testkit::cluster::{self, Cluster, Job, NO_ENGINE, heat_of};
use serde_json::Value;

/// Ranks, one a node; the sixth node is the spare.
const RANKS: u32 = 5;
/// How a node is lost, with the number of rounds in a full run, and the aim in milliseconds: its kernel closes the
/// connections and is gone, or still accepts connections.
const LOSSES: [(&str, usize, i64); 2] = [("kill", 7, 800), ("pause", 3, 4000)];
/// The events from the loss to the end of the relaunch, from the event log.
const STEPS: [&str; 7] = ["noticed", "detected", "killed", "placed", "launched", "initialised", "rebuilt"];

/// The amount of data and the number of samples.
struct Extent {
    /// The field of all ranks.
    field: &'static str,
    rank_size: &'static str,
    steps_between_checkpoints: &'static str,
    most_rounds: usize,
}

const FULL: Extent =
    Extent { field: "8192x5120", rank_size: "64 MiB", steps_between_checkpoints: "20", most_rounds: 7 };
const SMOKE: Extent = Extent { field: "1024x640", rank_size: "1 MiB", steps_between_checkpoints: "20", most_rounds: 1 };

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke");
    let extent = if smoke { SMOKE } else { FULL };
    if !cluster::is_engine_reachable() {
        return eprintln!("not measured: {NO_ENGINE}");
    }
    let cluster = Cluster::get(env!("CARGO_BIN_EXE_holdfast"));
    println!(
        "{RANKS} nodes, one rank with {} on each, default settings; milliseconds after the command",
        extent.rank_size
    );
    println!("  noticed: the agent is lost; detected: the node is down; killed: no rank of the run is left;");
    println!("  initialised: all new ranks have called init; rebuilt: all may read, the lost rank's files too");
    for (command, rounds, aim) in LOSSES {
        println!("docker {command}");
        println!("{:>8}{}", "", STEPS.map(|step| format!("{step:>12}")).concat());
        measure(&cluster, &extent, command, rounds.min(extent.most_rounds), (!smoke).then_some(aim));
    }
}

fn measure(cluster: &Cluster, extent: &Extent, command: &str, rounds: usize, aim: Option<i64>) {
    let one_round = |round| {
        let moments = one(cluster, extent, command, round);
        println!("{round:>8}{}", cells(&moments));
        cluster.heal();
        moments
    };
    let rounds: Vec<_> = (1..=rounds).map(one_round).collect();
    assert!(
        rounds.iter().flatten().all(Option::is_some),
        "a step of the relaunch is missing in the event log: was an event renamed?"
    );
    let middle = |samples: &[i64]| samples[samples.len() / 2];
    let first = |samples: &[i64]| samples[0];
    let last = |samples: &[i64]| samples[samples.len() - 1];
    let whole = summary(&rounds, middle);
    let Some(aim) = aim else { return };
    println!("{:>8}{}", "least", cells(&summary(&rounds, first)));
    println!("{:>8}{}", "median", cells(&whole));
    println!("{:>8}{}", "most", cells(&summary(&rounds, last)));
    if let Some(Some(whole)) = whole.last() {
        let verdict = if *whole < aim { "met" } else { "missed" };
        println!("  median {whole} ms   aim: below {aim} ms: {verdict}");
    }
}

/// One job with one loss.
fn one(cluster: &Cluster, extent: &Extent, command: &str, round: usize) -> Vec<Option<i64>> {
    let name = format!("latency-{command}-{round}");
    let job = cluster.submit(&name, &spec(extent), "--nodes=6 --time=20", "holdfast run job.yaml");
    job.wait_for("checkpoint 1 protected");
    let killed = now_ms();
    cluster.docker(command, "n3");
    job.wait_for("generation 2 launched").wait_for("rebuilt: rank 2");
    moments(&job, killed)
}

/// The default settings, except for one group of all five ranks, and no flush, which would compete for the machine.
fn spec(extent: &Extent) -> String {
    let arguments = ["--size", extent.field, "--steps", "100000", "--step-delay", "0"];
    let more = "checkpoint: {redundancy: [{scheme: xor, set_size: 5}], flush: {every: 0}}";
    heat_of(&arguments, more)
        .replace("nodes: 4", &format!("nodes: {RANKS}"))
        .replace("\"10\"", &format!("\"{}\"", extent.steps_between_checkpoints))
}

/// The times of the steps of the relaunch.
fn moments(job: &Job<'_>, killed: i64) -> Vec<Option<i64>> {
    let events = job.events();
    let of = |name: &str, fits: &dyn Fn(&Value) -> bool| {
        let found = events.iter().find(|event| event["event"] == name && at(event) >= killed && fits(event));
        found.map(|event| at(event) - killed)
    };
    let any = |_: &Value| true;
    let second = |event: &Value| event["generation"] == 2;
    let joined = events.iter().filter(|event| event["event"] == "rank_connected" && second(event)).map(at).max();
    vec![
        of("agent_lost", &any),
        of("node_down", &any),
        of("generation_ended", &any),
        of("generation_placed", &second),
        of("generation_launched", &second),
        joined.map(|at| at - killed),
        of("restarted", &second),
    ]
}

/// A quantile of the samples of each step.
fn summary(rounds: &[Vec<Option<i64>>], pick: fn(&[i64]) -> i64) -> Vec<Option<i64>> {
    let of_step = |step: usize| {
        let mut samples: Vec<i64> = rounds.iter().filter_map(|moments| moments[step]).collect();
        samples.sort_unstable();
        (!samples.is_empty()).then(|| pick(&samples))
    };
    (0..STEPS.len()).map(of_step).collect()
}

fn cells(moments: &[Option<i64>]) -> String {
    moments.iter().map(|moment| moment.map_or_else(|| format!("{:>12}", "-"), |ms| format!("{ms:>12}"))).collect()
}

fn at(event: &Value) -> i64 {
    event["time"]
        .as_str()
        .and_then(|text| DateTime::parse_from_rfc3339(text).ok())
        .map_or(0, |at| at.timestamp_millis())
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
