//! What a second orchestrator has to know of an allocation: part of the job's state on disk.

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_model::NodeName;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Allocation, AllocationError, Identity, registry};
use crate::spec::InjectedFault;

/// The allocation of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationRecord {
    /// The resource manager's name.
    manager: String,
    /// What all managers have.
    #[serde(flatten)]
    pub(super) identity: Identity,
    /// What only this manager understands.
    details: Value,
}

impl AllocationRecord {
    /// What the manager of this name has to know to find its nodes again.
    pub fn new(manager: &'static str, identity: &Identity, details: &impl Serialize) -> Self {
        // Only a map whose keys are no texts cannot be written, and no manager has one; it would be refused when read.
        let details = serde_json::to_value(details).unwrap_or_default();
        AllocationRecord { manager: manager.to_owned(), identity: identity.clone(), details }
    }

    /// What the manager wrote.
    ///
    /// # Errors
    /// [`AllocationError::Record`].
    pub(super) fn details<T: DeserializeOwned>(&self) -> Result<T, AllocationError> {
        let manager = || self.manager.clone();
        serde_json::from_value(self.details.clone())
            .map_err(|source| AllocationError::Record { manager: manager(), source })
    }

    /// True if the nodes are still there, and ours from here.
    pub fn is_there(&self) -> bool {
        registry::find(&self.manager).is_ok_and(|entry| (entry.is_there)(self))
    }

    /// Where the nodes are, for messages.
    pub fn place(&self) -> String {
        let entry = registry::find(&self.manager);
        entry.map_or_else(|_| format!("the nodes of {}", self.manager), |entry| (entry.place)(self))
    }

    pub fn nodes(&self) -> &[NodeName] {
        &self.identity.nodes
    }

    /// Takes the nodes over from an orchestrator that is gone. Logs of agents go to `logs`.
    ///
    /// # Errors
    /// They are gone, or not ours.
    pub async fn reopen(
        &self,
        faults: Vec<InjectedFault>,
        logs: PathBuf,
    ) -> Result<Arc<dyn Allocation>, AllocationError> {
        (registry::find(&self.manager)?.reopen)(self, faults, logs).await
    }
}
