//! The error that crosses the network: what kind, about what, whether to try again, and what to do.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::{CheckpointId, NodeName, Rank};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    Io,
    /// A drain could not write to the prefix directory: permissions, space, a file in the way.
    Unwritable,
    /// An agent could not be reached, or the connection to it broke.
    LostPeer,
    /// Data that should be valid is not: a checksum, a size, a file's content.
    Damaged,
    /// A requested item does not exist.
    NotFound,
    /// The request makes no sense as it is: wrong order of calls, a name that is not allowed.
    InvalidRequest,
    /// Another process of the same rank is connected, or has finished the run.
    Duplicate,
    /// It belongs to a generation that is over.
    Superseded,
    /// It was cancelled: another member failed, or the run is ending.
    Cancelled,
    /// A defect of Holdfast.
    Internal,
}

/// What a failure is about, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
}

/// Why an agent could not carry out a call, an order or a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    /// Trying the same again may succeed.
    pub retryable: bool,
    /// What it is about. Boxed: a failure travels through the results of most calls.
    #[serde(default)]
    pub subject: Box<Subject>,
    /// What was being done and what went wrong.
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Failure {
    /// A failure of this kind; only a lost peer is worth another try.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure {
            kind,
            retryable: kind == FailureKind::LostPeer,
            subject: Box::default(),
            message: message.into(),
            remedy: None,
        }
    }

    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Failure {
        self.remedy = Some(remedy.into());
        self
    }

    /// Adds the node, unless one is known.
    #[must_use]
    pub fn on_node(mut self, node: &NodeName) -> Failure {
        self.subject.node.get_or_insert_with(|| node.clone());
        self
    }

    /// Adds the rank, unless one is known.
    #[must_use]
    pub fn of_rank(mut self, rank: Rank) -> Failure {
        self.subject.rank.get_or_insert(rank);
        self
    }

    /// Adds the dataset, unless one is known.
    #[must_use]
    pub fn of_checkpoint(mut self, checkpoint: CheckpointId) -> Failure {
        self.subject.checkpoint.get_or_insert(checkpoint);
        self
    }

    /// Adds the file or directory, unless one is known.
    #[must_use]
    pub fn at(mut self, file: impl Into<PathBuf>) -> Failure {
        self.subject.file.get_or_insert_with(|| file.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Subject { node, rank, .. } = &*self.subject;
        match (node, rank) {
            (Some(node), Some(rank)) => write!(f, "{node}, rank {rank}: ")?,
            (Some(node), None) => write!(f, "{node}: ")?,
            (None, Some(rank)) => write!(f, "rank {rank}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.message)?;
        // A message names its file as a rule; one that does not gets it here.
        if let Some(file) = &self.subject.file
            && !self.message.contains(&*file.to_string_lossy())
        {
            write!(f, " ({})", file.display())?;
        }
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_subject_and_remedy_once() {
        let failure = Failure::new(FailureKind::Io, "cannot write /cache/a: no space left")
            .on_node(&NodeName::from("n1"))
            .on_node(&NodeName::from("n2"))
            .at("/cache/a")
            .remedy("free some space");
        assert_eq!(failure.to_string(), "n1: cannot write /cache/a: no space left; free some space");
        assert!(!failure.retryable);
    }

    #[test]
    fn a_failure_survives_the_network() {
        let failure = Failure::new(FailureKind::LostPeer, "connection reset").of_rank(Rank(3)).at("/x");
        let json = serde_json::to_string(&failure).unwrap();
        assert_eq!(serde_json::from_str::<Failure>(&json).unwrap(), failure);
        assert!(failure.retryable);
        assert_eq!(failure.to_string(), "rank 3: connection reset (/x)");
    }
}
