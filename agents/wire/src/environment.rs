//! The environment variables by which a launcher passes a rank its number and its agent's socket.

/// The job's id: a rank and an agent of different jobs refuse each other.
pub const JOB: &str = "HOLDFAST_JOB";
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
    /// An `mpirun` sets these for the ranks that it starts.
    pub mpirun: bool,
}

/// The launchers that are known, innermost first: inside an `srun` that started an `mpirun`, `SLURM_PROCID` counts
/// mpirun's helpers, not the ranks; inside either, torchrun's workers have ranks of their own. A rank within one node
/// (`MPI_LOCALRANKID`, `SLURM_LOCALID`) is not a rank.
pub const RANK_VARIABLES: &[RankVariables] = &[
    RankVariables {
        name: "torchrun",
        marker: Some("TORCHELASTIC_RUN_ID"),
        rank: "RANK",
        ranks: &["WORLD_SIZE"],
        mpirun: false,
    },
    RankVariables {
        name: "Open MPI",
        marker: None,
        rank: "OMPI_COMM_WORLD_RANK",
        ranks: &["OMPI_COMM_WORLD_SIZE"],
        mpirun: true,
    },
    // PMIx itself defines no variable for the size; launchers that support it set one of these.
    RankVariables {
        name: "PMIx",
        marker: None,
        rank: "PMIX_RANK",
        ranks: &["PMIX_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        mpirun: true,
    },
    RankVariables { name: "PMI", marker: None, rank: "PMI_RANK", ranks: &["PMI_SIZE", "SLURM_NTASKS"], mpirun: true },
    RankVariables { name: "Flux", marker: None, rank: "FLUX_TASK_RANK", ranks: &["FLUX_JOB_SIZE"], mpirun: false },
    RankVariables {
        name: "Slurm",
        marker: None,
        rank: "SLURM_PROCID",
        ranks: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        mpirun: false,
    },
    RankVariables { name: "RANK/WORLD_SIZE", marker: None, rank: "RANK", ranks: &["WORLD_SIZE"], mpirun: false },
];
