//! `scr_cntl_dir` and `scr_env`: the directories of the job and its environment.

use std::path::{Path, PathBuf};

use clap::Parser;
use holdfast_core::control::nodes;
use holdfast_core::hostlist;
use holdfast_core::kvtree::file;
use holdfast_model::NodeName;
use holdfast_wire::run::job_directory;

use super::arguments::{parse, usage};
use super::hosts::expand;
use super::result::{CompatError, ExitResult, NO, YES, failed, print, printed};
use crate::allocation::registry::managers;
use crate::allocation::slurm;
use crate::params::{Parameters, value};
use crate::spec::Environment;

/// SCR's parameters of this process.
pub(super) fn parameters() -> Result<Parameters, CompatError> {
    Environment::parameters_of_process().map_err(|error| failed(&error))
}

/// Print the control directory of a job, or its cache directories
#[derive(Parser)]
#[command(name = "scr_cntl_dir", no_binary_name = true, infer_long_args = true)]
struct CntlDirArgs {
    /// Print only the part that all jobs have
    #[arg(short, long)]
    base: bool,
    /// Print the cache directories
    #[arg(short, long)]
    cache: bool,
    /// The user of the job
    #[arg(short, long)]
    user: Option<String>,
    /// The job id
    #[arg(short, long, value_name = "ID")]
    jobid: Option<u64>,
}

pub(super) fn cntl_dir(words: &[String]) -> ExitResult {
    let args: CntlDirArgs = parse(words)?;
    let parameters = parameters()?;
    let bases = if args.cache { cache_bases(&parameters) } else { vec![control_base(&parameters)] };
    if args.base {
        return printed(bases.join(" "));
    }
    let user = args.user.or_else(|| parameters.user.clone());
    let job = args.jobid.map(|id| id.to_string()).or_else(|| given_job_id(&parameters)).or_else(job_id);
    let (Some(user), Some(job)) = (user, job) else {
        print("INVALID")?;
        return Ok(NO);
    };
    let directories: Vec<String> = bases.iter().map(|base| job_directory(base, &user, &job)).collect();
    printed(directories.join(" "))
}

/// The control directory of the job of this process, if it is in one.
pub(super) fn control_directory() -> Option<PathBuf> {
    let parameters = parameters().ok()?;
    let (user, job) = (parameters.user.as_deref()?, given_job_id(&parameters).or_else(job_id)?);
    Some(job_directory(&control_base(&parameters), user, &job).into())
}

fn given_job_id(parameters: &Parameters) -> Option<String> {
    parameters.text("SCR_JOB_ID").map(str::to_owned)
}

/// The base of the control directories; it has a default.
pub(super) fn control_base(parameters: &Parameters) -> String {
    parameters.read("SCR_CNTL_BASE", value::directory).unwrap_or_default()
}

/// The number of nodes in the nodes file of a control directory, 0 if the file does not contain it; `None` without a
/// file.
pub(super) fn nodes_of(control: &Path) -> Result<Option<u32>, file::HashFileError> {
    let tree = file::read_if_there(&control.join("nodes.scrinfo"))?;
    Ok(tree.map(|tree| nodes::from_tree(&tree).unwrap_or(0)))
}

/// SCR_PREFIX, else the working directory.
pub(super) fn prefix(parameters: &Parameters) -> PathBuf {
    parameters.text("SCR_PREFIX").unwrap_or(".").into()
}

/// The bases of the caches, each once, in the order of their descriptors.
pub(super) fn cache_bases(parameters: &Parameters) -> Vec<String> {
    let mut bases: Vec<String> = Vec::new();
    for cache in &parameters.descriptors.cache {
        if !bases.contains(&cache.base) {
            bases.push(cache.base.clone());
        }
    }
    bases
}

/// Print what is known of the job of this process
#[derive(Parser)]
#[command(name = "scr_env", no_binary_name = true, infer_long_args = true)]
struct EnvArgs {
    /// The user
    #[arg(short, long)]
    user: bool,
    /// The job id
    #[arg(short, long)]
    jobid: bool,
    /// The nodes of the allocation
    #[arg(short, long)]
    nodes: bool,
    /// The nodes of the allocation that the resource manager reports as down
    #[arg(short, long)]
    down: bool,
    /// The control directory
    #[arg(short, long, value_name = "DIR")]
    cntldir: Option<PathBuf>,
    /// The number of nodes of the last run, from the control directory
    #[arg(short, long)]
    runnodes: bool,
}

pub(super) fn env(words: &[String]) -> ExitResult {
    let args: EnvArgs = parse(words)?;
    let known = |value: Option<String>| value.map_or(Ok(NO), printed);
    if args.user {
        known(variable(&["USER"]))
    } else if args.jobid {
        known(job_id())
    } else if args.nodes {
        known(node_list())
    } else if args.down {
        let Some(list) = node_list() else { return Ok(NO) };
        let down: Vec<NodeName> = reported_down(&expand(&list)?).into_iter().map(|(node, _)| node).collect();
        if !down.is_empty() {
            print(hostlist::compress(&down))?;
        }
        Ok(YES)
    } else if let (true, Some(control)) = (args.runnodes, &args.cntldir) {
        let number = nodes_of(control).ok().flatten().unwrap_or(0);
        print(number)?;
        Ok(if number == 0 { NO } else { YES })
    } else {
        Err(usage::<EnvArgs>("one of the options is required, `--runnodes` with `--cntldir`").into())
    }
}

/// The id of the resource manager's job that this process belongs to.
pub(super) fn job_id() -> Option<String> {
    managers().find_map(|manager| manager.facts.variables.job_id(|name| variable(&[name])))
}

/// The nodes of that job, as a host list.
pub(super) fn node_list() -> Option<String> {
    managers().find_map(|manager| manager.facts.variables.node_list(|name| variable(&[name])))
}

pub(super) fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

/// The nodes that Slurm reports as down. Without an answer there are none, as in SCR.
pub(super) fn reported_down(nodes: &[NodeName]) -> Vec<(NodeName, String)> {
    if job_id().is_none() {
        return Vec::new();
    }
    let query = super::super::runtime::block_on(slurm::reported_down(nodes));
    query.ok().and_then(Result::ok).unwrap_or_default()
}
