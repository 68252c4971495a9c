//! Why a rank or a peer is not served by this agent.

use holdfast_model::{Failure, FailureKind, Generation, NodeName, Rank};
use holdfast_wire::VERSION;
use holdfast_wire::frame::FrameError;

/// Why a process that belongs to this user, or has the job's token, is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is of another release.
    #[error("this agent uses version {VERSION} of the messages, the other side {theirs}")]
    Version {
        /// The other side's version.
        theirs: u32,
    },
    /// It belongs to another job.
    #[error("this agent serves job {ours}, not {theirs}")]
    Job {
        /// This agent's job.
        ours: String,
        /// The other side's.
        theirs: String,
    },
    /// No run was prepared here.
    #[error("no run was prepared")]
    NoRun,
    /// It belongs to an older run.
    #[error("generation {asked} is over, {serving} runs")]
    Superseded {
        /// The generation asked for.
        asked: Generation,
        /// The one in force.
        serving: Generation,
    },
    /// It belongs to a run that this agent has no plan of yet.
    #[error("this agent has no plan of generation {0} yet")]
    TooEarly(Generation),
    /// The program has another number of ranks than planned.
    #[error("the program has {theirs} ranks, the run was planned with {planned}")]
    Ranks {
        /// What the program says.
        theirs: u32,
        /// What the plan says.
        planned: u32,
    },
    /// The rank was placed on another node.
    #[error("rank {rank} was placed on another node than {node}")]
    Elsewhere {
        /// The rank.
        rank: Rank,
        /// This node.
        node: NodeName,
    },
    /// The rank has a living process already.
    #[error("rank {rank} is process {pid} already")]
    Duplicate {
        /// The rank.
        rank: Rank,
        /// Its process.
        pid: u32,
    },
    /// The first message is a call.
    #[error("a call came before the hello")]
    NoHello,
    /// The first message cannot be read.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl Refusal {
    fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Refusal::Version { .. } => "install and link the same release everywhere",
            Refusal::NoRun => "start the program with `holdfast run`",
            Refusal::Duplicate { .. } => "check whether the launcher started it twice",
            _ => return None,
        })
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let kind = match refusal {
            Refusal::Superseded { .. } => FailureKind::Superseded,
            // The plan is on its way.
            Refusal::TooEarly(_) => FailureKind::LostPeer,
            _ => FailureKind::InvalidRequest,
        };
        let mut failure = Failure::new(kind, refusal.to_string());
        failure.remedy = refusal.remedy().map(str::to_owned);
        match refusal {
            Refusal::Elsewhere { rank, .. } | Refusal::Duplicate { rank, .. } => failure.of_rank(rank),
            _ => failure,
        }
    }
}
