//! No checkpoints: a relaunch starts from the beginning.

use holdfast_agent::sources::none::ENTRY;

use super::without_processes::{no_saver, no_schedule};
use crate::spec::{CheckpointSource, FrequencyFacts, KeyFacts, SourceFacts, StepCheck};

const HELP: &str = "leave it out: there are no checkpoints";

pub static SOURCE: CheckpointSource = CheckpointSource {
    facts: SourceFacts {
        agent: &ENTRY,
        doc: "nothing; a relaunch starts from the beginning",
        keys: KeyFacts {
            takes: &[],
            without: &[
                ("cache", HELP),
                ("redundancy", HELP),
                ("flush", HELP),
                ("drain", HELP),
                ("restart", HELP),
                ("crc", HELP),
                ("copy_buffer", HELP),
                ("copy_threads", HELP),
                ("redundancy_width", HELP),
                ("piece_size", HELP),
                ("stream_timeout", HELP),
                ("data_plane", HELP),
                ("need", HELP),
            ],
        },
        frequency: FrequencyFacts::None { help: HELP },
        can_be_interposed: false,
        has_levels: false,
    },
    check,
    saver: no_saver,
    schedule: no_schedule,
};

fn check(step: &StepCheck<'_>) {
    if !step.progress.is_used() {
        for key in ["relaunch.no_progress_limit", "requeue.no_progress_limit"] {
            let message = format!("`{key}` has no effect with `source: none`: nothing shows progress");
            step.refuse_in_job(key, message, "add `progress`, or leave it out");
        }
    }
}
