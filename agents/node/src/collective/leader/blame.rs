//! The cause of a failed restart: the checkpoint or something else. Only a dataset that is itself damaged is marked as
//! failed, or deleted. A job of another size, a node that cannot write, a lost node, or an index that cannot be written
//! leaves it as it was.

use holdfast_model::{Failure, FailureKind, NodeName};
use holdfast_wire::agent::AgentEvent;

use super::context::Context;
use crate::collective::error::CallError;

/// What an error of a restart is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// The checkpoint: damaged or incomplete.
    Dataset,
    /// This node's own directories: no space, a quota, read-only, faulty.
    Node(NodeName),
    /// The index, or another file of the prefix directory that all datasets share.
    Prefix,
    /// The job, which does not fit the checkpoint.
    Job,
    /// Nothing that stays: a lost peer, an order cut off, the end of the generation.
    Nothing,
}

pub(super) fn blame(cx: &Context, error: &CallError) -> Blame {
    let failure = match error {
        CallError::PrefixUnusable(_) => return Blame::Prefix,
        CallError::OtherSize { .. } => return Blame::Job,
        CallError::Order(failure) => failure,
        _ => return Blame::Dataset,
    };
    match failure.kind {
        FailureKind::Io | FailureKind::Unwritable => match &failure.subject.node {
            Some(node) if !is_below_prefix(cx, failure) => Blame::Node(node.clone()),
            _ => Blame::Dataset,
        },
        FailureKind::Damaged | FailureKind::NotFound | FailureKind::InvalidRequest => Blame::Dataset,
        FailureKind::LostPeer
        | FailureKind::Cancelled
        | FailureKind::Superseded
        | FailureKind::Duplicate
        | FailureKind::Internal => Blame::Nothing,
    }
}

/// Why the checkpoint cannot be used, if that is the cause of the error.
///
/// # Errors
/// The error, if it has another cause.
pub(super) fn reason_of(cx: &Context, error: CallError) -> Result<String, CallError> {
    match blame(cx, &error) {
        Blame::Dataset => Ok(Failure::from(error).to_string()),
        Blame::Node(_) | Blame::Job | Blame::Prefix | Blame::Nothing => Err(error),
    }
}

fn is_below_prefix(cx: &Context, failure: &Failure) -> bool {
    failure.subject.file.as_ref().is_some_and(|file| file.starts_with(&cx.settings().prefix))
}

/// Reports what prevented a restart, so that the next generation does without the node, or the job ends.
pub(super) fn report(cx: &Context, error: &CallError) {
    let (faulty, reason) = match (blame(cx, error), error) {
        (Blame::Node(node), CallError::Order(failure)) => (Some(node), failure.to_string()),
        (Blame::Prefix | Blame::Job, error) => (None, error.to_string()),
        _ => return,
    };
    cx.emit(AgentEvent::RestartPrevented { generation: cx.generation(), faulty, reason });
}
