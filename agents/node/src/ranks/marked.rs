//! Processes that belong to the job's ranks by their environment: programs that do not use the API, and processes that
//! ranks have started.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

use holdfast_model::{Generation, NodeName, Rank};
use holdfast_wire::environment::{self, RankVariables};
use holdfast_wire::run::AgentStart;
use procfs::process;

use super::Ranks;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    pub pid: u32,
    /// The rank in its environment; none for a launcher's own processes.
    pub rank: Option<Rank>,
}

/// The values in the environment of the job's ranks on this node.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    job_id: String,
    /// Only on a virtual node.
    node: Option<NodeName>,
}

impl Marks {
    pub(super) fn new(start: &AgentStart) -> Self {
        Marks { job_id: start.job_id.clone(), node: start.root.is_some().then(|| start.node.clone()) }
    }
}

impl Ranks {
    /// Processes of this user whose environment names the job, a generation that `matches`, and (on a virtual node)
    /// this node. Reads all of `/proc`.
    pub fn marked(&self, matches: impl Fn(Generation) -> bool) -> Vec<Marked> {
        let Marks { job_id, node } = &self.marks;
        let Ok(processes) = process::all_processes() else { return Vec::new() };
        let found = processes.filter_map(|process| {
            // Unreadable: of another user, or ended.
            let process = process.ok()?;
            let environment = process.environ().ok()?;
            let is = |name: &str, value: &str| environment.get(OsStr::new(name)).is_some_and(|found| found == value);
            let generation = number(&environment, environment::GENERATION).map(Generation)?;
            let ours = matches(generation)
                && is(environment::JOB, job_id)
                && node.as_ref().is_none_or(|node| is(environment::NODE, node.as_str()));
            let pid = u32::try_from(process.pid()).ok()?;
            ours.then(|| Marked { pid, rank: rank(&environment) })
        });
        found.collect()
    }
}

type Environment = HashMap<OsString, OsString>;

fn rank(variables: &Environment) -> Option<Rank> {
    let is_set = |name: &str| variables.contains_key(OsStr::new(name));
    let counts = |of: &&RankVariables| of.marker.is_none_or(is_set);
    let of_launchers = environment::RANK_VARIABLES.iter().filter(counts).map(|of| of.rank);
    let number = std::iter::once(environment::RANK).chain(of_launchers).find_map(|name| number(variables, name))?;
    u32::try_from(number).ok().map(Rank)
}

/// A variable that holds a number.
fn number(environment: &Environment, name: &str) -> Option<u64> {
    environment.get(OsStr::new(name))?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn the_rank_is_that_of_the_innermost_launcher() {
        let nested = [("SLURM_PROCID", "0"), ("PATH", "/bin"), ("OMPI_COMM_WORLD_RANK", "3")];
        assert_eq!(rank(&environment(&nested)), Some(Rank(3)));
        assert_eq!(rank(&environment(&[("SLURM_PROCID", "7"), ("HOLDFAST_RANK", "2")])), Some(Rank(2)));
        assert_eq!(rank(&environment(&[("HOLDFAST_RANKS", "4"), ("SLURM_PROCID", "x")])), None);
    }
}
