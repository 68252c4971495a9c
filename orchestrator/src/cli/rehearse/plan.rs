//! What a rehearsal runs: the user's job with a prefix directory of its own, less what reaches beyond it, and a fault.
//!
//! Pure, except for [`directory_of`].

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::cli::failure::Failure;
use crate::exit;
use crate::launch::registry::registered;
use crate::spec::quantity::{format_duration, parse_duration};
use crate::spec::{Environment, FaultAction, InjectedFault, JobSpec, NodeReference};

/// The fault of the options, with the defaults for what they leave out.
///
/// # Errors
/// The mistakes in them.
pub(super) fn fault(
    spec: &JobSpec,
    fault: &str,
    after: Option<&str>,
    is_virtual: bool,
) -> Result<InjectedFault, Failure> {
    let most_nodes = spec.steps.iter().map(|step| step.run.nodes).max().unwrap_or(1);
    let ranks = spec.steps.iter().map(|step| step.run.ranks).max().unwrap_or(1);
    let element = element(fault, after, most_nodes.min(2) - 1, ranks.min(2) - 1);
    // Which nodes there are is not known here.
    let allocation = if is_virtual { "manager: local, nodes: 1024" } else { "manager: slurm" };
    let text =
        format!("allocation: {{{allocation}, faults: [{{{element}}}]}}\nrun: {{ranks: {ranks}, command: [x]}}\n");
    let read = JobSpec::parse(&text, "--fault, --after", &Environment::empty(registered()))?;
    let read = read.allocation.faults.into_iter().next();
    read.ok_or_else(|| Failure::new(exit::USAGE, format!("`{{{element}}}` is no fault")).remedy("see `--help`"))
}

/// The fault as a spec has it: `fault` is an action, or keys with their values.
fn element(fault: &str, after: Option<&str>, node: u32, rank: u32) -> String {
    let written = if fault.contains(':') { fault.to_owned() } else { format!("action: {fault}") };
    let parts = written.split(',').map(|part| part.split_once(':').unwrap_or((part, "")));
    let keys: Vec<(&str, &str)> = parts.map(|(key, value)| (key.trim(), value.trim())).collect();
    let mut element = keys.iter().map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>().join(", ");
    let action = keys.iter().find(|(key, _)| *key == "action").map(|(_, action)| *action);
    let mut add = |key: &str, value: &str| {
        if keys.iter().all(|(written, _)| *written != key) {
            element.push_str(&format!(", {key}: {value}"));
        }
    };
    match action {
        Some("kill-rank") => add("rank", &rank.to_string()),
        Some("stall-prefix") => {}
        _ => add("node", &node.to_string()),
    }
    if matches!(action, Some("pause" | "stall-prefix")) {
        add("for", "10s");
    }
    let has_moment = ["after", "after_checkpoint", "after_output", "during"];
    let has_moment = keys.iter().any(|(key, _)| has_moment.contains(key));
    let Some(after) = after.or((!has_moment).then_some("1")) else { return element };
    let is_number = !after.is_empty() && after.bytes().all(|byte| byte.is_ascii_digit());
    match () {
        () if is_number => add("after_checkpoint", after),
        () if parse_duration(after).is_some() => add("after", after),
        () => add("after_output", &format!("'{}'", after.replace('\'', "''"))),
    }
    element
}

/// What a rehearsal changes in a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changes<'a> {
    /// The fault; `None` in the undisturbed run.
    pub(super) fault: Option<&'a InjectedFault>,
    /// The prefix directory.
    pub(super) prefix: &'a Path,
    /// Distinguishes control and cache directories from those of the job.
    pub(super) user: &'a str,
    /// On virtual nodes, whatever manager the spec names.
    pub(super) on_virtual_nodes: bool,
    /// It ends by itself, or is halted at this time.
    pub(super) until: SystemTime,
}

/// The job with these changes.
pub(super) fn changed(spec: &JobSpec, changes: &Changes<'_>) -> JobSpec {
    let Changes { fault, prefix, user, on_virtual_nodes, until } = *changes;
    let mut spec = spec.clone();
    let has_steps = !spec.has_short_form();
    for step in &mut spec.steps {
        // Also one whose own prefix directory is elsewhere.
        step.prefix = if has_steps { prefix.join(&step.name) } else { prefix.to_owned() };
    }
    spec.prefix = prefix.to_owned();
    (spec.requeue, spec.event_log) = (None, true);
    // They are about the job itself.
    spec.notify.clear();
    (spec.metrics.file, spec.metrics.listen) = (None, None);
    spec.keep_cache = crate::spec::KeepCache::None;
    spec.identity.user = Some(user.to_owned());
    spec.allocation.faults = fault.into_iter().cloned().collect();
    if on_virtual_nodes {
        use_virtual_nodes(&mut spec);
    }
    spec.halt.after = Some(spec.halt.after.map_or(until, |after| after.min(until)));
    spec
}

/// Has a job run on virtual nodes, one more than it needs.
fn use_virtual_nodes(spec: &mut JobSpec) {
    let Some(local) = registered().managers.iter().copied().find(|manager| manager.has_virtual_nodes()) else { return };
    let needed = spec
        .steps
        .iter()
        .map(|step| step.relaunch.min_nodes.map_or(step.run.nodes + 1, |fewest| step.run.nodes.max(fewest + 1)));
    let needed = needed.max().unwrap_or(1);
    let allocation = &mut spec.allocation;
    let is_local = allocation.manager.is_none_or(|manager| manager == local.name);
    let nodes = if is_local { allocation.nodes.max(needed) } else { needed };
    allocation.manager = Some(local.name);
    (allocation.nodes, allocation.usable) = (nodes, nodes);
    (allocation.hosts, allocation.exclude, allocation.only) = (Vec::new(), Vec::new(), Vec::new());
    allocation.time_limit = None;
    // One that belongs to another manager is replaced by the launcher of virtual nodes.
    for launcher in spec.steps.iter_mut().map(|step| &mut step.run.launcher) {
        *launcher = launcher
            .filter(|name| registered().launchers.iter().any(|facts| facts.name == *name && facts.suits(local)));
    }
}

/// Why the fault cannot be injected in this job, if that is known.
pub(super) fn obstacle(spec: &JobSpec, fault: &InjectedFault, is_virtual: bool) -> Option<String> {
    let nodes = match is_virtual {
        true => (0..spec.allocation.nodes).map(crate::spec::virtual_node).collect(),
        false => spec.allocation.hosts.clone(),
    };
    let node = fault.action.node().filter(|node| !nodes.is_empty() && node.find(&nodes).is_none())?;
    Some(match node {
        NodeReference::Position(number) => format!("there is no node {number}: the rehearsal has {}", nodes.len()),
        NodeReference::Name(name) => format!("there is no node {name} in the rehearsal"),
    })
}

/// The notes before the runs.
pub(super) fn notes(spec: &JobSpec, fault: &InjectedFault, limit: Duration, directory: &Path) -> Vec<String> {
    let mut notes = vec![
        format!("fault: {fault}"),
        format!("limit: the job is halted after {} at the latest", format_duration(limit)),
        format!("prefix directory of the rehearsal: {}", directory.display()),
        "the application runs as always: files that it writes itself, outside of the checkpoint API, are written"
            .to_owned(),
    ];
    if spec.requeue.is_some() {
        notes.push("nothing is submitted: `requeue` is left out".to_owned());
    }
    if matches!(fault.action, FaultAction::FillCache(..)) {
        notes.push("the file in the cache takes real space until the end of the rehearsal".to_owned());
    }
    notes
}

/// The working directory of the ranks.
pub(super) fn directory_of(spec: &JobSpec) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let written = spec.steps.last().and_then(|step| step.run.directory.clone());
    written.map_or_else(|| here.clone(), |directory| here.join(directory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::FaultMoment;
    use holdfast_model::{CheckpointId, Rank};

    const JOB: &str = "\
prefix: /pfs/heat
allocation: {manager: ssh, hosts: [n1, n2, n3]}
run: {nodes: 3, ranks_per_node: 2, launcher: ssh, command: [./heat]}
requeue: {command: [sbatch, job.sh]}
";

    fn job() -> JobSpec {
        JobSpec::of_test(JOB)
    }

    fn read(written: &str, after: &str) -> InjectedFault {
        fault(&job(), written, Some(after), false).unwrap_or_else(|failure| panic!("{}", failure.json()))
    }

    #[test]
    fn the_default_is_the_loss_of_the_second_node_after_the_first_checkpoint() {
        let node = NodeReference::Position(1);
        let first = FaultMoment::AfterCheckpoint(CheckpointId(1));
        assert_eq!(
            read("kill", "1"),
            InjectedFault { moment: first.clone(), action: FaultAction::Kill(node.clone()), step: None }
        );
        let rank = InjectedFault {
            moment: FaultMoment::After(Duration::from_secs(5)),
            action: FaultAction::KillRank(Rank(1)),
            step: None,
        };
        assert_eq!(read("kill-rank", "5s"), rank);
        let pause = FaultAction::Pause(NodeReference::Name("n3".into()), Duration::from_secs(2));
        let line = FaultMoment::AfterOutput("it's step [0-9]".to_owned());
        let written = read("action:pause,node: n3, for: 2s", "it's step [0-9]");
        assert_eq!(written, InjectedFault { moment: line, action: pause, step: None });
        let stall = FaultAction::StallPrefix(Duration::from_secs(10));
        assert_eq!(read("stall-prefix", "1"), InjectedFault { moment: first, action: stall, step: None });
        let moments = [("kill", "after checkpoint 1"), ("action: kill, during: encode", "during `encode`")];
        for (written, moment) in moments {
            let fault = fault(&job(), written, None, true).unwrap().to_string();
            assert!(fault.contains(moment), "{fault}");
        }
        for (written, mistake) in [("fill-cache", "`bytes` is missing"), ("kil", "kil")] {
            let refused = fault(&job(), written, None, false).unwrap_err();
            assert!(refused.json().to_string().contains(mistake), "{}", refused.json());
        }
    }

    #[test]
    fn a_rehearsal_shares_no_directory_with_the_job_and_submits_nothing() {
        let until = SystemTime::UNIX_EPOCH + Duration::from_secs(9);
        let fault = read("kill", "1");
        let changes = Changes {
            fault: Some(&fault),
            prefix: Path::new("/pfs/heat.rehearsal-1"),
            user: "u.rehearsal-1",
            on_virtual_nodes: true,
            until,
        };
        let rehearsed = changed(&job(), &changes);
        assert_eq!(rehearsed.prefix, changes.prefix);
        assert_eq!(rehearsed.steps[0].prefix, changes.prefix);
        assert!(rehearsed.requeue.is_none());
        assert_eq!(rehearsed.identity.user.as_deref(), Some(changes.user));
        assert_eq!((rehearsed.allocation.manager, rehearsed.allocation.nodes), (Some("local"), 4), "one is a spare");
        assert_eq!(rehearsed.halt.after, Some(until));
        assert_eq!(rehearsed.steps[0].run.launcher, None, "it cannot start ranks on virtual nodes");
        assert_eq!(rehearsed.allocation.faults, std::slice::from_ref(&fault));
        let undisturbed = changed(&job(), &Changes { fault: None, on_virtual_nodes: false, ..changes });
        assert!(undisturbed.allocation.faults.is_empty());
        assert_eq!(undisturbed.allocation.hosts.len(), 3);
        let missing = InjectedFault { action: FaultAction::Kill(NodeReference::Position(7)), ..fault };
        assert_eq!(obstacle(&rehearsed, &missing, true).unwrap(), "there is no node 7: the rehearsal has 4");
    }
}
