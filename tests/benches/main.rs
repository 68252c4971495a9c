//! The speed of the real program on this machine, compared with the limits of the machine.
//!
//!     cargo bench                         all benchmarks, a few minutes
//!     cargo bench -- encode index         only these two
//!     cargo bench -- --smoke              all benchmarks, small and once: checks that they work
//!     cargo bench -- --save FILE          stores the figures
//!     cargo bench -- --compare FILE       prints the ratio of each figure to that of a stored run of this machine
//!
//! Every figure is the median of several tries, with the smallest and the largest value: other load on the
//! machine is visible in the spread. A ratio compares with a limit that is measured between the same tries.
//!
//! * [`encode`]: XOR encode in memory-backed cache, and the rebuild of a lost rank at restart;
//! * [`protect`]: how long a checkpoint blocks a rank, with redundancy that it waits for, and that is made behind it;
//! * [`sets`]: Reed-Solomon through the agents, and restarts with several lost nodes, beside XOR;
//! * [`reed_solomon`]: the inner loops of Reed-Solomon on one core;
//! * [`relaunch`]: from the loss of a node to running ranks, step by step;
//! * [`drain`]: the copy to disk with checksums, and the index with a rebuild;
//! * [`containers`]: drain and fetch of 4,096 ranks as plain files and in a container;
//! * [`crc`]: what checksums cost, path by path;
//! * [`index`]: scan, summary and index of 10,000 ranks; a prefix directory of 1,000 checkpoints;
//! * [`formats`]: verification of checkpoint files, SION containers compared with many files;
//! * [`idle`]: the cost of an idle agent;
//! * [`checkpoint`]: start and complete of many ranks on many nodes;
//! * [`leader`]: the cost of the decisions of the leader of 65,536 and of a million ranks;
//! * [`machine`]: the cost of the decisions of the relaunch loop, and the size of their journal;
//! * [`allgather`]: the largest contributions of a thousand ranks, sent to each of them;
//! * [`routing`]: the cost of a routed file when a rank has thousands;
//! * [`relaunch_many`]: the relaunch of a job of up to 10,000 simulated nodes;
//! * [`variables`]: checkpoints of variables, full and differential, compared with files;
//! * [`pairs`]: pairs of main and replica: fail-over, the cost of watching, checkpoints in shared memory;
//! * [`pairs_mirror`]: how old the checkpoints on the second node of a pair are; part of `pairs`;
//! * [`polls`]: the cost of polling up to 10,000 agents;
//! * `agents`, `protected`, `rank`, `variables_rank`, `rank_threads`, `pairs_copy`, `pairs_polling`, `simulated`,
//!   `loopback`, `figures`, `baseline`: the agents, ranks and copies of a run, simulated agents, the limits, medians,
//!   stored figures.

mod agents;
mod allgather;
mod baseline;
mod checkpoint;
mod containers;
mod crc;
mod drain;
mod encode;
mod figures;
mod formats;
mod idle;
mod index;
mod leader;
mod loopback;
mod machine;
mod pairs;
mod pairs_copy;
mod pairs_mirror;
mod pairs_polling;
mod polls;
mod protect;
mod protected;
mod rank;
mod rank_threads;
mod reed_solomon;
mod relaunch;
mod relaunch_many;
mod routing;
mod sets;
#[path = "../fleet/simulated/mod.rs"]
mod simulated;
mod simulated_agents;
mod variables;
mod variables_rank;

use std::path::PathBuf;
use std::process::ExitCode;

/// The benchmark starts itself as ranks and as neighbours on the loopback; this variable selects the process's role.
const PART: &str = "HOLDFAST_BENCH_PART";

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Failure> = std::result::Result<T, E>;

/// The sizes of the measurements.
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
    /// Checkpoints of a prefix directory that is listed, and the ranks of each.
    listed: (u32, u32),
    /// Ranks and nodes of the benchmark of the leader.
    led: &'static [(u32, u32)],
    /// Ranks and nodes of the allgather.
    allgather: (usize, usize),
    /// Ranks of a dataset that is packed, and the bytes of each.
    packed: (usize, u64),
    /// Ranks a node, and the routed files of each.
    routed: &'static [(usize, usize)],
    idle_seconds: u64,
}

const FULL: Extent = Extent {
    bytes: 256 << 20,
    tries: 5,
    ranks: 10_000,
    checkpoints: &[(64, 64), (256, 64), (1024, 16), (4096, 64)],
    listed: (1000, 1000),
    led: &[(65_536, 10_000), (1_000_000, 20_000)],
    allgather: (1024, 16),
    packed: (4096, 64 << 10),
    routed: &[(1, 1000), (1, 4000), (64, 1000)],
    idle_seconds: 10,
};
const SMOKE: Extent = Extent {
    bytes: 8 << 20,
    tries: 1,
    ranks: 200,
    checkpoints: &[(16, 4), (32, 2)],
    listed: (10, 20),
    led: &[(600, 100)],
    allgather: (64, 4),
    packed: (64, 16 << 10),
    routed: &[(1, 20), (1, 80), (4, 20)],
    idle_seconds: 1,
};

/// How long what happens without work is observed, seconds; without it, for [`Extent::idle_seconds`].
const SECONDS: &str = "HOLDFAST_BENCH_SECONDS";

impl Extent {
    /// Seconds for which agents without work are observed.
    pub fn observed_seconds(self) -> Result<u64> {
        Ok(std::env::var(SECONDS).ok().map(|text| text.parse()).transpose()?.unwrap_or(self.idle_seconds))
    }
}

/// A benchmark and its name.
type Bench = (&'static str, fn(Extent) -> Result<()>);

const BENCHES: &[Bench] = &[
    ("encode", encode::run),
    ("protect", protect::run),
    ("sets", sets::run),
    ("reed_solomon", reed_solomon::run),
    ("drain", drain::run),
    ("containers", containers::run),
    ("crc", crc::run),
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
    ("variables", variables::run),
    ("pairs", pairs::run),
];

fn main() -> ExitCode {
    let result = match std::env::var(PART).as_deref() {
        Ok("rank") => rank::play(),
        Ok("variables") => variables_rank::play(),
        Ok("copy") => pairs_copy::play(),
        Ok("polling pairs") => pairs_polling::play(),
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
    let (mut save, mut base) = (None, None);
    // `cargo bench` adds this; `cargo test --benches` does not, and only checks that the benchmarks work.
    let benchmark = arguments.iter().any(|argument| argument == "--bench");
    let extent = if benchmark && !arguments.iter().any(|argument| argument == "--smoke") { FULL } else { SMOKE };
    let mut wanted = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" | "--smoke" => {}
            "--save" | "--compare" => {
                let file = arguments.next().ok_or_else(|| format!("`{argument}` needs the path of a file"))?;
                let which = if argument == "--save" { &mut save } else { &mut base };
                *which = Some(PathBuf::from(file));
            }
            name if BENCHES.iter().any(|(known, _)| *known == name) => wanted.push(name.to_owned()),
            other => {
                let known: Vec<_> = BENCHES.iter().map(|(name, _)| *name).collect();
                return Err(format!("unknown benchmark {other}: there are {}", known.join(", ")).into());
            }
        }
    }
    baseline::begin(extent.tries == 1, save.as_deref(), base.as_deref())?;
    for (name, run) in BENCHES {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            run(extent).map_err(|error| format!("{name}: {error}"))?;
        }
    }
    baseline::end(save.as_deref())
}
