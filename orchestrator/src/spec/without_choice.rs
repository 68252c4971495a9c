//! Keys for which this version has a single value: they are not in the reference. A spec that has one with that value
//! is read, with a note; any other value is refused.

/// A key with a single value.
pub(super) struct WithoutChoice {
    /// The path of its section, without indices.
    section: &'static str,
    key: &'static str,
    pub(super) value: &'static str,
    /// What is always the case.
    pub(super) always: &'static str,
    /// What else a user who wants another value can do.
    pub(super) instead: Option<&'static str>,
}

static KEYS: [WithoutChoice; 2] = [
    WithoutChoice {
        section: "checkpoint.redundancy",
        key: "failure_domain",
        value: "node",
        always: "no set has two members on one node; `allocation.racks` sets larger failure domains",
        instead: None,
    },
    // docs/performance.md has the reasons, with measurements.
    WithoutChoice {
        section: "relaunch",
        key: "warm_spares",
        value: "false",
        always: "no process waits on a spare, because `launcher: srun`, `flux` and `mpirun` start all ranks with one \
                 command, which a waiting process cannot join, and `local`, `ssh` and `torchrun` start those of all \
                 nodes at the same time: a spare is not waited for longer than the others",
        instead: Some(
            "if the program starts more slowly where it did not run before, run a command that loads its files on all \
             nodes: `before: [{command: [python3, -c, import torch], on: all}]`",
        ),
    },
];

/// The key of this name in the section with this path.
pub(super) fn find(section: &str, key: &str) -> Option<&'static WithoutChoice> {
    let mut path = section;
    if let Some((_, inside)) = section.strip_prefix("steps[").and_then(|rest| rest.split_once("].")) {
        path = inside;
    }
    let path = path.split_once('[').map_or(path, |(list, _)| list);
    KEYS.iter().find(|known| known.section == path && known.key == key)
}
