//! All launchers. A new one is a folder and a line here.

use super::error::LaunchError;
use super::launcher::{Launcher, LauncherContext, LauncherEntry};
use super::plan::StepPlan;
use super::step::Supervision;
use super::{flux, local, mpirun, srun, ssh, torchrun};
use crate::allocation::registry::{self as managers, PLANNED};
use crate::sources::SOURCES;
use crate::spec::{ManagerFacts, PlannedEntry, Registered, Registry};

/// `launcher: auto` selects the first one that can start ranks on the manager's nodes.
pub static LAUNCHERS: [&LauncherEntry; 6] =
    [&local::ENTRY, &srun::ENTRY, &ssh::ENTRY, &flux::ENTRY, &mpirun::ENTRY, &torchrun::ENTRY];

/// Launchers that this version does not have.
static PLANNED_LAUNCHERS: [PlannedEntry; 4] = [
    PlannedEntry::named("prun"),
    PlannedEntry { needed: Some(JSRUN), ..PlannedEntry::named("jsrun") },
    PlannedEntry { needed: Some(APRUN), ..PlannedEntry::named("aprun") },
    PlannedEntry { needed: Some(PALS), ..PlannedEntry::named("pals") },
];

/// What is needed of launchers that were never run with this program.
const JSRUN: &str = "this program was never run with jsrun, the launcher of LSF on Power: docs/other-managers.md lists \
                     what a site has to send (the variables of a rank, and what jsrun prints when a rank fails and \
                     when a node is lost); `launcher: mpirun` starts MPI programs without it";
const APRUN: &str = "this program was never run with aprun, the launcher of Cray's ALPS: docs/other-managers.md lists \
                     what a site has to send (the variables of a rank, and what aprun prints when a rank fails and \
                     when a node is lost); `launcher: mpirun` starts MPI programs without it";
const PALS: &str = "this program was never run with PALS, the `mpiexec` of HPE Cray EX: docs/other-managers.md lists \
                    what a site has to send (the variables of a rank, and what mpiexec prints when a rank fails and \
                    when a node is lost); `launcher: mpirun` starts MPI programs without it";

/// All managers, launchers and checkpoint sources, for reading a spec.
pub fn registered() -> Registry {
    let registered = Registered {
        managers: Vec::new(),
        planned_managers: &PLANNED,
        launchers: LAUNCHERS.iter().map(|entry| &entry.facts).collect(),
        planned_launchers: &PLANNED_LAUNCHERS,
        sources: Vec::new(),
    };
    Registry::new(registered, managers::managers().map(|entry| (&entry.facts, &entry.keys)), &SOURCES)
}

fn find(name: &str) -> Option<&'static LauncherEntry> {
    LAUNCHERS.into_iter().find(|entry| entry.facts.name == name)
}

/// The launcher for nodes of `manager`; `named` is the name in the spec, `None` for `auto`.
///
/// # Errors
/// [`LaunchError::Unsuitable`].
pub fn select(
    manager: &'static ManagerFacts,
    named: Option<&'static str>,
) -> Result<&'static LauncherEntry, LaunchError> {
    registered()
        .launcher(named, manager)
        .filter(|facts| facts.suits(manager))
        .and_then(|facts| find(facts.name))
        .ok_or(LaunchError::Unsuitable { launcher: named.unwrap_or("auto"), manager: manager.name })
}

/// The supervision of a plan, by the launcher that made it.
///
/// # Errors
/// [`LaunchError::UnknownLauncher`], [`LaunchError::Details`].
pub fn supervision(plan: &StepPlan) -> Result<Box<dyn Supervision>, LaunchError> {
    let entry = find(&plan.launcher).ok_or_else(|| LaunchError::UnknownLauncher { launcher: plan.launcher.clone() })?;
    (entry.supervision)(plan)
}

/// Opens the launcher.
///
/// # Errors
/// A program that it needs is missing.
pub fn open(
    manager: &'static ManagerFacts,
    named: Option<&'static str>,
    context: &LauncherContext<'_>,
) -> Result<Box<dyn Launcher>, LaunchError> {
    (select(manager, named)?.open)(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(manager: &str) -> &'static ManagerFacts {
        &managers::find(manager).unwrap().facts
    }

    #[test]
    fn selects_a_launcher_that_suits_the_manager() {
        let table = [
            ("slurm", None, "srun"),
            ("slurm", Some("mpirun"), "mpirun"),
            ("flux", None, "flux"),
            ("flux", Some("mpirun"), "mpirun"),
            ("ssh", None, "ssh"),
            ("ssh", Some("mpirun"), "mpirun"),
            ("pbs", None, "mpirun"),
            ("local", None, "local"),
            ("local", Some("mpirun"), "mpirun"),
            ("slurm", Some("torchrun"), "torchrun"),
            ("flux", Some("torchrun"), "torchrun"),
        ];
        for (manager, named, expected) in table {
            assert_eq!(select(facts(manager), named).unwrap().facts.name, expected, "{manager} {named:?}");
        }
        for (manager, named) in [("local", "ssh"), ("ssh", "local"), ("slurm", "ssh"), ("flux", "srun")] {
            assert!(select(facts(manager), Some(named)).is_err(), "{manager} {named}");
        }
        let wrong = select(facts("local"), Some("srun")).unwrap_err().to_string();
        assert!(wrong.contains("srun") && wrong.contains("local"), "{wrong}");
    }

    #[test]
    fn refuses_a_plan_of_an_unknown_launcher() {
        let mut plan = StepPlan::new("17".to_owned(), holdfast_model::Generation(1), "/a".into(), "/".into());
        plan.launcher = "other".to_owned();
        let error = supervision(&plan).err().unwrap().to_string();
        assert!(error.contains("other"), "{error}");
    }
}
