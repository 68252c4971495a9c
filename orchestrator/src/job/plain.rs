//! The application without agents, checkpoints and relaunches (`SCR_ENABLE=0`): each step is launched once, by the
//! command that a user would type, and its exit code is that of the job.

use std::collections::BTreeSet;
use std::io;
use std::process::ExitStatus;

use holdfast_process::end::{self, shell_code};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::error::RunError;
use super::preflight::{Prepared, preflight};
use super::signals::Signals;
use crate::launch::{PlainLaunch, SCR_ENABLE};
use crate::spec::{JobSpec, Step};

/// Keys that have no effect on such a run, besides those of checkpoints and relaunches.
const WITHOUT_EFFECT: [&str; 9] =
    ["allocation.faults", "before", "after", "requeue", "progress", "health", "halt", "metrics", "notify"];

/// The keys of the spec that are not obeyed, besides those of checkpoints and relaunches.
pub fn keys_without_effect(spec: &JobSpec) -> impl Iterator<Item = &'static str> {
    WITHOUT_EFFECT.into_iter().filter(|key| spec.settings.is_decided(key))
}

/// Launches the steps one after the other, until one fails. Returns the exit code.
///
/// # Errors
/// Those of the preflight checks; a launcher without such a command.
pub async fn run_plain(spec: &JobSpec) -> Result<u8, RunError> {
    let mut signals = Signals::new().map_err(RunError::io("handle signals"))?;
    for step in &spec.steps {
        let code = run_step(spec, step, &mut signals).await?;
        if code != 0 {
            return Ok(code);
        }
    }
    Ok(0)
}

async fn run_step(spec: &JobSpec, step: &Step, signals: &mut Signals) -> Result<u8, RunError> {
    let Prepared { manager, launcher, program, working_directory, .. } = preflight(spec, step)?;
    let on_virtual_nodes = manager.facts.has_virtual_nodes();
    let commands = launcher.plain(&PlainLaunch { run: &step.run, program: &program, on_virtual_nodes })?;
    let mut processes = Vec::new();
    for command in commands {
        let mut command = Command::from(command);
        command.current_dir(&working_directory).env(SCR_ENABLE, "0").kill_on_drop(true);
        processes.push(command.spawn().map_err(RunError::io("start the application"))?);
    }
    let mut running: BTreeSet<Option<u32>> = processes.iter().map(Child::id).collect();
    let mut ends: JoinSet<_> = processes.into_iter().map(end_of).collect();
    let mut code = 0;
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => {
                // The ranks end, or not, as they do without Holdfast.
                for pid in running.iter().flatten().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
                    let _ = kill_process(pid, named(signal));
                }
            }
            end = ends.join_next() => {
                let Some(end) = end else { return Ok(code) };
                let (pid, status) = end.map_err(io::Error::from).and_then(|(pid, status)| Ok((pid, status?)))
                    .map_err(RunError::io("wait for the application"))?;
                running.remove(&pid);
                code = if code == 0 { shell_code(end::of(status)) } else { code };
            }
        }
    }
}

async fn end_of(mut process: Child) -> (Option<u32>, io::Result<ExitStatus>) {
    (process.id(), process.wait().await)
}

fn named(signal: &str) -> Signal {
    match signal {
        "SIGINT" => Signal::INT,
        "SIGHUP" => Signal::HUP,
        "SIGUSR1" => Signal::USR1,
        "SIGUSR2" => Signal::USR2,
        _ => Signal::TERM,
    }
}
