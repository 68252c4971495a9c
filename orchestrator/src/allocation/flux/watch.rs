//! The term of the allocation at the start of a run, and what is polled from then on: a node may be drained, and a job
//! may be extended (`flux update`).

use std::sync::Arc;

use holdfast_model::NodeName;

use super::query;
use crate::allocation::error::AllocationError;
use crate::allocation::watch::{JobAnswer, Watch, down_of};

/// Polls once, and then periodically. Returns also when the allocation began, as Flux writes it.
///
/// # Errors
/// The first poll fails.
pub(super) async fn start(nodes: &[NodeName]) -> Result<(Watch, String), AllocationError> {
    let (term, down) = tokio::join!(query::term(), query::down(nodes));
    let (term, down, nodes) = (term?, down?, Arc::new(nodes.to_vec()));
    let watch = Watch::start(term.end, down, move || {
        let nodes = Arc::clone(&nodes);
        async move {
            let (term, down) = tokio::join!(query::term(), query::down(&nodes));
            // The broker ends with the job: no answer denies that it exists.
            (JobAnswer::of(term.map(|term| term.end), |_| None), down_of(down))
        }
    });
    Ok((watch, term.started))
}
