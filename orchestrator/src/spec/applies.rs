//! Keys that have an effect with some resource managers or launchers only: with another one they are refused, each at its
//! place and with what to do instead. A key that repeats its default changes nothing and is accepted, so that a resolved
//! spec can be read again.

use holdfast_model::FlushMode;

use super::allocation::Manager;
use super::kinds::Choice as _;
use super::reading::Reader;
use super::run::Launcher;
use super::{JobSpec, Step};

/// Refuses what has no effect. `manager` is the one in force; not known where its allocation cannot be used.
pub(super) fn check(spec: &JobSpec, manager: Option<Manager>, reader: &Reader) {
    if let Some(manager) = manager {
        for (key, of) in MANAGER_KEYS.iter().filter(|(_, of)| !of.contains(&manager)) {
            let name = key.strip_prefix("allocation.").unwrap_or(key);
            let message = format!("`{name}` has no effect with `manager: {}`", manager.word());
            refuse(reader, key, message, manager_help(name, manager, of));
        }
    }
    let short_form = spec.has_short_form();
    for (at, step) in spec.steps.iter().enumerate() {
        let path = if short_form { String::new() } else { format!("steps[{at}].") };
        if let Some(manager) = manager {
            check_launcher(step, manager, &path, reader);
        }
        if step.checkpoint.flush.mode == FlushMode::Sync {
            let key = format!("{path}checkpoint.flush.bandwidth");
            let help = "it limits flushes during which the application continues: write `mode: async` beside it";
            refuse(reader, &key, "`bandwidth` has no effect with `mode: sync`".to_owned(), help.to_owned());
        }
    }
}

/// The keys of `allocation:` that have an effect with some managers only, and those managers.
const MANAGER_KEYS: [(&str, &[Manager]); 6] = [
    ("allocation.nodes", &[Manager::Local]),
    ("allocation.time_limit", &[Manager::Local, Manager::Ssh]),
    ("allocation.chaos", &[Manager::Local]),
    ("allocation.hosts", &[Manager::Ssh]),
    ("allocation.hosts_file", &[Manager::Ssh]),
    ("allocation.ssh", &[Manager::Ssh]),
];

fn manager_help(key: &str, manager: Manager, of: &[Manager]) -> String {
    match (key, manager) {
        ("nodes", Manager::Ssh) => "the list of hosts is the nodes; leave it out".to_owned(),
        ("nodes", _) => "the allocation has the nodes that Slurm gave it (`sbatch --nodes`); leave it out".to_owned(),
        ("time_limit", _) => "Slurm ends the allocation (`sbatch --time`); leave it out".to_owned(),
        ("chaos", _) => "failures are injected on virtual nodes only: `manager: local`".to_owned(),
        ("ssh", _) => "it goes with a list of hosts: write `hosts: [n1, n2]` and `manager: ssh`".to_owned(),
        _ => format!("write `manager: {}`, or leave `{key}` out", of.first().map_or("auto", |of| of.word())),
    }
}

fn check_launcher(step: &Step, manager: Manager, path: &str, reader: &Reader) {
    let launcher = match (step.run.launcher, manager) {
        (Launcher::Auto, Manager::Slurm) => Launcher::Srun,
        (Launcher::Auto, Manager::Ssh) => Launcher::Ssh,
        (Launcher::Auto, Manager::Auto | Manager::Local) => Launcher::Local,
        (launcher, _) => launcher,
    };
    let keys: [(&str, &[Launcher], &str); 2] = [
        (
            "launcher_program",
            &[Launcher::Mpirun],
            "it names the mpirun of `launcher: mpirun`; write that, or leave it out",
        ),
        (
            "launcher_options",
            &[Launcher::Srun, Launcher::Mpirun],
            "options are for srun and mpirun; leave them out, or choose one of these launchers",
        ),
    ];
    for (key, _, help) in keys.iter().filter(|(_, of, _)| !of.contains(&launcher)) {
        let message = format!("`{key}` has no effect with `launcher: {}`", launcher.word());
        refuse(reader, &format!("{path}run.{key}"), message, (*help).to_owned());
    }
}

fn refuse(reader: &Reader, key: &str, message: String, help: String) {
    if reader.is_decided(key) {
        reader.mistake(key, message, help);
    }
}
