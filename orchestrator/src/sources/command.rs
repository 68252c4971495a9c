//! A program that does not use the API: its rank process has it write its files by a command or a signal, or takes
//! those that it writes without a request.

use holdfast_agent::sources::command::ENTRY;
use holdfast_rank::SaverSettings;
use holdfast_wire::run::CheckpointSchedule;

use super::silence::{self, Silence};
use crate::spec::{Checkpoint, CheckpointSource, FrequencyFacts, KeyFacts, SourceFacts, StepCheck};

const HELP: &str = "write `source: command`, or leave it out";

pub static SOURCE: CheckpointSource = CheckpointSource {
    facts: SourceFacts {
        agent: &ENTRY,
        doc: "any program; see `command` and `watch`",
        keys: KeyFacts {
            takes: &[("command", HELP), ("watch", HELP), ("resume", HELP)],
            without: &[("need", "the program does not ask: write `every: 10min`")],
        },
        frequency: FrequencyFacts::Keys { counts_calls: false, whole_seconds: false, finer: &["command.every"] },
        can_be_interposed: false,
        has_levels: false,
    },
    check,
    saver,
    schedule,
};

fn saver(checkpoint: &Checkpoint) -> Option<SaverSettings> {
    let Checkpoint { command, watch, .. } = checkpoint;
    if let Some(files) = watch.files.clone() {
        return Some(SaverSettings::Watch { files });
    }
    let timeout = command.timeout;
    if let Some(save) = command.save.clone() {
        return Some(SaverSettings::Command { save, timeout });
    }
    let (signal, until) = (command.signal.clone()?, command.until.clone()?);
    Some(SaverSettings::Signal { signal, until, timeout })
}

fn schedule(checkpoint: &Checkpoint) -> Option<CheckpointSchedule> {
    Some(match checkpoint.watch.files {
        Some(_) => CheckpointSchedule::WhenReady,
        None => checkpoint.schedule_in_force(checkpoint.command.every),
    })
}

/// A program needs exactly one way in which its files come about.
fn check(step: &StepCheck<'_>) {
    let Checkpoint { command, watch, resume, .. } = &step.checkpoint;
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
            step.mistake("source", "`source: command` needs a command, a signal or files to watch", help);
        }
        [first, second, ..] => {
            let message = format!("`{first}` and `{second}` exclude each other");
            step.mistake(second, message, "remove one of them");
        }
    }
    let is_empty = |words: &Vec<String>| words.first().is_none_or(|word| word.trim().is_empty());
    if resume.as_ref().is_some_and(is_empty) {
        let help = "write the program and its arguments, or leave `resume` out";
        step.mistake("resume", "the command is empty", help);
    }
    if watch.files.is_some() {
        for key in ["every", "command.every", "command.timeout"] {
            let name = key.rsplit('.').next().unwrap_or(key);
            let message = format!("`{name}` has no effect with `watch`");
            let help = "leave it out: a checkpoint is made when the program has renamed its files";
            step.refuse(key, message, help);
        }
    } else {
        let limit = step.health.busy_hang_after;
        silence::check(
            step,
            "busy_hang_after",
            limit,
            &[Silence::between_checkpoints(step, "command.every", command.every)],
        );
    }
}
