//! Errors of resource managers.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use holdfast_core::hostlist::HostlistError;
use holdfast_core::owned::OwnedError;

use crate::host::external_command::ExternalCommandError;
use crate::host::program::ProgramError;

/// The allocation cannot be used or released.
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    #[error("cannot {action} {}: {source}; {remedy}", path.display())]
    Directory { action: &'static str, path: PathBuf, source: io::Error, remedy: &'static str },
    #[error(
        "this is an allocation of {manager}, which this version does not support; to run on this node only, write \
        `manager: local` under `allocation:`"
    )]
    UnknownManager { manager: String },
    /// An allocation of a manager of which nothing could be run so far.
    #[error("this is an allocation of {manager}, which this version does not support; nothing was started. {needed}")]
    NeverRun {
        manager: &'static str,
        /// What a site has to send.
        needed: &'static str,
    },
    /// On a login node, for example.
    #[error(
        "this is a machine of {manager}, and this process is in no allocation of it; nothing was started. Use {help}; \
         for virtual nodes on this machine, write `manager: local` under `allocation:`"
    )]
    NoAllocation { manager: &'static str, help: &'static str },
    /// A directory or file is not used because another user may have made it, or cannot be used.
    #[error(transparent)]
    Owned(#[from] OwnedError),
    #[error("{0}; the directory of the nodes is made in the temporary directory: set TMPDIR to another one")]
    Workspace(OwnedError),
    /// A command of the resource manager is missing.
    #[error(
        "{command} is not in PATH, and {manager} needs it; load the module of your site, or use a node that has it"
    )]
    NoCommand { command: &'static str, manager: &'static str },
    /// The record of the allocation in the job's state is invalid.
    #[error("the job's state has an invalid record of its allocation of {manager}: {source}")]
    Record { manager: String, source: serde_json::Error },
    #[error("{0}; run the command by hand")]
    ExternalCommand(#[from] ExternalCommandError),
    /// This process is in another allocation than the job.
    #[error("the job ran in allocation {job_id} of {manager}, and this is {}; its nodes are not available here",
    here.as_ref().map_or("no allocation".to_owned(), |here| format!("allocation {here}")))]
    Elsewhere { manager: &'static str, job_id: String, here: Option<String> },
    #[error("the node list of the resource manager is invalid: {0}")]
    Nodes(#[from] HostlistError),
    /// The allocation has ended, or has not begun.
    #[error("job {job_id} is {state}: `holdfast run` needs a running allocation")]
    NotRunning {
        job_id: String,
        /// Its state as the manager reports it.
        state: String,
    },
    /// A name that cannot be used as a directory name.
    #[error("{what} {name:?} cannot be part of a path; use letters, digits, `-`, `_` and `.`")]
    Name { what: &'static str, name: String },
    /// The running executable, which is also that of agents and steps, cannot be found.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// `failure_domain: topology` without one.
    #[error(
        "the resource manager knows no switches (in Slurm: `scontrol show topology`); write `failure_domain: rack` \
         with `racks`, or leave the key out"
    )]
    NoTopology,
    /// An error of one manager: the spec or the environment does not suit it.
    #[error("{0}")]
    Unsuitable(Box<dyn Error + Send + Sync>),
    /// An error of one manager: it, or its nodes, cannot be used now.
    #[error("{0}")]
    Unavailable(Box<dyn Error + Send + Sync>),
}

impl AllocationError {
    /// True if something was refused because another user may have made it.
    pub fn is_refusal(&self) -> bool {
        matches!(self, AllocationError::Owned(error) | AllocationError::Workspace(error) if error.is_refusal())
    }

    /// True if another attempt with the same spec in the same environment would fail too.
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            AllocationError::UnknownManager { .. }
                | AllocationError::NeverRun { .. }
                | AllocationError::NoAllocation { .. }
                | AllocationError::Name { .. }
                | AllocationError::NoTopology
                | AllocationError::Unsuitable(_)
        ) || self.is_refusal()
    }
}
