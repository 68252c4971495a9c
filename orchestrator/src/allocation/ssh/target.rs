//! A host with everything that is needed to connect to it.

use serde::{Deserialize, Serialize};

use super::hosts::{SshAccess, SshHost, SshSettings};
use crate::allocation::error::AllocationError;
use crate::host;
use crate::spec;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub host: SshHost,
    pub user: String,
    pub access: SshAccess,
    /// The path of `holdfast` on the host.
    pub program: String,
}

/// The targets of an allocation.
///
/// # Errors
/// The running executable cannot be found.
pub fn targets(allocation: &spec::Allocation, user: &str) -> Result<Vec<Target>, AllocationError> {
    let settings = SshSettings::of(allocation);
    let program = program(&settings.access)?;
    Ok(settings.hosts.iter().map(|host| target(host, &settings.access, user, &program)).collect())
}

/// The path of `holdfast` on the hosts.
pub(super) fn program(access: &SshAccess) -> Result<String, AllocationError> {
    let path = access.program.clone().map_or_else(host::program::ourselves, Ok)?;
    Ok(path.to_string_lossy().into_owned())
}

pub(super) fn target(host: &SshHost, access: &SshAccess, user: &str, program: &str) -> Target {
    let user = host.user.clone().unwrap_or_else(|| user.to_owned());
    Target { host: host.clone(), user, access: access.clone(), program: program.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_a_host_is_its_own_or_that_of_holdfast() {
        let text = "allocation: {hosts: [n1, ben@n2], ssh: {program: /opt/holdfast}}\nrun: {command: [./app]}\n";
        let allocation = crate::spec::JobSpec::of_test(text).allocation;
        let targets = targets(&allocation, "anna").unwrap();
        assert_eq!(targets.iter().map(|target| target.user.as_str()).collect::<Vec<_>>(), ["anna", "ben"]);
        assert_eq!(targets[0].program, "/opt/holdfast");
    }
}
