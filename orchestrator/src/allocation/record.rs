//! What a successor of the orchestrator needs to know of an allocation: part of the job's state on disk.

use holdfast_model::NodeName;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::AllocationError;

/// The job and its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationIdentity {
    pub job_id: String,
    /// A token of the allocation: another one with the same job id has another token. `None` where ids are not given
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    pub user: String,
    /// The nodes, in the manager's order.
    pub nodes: Vec<NodeName>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationRecord {
    pub(super) manager: String,
    /// The part that all managers have.
    #[serde(flatten)]
    pub identity: AllocationIdentity,
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

    pub fn nodes(&self) -> &[NodeName] {
        &self.identity.nodes
    }
}
