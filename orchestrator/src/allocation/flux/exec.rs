//! `flux exec`, which starts a process on nodes without the scheduler: agents, daemons of mpirun, other commands.
//!
//! It addresses brokers by their ranks. Its processes take no processors from jobs, and it goes on without those on a
//! node that is lost.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use holdfast_model::NodeName;
use holdfast_wire::run::{Lookup, SharedStart};
use tokio::process::Command;

use super::environment::REMOVED;
use crate::allocation::agents::shared_step::{StepCommand, StepMessages};

/// The agents' variable with the address at which the node of the orchestrator is reached.
const HEAD: &str = "HOLDFAST_FLUX_HEAD";
/// `flux exec` would hold the short reports of agents back in its buffer.
pub(super) const LINE_BUFFERED: [&str; 2] = ["stdbuf", "--output=L"];
/// `flux exec` passes its environment on: removes what `stdbuf` has added.
const NOT_BUFFERED: [&str; 5] = ["env", "-u", "LD_PRELOAD", "-u", "_STDBUF_O"];
/// The prefix of error messages about a rank.
const ERROR: &str = "flux-exec: Error: rank ";
/// The prefix of its other messages.
const OWN_MESSAGE: &str = "flux-exec: ";

/// Starts agents.
#[derive(Clone, Debug)]
pub(super) struct FluxExec {
    pub(super) nodes: Vec<NodeName>,
    pub(super) head: IpAddr,
}

impl StepCommand for FluxExec {
    fn name(&self) -> &'static str {
        "flux-exec"
    }

    fn shared_start(&self, logs: &Path) -> SharedStart {
        SharedStart {
            node: Lookup::Command(["flux", "getattr", "hostname"].map(str::to_owned).to_vec()),
            toward: Lookup::Variable(HEAD.to_owned()),
            logs: logs.to_owned(),
            // A broker that ends sends SIGTERM to its processes, the batch script included.
            is_signalled_with_job: true,
        }
    }

    fn command(&self, nodes: &[NodeName]) -> Command {
        let mut command = Command::new(LINE_BUFFERED[0]);
        let ranks: Vec<String> = nodes.iter().filter_map(|node| rank(&self.nodes, node)).collect();
        command.args(&LINE_BUFFERED[1..]).args(["flux", "exec"]).arg(format!("--rank={}", ranks.join(",")));
        command.args(NOT_BUFFERED).env(HEAD, self.head.to_string());
        for name in REMOVED {
            command.env_remove(name);
        }
        command
    }

    fn messages(&self, text: &str) -> StepMessages {
        read_messages(&self.nodes, text)
    }
}

/// What the command's messages mean for the agents on these nodes, in the order of their ranks.
pub(crate) fn read_messages(nodes: &[NodeName], text: &str) -> StepMessages {
    let lines = || text.lines().map(str::trim);
    let (errors, own): (Vec<&str>, Vec<&str>) =
        lines().filter(|line| line.starts_with(OWN_MESSAGE)).partition(|line| line.starts_with(ERROR));
    let ended: BTreeSet<usize> = lines().flat_map(|line| ended_ranks(line, nodes.len())).collect();
    StepMessages {
        refused: None,
        // It then starts nothing.
        failed: own.first().map(|line| (*line).to_owned()),
        not_launched: Vec::new(),
        ended: ended.into_iter().filter_map(|rank| nodes.get(rank).cloned()).collect(),
        explanation: errors.last().or(own.last()).map(|line| (*line).to_owned()),
    }
}

/// The ranks whose processes have ended with an error: `flux-exec: Error: rank 2: sh: No route to host`, or
/// `1-2: Exit 3`.
fn ended_ranks(line: &str, brokers: usize) -> Vec<usize> {
    if let Some(rest) = line.strip_prefix(ERROR) {
        return rest.split(':').next().and_then(|rank| rank.parse().ok()).into_iter().collect();
    }
    match line.split_once(": ") {
        Some((ranks, _)) => rank_set(ranks, brokers).unwrap_or_default(),
        None => Vec::new(),
    }
}

/// The ranks in `0,2-3` (Flux RFC 22) that an instance of so many brokers has.
fn rank_set(text: &str, brokers: usize) -> Option<Vec<usize>> {
    let mut ranks = Vec::new();
    for part in text.trim_matches(['[', ']']).split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        // More than any instance has: not a set of ranks.
        if last.checked_sub(first)? > 1 << 20 {
            return None;
        }
        ranks.extend((first as usize..=last as usize).take_while(|rank| *rank < brokers));
    }
    Some(ranks)
}

/// The rank of the broker of a node.
fn rank(nodes: &[NodeName], node: &NodeName) -> Option<String> {
    nodes.iter().position(|other| other == node).map(|rank| rank.to_string())
}

/// The prefix of a command on a node; empty for one that is not in the instance.
pub(super) fn prefix(nodes: &[NodeName], node: &NodeName) -> Vec<String> {
    let Some(rank) = rank(nodes, node) else { return Vec::new() };
    let mut words = ["flux", "exec", "--quiet", "--noinput"].map(str::to_owned).to_vec();
    words.push(format!("--rank={rank}"));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec() -> FluxExec {
        FluxExec { nodes: ["n1", "n2", "n3", "n4"].map(NodeName::from).to_vec(), head: [10, 0, 0, 1].into() }
    }

    fn words(command: &Command) -> Vec<String> {
        command.as_std().get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn agents_are_addressed_by_the_ranks_of_their_brokers() {
        let command = exec().command(&["n2".into(), "n4".into()]);
        assert_eq!(words(&command)[..4], ["--output=L", "flux", "exec", "--rank=1,3"]);
        assert_eq!(prefix(&exec().nodes, &"n3".into()), ["flux", "exec", "--quiet", "--noinput", "--rank=2"]);
        assert_eq!(prefix(&exec().nodes, &"n9".into()), Vec::<String>::new());
    }

    /// The messages of Flux 0.88.0 for a node that is lost, processes that end, and a program that is missing.
    #[test]
    fn nodes_whose_agents_ended_are_found_in_the_messages() {
        let read = |text: &str| exec().messages(text);
        assert_eq!(read("flux-exec: Error: rank 2: holdfast: No route to host\n").ended, ["n3".into()]);
        assert_eq!(read("1: Exit 3\n").ended, ["n2".into()]);
        assert_eq!(read("0,2-3: Killed\n").ended, ["n1", "n3", "n4"].map(NodeName::from));
        let missing = read("flux-exec: Error: rank 1: /a/b: error launching process: No such file or directory\n");
        assert_eq!(missing.ended, ["n2".into()]);
        assert!(missing.explanation.unwrap().contains("No such file") && missing.failed.is_none());
        let invalid = read("flux-exec: One or more invalid --ranks specified: 9\n");
        assert!(invalid.failed.unwrap().contains("invalid") && invalid.ended.is_empty());
        for other in ["", "x: y", "1-: Exit 3", "3-1: Exit 3", "0-4294967295: Exit 1", "9: Exit 1"] {
            assert_eq!(read(other).ended, Vec::<NodeName>::new(), "{other}");
        }
    }
}
