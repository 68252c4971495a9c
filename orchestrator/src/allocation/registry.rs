//! All resource managers. A new one is a folder and a line here.

use super::{AllocationError, ManagerEntry};
use super::{local, slurm, ssh};

pub static MANAGERS: [&ManagerEntry; 3] = [&local::ENTRY, &slurm::ENTRY, &ssh::ENTRY];

/// The manager of this name.
///
/// # Errors
/// [`AllocationError::UnknownManager`].
pub fn find(name: &str) -> Result<&'static ManagerEntry, AllocationError> {
    let found = MANAGERS.into_iter().find(|entry| entry.facts.name == name);
    found.ok_or_else(|| AllocationError::UnknownManager { manager: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::registry::LAUNCHERS;

    #[test]
    fn every_manager_has_a_launcher_and_no_launcher_names_another_manager() {
        for manager in MANAGERS {
            assert!(
                LAUNCHERS.iter().any(|launcher| launcher.facts.managers.contains(&manager.facts.name)),
                "{}",
                manager.facts.name
            );
        }
        for manager in LAUNCHERS.iter().flat_map(|launcher| launcher.facts.managers) {
            assert!(find(manager).is_ok(), "{manager}");
        }
    }

    #[test]
    fn refuses_an_unknown_manager_by_its_name() {
        let error = find("pbs").unwrap_err().to_string();
        assert!(error.contains("pbs") && error.contains("manager: local"), "{error}");
    }
}
