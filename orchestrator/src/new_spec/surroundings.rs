//! Where this process is: in an allocation of a resource manager, beside a hosts file, or on one machine.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::host::program::find;
use crate::launch::registry::registered;
use crate::spec::Chosen;

/// The file of this name in the working directory lists hosts.
const HOSTS_FILE: &str = "hosts";
/// Variables with the path of a file that lists hosts, one line for each process.
const NODE_FILES: [&str; 1] = ["LSB_DJOB_HOSTFILE"];
/// Virtual nodes of a first run: four compute, one is a spare.
const VIRTUAL_NODES: u32 = 5;

/// The nodes of a job that is started here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Surroundings {
    /// An allocation of a resource manager.
    Allocation { manager: &'static str, title: &'static str, nodes: Option<u32> },
    /// The commands of a resource manager are here, but no allocation.
    Outside { manager: &'static str, title: &'static str, help: &'static str },
    /// A file that lists hosts.
    HostsFile { path: PathBuf, hosts: u32 },
    /// The hosts that another resource manager lists in a file.
    Hosts { listed_in: &'static str, hosts: Vec<String> },
    /// This machine alone.
    OneMachine { nodes: u32 },
}

/// What the user wants instead of what the surroundings are.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// Nothing: what is found.
    Found,
    /// A file that lists hosts.
    HostsFile(&'a Path),
    /// Virtual nodes, also where a resource manager is.
    OneMachine,
}

/// The surroundings of this process; what the user wants has precedence.
pub fn surroundings(here: &Path, wanted: Wanted<'_>) -> Surroundings {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let registered = registered();
    match wanted {
        Wanted::HostsFile(path) => {
            let text = fs::read_to_string(here.join(path)).unwrap_or_default();
            return Surroundings::HostsFile { path: path.to_owned(), hosts: hosts_in(&text).map_or(0, count) };
        }
        Wanted::OneMachine => return Surroundings::OneMachine { nodes: VIRTUAL_NODES },
        Wanted::Found => {}
    }
    if let Ok(facts) = registered.manager(None, variable)
        && matches!(facts.chosen, Chosen::InItsJobs { .. })
    {
        let ask = || u32::try_from(facts.variables.ask_nodes?().len()).ok().filter(|number| *number > 0);
        let nodes = facts.variables.node_count(variable).or_else(ask);
        return Surroundings::Allocation { manager: facts.name, title: facts.title, nodes };
    }
    for name in NODE_FILES {
        let listed = variable(name).and_then(|path| hosts_in(&fs::read_to_string(path).ok()?));
        if let Some(hosts) = listed.filter(|hosts| !hosts.is_empty()) {
            return Surroundings::Hosts { listed_in: name, hosts };
        }
    }
    let listed = fs::read_to_string(here.join(HOSTS_FILE)).ok().and_then(|text| hosts_in(&text));
    if let Some(hosts) = listed.filter(|hosts| !hosts.is_empty()) {
        return Surroundings::HostsFile { path: HOSTS_FILE.into(), hosts: count(hosts) };
    }
    let path = env::var_os("PATH");
    match registered.passed_over(|command| find(command, here, path.as_deref()).is_ok()) {
        Some((facts, help)) => Surroundings::Outside { manager: facts.name, title: facts.title, help },
        None => Surroundings::OneMachine { nodes: VIRTUAL_NODES },
    }
}

fn count(hosts: Vec<String>) -> u32 {
    u32::try_from(hosts.len()).unwrap_or(u32::MAX)
}

/// The hosts of a file, each once; `None` if it is no list of hosts: a line has several words, or is a section.
fn hosts_in(text: &str) -> Option<Vec<String>> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let mut hosts: Vec<String> = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        if line.contains(char::is_whitespace) || line.contains('=') || line.starts_with('[') {
            return None;
        }
        if !hosts.iter().any(|host| host == line) {
            hosts.push(line.to_owned());
        }
    }
    Some(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_file_has_one_word_a_line() {
        assert_eq!(hosts_in("n1\nn2 # the second\n\nn1\n").unwrap(), ["n1", "n2"]);
        assert_eq!(hosts_in("[servers]\nn1\n"), None);
        assert_eq!(hosts_in("127.0.0.1 localhost\n"), None);
        assert_eq!(hosts_in("n1 slots=4\n"), None);
    }
}
