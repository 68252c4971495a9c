//! Checks across sections.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_core::redundancy::groups::GroupRules;
use holdfast_core::redundancy::registry;
use holdfast_patterns::FilePatterns;

use holdfast_wire::run::NODE_PLACEHOLDER;

use super::allocation::virtual_node;
use super::checkpoint::{Checkpoint, CheckpointSource, Redundancy};
use super::reading::Reader;
use super::registered::ManagerFacts;
use super::{JobSpec, RunSpec, Step, Submission};
use super::{jubatus, library_parameters, quantity};

/// Adds the mistakes, each at the position of the key that is most likely wrong.
pub(super) fn check(spec: &JobSpec, manager: Option<&ManagerFacts>, reader: &Reader) {
    check_name(reader, "job", &spec.job);
    check_steps(spec, manager, reader);
    check_faults(spec, reader);
    if let (Some(requeue), Some(manager)) = (&spec.requeue, spec.allocation.manager)
        && requeue.submission == Submission::Slurm
        && manager != "slurm"
    {
        let message = format!("`slurm` has no effect with `manager: {manager}`");
        reader.mistake("requeue.slurm", message, "write `requeue: {command: […]}`, or remove it");
    }
    if let (Some(limit), before_end) = (spec.allocation.time_limit, spec.halt.before_end)
        && before_end >= limit
    {
        let message = format!(
            "`before_end` ({}) is not shorter than `allocation.time_limit` ({}): the job would stop at once",
            quantity::format_duration(before_end),
            quantity::format_duration(limit)
        );
        reader.mistake("halt.before_end", message, "make it shorter, or leave `time_limit` out");
    }
    if let (Some(limit), Some(reserve)) = (spec.allocation.time_limit, spec.halt.drain_reserve)
        && reserve >= limit
    {
        let message = format!(
            "`drain_reserve` ({}) is not shorter than `allocation.time_limit` ({}): nothing would be launched",
            quantity::format_duration(reserve),
            quantity::format_duration(limit)
        );
        reader.mistake("halt.drain_reserve", message, "make it shorter, or leave it out");
    }
    check_min_nodes(spec, reader);
}

fn check_min_nodes(spec: &JobSpec, reader: &Reader) {
    let most_nodes = spec.steps.iter().map(|step| step.run.nodes).max().unwrap_or(1);
    let min_nodes = spec.relaunch.min_nodes.unwrap_or(most_nodes);
    if spec.relaunch.min_nodes.is_some() && min_nodes > spec.allocation.nodes {
        let message = format!("{min_nodes} nodes are more than the allocation has ({})", spec.allocation.nodes);
        let help = format!("write a number from 1 to {}", spec.allocation.nodes);
        reader.mistake("relaunch.min_nodes", message, help);
    }
    let Some(most_ranks) = spec.relaunch.max_ranks_per_node else { return };
    let key = "relaunch.max_ranks_per_node";
    if min_nodes >= most_nodes {
        let help = format!("write `min_nodes` with a number below {most_nodes}, or leave it out");
        reader.mistake(
            key,
            "`max_ranks_per_node` has no effect without a `min_nodes` below the nodes of the run",
            help,
        );
        return;
    }
    for step in spec.steps.iter().filter(|step| step.run.nodes > min_nodes) {
        let RunSpec { ranks, ranks_per_node, .. } = step.run;
        let room = u64::from(most_ranks) * u64::from(min_nodes);
        if most_ranks < ranks_per_node || room < u64::from(ranks) {
            let message = format!("{ranks} ranks do not fit on {min_nodes} nodes with at most {most_ranks} ranks each");
            let needed = ranks.div_ceil(min_nodes).max(ranks_per_node);
            reader.mistake(key, message, format!("write at least {needed}, or raise `min_nodes`"));
            return;
        }
    }
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

fn check_steps(spec: &JobSpec, manager: Option<&ManagerFacts>, reader: &Reader) {
    let short_form = spec.has_short_form();
    let mut earlier: BTreeSet<&str> = BTreeSet::new();
    for (at, step) in spec.steps.iter().enumerate() {
        let path = if short_form { String::new() } else { format!("steps[{at}].") };
        if !short_form && !step.name.is_empty() {
            let key = format!("{path}name");
            check_name(reader, &key, &step.name);
            if earlier.contains(step.name.as_str()) {
                reader.mistake(&key, format!("a second step named `{}`", step.name), "give each step its own name");
            }
        }
        earlier.insert(&step.name);
        check_nodes(spec, step, manager, &path, reader);
        check_checkpoint(step, &path, reader);
        if step.checkpoint.source == CheckpointSource::ScrFiles {
            check_library(step, &path, reader);
        }
        if step.checkpoint.source == CheckpointSource::Command {
            check_saving(step, &path, reader);
        }
        if step.checkpoint.source == CheckpointSource::Jubatus {
            jubatus::check(step, &path, reader);
        }
        check_patterns(step, &path, reader);
        check_silence(spec, step, &path, reader);
        check_control(spec, at, reader);
    }
}

/// A program needs exactly one way in which its files come about.
fn check_saving(step: &Step, path: &str, reader: &Reader) {
    let (command, watch) = (&step.checkpoint.command, &step.checkpoint.watch);
    let ways = [
        ("command.save", command.save.is_some()),
        ("command.signal", command.signal.is_some()),
        ("watch.files", watch.files.is_some()),
    ];
    let written: Vec<&str> = ways.iter().filter(|(_, is_set)| *is_set).map(|(key, _)| *key).collect();
    match written[..] {
        [_] => {}
        [] => {
            let help = "write `command: {save: [./save.sh]}`, `command: {signal: USR1, until: file DONE}` or \
                        `watch: {files: [\"state/*.ckpt\"]}`";
            let message = "`source: command` needs a command, a signal or files to watch";
            reader.mistake(&format!("{path}checkpoint.source"), message, help);
        }
        [first, second, ..] => {
            let message = format!("`{first}` and `{second}` exclude each other");
            reader.mistake(&format!("{path}checkpoint.{second}"), message, "remove one of them");
        }
    }
    let is_empty = |words: &Vec<String>| words.first().is_none_or(|word| word.trim().is_empty());
    if step.checkpoint.resume.as_ref().is_some_and(is_empty) {
        let help = "write the program and its arguments, or leave `resume` out";
        reader.mistake(&format!("{path}checkpoint.resume"), "the command is empty", help);
    }
}

/// Programs that do not use the API are silent between two checkpoints, which must not count as a hang. Servers are
/// also idle while they have no clients, and ranks while they wait for a server.
fn check_silence(spec: &JobSpec, step: &Step, path: &str, reader: &Reader) {
    let Checkpoint { source, command, watch, jubatus, .. } = &step.checkpoint;
    let (limit, after, silences) = match source {
        CheckpointSource::Jubatus => {
            let timeouts = [("timeout", jubatus.timeout), ("start_timeout", jubatus.start_timeout)];
            let silences = [("every", jubatus.every)].into_iter().chain(timeouts);
            (
                "hang_after",
                spec.health.hang_after,
                silences.map(|(key, time)| (format!("jubatus.{key}"), time)).collect(),
            )
        }
        CheckpointSource::Command if watch.files.is_none() => {
            ("busy_hang_after", spec.health.busy_hang_after, vec![("command.every".to_owned(), command.every)])
        }
        _ => return,
    };
    let silences: Vec<(String, Duration)> = silences;
    let Some(after) = after else { return };
    let Some((key, silence)) = silences.into_iter().max_by_key(|(_, time)| *time) else { return };
    if after <= silence {
        let (after, silence) = (quantity::format_duration(after), quantity::format_duration(silence));
        let message = format!(
            "`{path}checkpoint.{key}` ({silence}) is not shorter than `{limit}` ({after}): the time between two \
             checkpoints would count as a hang"
        );
        let help = format!("make `{limit}` longer, or `{key}` shorter");
        reader.mistake(&format!("health.{limit}"), message, help);
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

fn check_nodes(spec: &JobSpec, step: &Step, manager: Option<&ManagerFacts>, path: &str, reader: &Reader) {
    let needed = spec.relaunch.min_nodes.map_or(step.run.nodes, |fewest| fewest.min(step.run.nodes));
    let (nodes, available) = (spec.allocation.nodes, spec.allocation.usable);
    if needed > available {
        let message = match nodes - available {
            0 => format!("the run needs {needed} nodes, the allocation has {available}"),
            excluded => {
                format!("the run needs {needed} nodes, the allocation has {nodes}, {excluded} of them excluded")
            }
        };
        let more = manager
            .map(|manager| format!("{}, or ", (manager.more_nodes)(needed + nodes - available)))
            .unwrap_or_default();
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
        let Redundancy { scheme, set_size, hop_distance, .. } = *descriptor;
        if registry::get(scheme)
            .is_some_and(|known| known.check(GroupRules { scheme, hop_distance, set_size }).is_err())
        {
            let message = format!("with {scheme}, a set of {set_size} protects nothing");
            reader.mistake(&key("set_size"), message, "write at least 2 (4 to 16 are usual), or `scheme: local`");
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

/// What LLNL's library cannot do.
fn check_library(step: &Step, path: &str, reader: &Reader) {
    let Checkpoint { control, cache, .. } = &step.checkpoint;
    let caches = (0..).zip(cache).map(|(at, cache)| (format!("cache[{at}].base"), &cache.base));
    for (key, base) in std::iter::once(("control.base".to_owned(), &control.base)).chain(caches) {
        if base.to_string_lossy().contains(NODE_PLACEHOLDER) {
            let message = format!("`{NODE_PLACEHOLDER}` cannot be used with `source: scr-files`");
            let help = "the library uses the same path on every node: write one";
            reader.mistake(&format!("{path}checkpoint.{key}"), message, help);
        }
        // A line of its configuration file ends a value at a blank.
        if base.to_string_lossy().contains([' ', '\t', '=', '#']) {
            let message = format!("the library cannot read the path `{}`", base.display());
            reader.mistake(&format!("{path}checkpoint.{key}"), message, "use one without blanks, `=` and `#`");
        }
    }
    // With several caches or descriptors the ranks get a file of Holdfast.
    let file = library_parameters::needs_file(&step.checkpoint).then_some(&library_parameters::USER_FILE);
    let names = library_parameters::NAMES.iter().chain(file);
    for name in names.filter(|name| step.run.env.contains_key(**name)) {
        let message = format!("`{name}` would contradict the settings of the job");
        let help = "leave it out: with `source: scr-files` the ranks get it from the keys of this spec";
        reader.mistake(&format!("{path}run.env"), message, help);
    }
}

fn check_faults(spec: &JobSpec, reader: &Reader) {
    let nodes = spec.allocation.nodes;
    for (at, fault) in spec.allocation.faults.iter().enumerate() {
        if !(0..nodes).any(|index| virtual_node(index) == fault.node) {
            let message = format!("there is no virtual node `{}`", fault.node);
            let help = format!("there are {nodes}: `{}` to `{}`", virtual_node(0), virtual_node(nodes - 1));
            reader.mistake(&format!("allocation.chaos[{at}].node"), message, help);
        }
    }
}
