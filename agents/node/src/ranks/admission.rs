//! Why this agent refuses a rank or a peer.

use holdfast_model::{Failure, FailureKind, Generation, NodeName, Rank};
use holdfast_wire::VERSION;
use holdfast_wire::frame::FrameError;
use holdfast_wire::rank::Interface;
use holdfast_wire::run::SourceName;

/// Why a process of this user, or with the job's token, is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    #[error("this agent uses version {VERSION} of the protocol, the other side version {theirs}")]
    Version { theirs: u32 },
    #[error("this agent serves job {ours}, not {theirs}")]
    Job { ours: String, theirs: String },
    #[error("no run was prepared")]
    NoRun,
    #[error("generation {asked} is over, generation {serving} is running")]
    Superseded { asked: Generation, serving: Generation },
    /// It belongs to a run that this agent has no plan of yet.
    #[error("this agent has no plan of generation {0} yet")]
    TooEarly(Generation),
    #[error("the program has {theirs} ranks, the run was planned with {planned}")]
    Ranks { theirs: u32, planned: u32 },
    #[error("rank {rank} was not placed on node {node}")]
    Elsewhere { rank: Rank, node: NodeName },
    #[error("the job has `checkpoint: {{source: {source_name}}}`, but the program uses {}", of_interface(*.interface))]
    Interface { source_name: SourceName, interface: Interface },
    #[error("rank {rank} already has process {pid}")]
    Duplicate { rank: Rank, pid: u32 },
    #[error("received a call before the hello")]
    NoHello,
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl Refusal {
    /// True if the program is not one of this job: another launch changes nothing.
    pub fn is_incurable(&self) -> bool {
        matches!(self, Refusal::Version { .. } | Refusal::Ranks { .. } | Refusal::Interface { .. })
    }

    fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Refusal::Version { .. } => "install and link the same release everywhere",
            Refusal::Ranks { .. } => {
                "an MPI program needs the launcher of its own MPI, which gives it all its ranks: `run: {launcher: …}`"
            }
            Refusal::NoRun => "start the program with `holdfast run`",
            Refusal::Interface { interface: Interface::Variables, .. } => "write `checkpoint: {source: variables}`",
            Refusal::Interface { interface: Interface::Files, .. } => "write `checkpoint: {source: scr}`",
            Refusal::Duplicate { .. } => "check whether the launcher started it twice",
            _ => return None,
        })
    }
}

fn of_interface(interface: Interface) -> &'static str {
    match interface {
        Interface::Files => "the calls for checkpoint files (SCR)",
        Interface::Variables => "the calls for variables (FTI)",
    }
}

impl From<&Refusal> for Failure {
    fn from(refusal: &Refusal) -> Failure {
        let kind = match refusal {
            Refusal::Superseded { .. } => FailureKind::Superseded,
            // The plan will arrive: the peer retries.
            Refusal::TooEarly(_) => FailureKind::LostPeer,
            Refusal::Duplicate { .. } => FailureKind::Duplicate,
            _ => FailureKind::InvalidRequest,
        };
        let mut failure = Failure::new(kind, refusal.to_string());
        failure.remedy = refusal.remedy().map(str::to_owned);
        match refusal {
            Refusal::Elsewhere { rank, .. } | Refusal::Duplicate { rank, .. } => failure.of_rank(*rank),
            _ => failure,
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::from(&refusal)
    }
}
