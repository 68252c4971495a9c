//! How fast Holdfast is, measured with the real program on this machine, beside the limits that the machine sets.
//!
//!     cargo bench                         all of it, a few minutes
//!     cargo bench -- encode index         only these
//!     cargo bench -- --smoke              all of it, small and once: do the benchmarks still work?
//!
//! Every figure is the median of several tries, with the smallest and the largest beside it: a machine that does
//! something else meanwhile shows in the spread. A ratio compares with a limit that is measured between the same tries.
//!
//! * [`encode`]: XOR encode in memory-backed cache, and the rebuild of a lost rank at restart;
//! * [`relaunch`]: from the death of a node to ranks that run again, step by step;
//! * [`drain`]: the copy to disk with checksums, and the index with a rebuild;
//! * [`index`]: scan, summary and index of 10,000 ranks;
//! * [`formats`]: verification of checkpoint files, SION containers beside many files;
//! * [`idle`]: what an agent costs that has nothing to do;
//! * [`checkpoint`]: start and complete of many ranks on many nodes;
//! * [`leader`]: what the decisions of the leader of 65,536 ranks cost;
//! * [`machine`]: what the decisions of the relaunch loop cost, and how much of them is written;
//! * [`allgather`]: as much as a rank may give, from a thousand ranks to each of them;
//! * [`routing`]: what a routed file costs when a rank has thousands;
//! * [`relaunch_many`]: the relaunch of a job of up to 10,000 simulated nodes;
//! * [`polls`]: what polling up to 10,000 agents costs the orchestrator;
//! * `agents`, `rank`, `rank_threads`, `simulated`, `loopback`, `figures`: the agents and ranks of a run, simulated
//!   agents, the limits, medians.

mod agents;
mod allgather;
mod checkpoint;
mod drain;
mod encode;
mod figures;
mod formats;
mod idle;
mod index;
mod leader;
mod loopback;
mod machine;
mod polls;
mod rank;
mod rank_threads;
mod relaunch;
mod relaunch_many;
mod routing;
#[path = "../fleet/simulated/mod.rs"]
mod simulated;
mod simulated_agents;

use std::process::ExitCode;

/// The benchmark starts itself as ranks and as neighbours on the loopback: this variable selects the role of a process.
const PART: &str = "HOLDFAST_BENCH_PART";

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Failure> = std::result::Result<T, E>;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Bytes of one rank's file.
    bytes: u64,
    /// Tries of each figure.
    tries: usize,
    /// Ranks of the index.
    ranks: u32,
    /// Ranks and nodes of the checkpoints of many ranks.
    checkpoints: &'static [(usize, usize)],
    /// Ranks and nodes of the run whose leader decides alone.
    led: (u32, u32),
    /// Ranks and nodes of the allgather.
    allgather: (usize, usize),
    /// Files a rank that are routed.
    routed: &'static [usize],
    /// Seconds in which nothing happens.
    idle_seconds: u64,
}

const FULL: Extent = Extent {
    bytes: 256 << 20,
    tries: 5,
    ranks: 10_000,
    checkpoints: &[(256, 64), (1024, 16)],
    led: (65_536, 10_000),
    allgather: (1024, 16),
    routed: &[1000, 4000],
    idle_seconds: 10,
};
const SMOKE: Extent = Extent {
    bytes: 8 << 20,
    tries: 1,
    ranks: 200,
    checkpoints: &[(16, 4), (32, 2)],
    led: (600, 100),
    allgather: (64, 4),
    routed: &[20, 80],
    idle_seconds: 1,
};

/// A benchmark and its name.
type Bench = (&'static str, fn(Extent) -> Result<()>);

const BENCHES: &[Bench] = &[
    ("encode", encode::run),
    ("drain", drain::run),
    ("index", index::run),
    ("formats", formats::run),
    ("idle", idle::run),
    ("polls", polls::run),
    ("relaunch", relaunch::run),
    ("relaunch_many", relaunch_many::run),
    ("checkpoint", checkpoint::run),
    ("leader", leader::run),
    ("machine", machine::run),
    ("routing", routing::run),
    ("allgather", allgather::run),
];

fn main() -> ExitCode {
    let result = match std::env::var(PART).as_deref() {
        Ok("rank") => rank::play(),
        Ok("threads") => rank_threads::play(),
        Ok("loopback") => loopback::play(),
        Ok("simulated agents") => simulated_agents::play(),
        Ok("streams") => formats::play(),
        _ => measure(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo bench` adds this; `cargo test --benches` does not, and only wants to know whether all still works.
    let benchmark = arguments.iter().any(|argument| argument == "--bench");
    let extent = if benchmark && !arguments.iter().any(|argument| argument == "--smoke") { FULL } else { SMOKE };
    let mut wanted = Vec::new();
    for argument in arguments {
        match argument.as_str() {
            "--bench" | "--smoke" => {}
            name if BENCHES.iter().any(|(known, _)| *known == name) => wanted.push(name.to_owned()),
            other => {
                let known: Vec<_> = BENCHES.iter().map(|(name, _)| *name).collect();
                return Err(format!("unknown benchmark {other}: there are {}", known.join(", ")).into());
            }
        }
    }
    for (name, run) in BENCHES {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            run(extent).map_err(|error| format!("{name}: {error}"))?;
        }
    }
    Ok(())
}
