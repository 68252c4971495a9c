//! Checks which hosts can be used before anything is started: each must be reachable, have this version of Holdfast,
//! and have access to the shared directories.

use std::net::IpAddr;
use std::time::Duration;

use holdfast_core::workers;
use holdfast_model::NodeName;

use super::agents;
use super::error::SshError;
use super::on_node::SurveyRequest;
use super::survey_answer::SurveyAnswer;
use super::target::Target;
use crate::host::{boot_id, host_name};

/// A host that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsableHost {
    pub address: IpAddr,
    /// True if it is this machine.
    pub is_here: bool,
    /// Its version of Holdfast.
    pub version: String,
    /// The difference of its clock from ours, and whether it is ahead.
    pub clock: (Duration, bool),
}

/// Surveys all hosts, some at a time.
pub fn survey(
    targets: &[Target],
    request: &SurveyRequest,
    at_once: usize,
) -> Vec<(NodeName, Result<UsableHost, SshError>)> {
    let seen = workers::map(targets, at_once, 1, |target| agents::survey_host(target, request));
    let addresses: Vec<IpAddr> = seen.iter().flatten().map(|seen| seen.address).collect();
    let checked = targets.iter().zip(seen).map(|(target, seen)| {
        let found = seen.and_then(|seen| check(target, &seen, &addresses));
        (NodeName::new(target.host.name.clone()), found)
    });
    checked.collect()
}

/// Checks the answer of a host.
fn check(target: &Target, seen: &SurveyAnswer, addresses: &[IpAddr]) -> Result<UsableHost, SshError> {
    let (host, facts, address) = (target.host.name.clone(), &seen.facts, seen.address);
    let ours = env!("CARGO_PKG_VERSION");
    if facts.version != ours || facts.wire != holdfast_wire::VERSION {
        let (program, found) = (target.program.clone(), format!("{} (protocol {})", facts.version, facts.wire));
        let ours = format!("{ours} (protocol {})", holdfast_wire::VERSION);
        return Err(SshError::Version { host, program, found, ours });
    }
    if let Some((path, problem)) = facts.problems.first() {
        let (path, problem) = (path.clone(), problem.clone());
        return Err(SshError::NotShared { host, path, problem });
    }
    // Agents listen at the address by which the host was reached. Other hosts cannot use a loopback address.
    if address.is_loopback() && addresses.iter().any(|other| !other.is_loopback()) {
        return Err(SshError::Loopback { host, address });
    }
    let is_here = facts.host_name == host_name() && facts.boot_id == boot_id();
    let clock = (Duration::from_millis(facts.clock.millis().abs_diff(seen.at.millis())), facts.clock > seen.at);
    Ok(UsableHost { address, is_here, version: facts.version.clone(), clock })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::ssh::hosts::{SshAccess, SshHost};
    use crate::allocation::ssh::on_node::HostFacts;
    use std::path::PathBuf;

    fn checked(change: impl Fn(&mut HostFacts), address: &str, others: &[&str]) -> Result<UsableHost, SshError> {
        let host = SshHost { name: "n1".to_owned(), user: None, port: 22 };
        let (user, program) = ("anna".to_owned(), "/opt/holdfast".to_owned());
        let target = Target { host, user, access: SshAccess::default(), program };
        let mut facts = super::super::on_node::survey::look(&SurveyRequest::default());
        change(&mut facts);
        let addresses: Vec<IpAddr> = others.iter().map(|other| other.parse().unwrap()).collect();
        check(&target, &SurveyAnswer { at: facts.clock, facts, address: address.parse().unwrap() }, &addresses)
    }

    #[test]
    fn a_host_of_another_version_or_without_the_directory_is_refused_with_a_remedy() {
        let error = checked(|facts| facts.version = "0.0.9".to_owned(), "10.0.0.1", &[]).unwrap_err().to_string();
        assert!(error.contains("0.0.9") && error.contains("one version"), "{error}");
        let missing = (PathBuf::from("/pfs/run"), "does not exist on the host".to_owned());
        let error = checked(|facts| facts.problems.push(missing.clone()), "10.0.0.1", &[]).unwrap_err().to_string();
        assert!(error.contains("/pfs/run") && error.contains("shared file system"), "{error}");
    }

    #[test]
    fn loopback_addresses_are_accepted_only_if_all_hosts_have_them() {
        assert!(checked(|_| (), "127.0.0.1", &["127.0.0.1", "127.0.0.1"]).is_ok());
        let error = checked(|_| (), "127.0.1.1", &["127.0.1.1", "10.0.0.2"]).unwrap_err().to_string();
        assert!(error.contains("127.0.1.1"), "{error}");
        assert!(checked(|_| (), "10.0.0.1", &["10.0.0.1"]).is_ok_and(|found| found.is_here));
    }
}
