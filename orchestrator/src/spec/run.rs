//! `run:` what is launched, and on how many nodes with how many ranks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::reading::{Choice, Section, TEXT};

/// More ranks than this is a typing mistake.
const MAX_RANKS: u64 = 1 << 20;
const MAX_NODES: u64 = 1 << 16;

/// One application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Who starts its processes.
    pub launcher: Launcher,
    /// Nodes that it needs; what is left of the allocation are spares.
    pub nodes: u32,
    /// Ranks on a node, at most; the last node may have fewer.
    pub ranks_per_node: u32,
    /// Ranks altogether.
    pub ranks: u32,
    /// The launcher's program, where there are several; `None` = what is in PATH. Mpirun only.
    pub launcher_program: Option<String>,
    /// Options that are handed to the launcher as they stand.
    pub launcher_options: Vec<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables added to the environment of every rank.
    pub env: BTreeMap<String, String>,
    /// The working directory of every rank; `None` = where `holdfast` was started.
    pub directory: Option<PathBuf>,
}

/// A launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// What belongs to the resource manager.
    Auto,
    /// Each rank is a process of this machine.
    Local,
    /// One Slurm step.
    Srun,
    /// One mpirun or mpiexec.
    Mpirun,
    /// One ssh connection a node.
    Ssh,
}

impl Choice for Launcher {
    const AVAILABLE: &'static [(&'static str, Self)] = &[
        ("auto", Launcher::Auto),
        ("local", Launcher::Local),
        ("srun", Launcher::Srun),
        ("ssh", Launcher::Ssh),
        ("mpirun", Launcher::Mpirun),
    ];
    const LATER: &'static [&'static str] = &["flux", "prun", "torchrun"];
}

impl Run {
    /// The number of ranks on the `index`-th node of a full placement.
    pub fn ranks_on(&self, index: u32) -> u32 {
        self.ranks.saturating_sub(index.saturating_mul(self.ranks_per_node)).min(self.ranks_per_node)
    }

    pub(super) fn read(mut section: Section<'_>, allocation_nodes: Option<u32>) -> Self {
        let launcher = section.choice("launcher", Launcher::Auto);
        let launcher_program = section.optional("launcher_program", &TEXT).filter(|program| !program.is_empty());
        let program_key = launcher_program.is_some().then(|| section.path_of("launcher_program"));
        let launcher_options = section.words("launcher_options").unwrap_or_default();
        let nodes = section.optional_number("nodes", 1..=MAX_NODES).map(|number| number as u32);
        let per_node = section.optional_number("ranks_per_node", 1..=MAX_RANKS).map(|number| number as u32);
        let ranks = section.optional_number("ranks", 1..=MAX_RANKS).map(|number| number as u32);
        let command = section.words("command");
        let env = section.names("env");
        let directory = section.optional("directory", &TEXT).map(PathBuf::from);
        let (reader, key) = (section.reader(), |name: &str| section.path_of(name));
        let (command_key, env_key, ranks_key) = (key("command"), key("env"), key("ranks"));
        let missing = !section.has("command");
        section.finish();

        if let Some(key) = program_key.filter(|_| matches!(launcher, Launcher::Local | Launcher::Srun | Launcher::Ssh))
        {
            let help = "it names the mpirun of `launcher: mpirun`; write that, or leave the program out";
            reader.mistake(&key, "`launcher_program` says nothing with this launcher", help);
        }
        let help = "write the program and its arguments: `command: [./app, --steps, \"400\"]`";
        match &command {
            None if missing => {
                reader.mistake(&command_key, "the command is missing; it is the one key without default", help)
            }
            Some(words) if words.first().is_none_or(|program| program.trim().is_empty()) => {
                reader.mistake(&command_key, "the command is empty", help);
            }
            _ => {}
        }
        for name in env.keys().filter(|name| name.is_empty() || name.contains(['=', '\0'])) {
            let help = "use letters, digits and `_`";
            reader.mistake(&env_key, format!("`{}` cannot be a variable's name", name.escape_debug()), help);
        }
        let (nodes, ranks_per_node, ranks) = shape(nodes, per_node, ranks, allocation_nodes);
        if ranks > u64::from(nodes) * u64::from(ranks_per_node) {
            let message = format!("{ranks} ranks do not fit on {nodes} nodes with {ranks_per_node} ranks each");
            reader.mistake(&ranks_key, message, "raise `nodes` or `ranks_per_node`, or leave `ranks` out");
        } else if ranks <= u64::from(nodes - 1) * u64::from(ranks_per_node) {
            let message = format!("{ranks} ranks leave some of {nodes} nodes with {ranks_per_node} ranks each empty");
            let needed = ranks.div_ceil(u64::from(ranks_per_node));
            reader.mistake(&ranks_key, message, format!("write `nodes: {needed}`; the rest are spares then"));
        } else if ranks > MAX_RANKS {
            let message = format!("{ranks} ranks are more than {MAX_RANKS}");
            reader.mistake(&ranks_key, message, "lower `nodes` or `ranks_per_node`");
        }
        let ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
        let command = command.unwrap_or_default();
        Run { launcher, launcher_program, nodes, ranks_per_node, ranks, launcher_options, command, env, directory }
    }
}

/// Completes nodes, ranks a node and ranks from those that were written. Without `nodes`, a run takes what its ranks
/// need, or the whole allocation.
fn shape(nodes: Option<u32>, per_node: Option<u32>, ranks: Option<u32>, allocation: Option<u32>) -> (u32, u32, u64) {
    let whole = allocation.unwrap_or(1);
    let (nodes, per_node) = match (nodes, per_node, ranks) {
        (Some(nodes), Some(per_node), _) => (nodes, per_node),
        (Some(nodes), None, Some(ranks)) => (nodes, ranks.div_ceil(nodes)),
        (Some(nodes), None, None) => (nodes, 1),
        (None, Some(per_node), Some(ranks)) => (ranks.div_ceil(per_node), per_node),
        (None, Some(per_node), None) => (whole, per_node),
        (None, None, Some(ranks)) => {
            let nodes = whole.min(ranks);
            (nodes, ranks.div_ceil(nodes))
        }
        (None, None, None) => (whole, 1),
    };
    let ranks = ranks.map_or(u64::from(nodes) * u64::from(per_node), u64::from);
    (nodes, per_node, ranks)
}
