//! What resource managers, launchers and checkpoint sources declare about themselves, as far as reading a spec depends
//! on it: their names, the keys that have an effect with them only, and when `auto` selects them. The registries of the
//! layers above supply the entries.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use holdfast_agent::sources::SourceEntry;
use holdfast_core::hostlist;
use holdfast_model::NodeName;

/// Larger files list no nodes.
const LARGEST_NODE_FILE: u64 = 64 << 20;

/// The resource managers, launchers and checkpoint sources that a spec may name, in the order in which messages list
/// them.
#[derive(Clone, Debug)]
pub struct Registered {
    pub managers: Vec<&'static ManagerFacts>,
    /// Managers that this version does not have.
    pub planned_managers: &'static [PlannedEntry],
    /// `launcher: auto` selects the first one that can start ranks on the manager's nodes.
    pub launchers: Vec<&'static LauncherFacts>,
    /// Launchers that this version does not have.
    pub planned_launchers: &'static [PlannedEntry],
    pub sources: Vec<&'static SourceFacts>,
}

/// A manager or launcher that this version does not have: recognised, so that its name is not reported as a
/// misspelling, and its jobs are not run on their head node.
#[derive(Clone, Copy, Debug)]
pub struct PlannedEntry {
    pub name: &'static str,
    /// A manager sets this variable in its jobs.
    pub variable: Option<&'static str>,
    /// What a site would have to send for it to be supported, as a help; `None` if nothing is missing but the work.
    pub needed: Option<&'static str>,
}

impl PlannedEntry {
    /// An entry of this name.
    pub const fn named(name: &'static str) -> Self {
        PlannedEntry { name, variable: None, needed: None }
    }
}

/// A resource manager, for `allocation:`.
#[derive(Debug)]
pub struct ManagerFacts {
    /// Its name in a spec.
    pub name: &'static str,
    /// Completes "`name` …" in the reference.
    pub doc: &'static str,
    /// Its name in messages.
    pub title: &'static str,
    /// When `manager: auto` selects it.
    pub chosen: Chosen,
    /// What sets the number of nodes.
    pub nodes: NodeCount,
    /// The variables of its jobs.
    pub variables: ManagerVariables,
    /// How it requeues a job, for `requeue:`; the key has the manager's name.
    pub requeue: Option<RequeueFacts>,
    /// True if it knows which nodes are behind one switch.
    pub has_topology: bool,
    /// True if launchers may start daemons of their own on its nodes.
    pub has_remote_shells: bool,
    /// How to get at least this many nodes: the first half of "…, or lower `run.nodes`".
    pub more_nodes: fn(u32) -> String,
    /// The keys of `allocation:`.
    pub keys: KeyFacts,
}

impl ManagerFacts {
    /// True if it makes its nodes, on this machine: nothing of others runs on them.
    pub fn has_virtual_nodes(&self) -> bool {
        self.nodes == NodeCount::Asked
    }
}

/// Variables in the environment of the jobs of a manager: of those that mean the same, the first one that is set
/// counts.
#[derive(Debug)]
pub struct ManagerVariables {
    /// The id of the job. One of them is set in every job.
    pub job_ids: &'static [&'static str],
    /// The number of nodes.
    pub node_counts: &'static [&'static str],
    /// The nodes, as a host list.
    pub node_lists: &'static [&'static str],
    /// The path of a file with the nodes, one a line, each as often as it has processes.
    pub node_files: &'static [&'static str],
    /// Asks for the nodes in a job of the manager, if no variables name them. None without an answer.
    pub ask_nodes: Option<fn() -> Vec<NodeName>>,
    /// Variables that change what commands of this manager or an MPI do: they are removed from the environment of
    /// launchers, which have options for all of it.
    pub removed: &'static [&'static str],
}

impl ManagerVariables {
    /// Those of a manager without jobs of its own.
    pub const NONE: Self = ManagerVariables {
        job_ids: &[],
        node_counts: &[],
        node_lists: &[],
        node_files: &[],
        ask_nodes: None,
        removed: &[],
    };

    /// The id of the job.
    pub fn job_id(&self, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
        first_set(self.job_ids, variable)
    }

    /// The number of nodes of the job.
    pub fn node_count(&self, variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
        let count = first_set(self.node_counts, &variable).and_then(|count| count.parse().ok());
        count.or_else(|| u32::try_from(self.listed_nodes(&variable)?.len()).ok())
    }

    /// The nodes in the file of the job, each once.
    fn listed_nodes(&self, variable: impl Fn(&str) -> Option<String>) -> Option<Vec<NodeName>> {
        nodes_in_file(Path::new(&first_set(self.node_files, variable)?)).ok()
    }

    /// The nodes of the job, if a variable, or the file that it names, lists them.
    pub fn nodes(&self, variable: impl Fn(&str) -> Option<String>) -> Option<Vec<NodeName>> {
        let listed = self.node_lists.iter().find_map(|name| hostlist::expand(&variable(name)?).ok());
        listed.or_else(|| self.listed_nodes(variable))
    }

    /// The host list of the job.
    pub fn node_list(&self, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
        first_set(self.node_lists, variable)
    }
}

/// The nodes in a file with one node a line, each once.
///
/// # Errors
/// The file cannot be read, or is larger than that of a hundred thousand processes.
pub fn nodes_in_file(path: &Path) -> io::Result<Vec<NodeName>> {
    let mut text = String::new();
    File::open(path)?.take(LARGEST_NODE_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST_NODE_FILE {
        return Err(io::Error::other(format!("it is larger than {LARGEST_NODE_FILE} bytes")));
    }
    let mut known = BTreeSet::new();
    let names = text.lines().map(str::trim).filter(|name| !name.is_empty() && known.insert(*name));
    Ok(names.map(NodeName::from).collect())
}

fn first_set(names: &[&str], variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()))
}

/// How a manager runs the job of this process again, in another allocation.
#[derive(Debug)]
pub struct RequeueFacts {
    /// The documentation of the key.
    pub doc: &'static str,
    /// The command for a job id: the program and its arguments.
    pub command: fn(String) -> Vec<String>,
    /// What a new spec suggests for `requeue:`.
    pub suggested: &'static str,
    /// Checks, before the run begins, whether the manager would run the job with this id again. Blocks.
    pub check: fn(&str) -> Result<(), String>,
    /// True for a message of the manager that it does not know the job.
    pub is_unknown_job: fn(&str) -> bool,
    /// If the manager has jobs that it runs again, without a request, after a failure of their script.
    pub after_failures: Option<RerunFacts>,
}

/// A command without options that the installed version does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdaptedCommand {
    pub words: Vec<String>,
    /// What was changed, as a sentence.
    pub change: String,
}

/// Jobs that are submitted so that the manager runs them again after a failure of their script.
#[derive(Debug)]
pub struct RerunFacts {
    /// A command as the installed version accepts it; `None` if it does as it is. Blocks.
    pub adapt: fn(&[String]) -> Option<AdaptedCommand>,
    /// Makes sure that the job with this id is not run again, if it was submitted so. Returns the command that did it,
    /// or why it may be run again. Blocks.
    pub prevent: fn(&str) -> Option<Result<String, String>>,
}

/// A launcher, for `run:`.
#[derive(Debug)]
pub struct LauncherFacts {
    /// Its name in a spec.
    pub name: &'static str,
    /// Added to the name in the reference; may be empty.
    pub doc: &'static str,
    /// On whose nodes it can start ranks.
    pub suits: Suits,
    /// The keys of `run:`.
    pub keys: KeyFacts,
}

impl LauncherFacts {
    /// True if it can start ranks on nodes of this manager.
    pub fn suits(&self, manager: &ManagerFacts) -> bool {
        match self.suits {
            Suits::Manager(name) => manager.name == name,
            Suits::Managers(names) => names.contains(&manager.name),
            Suits::RemoteShells => manager.has_remote_shells,
        }
    }
}

/// The managers on whose nodes a launcher can start ranks.
#[derive(Debug)]
pub enum Suits {
    /// The one that it belongs to.
    Manager(&'static str),
    Managers(&'static [&'static str]),
    /// All that permit it to start daemons on their nodes.
    RemoteShells,
}

/// A checkpoint source, for `checkpoint:`.
#[derive(Debug)]
pub struct SourceFacts {
    /// The agents' part, with its name.
    pub agent: &'static SourceEntry,
    /// Completes "`name`: …" in the reference.
    pub doc: &'static str,
    /// The keys of `checkpoint:`.
    pub keys: KeyFacts,
    /// What `checkpoint.every` means with it.
    pub frequency: FrequencyFacts,
    /// `libscr_interpose` may be loaded into the ranks.
    pub can_be_interposed: bool,
    /// The program selects a level for each checkpoint: there is a descriptor for each level.
    pub has_levels: bool,
}

/// What `checkpoint.every` means with a source.
#[derive(Debug)]
pub enum FrequencyFacts {
    /// It has no effect, and what to do about it.
    None { help: &'static str },
    Keys {
        /// The program asks whether a checkpoint is due: calls can be counted.
        counts_calls: bool,
        /// Parts of a second are not counted.
        whole_seconds: bool,
        /// The keys of `checkpoint:` that set the same.
        finer: &'static [&'static str],
    },
}

/// Keys that have an effect with some entries only. A key that no entry declares has an effect with all of them.
#[derive(Debug)]
pub struct KeyFacts {
    /// Keys that have an effect with this entry, but not with entries that do not list them. The text is the help shown
    /// with such another entry; if it is empty, the help suggests this entry.
    pub takes: &'static [(&'static str, &'static str)],
    /// Keys without effect with this entry, with its own help: those of other entries, or keys that most entries have.
    pub without: &'static [(&'static str, &'static str)],
}

impl KeyFacts {
    /// True if it lists this key among those that have an effect with it.
    pub fn takes(&self, key: &str) -> bool {
        self.takes.iter().any(|(taken, _)| *taken == key)
    }
}

/// When `manager: auto` selects a manager.
#[derive(Debug)]
pub enum Chosen {
    /// This process is in one of its jobs: a variable with a job id is set.
    InItsJobs {
        /// Where this command is, jobs belong into its allocations.
        command: &'static str,
        /// How to get one.
        help: &'static str,
    },
    /// One of these keys of `allocation:` is written; the manager needs one of them.
    ByKeys {
        keys: &'static [&'static str],
        /// The help if none of them is written.
        help: &'static str,
    },
    /// No key and no variable selects another manager.
    Otherwise,
}

/// What sets the number of nodes of an allocation.
#[derive(Debug, PartialEq, Eq)]
pub enum NodeCount {
    /// `allocation.nodes`, or else what the runs need: the manager makes the nodes, named by
    /// [`virtual_node`](super::virtual_node).
    Asked,
    /// The variables of the manager's job.
    Variables,
    /// The hosts that keys of the manager list.
    Hosts,
}

/// One of the registries.
#[derive(Clone, Copy, Debug)]
pub enum EntryKind {
    Manager,
    Launcher,
    Source,
}

impl EntryKind {
    /// The key of the spec that selects an entry.
    pub fn key(self) -> &'static str {
        match self {
            EntryKind::Manager => "manager",
            EntryKind::Launcher => "launcher",
            EntryKind::Source => "source",
        }
    }
}

impl Registered {
    /// The name and the keys of each entry of a registry.
    pub fn entries(&self, kind: EntryKind) -> Vec<(&'static str, &'static KeyFacts)> {
        match kind {
            EntryKind::Manager => self.managers.iter().map(|facts| (facts.name, &facts.keys)).collect(),
            EntryKind::Launcher => self.launchers.iter().map(|facts| (facts.name, &facts.keys)).collect(),
            EntryKind::Source => self.sources.iter().map(|facts| (facts.agent.name, &facts.keys)).collect(),
        }
    }

    /// The entries that this version does not have.
    pub fn planned(&self, kind: EntryKind) -> &'static [PlannedEntry] {
        match kind {
            EntryKind::Manager => self.planned_managers,
            EntryKind::Launcher => self.planned_launchers,
            EntryKind::Source => &[],
        }
    }

    /// The names of the entries that accept a key.
    pub(super) fn takers(&self, kind: EntryKind, key: &str) -> impl Iterator<Item = &'static str> {
        let takes = move |(_, keys): &(_, &KeyFacts)| keys.takes.iter().any(|(taken, _)| *taken == key);
        self.entries(kind).into_iter().filter(takes).map(|(name, _)| name)
    }

    /// The manager in force: the one that is named, or, for `auto` (`None`), the one whose variables are set in the
    /// environment, or else the one for machines without a manager. Keys of the spec that select a manager have been
    /// considered when they were read.
    ///
    /// # Errors
    /// The name of the resource manager whose allocation this is, if this version does not support it. Falling back to
    /// the local manager would run the entire job on the head node.
    pub fn manager(
        &self,
        written: Option<&'static str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<&'static ManagerFacts, &'static str> {
        let is_set = |name: &&str| variable(name).is_some_and(|value| !value.is_empty());
        let find = |test: &dyn Fn(&ManagerFacts) -> bool| self.managers.iter().copied().find(|facts| test(facts));
        if let Some(written) = written {
            return find(&|facts| facts.name == written).ok_or(written);
        }
        let by_variables = |facts: &ManagerFacts| match facts.chosen {
            Chosen::InItsJobs { .. } => facts.variables.job_ids.iter().any(is_set),
            Chosen::ByKeys { .. } | Chosen::Otherwise => false,
        };
        if let Some(found) = find(&by_variables) {
            return Ok(found);
        }
        let is_of = |planned: &&PlannedEntry| planned.variable.as_ref().is_some_and(is_set);
        if let Some(planned) = self.planned_managers.iter().find(is_of) {
            return Err(planned.name);
        }
        find(&|facts| matches!(facts.chosen, Chosen::Otherwise)).ok_or("auto")
    }

    /// A manager whose command is here, although no manager was selected by the spec or by variables.
    pub fn passed_over(&self, has_command: impl Fn(&str) -> bool) -> Option<(&'static ManagerFacts, &'static str)> {
        self.managers.iter().find_map(|facts| match facts.chosen {
            Chosen::InItsJobs { command, help } if has_command(command) => Some((*facts, help)),
            _ => None,
        })
    }

    /// The managers that can run a job again.
    pub(super) fn requeuing(&self) -> impl Iterator<Item = &'static ManagerFacts> + '_ {
        self.managers.iter().copied().filter(|facts| facts.requeue.is_some())
    }

    /// The launcher in force on nodes of `manager`: the one that is named, or, for `auto` (`None`), the first one that
    /// can start ranks there.
    pub fn launcher(&self, written: Option<&str>, manager: &ManagerFacts) -> Option<&'static LauncherFacts> {
        let in_force = |facts: &&&LauncherFacts| match written {
            Some(written) => facts.name == written,
            None => facts.suits(manager),
        };
        self.launchers.iter().find(in_force).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::launch::registry;
    use crate::spec::allocation::Allocation;
    use crate::spec::keys::Keys as _;
    use crate::spec::run::RunSpec;
    use crate::spec::{Environment, JobSpec, ManagerKeys, Registry, reference};

    static MANAGER: ManagerFacts = ManagerFacts {
        name: "lattice",
        doc: "asks a lattice",
        title: "Lattice",
        chosen: Chosen::InItsJobs { command: "srun", help: "salloc" },
        nodes: NodeCount::Variables,
        variables: ManagerVariables {
            job_ids: &["LATTICE_JOB"],
            node_counts: &["LATTICE_NODES"],
            ..ManagerVariables::NONE
        },
        requeue: Some(RequeueFacts {
            doc: "`true`: the lattice runs the job again.",
            command: |job_id| vec!["again".to_owned(), job_id],
            suggested: "{lattice: true}",
            check: |_| Ok(()),
            is_unknown_job: |_| false,
            after_failures: None,
        }),
        has_topology: false,
        has_remote_shells: false,
        more_nodes: |needed| format!("ask the lattice for {needed}"),
        keys: KeyFacts { takes: &[("time_limit", "")], without: &[("nodes", "the lattice counts them")] },
    };

    static KEYS: ManagerKeys = ManagerKeys::NONE;

    static LAUNCHER: LauncherFacts = LauncherFacts {
        name: "weave",
        doc: "",
        suits: Suits::Manager("lattice"),
        keys: KeyFacts { takes: &[("launcher_options", "")], without: &[] },
    };

    /// The real entries and the ones of this test.
    fn extended() -> Registry {
        let mut registered = registry::registered();
        registered.add_manager(&MANAGER, &KEYS);
        registered.launchers.push(&LAUNCHER);
        registered
    }

    fn read(text: &str) -> Result<JobSpec, String> {
        read_in(text, &[])
    }

    fn read_in(text: &str, variables: &[(&str, &str)]) -> Result<JobSpec, String> {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let environment = Environment::new(extended(), variables, Path::new("/nonexistent")).unwrap();
        JobSpec::parse(text, "job.yaml", &environment).map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn a_registered_manager_and_launcher_can_be_named_with_their_keys() {
        let text = "allocation: {manager: lattice, time_limit: 1h}\n\
                    run: {command: [a], launcher: weave, launcher_options: [-v]}\n";
        let spec = read(text).unwrap();
        assert_eq!((spec.allocation.manager, spec.steps[0].run.launcher), (Some("lattice"), Some("weave")));
        // `auto` selects its launcher on its nodes.
        read("allocation: {manager: lattice}\nrun: {command: [a], launcher_options: [-v]}\n").unwrap();
        let registered = extended();
        assert_eq!(registered.launcher(None, &MANAGER).unwrap().name, "weave");
        // Without the entries the names are unknown.
        let bare = Environment::empty(registry::registered());
        let mistakes = JobSpec::parse(text, "job.yaml", &bare).unwrap_err().to_string();
        assert!(mistakes.contains("allocation.manager") && mistakes.contains("run.launcher"), "{mistakes}");
    }

    #[test]
    fn keys_of_other_entries_are_refused_with_a_help() {
        for (keys, key, help) in [
            ("nodes: 4", "nodes", "the lattice counts them"),
            ("hosts: [n1]", "hosts", "write `manager: ssh`, or leave `hosts` out"),
        ] {
            let mistakes = read(&format!("allocation: {{manager: lattice, {keys}}}\nrun: {{command: [a]}}\n"));
            let mistakes = mistakes.unwrap_err();
            let expected = format!("allocation.{key}: `{key}` has no effect with `manager: lattice`");
            assert!(mistakes.contains(&expected) && mistakes.contains(help), "{keys}\n{mistakes}");
        }
        let mistakes = read("allocation: {manager: lattice}\nrun: {command: [a], launcher_program: p}\n").unwrap_err();
        assert!(mistakes.contains("`launcher_program` has no effect with `launcher: weave`"), "{mistakes}");
        let mistakes = read("run: {command: [a], launcher_options: [-v]}\n").unwrap_err();
        let help = "or `launcher: flux` or `launcher: mpirun` or `launcher: torchrun` or `launcher: weave`";
        assert!(mistakes.contains(help), "{mistakes}");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_list_of_entries() {
        let with_manager = |name: &str| read(&format!("allocation: {{manager: {name}}}\nrun: {{command: [a]}}\n"));
        let mistakes = with_manager("latice").unwrap_err();
        assert!(mistakes.contains("one of `auto`, `local`, `slurm`, `ssh`, `flux`, `pbs`, `lattice`"), "{mistakes}");
        assert!(mistakes.contains("did you mean `lattice`?"), "{mistakes}");
        let mistakes = read("run: {command: [a], launcher: prun}\n").unwrap_err();
        let available = "available: `auto`, `local`, `srun`, `ssh`, `flux`, `mpirun`, `torchrun`, `weave`";
        assert!(mistakes.contains(available), "{mistakes}");
    }

    #[test]
    fn the_environment_selects_an_entry_and_sets_its_node_count() {
        let inside = [("LATTICE_JOB", "7"), ("LATTICE_NODES", "5")];
        assert_eq!(read_in("run: {command: [a]}\n", &inside).unwrap().allocation.nodes, 5);
        let mistakes = read_in("run: {nodes: 6, command: [a]}\n", &inside).unwrap_err();
        assert!(mistakes.contains("ask the lattice for 6, or lower `run.nodes`"), "{mistakes}");
    }

    #[test]
    fn the_reference_lists_the_entries_and_which_of_them_have_a_key() {
        let text = reference::text(&extended()).replace("\n  # ", " ");
        assert!(text.contains("`lattice` asks a lattice. `auto` selects `ssh` if and only if `hosts`"), "{text}");
        assert!(text.contains("Local and ssh and lattice: the allocation ends"), "{text}");
        assert!(text.contains("docs/torchrun.md), `weave`. `auto`"), "{text}");
    }

    #[test]
    fn entries_declare_keys_of_their_section_only() {
        let registered = registry::registered();
        let check = |kind, declared: &[&str]| {
            for (name, keys) in registered.entries(kind) {
                let named = keys.takes.iter().chain(keys.without);
                named.for_each(|(key, _)| assert!(declared.contains(key), "{name}: {key}"));
            }
        };
        let of_managers = registered.manager_keys.iter().flat_map(|keys| (keys.declared)());
        let of_allocation = Allocation::declared().into_iter().chain(of_managers);
        check(EntryKind::Manager, &of_allocation.map(|key| key.name).collect::<Vec<_>>());
        check(EntryKind::Launcher, &RunSpec::declared().iter().map(|key| key.name).collect::<Vec<_>>());
    }
}
