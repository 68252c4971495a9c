//! Keys that have an effect with some resource managers or launchers only. With any other they are refused, with their
//! position and a remedy. A key that repeats its default changes nothing and is accepted, so that a resolved spec can
//! be read again.

use holdfast_model::FlushMode;

use super::checkpoint::{Checkpoint, CheckpointSource};
use super::keys::Keys as _;
use super::reading::Reader;
use super::registered::{LauncherFacts, ManagerFacts, RegistryEntry};
use super::{JobSpec, Step};

/// Refuses keys without effect. `manager` is the one in force; `None` where its allocation cannot be used.
pub(super) fn check(spec: &JobSpec, manager: Option<&'static ManagerFacts>, reader: &Reader) {
    if let Some(manager) = manager {
        check_entry(manager, "allocation", reader);
    }
    check_kind(spec, reader);
    let short_form = spec.has_short_form();
    for (at, step) in spec.steps.iter().enumerate() {
        let path = if short_form { String::new() } else { format!("steps[{at}].") };
        let launcher = manager.and_then(|manager| reader.registered().launcher(step.run.launcher, manager.name));
        if let Some(launcher) = launcher {
            check_entry(launcher, &format!("{path}run"), reader);
        }
        // `auto` may select another manager where the job runs than where the spec is checked: check only a named one.
        if let (Some(manager), Some(launcher)) = (spec.allocation.manager, launcher) {
            check_suits(launcher, manager, &format!("{path}run.launcher"), reader);
        }
        if !step.checkpoint.restart.distribute {
            let key = format!("{path}checkpoint.crc.on_restart");
            let help = "it compares files in the caches: leave it out, or write `distribute: true`";
            let message = "`on_restart` has no effect with `restart: {distribute: false}`".to_owned();
            refuse(reader, &key, message, help.to_owned());
        }
        if step.checkpoint.flush.mode == FlushMode::Sync {
            for limit in ["bandwidth", "percent"] {
                let help = "it limits asynchronous flushes only: add `mode: async`";
                let message = format!("`{limit}` has no effect with `mode: sync`");
                refuse(reader, &format!("{path}checkpoint.flush.{limit}"), message, help.to_owned());
            }
        }
        if !step.checkpoint.restart.fetch {
            let message = "`fetch_width` has no effect with `restart: {fetch: false}`".to_owned();
            let help = "leave it out, or write `fetch: true`".to_owned();
            refuse(reader, &format!("{path}checkpoint.restart.fetch_width"), message, help);
        }
        check_source(spec, step, &path, reader);
        check_variables(&step.checkpoint, &path, reader);
        if step.checkpoint.source == CheckpointSource::ScrFiles {
            let containers = [("flush", step.checkpoint.flush.container), ("drain", step.checkpoint.drain.container)];
            for (section, _) in containers.iter().filter(|(_, container)| container.is_some()) {
                let message = "a container cannot be used with `source: scr-files`";
                let help = "leave it out: the library reads plain files only";
                reader.mistake(&format!("{path}checkpoint.{section}.container"), message, help);
            }
            for key in ["crc.on_restart", "stream_timeout"] {
                let message = format!("`{key}` has no effect with `source: scr-files`");
                let help = "leave it out: the library itself restores files and makes redundancy".to_owned();
                refuse(reader, &format!("{path}checkpoint.{key}"), message, help);
            }
        }
        if step.checkpoint.source != CheckpointSource::Scr {
            for key in ["files", "library"] {
                let source = step.checkpoint.source.name();
                let message = format!("`{key}` has no effect with `source: {source}`");
                let help = "files are intercepted with `source: scr` only: write that source, or leave the key out";
                refuse(reader, &format!("{path}checkpoint.interpose.{key}"), message, help.to_owned());
            }
        }
    }
}

/// Keys of jobs with pairs.
const OF_REPLICATED: [&str; 3] = ["pairs", "jobs", "replication"];
/// Keys without effect in jobs with pairs, and what to do about each.
const NOT_OF_REPLICATED: [(&str, &str); 18] = [
    ("run", "leave it out: each of `pairs` and `jobs` has its own command"),
    ("steps", "leave it out, or write `kind: job`"),
    ("before", "run the command before `holdfast run`"),
    ("after", "run the command after `holdfast run`"),
    ("relaunch", "write `restart` in the pairs"),
    ("progress", "leave it out, or write `kind: job`"),
    ("keep_cache", "leave it out: checkpoints of pairs are in shared memory"),
    ("requeue.no_progress_limit", "leave it out: pairs report no progress"),
    ("allocation.chaos", "leave it out: it injects faults into ranks"),
    ("health.replace_after", "leave it out: a node that answers again is used again"),
    ("health.min_memory", "leave it out, or write `kind: job`"),
    ("health.hang_after", "write `heartbeat: {period: 1ms, misses: 3}` in the pairs"),
    ("health.busy_hang_after", "write `heartbeat: {period: 1ms, misses: 3}` in the pairs"),
    ("halt.after", "use `holdfast halt set --immediate`"),
    ("halt.before", "use `holdfast halt set --immediate`"),
    ("halt.checkpoints_left", "leave it out: pairs do not halt at a checkpoint"),
    ("halt.grace", "write `replication: {stop_grace: 50ms}`"),
    ("halt.drain_reserve", "leave it out: there is no drain"),
];

/// Refuses the keys of the other kind of job.
fn check_kind(spec: &JobSpec, reader: &Reader) {
    if spec.replicated.is_none() {
        for key in OF_REPLICATED {
            // An empty list also has no effect, and is in the reference.
            let message = format!("`{key}` has no effect with `kind: job`");
            refuse(reader, key, message, "write `kind: replicated`, or leave it out".to_owned());
        }
        return;
    }
    for (key, help) in NOT_OF_REPLICATED {
        let message = format!("`{key}` has no effect with `kind: replicated`");
        refuse(reader, key, message, help.to_owned());
    }
    for key in Checkpoint::declared().iter().map(|declared| declared.name).filter(|key| *key != "control") {
        let message = format!("`checkpoint.{key}` has no effect with `kind: replicated`");
        let help = "write `checkpoint: {size: 400KiB, period: 10ms}` in the pairs".to_owned();
        refuse(reader, &format!("checkpoint.{key}"), message, help);
    }
}

/// True for keys that have an effect with this kind of job.
pub(super) fn is_in_force(spec: &JobSpec, key: &str) -> bool {
    let is_below =
        |section: &str| key.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    match &spec.replicated {
        None => !OF_REPLICATED.iter().any(|section| is_below(section)),
        Some(_) => {
            let refused = NOT_OF_REPLICATED.iter().any(|(section, _)| is_below(section));
            !refused && (!is_below("checkpoint") || is_below("checkpoint.control"))
        }
    }
}

/// Keys of programs that do not use the API.
const OF_COMMANDS: [&str; 3] = ["command", "watch", "resume"];
/// Keys about checkpoints.
const OF_CHECKPOINTS: [&str; 10] = [
    "cache",
    "redundancy",
    "flush",
    "drain",
    "restart",
    "crc",
    "copy_buffer",
    "copy_threads",
    "piece_size",
    "stream_timeout",
];

/// Refuses keys without effect with the checkpoint source of a step.
fn check_source(spec: &JobSpec, step: &Step, path: &str, reader: &Reader) {
    let source = step.checkpoint.source;
    let refuse_all = |keys: &[&str], help: &str| {
        for key in keys {
            let message = format!("`{key}` has no effect with `source: {}`", source.name());
            refuse(reader, &format!("{path}checkpoint.{key}"), message, help.to_owned());
        }
    };
    if source != CheckpointSource::Command {
        refuse_all(&OF_COMMANDS, "write `source: command`, or leave it out");
    }
    if source != CheckpointSource::Jubatus {
        refuse_all(&["jubatus"], "write `source: jubatus`, or leave it out");
    }
    match source {
        CheckpointSource::Scr | CheckpointSource::ScrFiles | CheckpointSource::Variables => {}
        CheckpointSource::Jubatus => {
            refuse_all(&["need"], "servers do not ask: write `jubatus: {every: 10min}`");
        }
        CheckpointSource::Command => {
            refuse_all(&["need"], "the program does not ask: write `command: {every: 10min}`");
            if step.checkpoint.watch.files.is_some() {
                for key in ["every", "timeout"] {
                    let message = format!("`{key}` has no effect with `watch`");
                    let help = "leave it out: a checkpoint is made when the program has renamed its files".to_owned();
                    refuse(reader, &format!("{path}checkpoint.command.{key}"), message, help);
                }
            }
        }
        CheckpointSource::None => {
            refuse_all(&OF_CHECKPOINTS, "leave it out: there are no checkpoints");
            refuse_all(&["need"], "leave it out: there are no checkpoints");
            if !spec.progress.is_used() {
                for key in ["relaunch.no_progress_limit", "requeue.no_progress_limit"] {
                    let message = format!("`{key}` has no effect with `source: none`: nothing shows progress");
                    refuse(reader, key, message, "add `progress`, or leave it out".to_owned());
                }
            }
        }
    }
}

/// Refuses the keys of `checkpoint` that its source ignores.
fn check_variables(checkpoint: &Checkpoint, path: &str, reader: &Reader) {
    let source = checkpoint.source;
    if source != CheckpointSource::Variables {
        for key in ["layout", "snapshots.local", "snapshots.partner", "snapshots.parity", "snapshots.prefix"] {
            let message = format!("`variables.{key}` has no effect with `source: {}`", source.name());
            let help = "leave it out, or write `source: variables`".to_owned();
            refuse(reader, &format!("{path}checkpoint.variables.{key}"), message, help);
        }
        return;
    }
    for key in ["interval", "seconds", "overhead"] {
        let message = format!("`need.{key}` has no effect with `source: variables`");
        let help = "write `variables: {snapshots: {…}}`: each level has its own interval".to_owned();
        refuse(reader, &format!("{path}checkpoint.need.{key}"), message, help);
    }
    for (at, redundancy) in checkpoint.redundancy.iter().enumerate() {
        let of_descriptor = format!("{path}checkpoint.redundancy[{at}]");
        let help = "leave it out: the program selects the level of each checkpoint";
        if redundancy.every != 1 {
            let message = "`every` has no effect with `source: variables`".to_owned();
            refuse(reader, &format!("{of_descriptor}.every"), message, help.to_owned());
        }
        if !redundancy.enabled {
            let message = "`enabled: false` is impossible with `source: variables`".to_owned();
            refuse(reader, &format!("{of_descriptor}.enabled"), message, help.to_owned());
        }
    }
}

/// Refuses a launcher that cannot start ranks on the nodes of the manager.
fn check_suits(launcher: &LauncherFacts, manager: &str, key: &str, reader: &Reader) {
    if launcher.managers.contains(&manager) {
        return;
    }
    let suits = |other: &&&LauncherFacts| other.managers.contains(&manager);
    let suitable =
        reader.registered().launchers.iter().filter(suits).map(|other| format!("`launcher: {}`", other.name));
    let message = format!("`launcher: {}` cannot start ranks on nodes of `manager: {manager}`", launcher.name);
    let help = format!("write {}, or leave `launcher` out", suitable.collect::<Vec<_>>().join(" or "));
    refuse(reader, key, message, help);
}

/// Refuses the keys of `section` that other entries than the one in force take.
fn check_entry<E: RegistryEntry>(in_force: &E, section: &str, reader: &Reader) {
    let of_others = E::all(reader.registered()).iter().flat_map(|entry| entry.keys().takes);
    let mut refused: Vec<&str> = Vec::new();
    for (key, help) in of_others {
        if refused.contains(key) || in_force.keys().takes.iter().any(|(taken, _)| taken == key) {
            continue;
        }
        refused.push(key);
        let own = in_force.keys().without.iter().find(|(other, _)| other == key).map(|(_, help)| *help);
        let help = match own.unwrap_or(help) {
            "" => format!("write {}, or leave `{key}` out", takers::<E>(key, reader)),
            help => help.to_owned(),
        };
        let message = format!("`{key}` has no effect with `{}: {}`", E::KEY, in_force.name());
        refuse(reader, &format!("{section}.{key}"), message, help);
    }
}

/// Suggestions for the help: the entries that accept the key.
fn takers<E: RegistryEntry>(key: &str, reader: &Reader) -> String {
    let takes = |entry: &&&E| entry.keys().takes.iter().any(|(taken, _)| *taken == key);
    let names = E::all(reader.registered()).iter().filter(takes).map(|entry| format!("`{}: {}`", E::KEY, entry.name()));
    names.collect::<Vec<_>>().join(" or ")
}

fn refuse(reader: &Reader, key: &str, message: String, help: String) {
    if reader.is_decided(key) {
        reader.mistake(key, message, help);
    }
}
