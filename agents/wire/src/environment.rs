//! The environment variables by which a launcher tells a rank who it is and where its agent listens.

/// The job's id: a rank and an agent of different jobs refuse each other.
pub const JOB: &str = "HOLDFAST_JOB";
/// The generation, so that a rank left over from an older run is refused.
pub const GENERATION: &str = "HOLDFAST_GENERATION";
/// The Unix socket of the node's agent.
pub const SOCKET: &str = "HOLDFAST_SOCKET";
/// The node's name; set for virtual nodes, where several share one machine.
pub const NODE: &str = "HOLDFAST_NODE";
/// The rank among all ranks of the run.
pub const RANK: &str = "HOLDFAST_RANK";
/// The number of ranks of the run.
pub const RANKS: &str = "HOLDFAST_RANKS";
/// For an agent that shares its standard error with others: the directory in which it keeps a log of its own.
pub const AGENT_LOGS: &str = "HOLDFAST_AGENT_LOGS";
