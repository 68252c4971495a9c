//! All launchers. A new one is a folder and a line here.

use super::plan::StepPlan;
use super::{LaunchError, LauncherContext, LauncherEntry, Supervision};
use super::{local, mpirun, srun, ssh};
use crate::allocation::registry::MANAGERS;
use crate::spec::Registered;

/// `launcher: auto` selects the first one that can start ranks on the manager's nodes.
pub static LAUNCHERS: [&LauncherEntry; 4] = [&local::ENTRY, &srun::ENTRY, &ssh::ENTRY, &mpirun::ENTRY];

/// All managers and launchers, for reading a spec.
pub fn registered() -> Registered {
    Registered {
        managers: MANAGERS.iter().map(|entry| &entry.facts).collect(),
        launchers: LAUNCHERS.iter().map(|entry| &entry.facts).collect(),
    }
}

fn find(name: &str) -> Option<&'static LauncherEntry> {
    LAUNCHERS.into_iter().find(|entry| entry.facts.name == name)
}

/// The launcher for nodes of `manager`; `named` is the name in the spec, `None` for `auto`.
///
/// # Errors
/// [`LaunchError::Unsuitable`].
pub fn select(manager: &'static str, named: Option<&'static str>) -> Result<&'static LauncherEntry, LaunchError> {
    registered()
        .launcher(named, manager)
        .filter(|facts| facts.managers.contains(&manager))
        .and_then(|facts| find(facts.name))
        .ok_or(LaunchError::Unsuitable { launcher: named.unwrap_or("auto"), manager })
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
    manager: &'static str,
    named: Option<&'static str>,
    context: &LauncherContext<'_>,
) -> Result<Box<dyn super::Launcher>, LaunchError> {
    (select(manager, named)?.open)(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_a_launcher_that_suits_the_manager() {
        let table = [
            ("slurm", None, "srun"),
            ("slurm", Some("mpirun"), "mpirun"),
            ("ssh", None, "ssh"),
            ("ssh", Some("mpirun"), "mpirun"),
            ("local", None, "local"),
            ("local", Some("mpirun"), "mpirun"),
        ];
        for (manager, named, expected) in table {
            assert_eq!(select(manager, named).unwrap().facts.name, expected, "{manager} {named:?}");
        }
        for (manager, named) in [("local", "ssh"), ("ssh", "local"), ("slurm", "ssh")] {
            assert!(select(manager, Some(named)).is_err(), "{manager} {named}");
        }
        let wrong = select("local", Some("srun")).unwrap_err().to_string();
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
