//! Keys that have an effect with some resource managers, launchers or checkpoint sources only. With any other they are
//! refused, with their position and a remedy. A key that repeats its default changes nothing and is accepted, so that a
//! resolved spec can be read again.

use std::collections::BTreeSet;

use holdfast_model::FlushMode;

use super::checkpoint::Checkpoint;
use super::checkpoint_source::RESTART_RANKS;
use super::job::{JobSpec, Step};
use super::keys::Keys as _;
use super::reading::Reader;
use super::registered::{EntryKind, KeyFacts, LauncherFacts, ManagerFacts};

/// Refuses keys without effect. `manager` is the one in force; `None` where its allocation cannot be used.
pub(super) fn check(spec: &JobSpec, manager: Option<&'static ManagerFacts>, reader: &Reader) {
    if let Some(manager) = manager {
        check_entry(EntryKind::Manager, (manager.name, &manager.keys), "allocation", reader);
    }
    check_kind(spec, reader);
    check_calls(spec, reader);
    for step in &spec.steps {
        let path = &step.key_path;
        let launcher = manager.and_then(|manager| reader.registered.launcher(step.run.launcher, manager));
        if let Some(launcher) = launcher {
            check_entry(EntryKind::Launcher, (launcher.name, &launcher.keys), &format!("{path}run"), reader);
        }
        // `auto` may select another manager where the job runs than where the spec is checked: check only a named one.
        if let (Some(_), Some(manager), Some(launcher)) = (spec.allocation.manager, manager, launcher) {
            check_suits(launcher, manager, &format!("{path}run.launcher"), reader);
        }
        if !step.checkpoint.restart.distribute {
            let key = format!("{path}checkpoint.crc.on_restart");
            let help = "it compares files in the caches: leave it out, or write `distribute: true`";
            let message = "`on_restart` has no effect with `restart: {distribute: false}`".to_owned();
            refuse(reader, &key, message, help.to_owned());
        }
        if step.checkpoint.flush.mode == FlushMode::Sync && step.checkpoint.flush.keep == 0 {
            for limit in ["bandwidth", "percent"] {
                let help = "it limits asynchronous flushes, and the verification for `keep`: add one of them";
                let message = format!("`{limit}` has no effect with `mode: sync`");
                refuse(reader, &format!("{path}checkpoint.flush.{limit}"), message, help.to_owned());
            }
        }
        if !step.checkpoint.restart.fetch {
            let message = "`fetch_width` has no effect with `restart: {fetch: false}`".to_owned();
            let help = "leave it out, or write `fetch: true`".to_owned();
            refuse(reader, &format!("{path}checkpoint.restart.fetch_width"), message, help);
        }
        if step.checkpoint.flush.container.is_some() {
            let message = "`from_prefix` is impossible with `flush: {container: …}`".to_owned();
            let help = "leave one of them out: the ranks cannot read their files in a container".to_owned();
            refuse(reader, &format!("{path}checkpoint.restart.from_prefix"), message, help);
        }
        check_ranks(step, reader);
        let source = &step.source.facts;
        check_entry(EntryKind::Source, (source.agent.name, &source.keys), &format!("{path}checkpoint"), reader);
    }
}

/// Refuses restarts from checkpoints of another number of ranks where their files cannot be read.
fn check_ranks(step: &Step, reader: &Reader) {
    let Checkpoint { restart, interpose, .. } = &step.checkpoint;
    let reasons = [
        (!restart.fetch, "restart: {fetch: false}", "write `fetch: true`: the files are read in the prefix directory"),
        (
            interpose.files.is_some(),
            "interpose: {files: …}",
            "leave it out, and run with as many ranks: such a program opens the files of its own rank only",
        ),
    ];
    for (_, other, help) in reasons.iter().filter(|(refused, ..)| *refused) {
        let message = format!("`ranks: any` is impossible with `{other}`");
        refuse(reader, &format!("{}checkpoint.{RESTART_RANKS}", step.key_path), message, (*help).to_owned());
    }
}

/// Keys of jobs with pairs.
const OF_REPLICATED: [&str; 3] = ["pairs", "jobs", "replication"];
/// Keys without effect in jobs with pairs, and what to do about each.
const NOT_OF_REPLICATED: [(&str, &str); 20] = [
    ("allocation.faults", "leave it out: it injects faults into ranks"),
    ("run", "leave it out: each of `pairs` and `jobs` has its own command"),
    ("steps", "leave it out, or write `kind: job`"),
    ("before", "run the command before `holdfast run`"),
    ("after", "run the command after `holdfast run`"),
    ("relaunch", "write `restart` in the pairs"),
    ("progress", "leave it out, or write `kind: job`"),
    ("keep_cache", "leave it out: checkpoints of pairs are in shared memory"),
    ("requeue.no_progress_limit", "leave it out: pairs report no progress"),
    ("health.replace_after", "leave it out: a node that answers again is used again"),
    ("health.min_memory", "leave it out, or write `kind: job`"),
    ("health.hang_after", "write `heartbeat: {period: 1ms, misses: 3}` in the pairs"),
    ("health.waiting_after", "leave it out: pairs make no calls together"),
    ("health.busy_hang_after", "write `heartbeat: {period: 1ms, misses: 3}` in the pairs"),
    ("halt.after", "use `holdfast halt set --immediate`"),
    ("halt.before", "use `holdfast halt set --immediate`"),
    ("halt.checkpoints_left", "leave it out: pairs do not halt at a checkpoint"),
    ("halt.grace", "write `replication: {stop_grace: 50ms}`"),
    ("halt.drain_reserve", "leave it out: there is no drain"),
    ("metrics", "leave it out: `holdfast pairs list --json` has the figures of pairs"),
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

/// Refuses the times of calls that no step has.
fn check_calls(spec: &JobSpec, reader: &Reader) {
    if spec.replicated.is_some() {
        return;
    }
    let refuse_without = |key: &str, has_calls: fn(&Step) -> bool| {
        if !spec.steps.iter().any(has_calls) {
            let sources: BTreeSet<&str> = spec.steps.iter().map(|step| step.source.facts.agent.name).collect();
            let sources: Vec<String> = sources.iter().map(|name| format!("`source: {name}`")).collect();
            let message = format!("`{key}` has no effect with {}", sources.join(" and "));
            let help = "leave it out: no rank calls Holdfast's checkpoint API".to_owned();
            refuse(reader, &format!("health.{key}"), message, help);
        }
    };
    refuse_without("silent_api_after", Step::has_calls_of_program);
    refuse_without("waiting_after", Step::has_calls);
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

/// Refuses a launcher that cannot start ranks on the nodes of the manager.
fn check_suits(launcher: &LauncherFacts, manager: &ManagerFacts, key: &str, reader: &Reader) {
    if launcher.suits(manager) {
        return;
    }
    let suits = |other: &&&LauncherFacts| other.suits(manager);
    let suitable = reader.registered.launchers.iter().filter(suits).map(|other| format!("`launcher: {}`", other.name));
    let message = format!("`launcher: {}` cannot start ranks on nodes of `manager: {}`", launcher.name, manager.name);
    let help = format!("write {}, or leave `launcher` out", suitable.collect::<Vec<_>>().join(" or "));
    refuse(reader, key, message, help);
}

/// Refuses the keys of `section` that have no effect with the entry in force: those of its own list, and those that
/// other entries take.
fn check_entry(kind: EntryKind, (name, keys): (&str, &KeyFacts), section: &str, reader: &Reader) {
    let KeyFacts { without, .. } = keys;
    let entries = reader.registered.entries(kind);
    let of_others = entries.iter().flat_map(|(_, keys)| keys.takes);
    let mut refused: Vec<&str> = Vec::new();
    for (key, help) in without.iter().chain(of_others) {
        if refused.contains(key) || keys.takes(key) {
            continue;
        }
        refused.push(key);
        let help = match *help {
            "" => format!("write {}, or leave `{key}` out", takers(kind, key, reader)),
            help => help.to_owned(),
        };
        let message = format!("`{key}` has no effect with `{}: {}`", kind.key(), name);
        refuse(reader, &format!("{section}.{key}"), message, help);
    }
}

/// Suggestions for the help: the entries that accept the key.
fn takers(kind: EntryKind, key: &str, reader: &Reader) -> String {
    let names = reader.registered.takers(kind, key).map(|name| format!("`{}: {name}`", kind.key()));
    names.collect::<Vec<_>>().join(" or ")
}

fn refuse(reader: &Reader, key: &str, message: String, help: String) {
    if reader.is_decided(key) {
        reader.mistake(key, message, help);
    }
}
