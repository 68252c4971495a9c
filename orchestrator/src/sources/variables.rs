//! The application saves its variables through the variables API.

use holdfast_agent::sources::variables::ENTRY;

use super::without_processes::{no_saver, no_schedule};
use crate::spec::{CheckpointSource, FrequencyFacts, KeyFacts, RESTART_RANKS, SourceFacts, StepCheck};

const HELP: &str = "leave it out, or write `source: variables`";
const NEED_HELP: &str = "write `every: 10min`, or `variables: {snapshots: {…}}`: each level has its own interval";

pub static SOURCE: CheckpointSource = CheckpointSource {
    facts: SourceFacts {
        agent: &ENTRY,
        doc: "the application, through the API for variables in memory (`docs/variables.md`), in FTI's files",
        keys: KeyFacts {
            takes: &[
                (RESTART_RANKS, "leave it out, and run with as many ranks: each rank reads its own files only"),
                ("variables.layout", HELP),
                ("variables.snapshots.local", HELP),
                ("variables.snapshots.partner", HELP),
                ("variables.snapshots.parity", HELP),
                ("variables.snapshots.prefix", HELP),
            ],
            without: &[("need.interval", NEED_HELP), ("need.seconds", NEED_HELP), ("need.overhead", NEED_HELP)],
        },
        frequency: FrequencyFacts::Keys {
            counts_calls: false,
            whole_seconds: false,
            finer: &[
                "variables.snapshots.local",
                "variables.snapshots.partner",
                "variables.snapshots.parity",
                "variables.snapshots.prefix",
            ],
        },
        can_be_interposed: false,
        has_levels: true,
    },
    check,
    saver: no_saver,
    schedule: no_schedule,
};

/// The level of a checkpoint selects its descriptor.
fn check(step: &StepCheck<'_>) {
    let help = "leave it out: the program selects the level of each checkpoint";
    for at in 0..step.checkpoint.redundancy.len() {
        let of_descriptor = |key: &str| format!("redundancy[{at}].{key}");
        step.refuse(&of_descriptor("every"), "`every` has no effect with `source: variables`", help);
        step.refuse(&of_descriptor("enabled"), "`enabled: false` is impossible with `source: variables`", help);
    }
}
