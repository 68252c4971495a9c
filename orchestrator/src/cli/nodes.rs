//! `holdfast nodes`: the nodes of a running job, and which of them the user excludes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_core::hostlist;
use holdfast_model::NodeName;
use serde_json::json;

use super::failure::Failure;
use super::job::{JobSelection, prefixes_with_state};
use super::output::{Style, printable, report};
use super::running_job::RunningJob;
use super::status::{NodeLine, Status};
use crate::exit;
use crate::job::excluded_nodes::{NodeRequest, NodeRequests};
use crate::job::state::{JobState, Stage};
use crate::relaunch::{Exclusion, Explanation};
use crate::spec::Environment;

/// How long the command waits for the orchestrator to take a change up.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The reason if the user gives none.
const NO_REASON: &str = "by `holdfast nodes exclude`";

/// List the nodes of a running job, exclude some, or include them again
///
/// An excluded node gets no ranks. Ranks that it has go on to the end of their generation; with `--now` they are
/// relaunched on other nodes at once, from the newest checkpoint. Its agent goes on to run, so that checkpoint files in
/// its cache can be used.
#[derive(Clone, Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct NodesArgs {
    #[command(subcommand)]
    command: NodesCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum NodesCommand {
    /// Show the nodes and what each does
    #[command(after_help = "\
Examples:
  holdfast nodes list job.yaml
  holdfast nodes list --json --prefix ./heat-run

Exit codes: 0 shown; 69 no job was run in this prefix")]
    List(JobSelection),
    /// Use these nodes no more
    #[command(after_help = "\
Examples:
  holdfast nodes exclude n3 --reason GPU job.yaml
  holdfast nodes exclude --now 'n[3,5-7]' job.yaml
  holdfast nodes exclude --dry-run n3 --prefix ./heat-run

Exit codes: 0 recorded; 64 the job has no such node; 69 no job runs in this prefix, or one of \
`kind: replicated`; with --now, too few other nodes are left, so that the ranks are not moved")]
    Exclude(ExcludeArgs),
    /// Use these nodes again
    #[command(after_help = "\
Examples:
  holdfast nodes include n3 job.yaml
  holdfast nodes include --dry-run 'n[3,5-7]' --prefix ./heat-run

JSON and exit codes: as `holdfast nodes exclude`")]
    Include(IncludeArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct ExcludeArgs {
    /// The nodes, as a host list
    #[arg(value_name = "NODES")]
    nodes: String,
    #[command(flatten)]
    job: JobSelection,
    /// Why; shown in status, event log and report
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Relaunch ranks on these nodes now, from the newest checkpoint. Not done if too few nodes would be left
    #[arg(long)]
    now: bool,
    /// Show what would be changed; change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Debug, clap::Args)]
struct IncludeArgs {
    /// The nodes, as a host list
    #[arg(value_name = "NODES")]
    nodes: String,
    #[command(flatten)]
    job: JobSelection,
    /// Show what would be changed; change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(args: NodesArgs, style: Style) -> Result<u8, Failure> {
    match args.command {
        NodesCommand::List(job) => list(&job, style),
        NodesCommand::Exclude(ExcludeArgs { nodes, job, reason, now, dry_run }) => {
            let reason = reason.unwrap_or_else(|| NO_REASON.to_owned());
            let request = NodeRequest::Exclude(Exclusion { reason, now });
            change(&nodes, &job, &request, dry_run, style)
        }
        NodesCommand::Include(IncludeArgs { nodes, job, dry_run }) => {
            change(&nodes, &job, &NodeRequest::Include, dry_run, style)
        }
    }
}

fn list(job: &JobSelection, style: Style) -> Result<u8, Failure> {
    let environment = job.environment(style)?;
    let read = |prefix: &Path| Ok(JobState::read_to_show(prefix)?.map(|(state, _)| state));
    let mut nodes: Vec<(Option<String>, NodeLine)> = Vec::new();
    // Of steps that run side by side, each has nodes of its own.
    for (step, prefix) in prefixes_with_state(&job.clone().into(), &environment, read)? {
        let job = RunningJob::in_prefix(prefix, None)?;
        let health = super::runtime::block_on(job.health())?;
        let explanation = job.state.explain();
        let of_step = Status::of_nodes(job, explanation, health).nodes();
        nodes.extend(of_step.into_iter().map(|node| (step.clone(), node)));
    }
    let fields = |(step, node): &(Option<String>, NodeLine)| {
        let mut fields = node.json();
        fields["step"] = json!(step);
        fields
    };
    let fields = json!({"nodes": nodes.iter().map(fields).collect::<Vec<_>>()});
    style.result(&report(fields, |to| {
        for (at, (step, node)) in nodes.iter().enumerate() {
            let is_first = at == 0 || nodes[at - 1].0 != *step;
            if let Some(step) = step.as_ref().filter(|_| is_first) {
                writeln!(to, "step {step}:")?;
            }
            node.write(to, "")?;
        }
        Ok(())
    }))?;
    Ok(exit::FINISHED)
}

/// Records a request for nodes, and waits until the orchestrator has taken it up.
fn change(
    nodes: &str,
    selection: &JobSelection,
    request: &NodeRequest,
    dry_run: bool,
    style: Style,
) -> Result<u8, Failure> {
    let named = hostlist::expand(nodes).map_err(|error| Failure::of(exit::USAGE, &error))?;
    let named: BTreeSet<NodeName> = named.into_iter().collect();
    let seen = request_for(&named, selection, &selection.environment(style)?, request, dry_run)?;
    let taken_up = seen.is_some();
    let delayed = seen.unwrap_or_default();
    style.result(&report(json!({"nodes": named, "taken_up": taken_up, "delayed": delayed}), |to| {
        let nodes = list_text(&named);
        let (verb, reason) = match request {
            NodeRequest::Exclude(exclusion) => ("excluded", format!(": {}", printable(&exclusion.reason))),
            NodeRequest::Include => ("included", String::new()),
        };
        match (dry_run, taken_up) {
            (true, _) => writeln!(to, "{nodes} would be {verb}{reason}"),
            (false, true) => writeln!(to, "{nodes} {verb}{reason}"),
            (false, false) => writeln!(to, "recorded; not taken up by the orchestrator yet: {nodes} {verb}{reason}"),
        }
    }))?;
    if delayed.is_empty() {
        return Ok(exit::FINISHED);
    }
    style.warn(&delayed_text(&delayed));
    Ok(exit::UNAVAILABLE)
}

/// What is to be known of nodes that keep their ranks.
pub(super) fn delayed_text(delayed: &BTreeSet<NodeName>) -> String {
    format!(
        "the ranks of {} are not moved now: too few other nodes are left; they go on until the generation ends or \
         other nodes can be used; include others again, or halt the job",
        list_text(delayed)
    )
}

/// Records a request for nodes, unless it is a dry run, and waits until the orchestrator has taken it up. Returns the
/// nodes that keep their ranks although these were to be moved at once; `None` if it is not taken up yet.
///
/// # Errors
/// The job does not run, has pairs, or has no such node.
pub(super) fn request_for(
    named: &BTreeSet<NodeName>,
    selection: &JobSelection,
    environment: &Environment,
    request: &NodeRequest,
    dry_run: bool,
) -> Result<Option<BTreeSet<NodeName>>, Failure> {
    let jobs: Vec<RunningJob> =
        RunningJob::each_in(&selection.clone().into(), environment)?.into_iter().map(|(_, job)| job).collect();
    let Some(running) = jobs.first() else { return Ok(None) };
    if running.state.stage != Stage::Running {
        return Err(running.not_running());
    }
    running.refuse_with_pairs(
        "nodes of a job with pairs cannot be excluded or included while it runs",
        "to move a copy: end the job (`holdfast halt set --now`), change `nodes` of the pair in the spec, and run it",
    )?;
    let known = running.state.allocation.nodes();
    let unknown: Vec<&NodeName> = named.iter().filter(|node| !known.contains(node)).collect();
    if !unknown.is_empty() || named.is_empty() {
        let message = format!("the job has no node {}", list_text(unknown));
        return Err(Failure::new(exit::USAGE, message).remedy(format!("its nodes are {}", hostlist::compress(known))));
    }
    if dry_run {
        return Ok(None);
    }
    let requests: BTreeMap<_, _> = named.iter().map(|node| (node.clone(), request.clone())).collect();
    NodeRequests::add(&job_prefix(selection, running, environment)?, &running.state.agents.job_id, requests)?;
    let prefixes: Vec<PathBuf> = jobs.iter().map(|job| job.prefix.clone()).collect();
    Ok(if running.has_orchestrator { taken_up(&prefixes, named, request) } else { None })
}

/// The prefix directory of the job. Without a spec, that of a step may be given.
fn job_prefix(selection: &JobSelection, running: &RunningJob, environment: &Environment) -> Result<PathBuf, Failure> {
    Ok(match &running.state.job_prefix {
        Some(of_job) => of_job.clone(),
        None => selection.prefix(environment)?,
    })
}

/// `n3`, `n[3-5]`.
fn list_text<'a>(nodes: impl IntoIterator<Item = &'a NodeName>) -> String {
    match &nodes.into_iter().collect::<Vec<_>>()[..] {
        [single] => single.to_string(),
        several => hostlist::compress(several.iter().copied()),
    }
}

/// Waits until the states of the steps that run show the request for these nodes. Returns those that keep their ranks
/// although these were to be moved at once; `None` if it is not shown. A node that no step has needs no wait: the job
/// reads the request before it lends the node.
fn taken_up(prefixes: &[PathBuf], nodes: &BTreeSet<NodeName>, request: &NodeRequest) -> Option<BTreeSet<NodeName>> {
    let begun = Instant::now();
    loop {
        let states: Vec<JobState> =
            prefixes.iter().filter_map(|prefix| JobState::read(prefix).ok().flatten()).collect();
        let running = states.iter().filter(|state| state.stage == Stage::Running);
        let explanations: Vec<Explanation> = running.filter_map(JobState::explain).collect();
        let known = || explanations.iter().flat_map(|explanation| &explanation.nodes);
        let shown = |node: &NodeName| {
            let is_free = known().all(|known| known.node != *node);
            let excluded = known().filter(|known| known.node == *node).find_map(|known| known.excluded.clone());
            match request {
                NodeRequest::Exclude(exclusion) => is_free || excluded.as_ref() == Some(exclusion),
                NodeRequest::Include => excluded.is_none(),
            }
        };
        if !explanations.is_empty() && nodes.iter().all(shown) {
            let delayed = known().filter(|known| known.keeps_ranks && nodes.contains(&known.node));
            return Some(delayed.map(|known| known.node.clone()).collect());
        }
        let is_over = states.iter().all(|state| state.stage != Stage::Running);
        if is_over || begun.elapsed() >= TAKEN_UP_WITHIN {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
