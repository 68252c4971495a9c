//! Checks across sections.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use holdfast_core::redundancy::groups::GroupRules;
use holdfast_core::redundancy::registry;
use holdfast_model::DataPlane;
use holdfast_patterns::FilePatterns;

use super::checkpoint::Checkpoint;
use super::checkpoint_source::StepCheck;
use super::environment::{Environment, PLAIN_DATA, SYSTEM_FILE};
use super::faults;
use super::frequency;
use super::job::{JobSpec, Step};
use super::quantity;
use super::reading::Reader;
use super::registered::{ManagerFacts, NodeCount};
use super::run::RunSpec;
use super::supervision::{Requeue, Submission};

/// Adds the mistakes, each at the position of the key that is most likely wrong.
pub(super) fn check(spec: &JobSpec, manager: Option<&ManagerFacts>, environment: &Environment, reader: &Reader) {
    check_name(reader, "job", &spec.job);
    check_steps(spec, reader);
    if !environment.allows_plain_data {
        spec.steps.iter().for_each(|step| check_data_plane(step, reader));
    }
    if environment.checks_nodes {
        spec.steps.iter().for_each(|step| check_nodes(spec, step, manager, reader));
    }
    for (key, message, help) in spec.allocation.settings.iter().flat_map(|keys| keys.mistakes(spec.allocation.nodes)) {
        reader.mistake(&format!("allocation.{key}"), message, help);
    }
    if let Some(manager) = manager {
        for (key, message, help) in faults::mistakes(&spec.allocation, manager, &spec.steps) {
            reader.mistake(&key, message, help);
        }
    }
    if let (Some(Requeue { submission: Submission::ByManager(name), .. }), Some(manager)) =
        (&spec.requeue, spec.allocation.manager)
        && manager != *name
    {
        let message = format!("`{name}` has no effect with `manager: {manager}`");
        reader.mistake(&format!("requeue.{name}"), message, "write `requeue: {command: […]}`, or remove it");
    }
    let halt = &spec.halt;
    for (key, time, result, help) in [
        (
            "before_end",
            Some(halt.before_end),
            "the job would stop at once",
            "make it shorter, or leave `time_limit` out",
        ),
        ("drain_reserve", halt.drain_reserve, "nothing would be launched", "make it shorter, or leave it out"),
    ] {
        if let (Some(limit), Some(time)) = (spec.allocation.time_limit, time)
            && time >= limit
        {
            let (time, limit) = (quantity::format_duration(time), quantity::format_duration(limit));
            let message = format!("`{key}` ({time}) is not shorter than `allocation.time_limit` ({limit}): {result}");
            reader.mistake(&format!("halt.{key}"), message, help);
        }
    }
    if spec.allocation.manager.is_some()
        && reader.is_decided("halt.before_end")
        && let Some(message) = without_end(spec, manager)
    {
        reader.mistake("halt.before_end", message, "write `allocation: {time_limit: 8h}`, or `halt: {before: …}`");
    }
    check_min_nodes(spec, reader);
}

/// Whether data may be sent without protection from an attacker, the site decides, not the user.
fn check_data_plane(step: &Step, reader: &Reader) {
    if step.checkpoint.data_plane == DataPlane::Plain {
        let message = format!("`plain` is not allowed here: the site's file has no `{PLAIN_DATA}=1`");
        let help = format!("write `authenticated`, or have the site add the line to {SYSTEM_FILE}");
        reader.mistake(&format!("{}checkpoint.data_plane", step.key_path), message, help);
    }
}

/// Why a halt before the end of the allocation never comes: the manager knows no end, and the spec has none.
pub(super) fn without_end(spec: &JobSpec, manager: Option<&ManagerFacts>) -> Option<String> {
    let manager = manager.filter(|manager| manager.nodes != NodeCount::Variables)?;
    let is_used = !spec.halt.before_end.is_zero() && spec.halt.before.is_none();
    (is_used && spec.allocation.time_limit.is_none()).then(|| {
        format!("`before_end` has no effect: the end of the allocation is not known with `manager: {}`", manager.name)
    })
}

fn check_min_nodes(spec: &JobSpec, reader: &Reader) {
    let most_nodes = spec.steps.iter().map(|step| step.run.nodes).max().unwrap_or(1);
    let min_nodes = spec.relaunch.min_nodes.unwrap_or(most_nodes);
    if spec.relaunch.min_nodes.is_some() && min_nodes > spec.allocation.nodes {
        let message = format!("{min_nodes} nodes are more than the allocation has ({})", spec.allocation.nodes);
        let help = format!("write a number from 1 to {}", spec.allocation.nodes);
        reader.mistake("relaunch.min_nodes", message, help);
    }
    if spec.relaunch.max_ranks_per_node.is_some() && min_nodes >= most_nodes {
        has_no_room(most_nodes, "relaunch.max_ranks_per_node", reader);
    }
    let mut reported = BTreeSet::new();
    for step in &spec.steps {
        let RunSpec { nodes, ranks, ranks_per_node, .. } = step.run;
        // The key of the step, if it has its own.
        let key = |name: &str| match format!("{}relaunch.{name}", step.key_path) {
            own if reader.is_decided(&own) => own,
            _ => format!("relaunch.{name}"),
        };
        let min_nodes = step.relaunch.min_nodes.unwrap_or(nodes);
        let (of_min, of_most) = (key("min_nodes"), key("max_ranks_per_node"));
        if of_min != "relaunch.min_nodes" && min_nodes > nodes {
            let message = format!("{min_nodes} nodes are more than the step uses ({nodes})");
            reader.mistake(&of_min, message, format!("write a number from 1 to {nodes}"));
        }
        let Some(most_ranks) = step.relaunch.max_ranks_per_node else { continue };
        if min_nodes >= nodes {
            if of_most != "relaunch.max_ranks_per_node" {
                has_no_room(nodes, &of_most, reader);
            }
            continue;
        }
        let room = u64::from(most_ranks) * u64::from(min_nodes);
        if (most_ranks < ranks_per_node || room < u64::from(ranks)) && reported.insert(of_most.clone()) {
            let message = format!("{ranks} ranks do not fit on {min_nodes} nodes with at most {most_ranks} ranks each");
            let needed = ranks.div_ceil(min_nodes).max(ranks_per_node);
            reader.mistake(&of_most, message, format!("write at least {needed}, or raise `min_nodes`"));
        }
    }
}

fn has_no_room(nodes: u32, key: &str, reader: &Reader) {
    let help = format!("write `min_nodes` with a number below {nodes}, or leave it out");
    let message = "`max_ranks_per_node` has no effect without a `min_nodes` below the nodes of the run";
    reader.mistake(key, message, help);
}

/// Names become part of paths.
fn check_name(reader: &Reader, key: &str, name: &str) {
    let plain = !name.is_empty()
        && name.len() <= 100
        && !name.starts_with(['.', '-'])
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '+'));
    if !plain {
        let message = format!("`{}` cannot be part of a path", name.escape_debug());
        reader.mistake(
            key,
            message,
            "use letters, digits, `.`, `-` and `_`, at most 100, the first a letter or a digit",
        );
    }
}

fn check_steps(spec: &JobSpec, reader: &Reader) {
    let short_form = spec.has_short_form();
    let mut earlier: BTreeSet<&str> = BTreeSet::new();
    for (at, step) in spec.steps.iter().enumerate() {
        let path = &step.key_path;
        if !short_form && !step.name.is_empty() {
            let key = format!("{path}name");
            check_name(reader, &key, &step.name);
            if earlier.contains(step.name.as_str()) {
                reader.mistake(&key, format!("a second step named `{}`", step.name), "give each step its own name");
            }
        }
        earlier.insert(&step.name);
        if !short_form {
            check_prefix(spec, at, reader);
        }
        check_checkpoint(step, path, reader);
        let Step { run, checkpoint, source, .. } = step;
        let JobSpec { health, progress, .. } = spec;
        let checked = StepCheck { checkpoint, run, health, progress, key_path: path, reader };
        frequency::check(&checked, source.facts.agent.name, &source.facts.frequency);
        (source.check)(&checked);
        check_patterns(step, path, reader);
        check_control(spec, at, reader);
    }
}

/// Each step has a state, an index and checkpoints of its own.
fn check_prefix(spec: &JobSpec, at: usize, reader: &Reader) {
    let step = &spec.steps[at];
    let key = format!("{}prefix", step.key_path);
    if step.prefix.components().any(|part| matches!(part, Component::ParentDir)) {
        return reader.mistake(&key, "`..` in the prefix directory of a step", "write an absolute path instead");
    }
    let is_around = |one: &Path, other: &Path| other.starts_with(one);
    let other = spec.steps[..at]
        .iter()
        .find(|other| is_around(&other.prefix, &step.prefix) || is_around(&step.prefix, &other.prefix));
    let found = if is_around(&step.prefix, &spec.prefix) {
        Some("of the job is the same, or is in it".to_owned())
    } else {
        other.map(|other| format!("of `{}` is the same, or one is in the other", other.name))
    };
    if let Some(found) = found {
        let message = format!("the prefix directory {}: that {found}", step.prefix.display());
        reader.mistake(&key, message, "give each step a directory of its own: by default it is its name");
    }
}

/// Every rank takes part in a checkpoint, which is complete when its files are closed.
fn check_patterns(step: &Step, path: &str, reader: &Reader) {
    let patterns = step.checkpoint.interpose.files.as_ref().and_then(|text| text.parse::<FilePatterns>().ok());
    if let Some(rank) = patterns.and_then(|patterns| patterns.uncovered(step.run.ranks)) {
        let message = format!("there is no expression for rank {rank}");
        let help = "write a range of ranks for which it is: `0-N:` is all of them";
        reader.mistake(&format!("{path}checkpoint.interpose.files"), message, help);
    }
}

fn check_nodes(spec: &JobSpec, step: &Step, manager: Option<&ManagerFacts>, reader: &Reader) {
    let path = &step.key_path;
    let needed = step.nodes_needed();
    let (nodes, available) = (spec.allocation.nodes, spec.allocation.usable);
    if needed > available {
        let message = match nodes - available {
            0 => format!("the run needs {needed} nodes, the allocation has {available}"),
            excluded => {
                format!("the run needs {needed} nodes, the allocation has {nodes}, {excluded} of them excluded")
            }
        };
        let more = match manager {
            _ if !spec.allocation.only.is_empty() => "list more in `allocation.only` (SCR_NODELIST), or ".to_owned(),
            Some(manager) => format!("{}, or ", (manager.more_nodes)(needed + nodes - available)),
            None => String::new(),
        };
        let help = format!("{more}lower `{path}run.nodes`");
        let key = format!("{path}run.nodes");
        // The number may follow from `ranks`.
        let key = if reader.is_written(&key) { key } else { format!("{path}run.ranks") };
        reader.mistake(&key, message, help);
    }
}

/// All steps share the agents, and these have one control directory.
fn check_control(spec: &JobSpec, at: usize, reader: &Reader) {
    let (first, step) = (&spec.steps[0], &spec.steps[at]);
    let control = &step.checkpoint.control;
    if *control == first.checkpoint.control {
        return;
    }
    let message =
        format!("the control directory differs from that of step `{}`; all steps share one agent a node", first.name);
    // If the key is not written in this step, the mistake is in the first step.
    let here = format!("steps[{at}].checkpoint.control");
    let key = if reader.is_decided(&here) { here } else { "steps[0].checkpoint.control".to_owned() };
    reader.mistake(&key, message, "write the same `base` and `bytes` in every step, or leave them out everywhere");
}

fn check_checkpoint(step: &Step, path: &str, reader: &Reader) {
    let Checkpoint { control, cache, redundancy, .. } = &step.checkpoint;
    let absolute = |key: String, base: &std::path::Path| {
        let plain = base.is_absolute()
            && base.components().all(|part| !matches!(part, std::path::Component::ParentDir))
            && base.to_str().is_some();
        if !plain {
            let message = format!("`{}` is not an absolute path without `..`", base.display());
            reader.mistake(&key, message, "write a path that exists on every node, such as `/tmp` or `/dev/shm`");
        }
    };
    absolute(format!("{path}checkpoint.control.base"), &control.base);
    let mut bases = BTreeSet::new();
    for (at, cache) in cache.iter().enumerate() {
        let key = format!("{path}checkpoint.cache[{at}].base");
        absolute(key.clone(), &cache.base);
        if !bases.insert(&cache.base) {
            let message = format!("a second cache with the base `{}`", cache.base.display());
            reader.mistake(&key, message, "keep one of them");
        }
    }
    let mut intervals = BTreeSet::new();
    for (at, descriptor) in redundancy.iter().enumerate() {
        let key = |name: &str| format!("{path}checkpoint.redundancy[{at}].{name}");
        if let Err(refused) = registry::check(GroupRules { scheme: descriptor.scheme, numbers: &descriptor.numbers }) {
            let message = format!("with {}, {}", refused.scheme, refused.why);
            reader.mistake(&key(refused.number.key), message, refused.help);
        }
        if !bases.contains(&descriptor.cache) {
            let message = format!("there is no cache with the base `{}`", descriptor.cache.display());
            let known: Vec<String> = bases.iter().map(|base| base.display().to_string()).collect();
            reader.mistake(&key("cache"), message, format!("caches: {}", known.join(", ")));
        }
        if descriptor.enabled && !intervals.insert(descriptor.every) {
            let message = format!("a second descriptor with `every: {}` would never be used", descriptor.every);
            reader.mistake(&key("every"), message, "give each descriptor a different `every`");
        }
    }
    // Every checkpoint id needs a descriptor.
    if !redundancy.is_empty() && !intervals.contains(&1) {
        let message = "no descriptor has `every: 1`: some checkpoints would have no descriptor";
        reader.mistake(&format!("{path}checkpoint.redundancy"), message, "write `every: 1` in one of them");
    }
}
