//! `scr_flush`: has the nodes of a job copy a checkpoint from their caches (`SCR manual §11.10.2`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Parser;
use holdfast_core::hostlist;
use holdfast_model::{CheckpointId, NodeName};

use super::arguments::parse;
use super::job_nodes::{JobNodes, UsableNodes};
use super::node_commands::{self, NodeLines};
use super::result::{CompatError, ExitResult, NO, YES, print};
use super::scripts::date;
use super::{directories, log_event};
use crate::params::value;

/// Copy a checkpoint from the caches of the nodes
#[derive(Parser)]
#[command(name = "scr_flush", no_binary_name = true, infer_long_args = true)]
struct FlushArgs {
    #[command(flatten)]
    nodes: JobNodes,
    /// The checkpoint
    #[arg(short, long)]
    id: u64,
    /// The directory to copy to
    #[arg(short, long, value_name = "DIR")]
    to: PathBuf,
    /// Print what the nodes print
    #[arg(short, long)]
    verbose: bool,
}

pub(super) fn flush(words: &[String]) -> ExitResult {
    let args: FlushArgs = parse(words)?;
    let Some(UsableNodes { up, down }) = args.nodes.usable("scr_flush")? else { return Ok(NO) };
    let parameters = directories::parameters()?;
    let buffer = parameters.read("SCR_FILE_BUF_SIZE", value::buffer).unwrap_or(1 << 20);
    let crc = parameters.read("SCR_CRC_ON_FLUSH", value::switch).unwrap_or(true);
    let begun = SystemTime::now();
    let checkpoint = CheckpointId(args.id);
    log_event::drain("DRAIN STARTED", checkpoint, begun, None)?;
    print(format!("scr_flush: {}", date()))?;
    let copy = |nodes: &[NodeName], partners_only: bool, down: &[NodeName]| {
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        let numbers = [u64::from(crc), u64::from(partners_only)].map(|number| number.to_string());
        let mut words = vec![path(&args.nodes.from), args.id.to_string(), path(&args.to), buffer.to_string()];
        words.extend(numbers);
        words.extend(down.iter().map(ToString::to_string));
        let answers = node_commands::run_on(nodes, None, "scr_copy", &words)?;
        if args.verbose {
            answers
                .iter()
                .try_for_each(|(node, lines)| lines.iter().try_for_each(|line| print(format!("{node}: {line}"))))?;
        }
        Ok::<_, CompatError>(answers)
    };
    let first = FirstRound::of(&up, &copy(&up, false, &down)?);
    if !first.failed.is_empty() {
        let SecondRound { failed, partners, nodes } = first.second(&up, &down);
        let (failed_list, partners) = (hostlist::compress(&failed), hostlist::compress(&partners));
        print(format!("scr_flush: pdsh failed on: {failed_list}, trying partners: {partners}\n"))?;
        if nodes.is_empty() {
            print("scr_flush: No partner nodes identified")?;
        } else {
            copy(&nodes, true, &failed)?;
        }
    }
    let took = begun.elapsed().unwrap_or_default();
    log_event::drain("DRAIN COMPLETED", checkpoint, begun, Some(took))?;
    Ok(YES)
}

/// What the first copies on all nodes resulted in.
#[derive(Debug, PartialEq, Eq)]
struct FirstRound {
    /// The nodes that did not answer, or could not copy a file.
    failed: BTreeSet<NodeName>,
    /// The nodes that hold copies of another node's files, by that node.
    partners: BTreeMap<NodeName, BTreeSet<NodeName>>,
}

/// The copies for nodes that failed.
#[derive(Debug, PartialEq, Eq)]
struct SecondRound {
    /// The nodes for which files are copied.
    failed: Vec<NodeName>,
    /// Nodes that are known to hold copies.
    partners: Vec<NodeName>,
    /// Where to copy from: all nodes, if partners of a node are not known.
    nodes: Vec<NodeName>,
}

impl FirstRound {
    fn of(nodes: &[NodeName], answers: &NodeLines) -> Self {
        let mut round = FirstRound { failed: BTreeSet::new(), partners: BTreeMap::new() };
        for node in nodes {
            let lines = answers.get(node).map_or(&[][..], Vec::as_slice);
            let owners = lines.iter().filter_map(|line| Some(line.split_once(": Partners: ")?.1));
            for owner in owners.flat_map(str::split_whitespace) {
                round.partners.entry(NodeName::new(owner)).or_default().insert(node.clone());
            }
            let code = lines.iter().rev().find_map(|line| Some(line.split_once(": Return code: ")?.1));
            if code.is_none_or(|code| code.trim() != "0") {
                round.failed.insert(node.clone());
            }
        }
        round
    }

    /// `up` are the nodes of the first round, `down` those that were left out.
    fn second(&self, up: &[NodeName], down: &[NodeName]) -> SecondRound {
        let failed: BTreeSet<NodeName> = self.failed.iter().chain(down).cloned().collect();
        let mut partners = BTreeSet::new();
        let mut all_known = true;
        for node in &failed {
            let usable = self.partners.get(node).into_iter().flatten().filter(|partner| !failed.contains(*partner));
            let known: Vec<NodeName> = usable.cloned().collect();
            all_known &= !known.is_empty();
            partners.extend(known);
        }
        let nodes = match all_known {
            true => partners.iter().cloned().collect(),
            false => up.iter().filter(|node| !failed.contains(*node)).cloned().collect(),
        };
        SecondRound { failed: failed.into_iter().collect(), partners: partners.into_iter().collect(), nodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<NodeName> {
        hostlist::expand(list).unwrap()
    }

    fn answers(lines: &[(&str, &[&str])]) -> NodeLines {
        let lines = lines.iter().map(|(node, lines)| {
            let lines = lines.iter().map(|line| format!("scr_copy: {node}: {line}")).collect();
            (NodeName::new(*node), lines)
        });
        lines.collect()
    }

    #[test]
    fn nodes_that_fail_or_do_not_answer_are_replaced_by_their_partners() {
        let up = names("n[0-3]");
        let lines: &[(&str, &[&str])] = &[
            ("n0", &["Partners: n3", "Return code: 0"]),
            ("n1", &["Partners: n0", "Return code: 1"]),
            ("n2", &["Partners: n1", "Return code: 0"]),
        ];
        let first = FirstRound::of(&up, &answers(lines));
        assert_eq!(first.failed, names("n[1,3]").into_iter().collect());
        let second = first.second(&up, &[]);
        assert_eq!((second.failed, second.partners, second.nodes), (names("n[1,3]"), names("n[0,2]"), names("n[0,2]")));
    }

    #[test]
    fn all_nodes_are_asked_if_the_partner_of_one_is_not_known() {
        let up = names("n[0-2]");
        let lines: &[(&str, &[&str])] =
            &[("n0", &["Return code: 0"]), ("n1", &["Return code: 0"]), ("n2", &["Return code: 256"])];
        let second = FirstRound::of(&up, &answers(lines)).second(&up, &names("n3"));
        assert_eq!((second.failed, second.nodes), (names("n[2-3]"), names("n[0-1]")));
        assert_eq!(second.partners, []);
    }

    #[test]
    fn without_a_failure_there_is_nothing_to_repeat() {
        let up = names("n0");
        assert!(FirstRound::of(&up, &answers(&[("n0", &["Return code: 0"])])).failed.is_empty());
    }
}
