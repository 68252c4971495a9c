//! The settings of the relaunch loop and of the agents, from the job spec.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_core::redundancy::numbers::SchemeNumber;
use holdfast_core::redundancy::registry;
use holdfast_model::{Descriptor, HaltChange, Level, LevelPolicy, NodeName, RestartPolicy, VariablesPolicy};
use holdfast_rank::RankSettings;
use holdfast_wire::run;

use crate::drain::CopySettings;
use crate::relaunch::config::{AllocatedNode, Config};
use crate::spec::{Checkpoint, FailureDomains, JobSpec, Step};

/// The relaunch loop's configuration. `started` and `end` are seconds since the epoch.
pub fn config(
    spec: &JobSpec,
    step: &Step,
    nodes: &[NodeName],
    domains: &FailureDomains,
    started: i64,
    end: Option<i64>,
) -> Config {
    let node = |name: &NodeName| AllocatedNode { name: name.clone(), failure_domain: domains.of(name) };
    let nodes = nodes.iter().map(node).collect();
    let mut config = Config::new(nodes, step.run.nodes, step.run.ranks_per_node);
    config.ranks = step.run.ranks;
    config.min_nodes = step.relaunch.min_nodes.unwrap_or(step.run.nodes);
    config.max_ranks_per_node = step.relaunch.max_ranks_per_node;
    config.before = !spec.before.is_empty();
    config.attempts = step.relaunch.attempts;
    config.no_progress_limit = step.relaunch.no_progress_limit;
    config.checks_progress = spec.progress.is_used();
    config.settle = step.relaunch.settle;
    config.poll = spec.health.poll;
    config.down_after = spec.health.down_after;
    // Without the key, that of the configuration.
    config.replace_after = spec.health.replace_after.unwrap_or(config.replace_after).max(config.down_after);
    config.replaces_stopped = spec.health.replace_after.is_none();
    config.hang_after = spec.health.hang_after;
    config.busy_hang_after = spec.health.busy_hang_after;
    for rule in &step.relaunch.on_exit_code {
        for code in &rule.codes {
            // The first rule with a code applies.
            config.exit_codes.entry(i32::from(*code)).or_insert(rule.action);
        }
    }
    config.started = started;
    config.allocation_end = end;
    config.before_end = spec.halt.before_end;
    config.halt_grace = spec.halt.grace;
    config.drain_reserve = spec.halt.drain_reserve;
    let source = step.source.facts.agent;
    config.library_control = source.is_library.then(|| step.checkpoint.control.base.to_string_lossy().into_owned());
    config.source_reports_progress = source.reports_progress;
    let calls = step.has_calls_of_program();
    config.silent_api_after = spec.health.silent_api_after.filter(|_| calls);
    config.waiting_after = spec.health.waiting_after;
    config.mpi_start = calls;
    config
}

/// The settings of the rank processes; `None` if the launcher starts the program itself.
pub fn rank_settings(spec: &JobSpec, step: &Step) -> Option<RankSettings> {
    let saver = (step.source.saver)(&step.checkpoint)?;
    Some(RankSettings { saver, resume: step.checkpoint.resume.clone(), grace: spec.halt.grace })
}

/// The checkpoint settings of all agents; each replaces `{node}` with its node's name.
pub fn settings(spec: &JobSpec, step: &Step, prefix: &Path, end: Option<i64>) -> run::Settings {
    let checkpoint = &step.checkpoint;
    let caches = checkpoint.cache.iter().map(|cache| run::Cache { base: text(&cache.base), keep: cache.keep });
    run::Settings {
        prefix: prefix.to_owned(),
        caches: caches.collect(),
        descriptors: descriptors(step),
        levels: (0u32..)
            .zip(checkpoint.redundancy.iter().map(|redundancy| redundancy.policy))
            .filter(|(_, policy)| *policy != LevelPolicy::default())
            .collect(),
        restart: RestartPolicy { from_prefix: step.restarts_from_prefix(), ..checkpoint.restart },
        flush: checkpoint.flush,
        crc: checkpoint.crc,
        source: run::SourceName(checkpoint.source.to_owned()),
        need: checkpoint.need_in_force(),
        schedule: (step.source.schedule)(checkpoint),
        variables: VariablesPolicy { snapshots: checkpoint.snapshots_in_force(), ..checkpoint.variables },
        halt_seconds: spec.halt.before_end.as_secs(),
        allocation_end: end,
        piece_bytes: size(checkpoint.piece_size),
        copy_bytes: size(checkpoint.copy_buffer),
        copy_threads: checkpoint.copy_threads,
        redundancy_width: checkpoint.redundancy_width,
        stream_timeout: checkpoint.stream_timeout,
        data_plane: checkpoint.data_plane,
        watchdog: spec
            .health
            .hang_after
            .map(|hang_after| run::Watchdog { hang_after, busy_hang_after: spec.health.busy_hang_after }),
        newest: None,
        mtbf: None,
        ignored: BTreeSet::new(),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The redundancy descriptors in force.
pub fn descriptors(step: &Step) -> Vec<Descriptor> {
    let requested = (0u32..).zip(&step.checkpoint.redundancy).map(|(index, redundancy)| Descriptor {
        index,
        enabled: redundancy.enabled,
        base: text(&redundancy.cache),
        scheme: redundancy.scheme,
        interval: redundancy.every,
        numbers: redundancy.numbers.clone(),
    });
    let requested = requested.collect();
    if step.source.facts.has_levels { with_all_levels(requested) } else { requested }
}

/// Adds a descriptor for each level of checkpoints of variables that has none, with the defaults and the cache of the
/// first.
fn with_all_levels(mut descriptors: Vec<Descriptor>) -> Vec<Descriptor> {
    let Some(first) = descriptors.first().cloned() else { return descriptors };
    for level in Level::ALL {
        let scheme = registry::of_level(level);
        if !descriptors.iter().any(|each| registry::serves(each.scheme, level)) {
            let index = u32::try_from(descriptors.len()).unwrap_or(u32::MAX);
            // Selected by the level that the program requests, never by id.
            let of_first = |number: &&SchemeNumber| (number.name, number.of(&first.numbers));
            let numbers = registry::numbers_of(scheme).iter().map(of_first).collect();
            let added = Descriptor { index, scheme, numbers, interval: 1, enabled: true, ..first.clone() };
            descriptors.push(added);
        }
    }
    descriptors
}

/// How a drain copies files.
pub(super) fn copies(checkpoint: &Checkpoint) -> CopySettings {
    CopySettings {
        crc: checkpoint.crc.on_flush,
        buffer_bytes: size(checkpoint.copy_buffer),
        threads: checkpoint.copy_threads,
        container: checkpoint.drain.container,
        keep: checkpoint.flush.keep,
    }
}

/// A size in memory; the spec's limits are far below the largest.
pub(super) fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The halt conditions of the spec, to be set in the halt files once; `None` if there are none.
pub fn halt_conditions(spec: &JobSpec) -> Option<HaltChange> {
    let halt = &spec.halt;
    let before = halt.before.map(epoch);
    let change = HaltChange {
        reason: None,
        checkpoints_left: halt.checkpoints_left.map(|left| i64::try_from(left).unwrap_or(i64::MAX)),
        after: halt.after.map(epoch),
        before,
        // The agents get `before_end` with the settings; with `before`, it must be in the halt file too.
        seconds: before.and_then(|_| i64::try_from(halt.before_end.as_secs()).ok().filter(|seconds| *seconds > 0)),
        immediate: false,
        unset: Vec::new(),
    };
    (change != HaltChange::default()).then_some(change)
}

/// Seconds since the epoch.
pub fn epoch(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use holdfast_model::FlushMode;

    use super::*;
    use crate::spec;

    #[test]
    fn the_keys_of_a_spec_reach_the_loop_and_the_agents() {
        let spec = JobSpec::of_test(
            "run: {command: [./app], nodes: 2, ranks_per_node: 3}\nallocation: {nodes: 3}\n\
             checkpoint: {cache: [{base: '/c/{node}', keep: 4}], redundancy: [{scheme: partner}], \
             flush: {every: 7, mode: async}}\n\
             health: {hang_after: 10min, busy_hang_after: none}\n\
             relaunch: {attempts: 9, on_exit_code: [{codes: [17], action: stop}]}\n",
        );
        let nodes: Vec<NodeName> = (0..3).map(spec::virtual_node).collect();
        let config = config(&spec, &spec.steps[0], &nodes, &FailureDomains::default(), 5, None);
        assert_eq!((config.nodes.len(), config.nodes_needed, config.ranks, config.attempts), (3, 2, 6, 9));
        assert_eq!(config.exit_codes.get(&17), Some(&spec::ExitAction::Stop));
        let settings = settings(&spec, &spec.steps[0], Path::new("/p"), Some(9));
        assert_eq!(settings.descriptors[0].scheme.as_str(), "PARTNER");
        let watchdog = run::Watchdog { hang_after: std::time::Duration::from_secs(600), busy_hang_after: None };
        assert_eq!((settings.watchdog, config.hang_after), (Some(watchdog), Some(watchdog.hang_after)));
        assert_eq!((settings.flush.every, settings.flush.mode), (7, FlushMode::Async));
        let settings = settings.for_node(&"node1".into());
        assert_eq!((settings.caches[0].base.as_str(), settings.descriptors[0].base.as_str()), ("/c/node1", "/c/node1"));
    }

    #[test]
    fn default_of_replace_after_follows_a_longer_down_after() {
        let spec = JobSpec::of_test("run: {command: [./app]}\nhealth: {down_after: 5min}\n");
        let config = config(&spec, &spec.steps[0], &[spec::virtual_node(0)], &FailureDomains::default(), 0, None);
        assert_eq!((config.replace_after, config.replaces_stopped), (config.down_after, true));
    }

    #[test]
    fn a_spec_without_halt_conditions_touches_no_halt_file() {
        assert_eq!(halt_conditions(&JobSpec::of_test("run: {command: [./app]}\n")), None);
        let change =
            halt_conditions(&JobSpec::of_test("run: {command: [./app]}\nhalt: {checkpoints_left: 3}\n")).unwrap();
        assert_eq!(change.checkpoints_left, Some(3));
    }
}
