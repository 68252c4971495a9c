//! All resource managers. A new one is a folder and a line here.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::entry::{Continuation, ManagerEntry};
use super::error::AllocationError;
use super::nodes::Allocation;
use super::record::AllocationRecord;
use super::{flux, local, pbs, slurm, ssh};
use crate::spec::{self, NodeCount, PlannedEntry};

static BUILT_IN: [&ManagerEntry; 5] = [&local::ENTRY, &slurm::ENTRY, &ssh::ENTRY, &flux::ENTRY, &pbs::ENTRY];

/// Managers that this version does not have: an allocation of one of them is refused, because `manager: local` would
/// run the entire job on its head node.
pub static PLANNED: [PlannedEntry; 1] =
    [PlannedEntry { variable: Some("LSB_JOBID"), needed: Some(LSF), ..PlannedEntry::named("lsf") }];

/// What is needed of LSF.
const LSF: &str = "this program was never run under LSF: docs/other-managers.md lists what a site has to send (the \
                   environment and the host file of a job, and what `bjobs`, `bhosts` and `blaunch` print, also for a \
                   lost node); `manager: ssh` with `hosts` runs on the nodes of a job if ssh reaches them";

/// The managers of a program that has more than the built-in ones.
static ADDED: OnceLock<Vec<&'static ManagerEntry>> = OnceLock::new();

/// Adds managers to the built-in ones: for programs that embed Holdfast. To be called once, before anything else.
pub fn add(managers: Vec<&'static ManagerEntry>) {
    if ADDED.set(managers).is_err() {
        tracing::warn!("managers were added before: these are not");
    }
}

/// All managers, in the order in which messages list them.
pub fn managers() -> impl Iterator<Item = &'static ManagerEntry> {
    BUILT_IN.into_iter().chain(ADDED.get().into_iter().flatten().copied())
}

/// The manager of this name.
///
/// # Errors
/// [`AllocationError::UnknownManager`].
pub fn find(name: &str) -> Result<&'static ManagerEntry, AllocationError> {
    let found = managers().find(|entry| entry.facts.name == name);
    found.ok_or_else(|| unsupported(name))
}

/// The refusal of an allocation of a manager that this version does not have.
pub fn unsupported(name: &str) -> AllocationError {
    let planned = PLANNED.iter().find(|planned| planned.name == name);
    match planned.and_then(|planned| Some((planned.name, planned.needed?))) {
        Some((manager, needed)) => AllocationError::NeverRun { manager, needed },
        None => AllocationError::UnknownManager { manager: name.to_owned() },
    }
}

impl AllocationRecord {
    /// True if its nodes are processes on this machine, made by the manager.
    pub fn has_virtual_nodes(&self) -> bool {
        find(&self.manager).is_ok_and(|manager| manager.facts.nodes == NodeCount::Asked)
    }

    /// True if the nodes still exist and can be used from here.
    pub fn is_available(&self) -> bool {
        find(&self.manager).is_ok_and(|entry| (entry.is_available)(self))
    }

    /// True if another run continues in these nodes: see [`ManagerEntry::continues`].
    pub fn continues(&self, manager: &str, next: &Continuation<'_>) -> bool {
        let continues = |entry: &ManagerEntry| self.is_available() && (entry.continues)(self, next);
        self.manager == manager && find(&self.manager).is_ok_and(continues)
    }

    /// A description of the nodes for messages.
    pub fn place(&self) -> String {
        let entry = find(&self.manager);
        entry.map_or_else(|_| format!("the nodes of {}", self.manager), |entry| (entry.place)(self))
    }

    /// Takes the nodes over from an orchestrator that ended; with the spec if the job goes on. Logs of agents go to
    /// `logs`.
    ///
    /// # Errors
    /// The nodes do not exist any more, or cannot be used from here.
    pub async fn reopen(
        &self,
        spec: Option<&spec::Allocation>,
        logs: PathBuf,
    ) -> Result<Arc<dyn Allocation>, AllocationError> {
        (find(&self.manager)?.reopen)(self, spec, logs).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::registry::LAUNCHERS;

    #[test]
    fn every_manager_has_a_launcher() {
        for manager in managers() {
            let suits = LAUNCHERS.iter().any(|launcher| launcher.facts.suits(&manager.facts));
            assert!(suits, "{}", manager.facts.name);
        }
    }

    #[test]
    fn refuses_an_unknown_manager_by_its_name() {
        let error = find("other").unwrap_err().to_string();
        assert!(error.contains("other") && error.contains("manager: local"), "{error}");
        let error = find("lsf").unwrap_err();
        assert!(error.is_configuration() && error.to_string().contains("blaunch"), "{error}");
    }
}
