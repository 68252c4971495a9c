//! Processes that belong to the job's ranks by their environment: programs that do not use the API, and processes that
//! ranks have started.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::path::PathBuf;

use holdfast_model::{Generation, NodeName, Rank};
use holdfast_wire::environment::{self, RankVariables};
use holdfast_wire::run::AgentStart;
use procfs::process;

use crate::directories::paths::Paths;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    pub pid: u32,
    /// The rank in its environment; none for a launcher's own processes.
    pub rank: Option<Rank>,
    /// How deep inside launchers it was started, by the variable that has its rank: 0 is innermost.
    depth: usize,
    /// It is a launcher, or a launcher's helper on the node.
    is_launcher: bool,
}

/// Names of the processes of launchers, as the kernel shortens them to 15 characters.
const LAUNCHERS: &[&str] = &[
    "srun",
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "orted",
    "prte",
    "prted",
    "prterun",
    "hydra_pmi_proxy",
    "hydra_bstrap_pr",
];

/// The processes that are ranks, or were started by ranks. Inside an `srun` that started an `mpirun`, helpers of mpirun
/// have a rank of srun.
pub(super) fn of_ranks(marked: Vec<Marked>) -> BTreeSet<u32> {
    let in_ranks = |process: &&Marked| process.rank.is_some() && !process.is_launcher;
    let innermost = marked.iter().filter(in_ranks).map(|process| process.depth).min();
    let of_ranks = marked.iter().filter(in_ranks).filter(|process| Some(process.depth) == innermost);
    of_ranks.map(|process| process.pid).collect()
}

/// The values in the environment of the job's ranks on this node.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    job_id: String,
    /// Where steps of the job run side by side.
    step: Option<String>,
    /// Only on a virtual node.
    node: Option<NodeName>,
    /// The agent's socket, on other nodes: jobs of one allocation have the same id, and their agents run on the same
    /// nodes.
    socket: Option<PathBuf>,
}

impl Marks {
    pub(super) fn new(start: &AgentStart) -> Self {
        let is_virtual = start.root.is_some();
        Marks {
            job_id: start.job_id.clone(),
            step: start.step.clone(),
            node: is_virtual.then(|| start.node.clone()),
            socket: (!is_virtual).then(|| Paths::new(start).socket()),
        }
    }

    /// The marked processes of generations that match. Reads all of `/proc`.
    pub(super) fn find(&self, matches: impl Fn(Generation) -> bool) -> Vec<Marked> {
        let Marks { job_id, step, node, socket } = self;
        let Ok(processes) = process::all_processes() else { return Vec::new() };
        let found = processes.filter_map(|process| {
            let process = process.ok()?;
            if !has_generation(&process) {
                return None;
            }
            let environment = process.environ().ok()?;
            let is = |name: &str, value: &OsStr| environment.get(OsStr::new(name)).is_some_and(|found| found == value);
            let generation = number(&environment, environment::GENERATION).map(Generation)?;
            let ours = matches(generation)
                && is(environment::JOB, OsStr::new(job_id))
                && step.as_ref().is_none_or(|step| is(environment::STEP, OsStr::new(step)))
                && node.as_ref().is_none_or(|node| is(environment::NODE, OsStr::new(node.as_str())))
                && socket.as_ref().is_none_or(|socket| is(environment::SOCKET, socket.as_os_str()));
            let pid = u32::try_from(process.pid()).ok()?;
            ours.then(|| {
                let (depth, rank) = rank(&environment).unzip();
                let name = process.stat().map(|stat| stat.comm).unwrap_or_default();
                let is_launcher = LAUNCHERS.contains(&name.as_str());
                Marked { pid, rank, depth: depth.unwrap_or_default(), is_launcher }
            })
        });
        found.collect()
    }
}

/// Whether the environment has a generation: of most processes of a machine, no more is looked at.
fn has_generation(process: &process::Process) -> bool {
    let mut environment = Vec::new();
    // Unreadable: of another user, or ended.
    let read = process.open_relative("environ").map(|mut file| file.read_to_end(&mut environment));
    let is_generation = |variable: &[u8]| {
        variable.strip_prefix(environment::GENERATION.as_bytes()).is_some_and(|value| value.starts_with(b"="))
    };
    matches!(read, Ok(Ok(_))) && environment.split(|byte| *byte == 0).any(is_generation)
}

type Environment = HashMap<OsString, OsString>;

/// The rank, and the number of launchers that were not found before the one that set it.
fn rank(variables: &Environment) -> Option<(usize, Rank)> {
    let is_set = |name: &str| variables.contains_key(OsStr::new(name));
    let counts = |of: &RankVariables| of.marker.is_none_or(is_set);
    let of_launchers = environment::RANK_VARIABLES.iter().map(|of| if counts(of) { of.rank } else { "" });
    let mut names = std::iter::once(environment::RANK).chain(of_launchers).enumerate();
    let (depth, number) = names.find_map(|(depth, name)| Some((depth, number(variables, name)?)))?;
    Some((depth, Rank(u32::try_from(number).ok()?)))
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
        let rank = |environment: &Environment| rank(environment).map(|(_, rank)| rank);
        assert_eq!(rank(&environment(&nested)), Some(Rank(3)));
        assert_eq!(rank(&environment(&[("SLURM_PROCID", "7"), ("HOLDFAST_RANK", "2")])), Some(Rank(2)));
        assert_eq!(rank(&environment(&[("HOLDFAST_RANKS", "4"), ("SLURM_PROCID", "x")])), None);
    }

    #[test]
    fn helpers_of_a_launcher_are_not_processes_of_ranks() {
        let process = |pid: u32, variables: &[(&str, &str)], is_launcher: bool| {
            let (depth, rank) = rank(&environment(variables)).unzip();
            Marked { pid, rank, depth: depth.unwrap_or_default(), is_launcher }
        };
        let slurm = ("SLURM_PROCID", "0");
        let srun = vec![process(1, &[slurm], true), process(2, &[slurm], false), process(3, &[], false)];
        assert_eq!(of_ranks(srun), BTreeSet::from([2]));
        let mpirun = vec![
            process(4, &[slurm], true),
            process(5, &[slurm], false),
            process(6, &[slurm, ("OMPI_COMM_WORLD_RANK", "1")], false),
        ];
        assert_eq!(of_ranks(mpirun), BTreeSet::from([6]));
    }
}
