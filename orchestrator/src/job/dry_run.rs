//! The dry run: what `holdfast run` would start where. Changes nothing.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::path::Path;

use holdfast_model::{NodeName, Rank};
use rustix::fs::Access;
use rustix::io::Errno;

use super::error::RunError;
use super::excluded_nodes::ExcludedNodes;
use super::preflight::{Prepared, preflight};
use super::restart_choice::RunChoices;
use super::state::{JobState, Stage, StateError};
use super::state_file::JobLock;
use super::{failure_domains, replicated, restart_choice, start};
use crate::events::ranks_text;
use crate::relaunch::Exclusion;
use crate::relaunch::placement::{first_placement, numbered};
use crate::spec::{FailureDomains, JobSpec, RunSpec, Step, virtual_node};

/// What `holdfast run --dry-run` shows.
#[derive(Debug, Default)]
pub struct Plan {
    /// What would be started where.
    pub text: String,
    /// Why a run would begin nothing.
    pub refusal: Option<RunError>,
}

/// The plan of a run. Changes nothing.
///
/// # Errors
/// Those of the preflight checks.
pub fn plan(spec: &JobSpec, choices: &RunChoices) -> Result<Plan, RunError> {
    let mut plan = Plan::default();
    let here = env::current_dir().map_err(RunError::io("find the working directory"))?;
    let job_prefix = start::canonical(&here.join(&spec.prefix));
    plan.refuse(check_prefix(&job_prefix));
    plan.refuse(restart_choice::check(spec, choices));
    if let Some(pairs) = &spec.replicated {
        let (text, refusal) = replicated::plan(spec, pairs, &job_prefix, &choices.restart)?;
        plan.text.push_str(&text);
        plan.refuse(refusal.map_or(Ok(()), Err));
    }
    for fault in &spec.allocation.faults {
        plan.line(format_args!("fault to inject: {fault}"));
    }
    if let Some((one, other)) = spec.beside_each_other() {
        plan.line(format_args!(
            "steps of which none needs the other run side by side where there are nodes for both, as `{}` and `{}`",
            one.name, other.name
        ));
    }
    for step in &spec.steps {
        let prepared = preflight(spec, step)?;
        let Prepared { program, working_directory, .. } = &prepared;
        let prefix = start::canonical(&here.join(&step.prefix));
        plan.line(format_args!("{}: {} {}", step.name, program.display(), step.run.command[1..].join(" ")));
        plan.line(format_args!("  in {}, prefix {}", working_directory.display(), prefix.display()));
        let earlier = JobState::read(&prefix)?;
        // Of a job that is continued with its nodes, also those that its user excluded.
        let job_id = earlier.as_ref().filter(|state| state.has_nodes()).map_or("", |state| &state.agents.job_id);
        let nodes = planned_nodes(spec);
        let excluded = ExcludedNodes::new(spec, job_prefix.clone(), job_id, &nodes).read();
        let excluded = excluded.unwrap_or_else(|error| {
            plan.refuse(Err(error.into()));
            BTreeMap::new()
        });
        plan.nodes(step, &nodes, &spec.allocation.failure_domains, &excluded);
        failure_domains::levels(spec, step).iter().for_each(|line| plan.line(format_args!("  {line}")));
        let request = start::allocation_request(spec, &[&prepared], &job_prefix);
        let preview = (prepared.manager.preview)(&request)?;
        preview.lines.iter().for_each(|line| plan.line(format_args!("  {line}")));
        plan.refuse(preview.refusal.map_or(Ok(()), |refusal| Err(refusal.into())));
        if let Some(old) = earlier {
            plan.earlier_job(step, &prefix, &old);
            if old.is_finished(spec, step) && !choices.again {
                plan.line(format_args!("  was finished in an earlier run and would not run; `--again` repeats it"));
            }
        }
    }
    Ok(plan)
}

impl Plan {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// The ranks of each node.
    fn nodes(
        &mut self,
        step: &Step,
        nodes: &[NodeName],
        domains: &FailureDomains,
        excluded: &BTreeMap<NodeName, Exclusion>,
    ) {
        let usable: Vec<bool> = nodes.iter().map(|node| !excluded.contains_key(node)).collect();
        let RunSpec { ranks, ranks_per_node, nodes: used, .. } = step.run;
        let domains = numbered(nodes.iter().map(|node| domains.of(node)));
        let homes = first_placement(ranks, ranks_per_node, used, &usable, &domains).unwrap_or_default();
        for (index, node) in (0u32..).zip(nodes) {
            let ranks = (0u32..).zip(&homes).filter(|(_, home)| **home == index).map(|(rank, _)| Rank(rank));
            let ranks: Vec<Rank> = ranks.collect();
            match (excluded.get(node), ranks.is_empty()) {
                (Some(Exclusion { reason, .. }), _) => self.line(format_args!("  {node}: excluded: {reason}")),
                (None, true) => self.line(format_args!("  {node}: spare")),
                (None, false) => self.line(format_args!("  {node}: {}", ranks_text(&ranks))),
            }
        }
    }

    /// Keeps the first refusal.
    fn refuse(&mut self, checked: Result<(), RunError>) {
        self.refusal = self.refusal.take().or(checked.err());
    }

    /// The job whose state is in the prefix directory of a step.
    fn earlier_job(&mut self, step: &Step, prefix: &Path, old: &JobState) {
        let job_id = &old.agents.job_id;
        if JobLock::is_held(prefix) {
            let running = StateError::Running { prefix: prefix.to_owned(), pid: Some(old.orchestrator) };
            return self.refuse(Err(running.into()));
        }
        match &old.stage {
            Stage::Running if old.has_nodes() => {
                self.line(format_args!("  would take over job {job_id} in generation {}", old.generation()));
            }
            Stage::Undrained { reason, .. } if old.has_nodes() => {
                self.line(format_args!("  would first drain job {job_id}: {reason}"));
            }
            Stage::Kept { .. } if old.has_nodes() && restart_choice::is_drained_for(step, old) => {
                self.line(format_args!("  would first drain job {job_id}: it has another number of ranks"));
            }
            Stage::Kept { .. } if old.has_nodes() => self.line(format_args!(
                "  would continue after generation {} with the caches that job {job_id} left in {}",
                old.generation(),
                old.allocation.place()
            )),
            Stage::Running | Stage::Undrained { .. } | Stage::Kept { .. } | Stage::Finished { .. } => {}
        }
    }
}

/// The nodes by their names, or as virtual nodes while these are not known.
fn planned_nodes(spec: &JobSpec) -> Vec<NodeName> {
    let name = |index: u32| spec.allocation.hosts.get(index as usize).cloned().unwrap_or_else(|| virtual_node(index));
    (0..spec.allocation.nodes).map(name).collect()
}

/// Checks that the prefix directory, or the directory in which it would be made, can be written to.
fn check_prefix(prefix: &Path) -> Result<(), RunError> {
    let existing = prefix.ancestors().find(|above| above.exists()).unwrap_or(prefix);
    let usable = match existing.is_dir() {
        true => rustix::fs::access(existing, Access::WRITE_OK | Access::EXEC_OK),
        false => Err(Errno::NOTDIR),
    };
    usable.map_err(|errno| RunError::PrefixUnusable { path: existing.to_owned(), source: errno.into() })
}
