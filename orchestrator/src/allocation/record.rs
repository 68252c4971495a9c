//! What a successor of the orchestrator needs to know of an allocation: part of the job's state on disk.

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_model::NodeName;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Allocation, AllocationError, AllocationIdentity, Continuation, registry};
use crate::spec::InjectedFault;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationRecord {
    manager: String,
    /// The part that all managers have.
    #[serde(flatten)]
    pub(super) identity: AllocationIdentity,
    /// The part of this manager.
    details: Value,
}

impl AllocationRecord {
    /// The record of a manager.
    pub fn new(manager: &'static str, identity: &AllocationIdentity, details: &impl Serialize) -> Self {
        // Fails only for maps whose keys are not strings, which no manager has. Reading it would report an error.
        let details = serde_json::to_value(details).unwrap_or_default();
        AllocationRecord { manager: manager.to_owned(), identity: identity.clone(), details }
    }

    /// The part of the manager.
    ///
    /// # Errors
    /// [`AllocationError::Record`].
    pub(super) fn details<T: DeserializeOwned>(&self) -> Result<T, AllocationError> {
        let manager = || self.manager.clone();
        serde_json::from_value(self.details.clone())
            .map_err(|source| AllocationError::Record { manager: manager(), source })
    }

    /// True if the nodes still exist and can be used from here.
    pub fn is_available(&self) -> bool {
        registry::find(&self.manager).is_ok_and(|entry| (entry.is_available)(self))
    }

    /// True if another run continues in these nodes: see [`ManagerEntry::continues`](super::ManagerEntry::continues).
    pub fn continues(&self, manager: &str, next: &Continuation<'_>) -> bool {
        let continues = |entry: &super::ManagerEntry| self.is_available() && (entry.continues)(self, next);
        self.manager == manager && registry::find(&self.manager).is_ok_and(continues)
    }

    /// A description of the nodes for messages.
    pub fn place(&self) -> String {
        let entry = registry::find(&self.manager);
        entry.map_or_else(|_| format!("the nodes of {}", self.manager), |entry| (entry.place)(self))
    }

    pub fn nodes(&self) -> &[NodeName] {
        &self.identity.nodes
    }

    /// Takes the nodes over from an orchestrator that ended. Logs of agents go to `logs`.
    ///
    /// # Errors
    /// The nodes do not exist any more, or cannot be used from here.
    pub async fn reopen(
        &self,
        faults: Vec<InjectedFault>,
        logs: PathBuf,
    ) -> Result<Arc<dyn Allocation>, AllocationError> {
        (registry::find(&self.manager)?.reopen)(self, faults, logs).await
    }
}
