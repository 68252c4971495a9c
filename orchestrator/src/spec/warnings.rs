//! Settings from outside of the spec that have no effect on this job, or an effect that the user may not expect.

use std::path::absolute;

use super::document::{Value, YamlNode};
use super::environment::Environment;
use super::job::JobSpec;
use super::registered::ManagerFacts;
use super::settings::Origin;

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
    unused.chain(other_prefix).chain(other_id).collect()
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
