//! What resource managers and launchers declare about themselves, as far as reading a spec depends on it: their names,
//! the keys that have an effect with them only, and when `auto` selects them. The registries of the layers above supply
//! the entries.

/// The resource managers and launchers that a spec may name, in the order in which messages list them.
#[derive(Clone, Debug)]
pub struct Registered {
    pub managers: Vec<&'static ManagerFacts>,
    /// `launcher: auto` selects the first one that can start ranks on the manager's nodes.
    pub launchers: Vec<&'static LauncherFacts>,
}

/// A resource manager, for `allocation:`.
#[derive(Debug)]
pub struct ManagerFacts {
    /// Its name in a spec.
    pub name: &'static str,
    /// Completes "`name` …" in the reference.
    pub doc: &'static str,
    /// When `manager: auto` selects it.
    pub chosen: Chosen,
    /// What sets the number of nodes.
    pub nodes: NodeCount,
    /// How to get at least this many nodes: the first half of "…, or lower `run.nodes`".
    pub more_nodes: fn(u32) -> String,
    /// The keys of `allocation:`.
    pub keys: KeyFacts,
}

/// A launcher, for `run:`.
#[derive(Debug)]
pub struct LauncherFacts {
    /// Its name in a spec.
    pub name: &'static str,
    /// Added to the name in the reference; may be empty.
    pub doc: &'static str,
    /// The resource managers on whose nodes it can start ranks.
    pub managers: &'static [&'static str],
    /// The keys of `run:`.
    pub keys: KeyFacts,
}

/// Keys that have an effect with some entries only. A key that no entry declares has an effect with all of them.
#[derive(Debug)]
pub struct KeyFacts {
    /// Keys that have an effect with this entry, but not with entries that do not list them. The text is the help shown
    /// with such another entry; if it is empty, the help suggests this entry.
    pub takes: &'static [(&'static str, &'static str)],
    /// Keys of other entries for which this one has its own help.
    pub without: &'static [(&'static str, &'static str)],
}

/// When `manager: auto` selects a manager.
#[derive(Debug)]
pub enum Chosen {
    /// One of these variables is set.
    ByVariables(&'static [&'static str]),
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
    /// `allocation.nodes`, or else what the runs need.
    Asked,
    Variables {
        /// The first of these variables whose value is a number.
        counts: &'static [&'static str],
        /// The first of these variables whose value is a host list: the nodes.
        lists: &'static [&'static str],
    },
    /// The length of `allocation.hosts`.
    Hosts,
}

/// Planned resource managers, and the variable that each sets in its allocations.
const LATER_MANAGERS: [(&str, &str); 3] = [("pbs", "PBS_JOBID"), ("lsf", "LSB_JOBID"), ("flux", "FLUX_JOB_ID")];
/// Planned launchers.
const LATER_LAUNCHERS: [&str; 3] = ["flux", "prun", "torchrun"];

/// An entry of one of the two registries.
pub(super) trait RegistryEntry: 'static {
    /// The key of the spec that selects an entry.
    const KEY: &'static str;

    fn name(&self) -> &'static str;
    fn keys(&self) -> &KeyFacts;
    fn all(registered: &Registered) -> &[&'static Self];
    /// Planned names: recognised, so that they are not reported as misspellings.
    fn later() -> Vec<&'static str>;
}

impl RegistryEntry for ManagerFacts {
    const KEY: &'static str = "manager";

    fn name(&self) -> &'static str {
        self.name
    }

    fn keys(&self) -> &KeyFacts {
        &self.keys
    }

    fn all(registered: &Registered) -> &[&'static Self] {
        &registered.managers
    }

    fn later() -> Vec<&'static str> {
        LATER_MANAGERS.iter().map(|(name, _)| *name).collect()
    }
}

impl RegistryEntry for LauncherFacts {
    const KEY: &'static str = "launcher";

    fn name(&self) -> &'static str {
        self.name
    }

    fn keys(&self) -> &KeyFacts {
        &self.keys
    }

    fn all(registered: &Registered) -> &[&'static Self] {
        &registered.launchers
    }

    fn later() -> Vec<&'static str> {
        LATER_LAUNCHERS.to_vec()
    }
}

impl Registered {
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
            Chosen::ByVariables(names) => names.iter().any(is_set),
            Chosen::ByKeys { .. } | Chosen::Otherwise => false,
        };
        if let Some(found) = find(&by_variables) {
            return Ok(found);
        }
        if let Some((later, _)) = LATER_MANAGERS.iter().find(|(_, name)| is_set(name)) {
            return Err(later);
        }
        find(&|facts| matches!(facts.chosen, Chosen::Otherwise)).ok_or("auto")
    }

    /// The launcher in force on nodes of `manager`: the one that is named, or, for `auto` (`None`), the first one that
    /// can start ranks there.
    pub fn launcher(&self, written: Option<&str>, manager: &str) -> Option<&'static LauncherFacts> {
        let in_force = |facts: &&&LauncherFacts| match written {
            Some(written) => facts.name == written,
            None => facts.managers.contains(&manager),
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
    use crate::spec::{Environment, JobSpec, reference};

    static MANAGER: ManagerFacts = ManagerFacts {
        name: "lattice",
        doc: "asks a lattice",
        chosen: Chosen::ByVariables(&["LATTICE_JOB"]),
        nodes: NodeCount::Variables { counts: &["LATTICE_NODES"], lists: &[] },
        more_nodes: |needed| format!("ask the lattice for {needed}"),
        keys: KeyFacts { takes: &[("time_limit", "")], without: &[("nodes", "the lattice counts them")] },
    };

    static LAUNCHER: LauncherFacts = LauncherFacts {
        name: "weave",
        doc: "",
        managers: &["lattice"],
        keys: KeyFacts { takes: &[("launcher_options", "")], without: &[] },
    };

    /// The real entries and the ones of this test.
    fn extended() -> Registered {
        let mut registered = registry::registered();
        registered.managers.push(&MANAGER);
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
        assert_eq!(registered.launcher(None, "lattice").unwrap().name, "weave");
        // Without the entries the names are unknown.
        let bare = Environment::empty(registry::registered());
        let mistakes = JobSpec::parse(text, "job.yaml", &bare).unwrap_err().to_string();
        assert!(mistakes.contains("allocation.manager") && mistakes.contains("run.launcher"), "{mistakes}");
    }

    #[test]
    fn keys_of_other_entries_are_refused_with_a_help() {
        for (keys, key, help) in [
            ("nodes: 4", "nodes", "the lattice counts them"),
            ("chaos: [{node: 0, after: 1s}]", "chaos", "virtual nodes only"),
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
        let help = "write `launcher: srun` or `launcher: mpirun` or `launcher: weave`";
        assert!(mistakes.contains(help), "{mistakes}");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_list_of_entries() {
        let with_manager = |name: &str| read(&format!("allocation: {{manager: {name}}}\nrun: {{command: [a]}}\n"));
        let mistakes = with_manager("latice").unwrap_err();
        assert!(mistakes.contains("one of `auto`, `local`, `slurm`, `ssh`, `lattice`"), "{mistakes}");
        assert!(mistakes.contains("did you mean `lattice`?"), "{mistakes}");
        let mistakes = with_manager("pbs").unwrap_err();
        assert!(mistakes.contains("`pbs` is not available in this version"), "{mistakes}");
        assert!(mistakes.contains("available: `auto`, `local`, `slurm`, `ssh`, `lattice`"), "{mistakes}");
        let mistakes = read("run: {command: [a], launcher: torchrun}\n").unwrap_err();
        assert!(mistakes.contains("available: `auto`, `local`, `srun`, `ssh`, `mpirun`, `weave`"), "{mistakes}");
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
        assert!(text.contains("docs/mpirun.md), `weave`. `auto`"), "{text}");
    }

    #[test]
    fn entries_declare_keys_of_their_section_only() {
        fn check<E: RegistryEntry>(entries: &[&'static E], declared: &[&str]) {
            for entry in entries {
                let named = entry.keys().takes.iter().chain(entry.keys().without);
                named.for_each(|(key, _)| assert!(declared.contains(key), "{}: {key}", entry.name()));
            }
        }
        let registered = registry::registered();
        check(&registered.managers, &Allocation::declared().iter().map(|key| key.name).collect::<Vec<_>>());
        check(&registered.launchers, &RunSpec::declared().iter().map(|key| key.name).collect::<Vec<_>>());
    }
}
