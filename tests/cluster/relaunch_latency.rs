//! How long it takes from the death of a node to all ranks running again from the rebuilt checkpoint, step by step:
//! `cargo bench -p holdfast --bench relaunch_latency`. Needs a Docker engine; the cluster is made where it is missing.

use std::time::{SystemTime, UNIX_EPOCH};

use chrono::DateTime;
use holdfast_testkit::cluster::{Cluster, Job, heat_of};
use serde_json::Value;

/// Ranks that write 64 MiB each, one a node, and a spare.
const RANKS: u64 = 5;
const FIELD: &str = "8192x5120";
const ROUNDS: usize = 3;

fn main() {
    let Some(cluster) = Cluster::get(env!("CARGO_BIN_EXE_holdfast")) else { return };
    println!(
        "{RANKS} nodes, one rank with 64 MiB on each, default settings; times after `docker kill`, in milliseconds"
    );
    println!(
        "{:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "seen", "down", "killed", "placed", "launched", "joined", "restored"
    );
    for round in 0..ROUNDS {
        let spec = spec();
        let job = cluster.submit(&format!("latency-{round}"), &spec, "--nodes=6 --time=20", "holdfast run job.yaml");
        job.wait_for("checkpoint 1 complete");
        let killed = now_ms();
        cluster.docker("kill", "n3");
        job.wait_for("generation 2 launched").wait_for("rebuilt: rank");
        println!("{}", line(&job, killed));
        drop(job);
        cluster.heal();
    }
}

fn spec() -> String {
    let arguments = ["--size", FIELD, "--steps", "4000", "--step-delay", "0"];
    let more =
        "checkpoint: {cache: [{base: /dev/shm, keep: 1}], redundancy: [{scheme: xor, set_size: 5}], flush: {every: 0}}";
    heat_of(&arguments, more).replace("nodes: 4", "nodes: 5").replace("\"10\"", "\"20\"")
}

/// The moments of the relaunch.
fn line(job: &Job<'_>, killed: i64) -> String {
    let events = job.events();
    let of = |name: &str, fits: &dyn Fn(&Value) -> bool| {
        let found = events.iter().find(|event| event["event"] == name && at(event) >= killed && fits(event));
        found.map(|event| at(event) - killed)
    };
    let any = |_: &Value| true;
    let second = |event: &Value| event["generation"] == 2;
    let joined = events.iter().filter(|event| event["event"] == "rank_connected" && second(event)).map(at).max();
    let columns = [
        of("agent_lost", &any),
        of("node_down", &any),
        of("generation_ended", &any),
        of("generation_placed", &any),
        of("generation_launched", &any),
        joined.map(|at| at - killed),
        of("restarted", &second),
    ];
    columns.map(|column| column.map_or_else(|| format!("{:>8}", "-"), |ms| format!("{ms:>8}"))).join(" ")
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
