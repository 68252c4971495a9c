//! What a second orchestrator has to know of an allocation: part of the job's state on disk.

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_core::hostlist;
use holdfast_model::NodeName;
use serde::{Deserialize, Serialize};

use super::local::{Local, LocalRecord};
use super::slurm::{Slurm, SlurmRecord, job_of_environment};
use super::ssh::{Ssh, SshRecord};
use super::{Allocation, AllocationError};
use crate::spec::Chaos;

/// The allocation of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "manager", rename_all = "snake_case")]
pub enum AllocationRecord {
    /// Virtual nodes on this machine.
    Local(LocalRecord),
    /// A Slurm job.
    Slurm(SlurmRecord),
    /// Machines of a list.
    Ssh(SshRecord),
}

impl AllocationRecord {
    /// True if the nodes are still there, and ours from here.
    pub fn is_there(&self) -> bool {
        match self {
            AllocationRecord::Local(record) => match &record.workspace {
                Some(workspace) => workspace.is_dir(),
                None => record.roots.is_dir(),
            },
            // Nobody takes them away.
            AllocationRecord::Ssh(_) => true,
            AllocationRecord::Slurm(record) => {
                job_of_environment(|name| std::env::var(name).ok()).as_ref() == Some(&record.job_id)
            }
        }
    }

    /// Where the nodes are, for messages.
    pub fn place(&self) -> String {
        match self {
            AllocationRecord::Local(record) => record.roots.display().to_string(),
            AllocationRecord::Slurm(record) => format!("the nodes of Slurm job {}", record.job_id),
            AllocationRecord::Ssh(record) => format!("the hosts {}", hostlist::compress(&record.nodes)),
        }
    }

    /// The nodes.
    pub fn nodes(&self) -> &[NodeName] {
        match self {
            AllocationRecord::Local(record) => &record.nodes,
            AllocationRecord::Slurm(record) => &record.nodes,
            AllocationRecord::Ssh(record) => &record.nodes,
        }
    }

    /// Takes the nodes over from an orchestrator that is gone. Logs of agents go to `logs`.
    ///
    /// # Errors
    /// They are gone, or not ours.
    pub async fn reopen(&self, chaos: Vec<Chaos>, logs: PathBuf) -> Result<Arc<dyn Allocation>, AllocationError> {
        match self {
            AllocationRecord::Local(record) => Ok(Arc::new(Local::reopen(record.clone(), chaos, logs)?)),
            AllocationRecord::Slurm(record) => Ok(Arc::new(Slurm::reopen(record, logs).await?)),
            AllocationRecord::Ssh(record) => Ok(Arc::new(Ssh::reopen(record.clone(), logs)?)),
        }
    }
}
