//! Processes that belong to the job's ranks by their environment: programs that never called our API, and what ranks
//! have started themselves.

use std::fs;

use holdfast_wire::{Generation, Rank, environment};

use crate::agent::Agent;

/// Where launchers put the rank's number, innermost first, as the client looks for it.
const RANK_NAMES: [&str; 6] =
    [environment::RANK, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "FLUX_TASK_RANK", "SLURM_PROCID"];

/// A process of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Its number.
    pub pid: u32,
    /// The rank, if its environment says which: a launcher's own processes belong to none.
    pub rank: Option<Rank>,
}

/// Processes of this user whose environment names the job, a generation that is asked for, and (on a virtual node) this
/// node. Reads all of `/proc`.
pub fn marked(agent: &Agent, wanted: impl Fn(Generation) -> bool) -> Vec<Marked> {
    let job = format!("{}={}", environment::JOB, agent.start.job_id);
    let node = format!("{}={}", environment::NODE, agent.start.node);
    let node = agent.start.root.is_some().then_some(node);
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| {
            // Unreadable: another user's, or gone.
            let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let has = |wanted: &str| environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes());
            let generation = value(&environment, environment::GENERATION).map(Generation)?;
            let ours = wanted(generation) && has(&job) && node.as_ref().is_none_or(|node| has(node));
            ours.then(|| Marked { pid, rank: rank(&environment) })
        })
        .collect()
}

fn rank(environment: &[u8]) -> Option<Rank> {
    let number = RANK_NAMES.iter().find_map(|name| value(environment, name))?;
    u32::try_from(number).ok().map(Rank)
}

/// A variable that holds a number.
fn value(environment: &[u8], name: &str) -> Option<u64> {
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        std::str::from_utf8(value).ok()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_is_what_the_innermost_launcher_says() {
        assert_eq!(rank(b"SLURM_PROCID=0\0PATH=/bin\0OMPI_COMM_WORLD_RANK=3\0"), Some(Rank(3)));
        assert_eq!(rank(b"SLURM_PROCID=7\0HOLDFAST_RANK=2\0"), Some(Rank(2)));
        assert_eq!(rank(b"HOLDFAST_RANKS=4\0SLURM_PROCID=x\0"), None);
    }
}
