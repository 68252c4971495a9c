//! `holdfast drain`: saves the newest checkpoint in the nodes' caches.

use std::io::{self, Write};
use std::path::PathBuf;

use holdfast_core::hostlist;
use holdfast_model::{CheckpointId, Unplaced};
use serde_json::{Value, json};

use super::failure::Failure;
use super::job::{self, JobSelection};
use super::output::{Report, Style, document, printable};
use super::prefix_access;
use crate::drain::DrainReport;
use crate::events::DrainResult;
use crate::exit;
use crate::host;
use crate::job::standalone::{self, LibraryJob, Preview, Roots, Source, StandaloneError};
use crate::job::state::JobState;
use crate::spec::{Environment, JobSpec};

/// Save the newest checkpoint in the nodes' caches to the prefix directory
///
/// Works whether agents are running, dead, or were never started. Copies in two rounds, the second one for nodes that
/// failed in the first; rebuilds missing files; updates the index. After an interruption, run it again to finish.
/// Where Holdfast launched nothing, it drains what LLNL's SCR library left on the nodes of this allocation, or, if
/// SCR_JOB_ID is set, on this machine.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast drain job.yaml                   the newest checkpoint that can be completed
  holdfast drain --checkpoint 7 job.yaml    checkpoint 7
  holdfast drain --dry-run job.yaml         show what the nodes have, and what would be copied

  holdfast drain --prefix ./pfs             in a batch job whose script ran `srun ./app` with SCR's library

  holdfast drain --prefix ./pfs --root ./nodes --job-id 1145655 --user user1
                                            files of SCR's library in nodes/node1/tmp/user1/scr.1145655, …

Exit codes: 0 complete, or nothing to save; 65 saved, but not complete; 69 no node could be reached, or nothing was \
found and it is not known what a node holds; 73 \
the prefix directory could not be written to: correct the cause, then drain again; or files of an output are not at \
their paths, because something else is there: `holdfast index place`; \
78 the job's state belongs to another user")]
pub struct DrainArgs {
    /// The job
    #[command(flatten)]
    pub job: JobSelection,
    /// Save this checkpoint instead of the newest that can be completed. Newer ones, and output, that only the nodes
    /// have stay there: a drain without this option saves the newest, then deletes the others
    #[arg(long, value_name = "ID")]
    pub checkpoint: Option<CheckpointId>,
    /// Show what would be drained; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// As root: act as the owner of the prefix directory
    #[arg(long, requires = "prefix")]
    pub as_owner: bool,
    /// Directories of nodes
    #[command(flatten)]
    pub roots: RootArgs,
}

/// Node directories of the user, instead of those of a job.
#[derive(Clone, Debug, clap::Args)]
pub struct RootArgs {
    /// Drain copies of node directories, from SCR's library or Holdfast: DIR/<node> is prepended to all paths of a
    /// node. Nothing there is deleted. A node without directory counts as down
    #[arg(long, value_name = "DIR", requires = "job_id", help_heading = "Directories of nodes")]
    pub root: Option<PathBuf>,
    /// The job id in the names of the control and cache directories (`scr.<id>`)
    #[arg(long, value_name = "ID", requires = "root", help_heading = "Directories of nodes")]
    pub job_id: Option<String>,
    /// The user in these names [default: you]
    #[arg(long, value_name = "NAME", requires = "root", help_heading = "Directories of nodes")]
    pub user: Option<String>,
    /// The nodes, as a host list [default: all with a directory]
    #[arg(long, value_name = "HOSTS", requires = "root", help_heading = "Directories of nodes")]
    pub nodes: Option<String>,
}

impl DrainArgs {
    /// The directories of the arguments, with the checkpoint settings of the spec or the defaults.
    fn roots(&self, environment: &Environment) -> Result<Option<Roots>, Failure> {
        let (Some(directory), Some(job_id)) = (&self.roots.root, &self.roots.job_id) else { return Ok(None) };
        let nodes = match &self.roots.nodes {
            None => Vec::new(),
            Some(hosts) => hostlist::expand(hosts).map_err(|error| Failure::of(exit::USAGE, &error))?,
        };
        let spec = self.settings(environment)?;
        let (requests_at_once, disk_timeout) = (spec.health.requests, spec.health.disk_timeout);
        let event_log = spec.event_log;
        let checkpoint = spec.steps.into_iter().next().map(|step| step.checkpoint);
        Ok(checkpoint.map(|checkpoint| Roots {
            directory: directory.clone(),
            nodes,
            job_id: job_id.clone(),
            user: self.roots.user.clone().or(environment.identity.user.clone()).unwrap_or_else(host::user_name),
            checkpoint,
            event_log,
            disk_timeout,
            requests_at_once,
        }))
    }

    /// The spec, of which only the settings of checkpoints and nodes are used.
    fn settings(&self, environment: &Environment) -> Result<JobSpec, Failure> {
        match self.job.spec(environment)? {
            Some(spec) => Ok(spec),
            // A spec needs a command.
            None => Ok(JobSpec::from_command(&["true".to_owned()], environment)?),
        }
    }

    /// The job of this process, if Holdfast launched nothing: its prefix directory, and its nodes by the environment.
    fn library_job(&self, environment: &Environment) -> Result<Option<(PathBuf, LibraryJob)>, Failure> {
        let spec = self.settings(environment)?;
        let prefix = self.job.prefix.clone().unwrap_or_else(|| spec.prefix.clone());
        let parameters =
            Environment::parameters_of_process().map_err(|error| Failure::of(exit::CONFIGURATION, &error))?;
        let job = LibraryJob::new(spec, &parameters);
        let has_nodes = job.has_nodes().map_err(|error| failed(error.into()))?;
        Ok(has_nodes.then_some((prefix, job)))
    }
}

pub(super) fn run(args: DrainArgs, style: Style) -> Result<u8, Failure> {
    if let Some(prefix) = args.job.prefix.as_ref().filter(|_| args.as_owner) {
        prefix_access::become_owner(prefix)?;
    }
    let environment = args.job.environment_for_drain(style)?;
    if let Some(disabled) = &environment.disabled {
        style.warn(&format!("{disabled} has no effect on `holdfast drain`"));
    }
    let roots = args.roots(&environment)?;
    let (prefixes, source) = match roots {
        Some(roots) => (vec![(None, args.job.prefix(&environment)?)], Some(Source::Roots(Box::new(roots)))),
        None => {
            let found = job::prefixes_with_state(&args.job.clone().into(), &environment, JobState::read)?;
            let library = match &found[..] {
                [(_, only)] if JobState::read(only)?.is_none() => args.library_job(&environment)?,
                _ => None,
            };
            match library {
                Some((prefix, job)) => (vec![(None, prefix)], Some(Source::Library(Box::new(job)))),
                None => (found, None),
            }
        }
    };
    let mut steps: Vec<(Option<String>, PathBuf)> = Vec::new();
    for (name, prefix) in prefixes {
        let found = prefix.canonicalize().map_err(|error| {
            Failure::new(exit::UNAVAILABLE, "the prefix directory cannot be used").at(prefix.display()).because(error)
        })?;
        if !args.dry_run {
            prefix_access::refuse_root(
                &found,
                "give --as-owner and --prefix, or withdraw the permission with `chmod go-w`",
            )?;
        }
        steps.push((name, found));
    }
    let requested = args.checkpoint;
    if args.dry_run {
        super::runtime::with_screen(style, async |screen| {
            let mut found = Vec::new();
            for (name, prefix) in steps {
                let preview = standalone::preview(&prefix, source.clone(), requested, &screen).await;
                found.push((name, preview.map(Previewed).map_err(failed)?));
            }
            Ok(OfSteps(found))
        })?;
        return Ok(exit::FINISHED);
    }
    // Of steps that ran side by side, the last one that is drained releases the nodes.
    let beside: Vec<PathBuf> = steps.iter().map(|(_, prefix)| prefix.clone()).collect();
    let (report, _) = super::runtime::with_screen(style, async |screen| {
        let mut found = Vec::new();
        for (name, prefix) in steps {
            let others: Vec<PathBuf> = beside.iter().filter(|other| **other != prefix).cloned().collect();
            let drained = match source.clone() {
                Some(source) => standalone::of_source(&prefix, source, requested, &screen).await.map(Some),
                None => standalone::of_prefix(&prefix, &others, requested, &screen).await,
            };
            found.push((name, drained.map(Drained).map_err(failed)?));
        }
        Ok(OfSteps(found))
    })?;
    if style == Style::Quiet && report.exit_code() != exit::FINISHED {
        // Nothing else shows why: the report is not printed.
        let mut text = Vec::new();
        report.human(&mut text)?;
        return Err(Failure::new(report.exit_code(), String::from_utf8_lossy(&text).trim_end()));
    }
    Ok(report.exit_code())
}

/// The results for the steps of a job, each with its name; for one without, that of the job.
struct OfSteps<R>(Vec<(Option<String>, R)>);

impl<R: Report> Report for OfSteps<R> {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        for (name, result) in &self.0 {
            if let Some(name) = name.as_ref().filter(|_| self.0.len() > 1) {
                writeln!(to, "step {name}:")?;
            }
            result.human(to)?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let mut document = self.0.first().map(|(_, first)| first.json()).unwrap_or_default();
        if self.0.len() > 1 {
            let step = |(name, result): &(Option<String>, R)| {
                let mut result = result.json();
                result.as_object_mut().map(|fields| fields.remove("version"));
                json!({"name": name, "result": result})
            };
            document["steps"] = self.0.iter().map(step).collect();
        }
        document
    }
}

impl OfSteps<Drained> {
    /// That of the first step whose drain did not succeed.
    fn exit_code(&self) -> u8 {
        let codes = self.0.iter().map(|(_, drained)| drained.exit_code());
        codes.into_iter().find(|code| *code != exit::FINISHED).unwrap_or(exit::FINISHED)
    }
}

pub(super) fn failed(error: StandaloneError) -> Failure {
    let failure = Failure::of(error.exit_code(), &error);
    if failure.code() == exit::CANNOT_WRITE { failure.remedy(DrainResult::MEND) } else { failure }
}

/// What to do with datasets that were left on the nodes.
const KEPT: &str = "a drain without `--checkpoint` saves the newest, then deletes the others";

/// The result of a drain.
pub(super) struct Drained(pub(super) Option<DrainReport>);

impl Drained {
    fn exit_code(&self) -> u8 {
        match self.0.as_ref().map(|report| &report.result) {
            Some(DrainResult::Nothing) if self.doubt().is_some() => exit::UNAVAILABLE,
            None | Some(DrainResult::Nothing | DrainResult::Complete { .. }) if self.unplaced().is_empty() => {
                exit::FINISHED
            }
            None | Some(DrainResult::Nothing | DrainResult::Complete { .. }) => exit::CANNOT_WRITE,
            Some(result) if result.is_unwritable() => exit::CANNOT_WRITE,
            Some(DrainResult::Incomplete { .. } | DrainResult::Failed { .. }) => exit::DAMAGED_DATA,
        }
    }

    fn doubt(&self) -> Option<String> {
        self.0.as_ref().and_then(DrainReport::doubt)
    }

    fn unplaced(&self) -> &[Unplaced] {
        self.0.as_ref().map_or(&[], |report| &report.unplaced)
    }

    fn checkpoint(&self) -> Option<CheckpointId> {
        match self.0.as_ref().map(|report| &report.result) {
            Some(DrainResult::Complete { checkpoint } | DrainResult::Incomplete { checkpoint, .. }) => {
                Some(*checkpoint)
            }
            _ => None,
        }
    }
}

impl Report for Drained {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        let Some(report) = &self.0 else { return writeln!(to, "nothing to drain") };
        let directory = report.directory.as_deref().unwrap_or_default();
        for (node, reason) in &report.failed_nodes {
            writeln!(to, "nothing was copied from {node}: {}", printable(reason))?;
        }
        match &report.result {
            DrainResult::Nothing => match report.doubt() {
                None => writeln!(to, "nothing to drain"),
                Some(doubt) => writeln!(to, "nothing was drained: {}", printable(&doubt)),
            },
            DrainResult::Complete { checkpoint } => {
                writeln!(to, "checkpoint {checkpoint} is complete in {directory}, and current")
            }
            DrainResult::Incomplete { checkpoint, reason, .. } => {
                writeln!(to, "checkpoint {checkpoint} is not complete in {directory}: {}", printable(reason))
            }
            DrainResult::Failed { reason, .. } => writeln!(to, "the drain failed: {}", printable(reason)),
        }?;
        if !report.left.is_empty() {
            writeln!(to, "only the nodes have {}: nothing on them is deleted; {KEPT}", report.left_text())?;
        }
        if report.result.is_unwritable() {
            writeln!(to, "{}", DrainResult::MEND)?;
        }
        self.unplaced().iter().try_for_each(|unplaced| writeln!(to, "{}", printable(&unplaced.to_string())))
    }

    fn json(&self) -> Value {
        let report = self.0.as_ref();
        let reason = match report.map(|report| &report.result) {
            Some(DrainResult::Incomplete { reason, .. } | DrainResult::Failed { reason, .. }) => Some(reason.clone()),
            _ => self.doubt(),
        };
        document(json!({
            "checkpoint": self.checkpoint(),
            "directory": report.and_then(|report| report.directory.as_ref()),
            "complete": matches!(report.map(|report| &report.result), Some(DrainResult::Complete { .. })),
            "reason": reason,
            "copied_ranks": report.map(|report| &report.copied),
            "copied_bytes": report.map_or(0, |report| report.bytes),
            "rebuilt_ranks": report.map(|report| &report.rebuilt),
            "failed_nodes": report.map(|report| &report.failed_nodes),
            "left": report.map(|report| &report.left),
            "unplaced": self.unplaced(),
        }))
    }
}

/// The result of a dry run.
struct Previewed(Option<Preview>);

impl Report for Previewed {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        let Some(preview) = &self.0 else { return writeln!(to, "nothing to drain") };
        for (checkpoint, reason) in &preview.plan.damaged {
            let reason = printable(reason);
            writeln!(to, "checkpoint {checkpoint} was flushed, but its copy cannot be used: {reason}")?;
        }
        for (checkpoint, reason) in &preview.plan.skipped {
            writeln!(to, "checkpoint {checkpoint} would be skipped: {}", printable(reason))?;
        }
        match (preview.plan.candidates.first(), &preview.plan.remnant) {
            (Some(first), _) => writeln!(to, "checkpoint {} would be drained", first.checkpoint)?,
            (None, Some(remnant)) => {
                writeln!(to, "checkpoint {} would be drained as incomplete", remnant.checkpoint)?;
            }
            (None, None) => writeln!(to, "nothing would be drained")?,
        }
        let left = preview.plan.others.left(preview.plan.remnant.is_none());
        if !left.is_empty() {
            let ids: Vec<String> = left.iter().rev().map(ToString::to_string).collect();
            writeln!(to, "only the nodes have {}: they would be kept there; {KEPT}", ids.join(", "))?;
        }
        for (node, ranks) in preview.held.iter().filter(|(_, ranks)| !ranks.is_empty()) {
            let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
            writeln!(to, "  {node}: ranks {}", ranks.join(","))?;
        }
        preview.silent.iter().try_for_each(|node| writeln!(to, "  {node} does not answer"))
    }

    fn json(&self) -> Value {
        let plan = self.0.as_ref().map(|preview| &preview.plan);
        let candidates =
            plan.map(|plan| plan.candidates.iter().map(|candidate| candidate.checkpoint).collect::<Vec<_>>());
        let skipped = plan.map(|plan| {
            let skipped =
                |(checkpoint, reason): &(CheckpointId, String)| json!({"checkpoint": checkpoint, "reason": reason});
            plan.skipped.iter().map(skipped).collect::<Vec<_>>()
        });
        document(json!({
            "candidates": candidates,
            "remnant": plan.and_then(|plan| plan.remnant.as_ref()).map(|remnant| remnant.checkpoint),
            "flushed": plan.and_then(|plan| plan.flushed),
            "damaged": plan.map(|plan| &plan.damaged),
            "skipped": skipped,
            "nodes": self.0.as_ref().map(|preview| &preview.held),
        }))
    }
}
