//! Settings from outside of the spec that have no effect on this job, or an effect that the user may not expect.

use std::path::absolute;

use super::checkpoint_source::FROM_PREFIX;
use super::document::{Value, YamlNode};
use super::environment::Environment;
use super::job::{JobSpec, Step};
use super::registered::ManagerFacts;
use super::settings::Origin;
use super::validation;

/// The warnings of a spec. `unused` are the lines of tables for directories that the spec does not use.
pub(super) fn of(
    root: &YamlNode,
    spec: &JobSpec,
    manager: Option<&ManagerFacts>,
    environment: &Environment,
    unused: &[(String, Origin)],
) -> Vec<String> {
    let unused = unused.iter().map(|(line, origin)| {
        format!("{line} from {origin} has no effect: no cache or control directory of the job has this base")
    });
    let other_prefix = other_prefix(root, spec);
    let other_id = manager.and_then(|manager| other_id(manager, environment));
    let from_cache = spec.steps.iter().filter_map(|step| restarts_from_cache(spec, step));
    let not_resumed = spec.steps.iter().filter_map(watched_and_not_resumed);
    // Where it is not a mistake: by a parameter, or where `auto` selected the manager.
    let without_end = validation::without_end(spec, manager);
    let warnings = unused.chain(other_prefix).chain(other_id).chain(from_cache).chain(not_resumed).chain(without_end);
    warnings.chain(one_after_the_other(spec)).collect()
}

/// The commands of the job run around all of its steps, on all nodes: they keep the steps from running side by side.
fn one_after_the_other(spec: &JobSpec) -> Option<String> {
    let key =
        [("before", &spec.before), ("after", &spec.after)].into_iter().find(|(_, commands)| !commands.is_empty())?;
    let (one, other) = spec.independent_steps()?;
    Some(format!(
        "`{}` runs around all steps: `{}` and `{}`, which could run side by side, run one after the other. Write its \
        commands as a step that the others need",
        key.0, one.name, other.name
    ))
}

/// A parameter asks for restarts from the prefix directory, which this step cannot do. In the spec it is a mistake.
fn restarts_from_cache(spec: &JobSpec, step: &Step) -> Option<String> {
    let Origin::Parameter(parameter) =
        &spec.settings.get(&format!("{}checkpoint.{FROM_PREFIX}", step.key_path))?.origin
    else {
        return None;
    };
    let why = if step.checkpoint.flush.container.is_some() {
        "with `flush: {container: …}`".to_owned()
    } else {
        format!("with `source: {}`", step.checkpoint.source)
    };
    let has_no_effect = step.checkpoint.restart.from_prefix && !step.restarts_from_prefix();
    has_no_effect.then(|| format!("{parameter} has no effect {why}: ranks restart from files in cache"))
}

/// Several ranks begin again with the files that each wrote last: their steps may differ.
fn watched_and_not_resumed(step: &Step) -> Option<String> {
    let (checkpoint, path) = (&step.checkpoint, &step.key_path);
    let is_at_risk = checkpoint.watch.files.is_some() && checkpoint.resume.is_none() && step.run.ranks > 1;
    is_at_risk.then(|| {
        format!(
            "`{path}checkpoint.watch` without `resume`: after a relaunch each rank runs `{path}run.command` again, and \
            finds the file that it wrote last, not that of the checkpoint. Ranks that depend on each other would go on \
            from different steps: write `resume: [./app, \"$HOLDFAST_RESTART_DIR/state\"]`"
        )
    })
}

/// A parameter leads to another prefix directory than the one in the spec.
fn other_prefix(root: &YamlNode, spec: &JobSpec) -> Option<String> {
    let Value::Map(entries) = &root.value else { return None };
    let written = entries.iter().find(|entry| entry.key == "prefix")?;
    let Value::Scalar { text, .. } = &written.node.value else { return None };
    let Origin::Parameter(parameter) = &spec.settings.get("prefix")?.origin else { return None };
    let same = absolute(text).ok() == absolute(&spec.prefix).ok();
    (!same).then(|| {
        let (line, used) = (written.node.place.line, spec.prefix.display());
        format!("{parameter} takes precedence over `prefix: {text}` (line {line}): the prefix directory is {used}")
    })
}

/// `SCR_JOB_ID` is not the id of the resource manager, which names the directories.
fn other_id(manager: &ManagerFacts, environment: &Environment) -> Option<String> {
    let given = environment.identity.job_id.as_ref()?;
    let own = manager.variables.job_id(|name| environment.variable(name))?;
    let title = manager.title;
    (own != *given)
        .then(|| format!("SCR_JOB_ID={given} has no effect: directories have the id of the {title} job, {own}"))
}
