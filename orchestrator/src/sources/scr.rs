//! The application writes and reads its checkpoints through the checkpoint API.

use holdfast_agent::sources::scr::ENTRY;

use super::without_processes::{no_further_check, no_saver, no_schedule};
use crate::spec::{CheckpointSource, FROM_PREFIX, FrequencyFacts, KeyFacts, RESTART_RANKS, SourceFacts};

const INTERPOSE_HELP: &str = "files are intercepted with `source: scr` only: write that source, or leave the key out";

pub static SOURCE: CheckpointSource = CheckpointSource {
    facts: SourceFacts {
        agent: &ENTRY,
        doc: "the application, through Holdfast's API",
        keys: KeyFacts {
            takes: &[
                ("interpose.files", INTERPOSE_HELP),
                ("interpose.library", INTERPOSE_HELP),
                (FROM_PREFIX, "leave it out: each rank reads its own files only"),
                (RESTART_RANKS, "leave it out, and run with as many ranks: each rank reads its own files only"),
            ],
            without: &[],
        },
        frequency: FrequencyFacts::Keys {
            counts_calls: true,
            whole_seconds: false,
            finer: &["need.interval", "need.seconds", "need.overhead"],
        },
        can_be_interposed: true,
        has_levels: false,
    },
    check: no_further_check,
    saver: no_saver,
    schedule: no_schedule,
};
