//! Polls down nodes and the end of the allocation: a node may be drained, and a job may be extended (`flux update`).
//!
//! If the broker does not answer, the last known values remain.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdfast_model::NodeName;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::query;
use crate::allocation::error::AllocationError;

/// Poll interval: both queries start an interpreter on the node of the orchestrator.
const EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct FluxStatus {
    down: Vec<(NodeName, String)>,
    end: Option<SystemTime>,
}

/// The last answers of Flux. Dropping this ends the polling.
#[derive(Debug)]
pub(super) struct Watch {
    status: Arc<Mutex<FluxStatus>>,
    /// When the allocation began, as Flux tells it.
    pub(super) started: String,
    task: JoinHandle<()>,
}

impl Watch {
    /// Polls once, and then periodically.
    ///
    /// # Errors
    /// The first poll fails.
    pub(super) async fn start(nodes: &[NodeName]) -> Result<Self, AllocationError> {
        let (term, down) = tokio::join!(query::term(), query::down(nodes));
        let (term, down) = (term?, down?);
        let status = Arc::new(Mutex::new(FluxStatus { down, end: term.end }));
        let task = tokio::spawn(watch(Arc::clone(&status), nodes.to_vec()));
        Ok(Watch { status, started: term.started, task })
    }

    pub(super) fn down_nodes(&self) -> Vec<(NodeName, String)> {
        self.status.lock().down.clone()
    }

    pub(super) fn end(&self) -> Option<SystemTime> {
        self.status.lock().end
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(status: Arc<Mutex<FluxStatus>>, nodes: Vec<NodeName>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let (term, down) = tokio::join!(query::term(), query::down(&nodes));
        match term {
            Ok(term) => status.lock().end = term.end,
            Err(error) => tracing::info!(%error, "cannot query the end of the allocation"),
        }
        match down {
            Ok(down) => status.lock().down = down,
            Err(error) => tracing::info!(%error, "cannot query down nodes"),
        }
    }
}
