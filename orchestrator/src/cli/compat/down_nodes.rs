//! `scr_list_down_nodes`: which nodes of the allocation cannot be used, and why.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::Utc;
use clap::Parser;
use holdfast_core::hostlist;
use holdfast_core::workers;
use holdfast_model::NodeName;

use super::arguments::{parse, usage};
use super::hosts::expand;
use super::result::{CompatError, ExitResult, NO, YES, print};
use super::{directories, log_event, node_commands};
use crate::host::external_command;
use crate::params::Parameters;
use crate::params::descriptors::DirectoryCheck;

/// Maximum duration of a ping.
const PING_WITHIN: Duration = Duration::from_secs(15);
/// Pings at a time.
const PINGS: usize = 64;

/// List the nodes that cannot be used
#[derive(Parser)]
#[command(name = "scr_list_down_nodes", no_binary_name = true, infer_long_args = true)]
struct DownArgs {
    /// Print a line with the reason for each node
    #[arg(short, long)]
    reason: bool,
    /// Compare the required space with the free space instead of the size of the file system
    #[arg(short, long)]
    free: bool,
    /// Nodes that count as down without a test
    #[arg(short, long, value_name = "HOSTS")]
    down: Option<String>,
    /// Add an event to the event log for each node that is not in `--down`
    #[arg(short, long)]
    log: bool,
    /// The duration of the run, for the event log
    #[arg(short, long, value_name = "SECONDS")]
    secs: Option<u64>,
    /// The nodes [default: those of the job]
    nodeset: Option<String>,
}

pub(super) fn list_down_nodes(words: &[String]) -> ExitResult {
    let args: DownArgs = parse(words)?;
    let begun = Utc::now().timestamp();
    let allocated = directories::node_list();
    let Some(list) = args.nodeset.as_ref().or(allocated.as_ref()) else {
        return Err(usage::<DownArgs>("outside of a job the nodes are required").into());
    };
    let nodes = expand(list)?;
    let parameters = directories::parameters()?;
    let given = args.down.as_deref().map(expand).transpose()?.unwrap_or_default();
    let mut down: BTreeMap<NodeName, String> = BTreeMap::new();
    // A later test replaces the reason of an earlier one.
    let queried = allocated.as_deref().map(expand).transpose()?.unwrap_or_else(|| nodes.clone());
    for (node, _) in directories::reported_down(&queried) {
        down.insert(node, "Reported down by resource manager".to_owned());
    }
    for node in without_ping(&nodes) {
        down.insert(node, "Failed to ping".to_owned());
    }
    let excluded = parameters.read("SCR_EXCLUDE_NODES", |text| hostlist::expand(text).ok()).unwrap_or_default();
    for (named, reason) in [(&excluded, "User excluded via SCR_EXCLUDE_NODES"), (&given, "Specified on command line")] {
        for node in hostlist::intersect(named, &nodes) {
            down.insert(node, reason.to_owned());
        }
    }
    let rest: Vec<NodeName> = nodes.iter().filter(|node| !down.contains_key(*node)).cloned().collect();
    down.extend(failed_checks(&rest, &parameters, args.free)?);
    if down.is_empty() {
        return Ok(YES);
    }
    let sorted = hostlist::compress(down.keys());
    if args.log {
        for (node, reason) in down.iter().filter(|(node, _)| !given.contains(node)) {
            log_event::failed_node(&format!("{node}: {reason}"), begun, args.secs)?;
        }
    }
    if args.reason {
        for node in expand(&sorted)? {
            let reason = down.get(&node).map_or("", String::as_str);
            print(format!("{node}: {reason}"))?;
        }
    } else {
        print(sorted)?;
    }
    Ok(NO)
}

/// The nodes that do not answer `ping`; none if there is no such command, because the check of the directories finds
/// them too.
fn without_ping(nodes: &[NodeName]) -> Vec<NodeName> {
    if which::which("ping").is_err() {
        return Vec::new();
    }
    let answers = workers::map(nodes, PINGS, 1, |node| {
        let ran = external_command::run("ping", &["-c", "1", node.as_str()], &BTreeMap::new(), PING_WITHIN);
        ran.is_ok_and(|ran| ran.success)
    });
    nodes.iter().zip(answers).filter(|(_, answered)| !answered).map(|(node, _)| node.clone()).collect()
}

/// The nodes whose directories cannot be used, each with the line of its check.
fn failed_checks(
    nodes: &[NodeName],
    parameters: &Parameters,
    free: bool,
) -> Result<Vec<(NodeName, String)>, CompatError> {
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    let sized = |bases: &[String], checks: &[DirectoryCheck]| {
        let texts = bases.iter().map(|base| {
            let bytes = checks.iter().find(|check| check.directory == *base).and_then(|check| check.bytes);
            bytes.map_or_else(|| base.clone(), |bytes| format!("{base}:{bytes}"))
        });
        texts.collect::<Vec<_>>().join(",")
    };
    let mut arguments: Vec<String> = Vec::new();
    arguments.extend(free.then(|| "--free".to_owned()));
    let control = [directories::control_base(parameters)];
    arguments.extend(["--cntl".to_owned(), sized(&control, &parameters.control_checks)]);
    let caches = directories::cache_bases(parameters);
    arguments.extend(["--cache".to_owned(), sized(&caches, &parameters.cache_checks)]);
    let answers = node_commands::run_on(nodes, None, "scr_check_node", &arguments)?;
    let failed = nodes.iter().filter_map(|node| match answers.get(node).and_then(|lines| lines.first()) {
        Some(line) if line.contains("PASS") => None,
        Some(line) => Some((node.clone(), line.clone())),
        None => Some((node.clone(), "FAIL: No answer".to_owned())),
    });
    Ok(failed.collect())
}
