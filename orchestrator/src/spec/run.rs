//! `run:`: the application, and the number of its nodes and ranks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::keys::{entry, keys, names, words, words_such_as};
use super::reading::{Reader, Section};
use super::registered::EntryKind;
use super::value_kinds::{path, text, whole};

/// More ranks than this are a misspelling.
const MAX_RANKS: u64 = 1 << 20;
const MAX_NODES: u64 = 1 << 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSpec {
    /// The name of the launcher; `None` for `auto`.
    pub launcher: Option<&'static str>,
    /// Nodes of the run; the rest of the allocation are spares.
    pub nodes: u32,
    /// Ranks on each node; the last node may have fewer.
    pub ranks_per_node: u32,
    /// Total number of ranks.
    pub ranks: u32,
    /// Mpirun only: the launcher's program; `None` = the one in PATH.
    pub launcher_program: Option<String>,
    /// Options that are passed to the launcher unchanged.
    pub launcher_options: Vec<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables that are added to the environment of every rank.
    pub env: BTreeMap<String, String>,
    /// The working directory of every rank; `None` = that of `holdfast`.
    pub directory: Option<PathBuf>,
}

/// The section as written; nodes and ranks may still depend on the size of the allocation.
pub struct WrittenRun {
    nodes: Option<u32>,
    ranks_per_node: Option<u32>,
    ranks: Option<u32>,
    ranks_key: String,
    run: RunSpec,
}

keys! {
    RunSpec => WrittenRun;
    /// The launcher: {launchers}. `auto`: the default of the resource manager.
    launcher = entry(EntryKind::Launcher),
    /// {takers}: the program to use, a path or a name in PATH. Default: the first of mpirun, mpiexec, mpiexec.hydra,
    /// orterun in PATH.
    launcher_program = text().optional(),
    /// {takers}: options passed to the launcher unchanged: `[--mpi=pmix, --cpu-bind=cores]`.
    launcher_options = words(),
    /// Nodes of the run; the rest of the allocation are spares. Default: what `ranks` needs, or else the entire
    /// allocation.
    nodes = whole::<u32>(1..=MAX_NODES).optional(),
    /// Ranks on each node. Default: `ranks` spread over `nodes`, or else 1.
    ranks_per_node = whole::<u32>(1..=MAX_RANKS).optional(),
    /// Total number of ranks. Default: `nodes` times `ranks_per_node`.
    ranks = whole::<u32>(1..=MAX_RANKS).optional(),
    /// The program and its arguments, as a list; no shell is involved. The only key without default.
    command = words_such_as("[./app]"),
    /// Variables added to the environment of every rank: `OMP_NUM_THREADS: 4`.
    env = names(),
    /// The working directory of the ranks, relative to that of `holdfast run`, which is the default. Paths in commands
    /// are relative to it.
    directory = path().optional(),
    |section| {
        check_command(section, command.as_deref());
        check_variables(section, &env);
        let (launcher_options, command) = (launcher_options.unwrap_or_default(), command.unwrap_or_default());
        let shape = RunSpec {
            launcher,
            launcher_program,
            nodes: 1,
            ranks_per_node: 1,
            ranks: 1,
            launcher_options,
            command,
            env,
            directory,
        };
        WrittenRun { nodes, ranks_per_node, ranks, ranks_key: section.path_of("ranks"), run: shape }
    }
}

/// Refuses names that no variable can have.
pub(super) fn check_variables(section: &Section<'_>, env: &BTreeMap<String, String>) {
    for name in env.keys().filter(|name| name.is_empty() || name.contains(['=', '\0'])) {
        let message = format!("`{}` cannot be a variable's name", name.escape_debug());
        section.mistake("env", message, "use letters, digits and `_`");
    }
}

fn check_command(section: &Section<'_>, command: Option<&[String]>) {
    let help = "write the program and its arguments: `command: [./app, --steps, \"400\"]`";
    match command {
        // Pairs have commands of their own.
        None if section.value_around("kind").as_deref() == Some("replicated") => {}
        None if !section.has("command") => {
            section.mistake("command", "the command is missing; it is the only key without default", help);
        }
        Some(command) if command.first().is_none_or(|program| program.trim().is_empty()) => {
            section.mistake("command", "the command is empty", help);
        }
        _ => {}
    }
}

impl WrittenRun {
    /// The run with its nodes and ranks.
    pub(super) fn within(self, allocation_nodes: Option<u32>, reader: &Reader) -> RunSpec {
        let (nodes, ranks_per_node, ranks) = shape(self.nodes, self.ranks_per_node, self.ranks, allocation_nodes);
        let key = &self.ranks_key;
        if ranks > u64::from(nodes) * u64::from(ranks_per_node) {
            let message = format!("{ranks} ranks do not fit on {nodes} nodes with {ranks_per_node} ranks each");
            reader.mistake(key, message, "raise `nodes` or `ranks_per_node`, or leave `ranks` out");
        } else if ranks <= u64::from(nodes - 1) * u64::from(ranks_per_node) {
            let message = format!("{ranks} ranks leave some of {nodes} nodes empty with {ranks_per_node} ranks each");
            let needed = ranks.div_ceil(u64::from(ranks_per_node));
            reader.mistake(key, message, format!("write `nodes: {needed}`; the other nodes are then spares"));
        } else if ranks > MAX_RANKS {
            let message = format!("{ranks} ranks are more than the maximum of {MAX_RANKS}");
            reader.mistake(key, message, "lower `nodes` or `ranks_per_node`");
        }
        RunSpec { nodes, ranks_per_node, ranks: u32::try_from(ranks).unwrap_or(u32::MAX), ..self.run }
    }
}

/// Completes nodes, ranks per node and ranks from those that were written. Without `nodes`, a run uses what its ranks
/// need, or the entire allocation.
fn shape(nodes: Option<u32>, per_node: Option<u32>, ranks: Option<u32>, allocation: Option<u32>) -> (u32, u32, u64) {
    let entire = allocation.unwrap_or(1);
    let (nodes, per_node) = match (nodes, per_node, ranks) {
        (Some(nodes), Some(per_node), _) => (nodes, per_node),
        (Some(nodes), None, Some(ranks)) => (nodes, ranks.div_ceil(nodes)),
        (Some(nodes), None, None) => (nodes, 1),
        (None, Some(per_node), Some(ranks)) => (ranks.div_ceil(per_node), per_node),
        (None, Some(per_node), None) => (entire, per_node),
        (None, None, Some(ranks)) => {
            let nodes = entire.min(ranks);
            (nodes, ranks.div_ceil(nodes))
        }
        (None, None, None) => (entire, 1),
    };
    let ranks = ranks.map_or(u64::from(nodes) * u64::from(per_node), u64::from);
    (nodes, per_node, ranks)
}
