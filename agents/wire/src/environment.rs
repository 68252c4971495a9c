//! The environment variables by which a launcher passes a rank its number and its agent's socket.

/// The job's id: a rank and an agent of different jobs refuse each other.
pub const JOB: &str = "HOLDFAST_JOB";
/// The step, where several run side by side: a node of one may be the machine on which launchers of others run.
pub const STEP: &str = "HOLDFAST_STEP";
/// The generation, so that a rank left over from an older run is refused.
pub const GENERATION: &str = "HOLDFAST_GENERATION";
/// The Unix socket of the node's agent.
pub const SOCKET: &str = "HOLDFAST_SOCKET";
/// The node's name; set for virtual nodes, where several share one machine.
pub const NODE: &str = "HOLDFAST_NODE";
/// The root directory of a virtual node, which is put in front of all paths of the node.
pub const NODE_ROOT: &str = "HOLDFAST_NODE_ROOT";
/// The rank among all ranks of the run.
pub const RANK: &str = "HOLDFAST_RANK";
/// The number of ranks of the run.
pub const RANKS: &str = "HOLDFAST_RANKS";
/// Of a rank process (`holdfast rank --role checkpoints`): its settings, JSON.
pub const RANK_SETTINGS: &str = "HOLDFAST_RANK_SETTINGS";
/// Of a rank of `launcher: torchrun`: what it derives its variables from, JSON.
pub const TORCHRUN: &str = "HOLDFAST_TORCHRUN";
/// Of a copy of a pair: the pair's name.
pub const PAIR: &str = "HOLDFAST_PAIR";
/// Of a copy of a pair: the pair's number in the job.
pub const PAIR_NUMBER: &str = "HOLDFAST_PAIR_NUMBER";
/// Of a copy of a pair: `{index}` of the spec, the pair's number among those of its element.
pub const PAIR_INDEX: &str = "HOLDFAST_PAIR_INDEX";
/// Of a copy of a pair: `main` or `replica`.
pub const PAIR_SIDE: &str = "HOLDFAST_PAIR_SIDE";
/// Of a copy of a pair: counts the starts of its side.
pub const PAIR_INCARNATION: &str = "HOLDFAST_PAIR_INCARNATION";
/// Of a copy of a pair: the time between two heartbeats, microseconds.
pub const PAIR_PERIOD: &str = "HOLDFAST_PAIR_PERIOD_US";
/// Of a copy of a pair: the registry of the node in shared memory.
pub const PAIRS: &str = "HOLDFAST_PAIRS";

/// The variables by which a launcher other than Holdfast passes a process its rank.
#[derive(Clone, Copy, Debug)]
pub struct RankVariables {
    /// The launcher's name, for messages.
    pub name: &'static str,
    /// Must be set as well, where the other names alone are too common to mean anything.
    pub marker: Option<&'static str>,
    pub rank: &'static str,
    /// The number of ranks; the first one that is set counts.
    pub ranks: &'static [&'static str],
    /// The launcher starts ranks under `holdfast rank`, which reads the rank here: an `mpirun`, or `flux run`.
    pub has_parents: bool,
}

/// The launchers that are known, innermost first: inside an `srun` that started an `mpirun`, `SLURM_PROCID` counts
/// mpirun's helpers, not the ranks; inside either, torchrun's workers have ranks of their own. A rank within one node
/// (`MPI_LOCALRANKID`, `SLURM_LOCALID`) is not a rank.
pub const RANK_VARIABLES: &[RankVariables] = &[
    RankVariables { marker: Some("TORCHELASTIC_RUN_ID"), ..launcher("torchrun", "RANK", &["WORLD_SIZE"]) },
    with_parents("Open MPI", "OMPI_COMM_WORLD_RANK", &["OMPI_COMM_WORLD_SIZE"]),
    // PMIx itself defines no variable for the size; launchers that support it set one of these.
    with_parents("PMIx", "PMIX_RANK", &["PMIX_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]),
    with_parents("PMI", "PMI_RANK", &["PMI_SIZE", "SLURM_NTASKS"]),
    with_parents("Flux", "FLUX_TASK_RANK", &["FLUX_JOB_SIZE"]),
    launcher("Slurm", "SLURM_PROCID", &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]),
    launcher("RANK/WORLD_SIZE", "RANK", &["WORLD_SIZE"]),
];

const fn launcher(name: &'static str, rank: &'static str, ranks: &'static [&'static str]) -> RankVariables {
    RankVariables { name, marker: None, rank, ranks, has_parents: false }
}

const fn with_parents(name: &'static str, rank: &'static str, ranks: &'static [&'static str]) -> RankVariables {
    RankVariables { has_parents: true, ..launcher(name, rank, ranks) }
}
