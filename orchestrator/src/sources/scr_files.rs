//! LLNL's library writes and reads checkpoints; it gets the settings as SCR_* variables.

use std::iter;

use holdfast_agent::sources::scr_files::ENTRY;
use holdfast_wire::run::NODE_PLACEHOLDER;

use super::without_processes::{no_saver, no_schedule};
use crate::spec::library_parameters;
use crate::spec::{Checkpoint, CheckpointSource, FROM_PREFIX, FrequencyFacts, KeyFacts, SourceFacts, StepCheck};

const BY_LIBRARY: &str = "leave it out: the library itself restores files and makes redundancy";

pub static SOURCE: CheckpointSource = CheckpointSource {
    facts: SourceFacts {
        agent: &ENTRY,
        doc: "LLNL's own SCR library, which gets the settings as SCR_* variables; the control base must be that of its \
              system file",
        keys: KeyFacts {
            takes: &[(FROM_PREFIX, "")],
            without: &[
                ("crc.on_restart", BY_LIBRARY),
                ("redundancy_width", BY_LIBRARY),
                ("stream_timeout", BY_LIBRARY),
                ("data_plane", BY_LIBRARY),
            ],
        },
        frequency: FrequencyFacts::Keys {
            counts_calls: true,
            whole_seconds: true,
            finer: &["need.interval", "need.seconds", "need.overhead"],
        },
        can_be_interposed: false,
        has_levels: false,
    },
    check,
    saver: no_saver,
    schedule: no_schedule,
};

/// What the library cannot do.
fn check(step: &StepCheck<'_>) {
    let Checkpoint { control, cache, redundancy, flush, drain, .. } = &step.checkpoint;
    for (section, container) in [("flush", flush.container), ("drain", drain.container)] {
        if container.is_some() {
            let message = "a container cannot be used with `source: scr-files`";
            let help = "leave it out: the library reads plain files only";
            step.mistake(&format!("{section}.container"), message, help);
        }
    }
    for at in 0..redundancy.len() {
        for key in ["async", "keep"] {
            let message = format!("`{key}` has no effect with `source: scr-files`");
            step.refuse(&format!("redundancy[{at}].{key}"), message, BY_LIBRARY);
        }
    }
    let caches = (0..).zip(cache).map(|(at, cache)| (format!("cache[{at}].base"), &cache.base));
    for (key, base) in iter::once(("control.base".to_owned(), &control.base)).chain(caches) {
        if base.to_string_lossy().contains(NODE_PLACEHOLDER) {
            let message = format!("`{NODE_PLACEHOLDER}` cannot be used with `source: scr-files`");
            step.mistake(&key, message, "the library uses the same path on every node: write one");
        }
        // A line of its configuration file ends a value at a blank.
        if base.to_string_lossy().contains([' ', '\t', '=', '#']) {
            let message = format!("the library cannot read the path `{}`", base.display());
            step.mistake(&key, message, "use one without blanks, `=` and `#`");
        }
    }
    // With several caches or descriptors the ranks get a file of Holdfast.
    let file = library_parameters::needs_file(step.checkpoint).then_some(library_parameters::USER_FILE);
    let names = library_parameters::names().into_iter().chain(file);
    for name in names.filter(|name| step.run.env.contains_key(*name)) {
        let message = format!("`{name}` would contradict the settings of the job");
        let help = "leave it out: with `source: scr-files` the ranks get it from the keys of this spec";
        step.mistake_in_run("env", message, help);
    }
}
