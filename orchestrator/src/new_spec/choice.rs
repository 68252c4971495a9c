//! What follows from a program and its surroundings: manager, launcher and source, each with its reason.

use super::program::Program;
use super::surroundings::Surroundings;
use crate::launch::mpi::{Mpi, MpirunFound};
use crate::launch::registry::registered;
use crate::launch::script::Finding;

/// The decisions of a new spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub manager: Finding<&'static str>,
    /// Nodes of the allocation, if the spec states them.
    pub allocation_nodes: Option<u32>,
    /// Nodes of the run; the others are spares. `None` if the size of the allocation is not known.
    pub run_nodes: Option<u32>,
    pub launcher: Finding<&'static str>,
    /// The launcher follows from the manager, so that the spec need not name it.
    pub launcher_is_default: bool,
    /// The program of the launcher, if the first one in PATH is that of another MPI.
    pub launcher_program: Option<String>,
    /// An option of `srun`, without which each rank would be a program of one rank.
    pub launcher_option: Option<&'static str>,
    pub source: Finding<&'static str>,
}

/// Decides. `mpirun` looks for the launcher of an MPI.
pub fn choose(program: &Program, surroundings: &Surroundings, mpirun: impl Fn(Mpi) -> MpirunFound) -> Choice {
    let (manager, nodes, own_launcher) = match surroundings {
        Surroundings::Allocation { manager, title, nodes } => {
            let count = nodes.map_or_else(String::new, |nodes| format!(" of {nodes} nodes"));
            (finding(*manager, format!("this is an allocation of {title}{count}")), *nodes, launcher_on(manager))
        }
        Surroundings::Outside { manager, title, help } => {
            let how = format!("the commands of {title} are here; this is no allocation: run it with {help}");
            (finding(*manager, how), None, launcher_on(manager))
        }
        Surroundings::HostsFile { path, hosts } => {
            (finding("ssh", format!("{} lists {hosts} hosts", path.display())), Some(*hosts), "ssh")
        }
        Surroundings::Hosts { listed_in, hosts } => {
            let how = format!("{listed_in} lists {} hosts", hosts.len());
            (finding("ssh", how), u32::try_from(hosts.len()).ok(), "ssh")
        }
        Surroundings::OneMachine { nodes } => {
            let how = format!("no allocation, no hosts file: {nodes} virtual nodes on this machine");
            (finding("local", how), Some(*nodes), "local")
        }
    };
    let (launcher, launcher_program) = launcher(program, own_launcher, mpirun);
    let source = program.source.clone().unwrap_or_else(|| {
        let how = "nothing was found in it that makes checkpoints: nothing is protected";
        finding("none", how.to_owned())
    });
    let mpi = program.mpi.as_ref().map(|mpi| mpi.what);
    Choice {
        launcher_option: mpi.filter(|_| launcher.what == "srun").and_then(srun_option),
        manager,
        allocation_nodes: matches!(surroundings, Surroundings::OneMachine { .. }).then_some(nodes).flatten(),
        run_nodes: nodes.map(|nodes| nodes.saturating_sub(1).max(1)),
        launcher_is_default: launcher.what == own_launcher,
        launcher,
        launcher_program,
        source,
    }
}

/// The launcher that `auto` selects on the nodes of a manager.
fn launcher_on(manager: &str) -> &'static str {
    let registered = registered();
    let facts = registered.managers.iter().copied().find(|facts| facts.name == manager);
    facts.and_then(|facts| registered.launcher(None, facts)).map_or("mpirun", |launcher| launcher.name)
}

/// MPI programs are started by the launcher of their MPI, but under Slurm and Flux, whose own launchers serve
/// every MPI.
fn launcher(
    program: &Program,
    own: &'static str,
    mpirun: impl Fn(Mpi) -> MpirunFound,
) -> (Finding<&'static str>, Option<String>) {
    let Some(Finding { what: mpi, how }) = &program.mpi else {
        return (finding(own, "no library of MPI was found in it".to_owned()), None);
    };
    let title = mpi.title();
    if own == "srun" {
        let how = format!("{how} ({title}); `srun --mpi=list` lists what Slurm has for it");
        return (finding(own, how), None);
    }
    if own == "flux" {
        return (finding(own, format!("{how} ({title}); `flux run` connects its ranks by PMI")), None);
    }
    match mpirun(*mpi) {
        MpirunFound::First => (finding("mpirun", format!("{how} ({title})")), None),
        MpirunFound::Named(name) => {
            let reason = format!("{how} ({title}); the first mpirun in PATH is that of another MPI");
            (finding("mpirun", reason), Some(name))
        }
        MpirunFound::Missing => {
            (finding("mpirun", format!("{how}; no mpirun of {title} is in PATH: load its module")), None)
        }
    }
}

/// The interface between Slurm and an MPI (docs/libscr.md, "Under srun").
fn srun_option(mpi: Mpi) -> Option<&'static str> {
    match mpi {
        Mpi::OpenMpi => Some("--mpi=pmix"),
        Mpi::Mpich => Some("--mpi=pmi2"),
        Mpi::Unknown => None,
    }
}

fn finding<T>(what: T, how: String) -> Finding<T> {
    Finding { what, how }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(source: Option<&'static str>, mpi: Option<Mpi>) -> Program {
        Program {
            command: vec!["./pi".to_owned()],
            name: "pi".to_owned(),
            path: "/home/u/pi".into(),
            source: source.map(|source| finding(source, "linked".to_owned())),
            mpi: mpi.map(|mpi| finding(mpi, "linked".to_owned())),
        }
    }

    const SLURM: Surroundings = Surroundings::Allocation { manager: "slurm", title: "Slurm", nodes: Some(8) };
    const HERE: Surroundings = Surroundings::OneMachine { nodes: 5 };

    fn choice(program: &Program, surroundings: &Surroundings, found: MpirunFound) -> Choice {
        choose(program, surroundings, move |_| found.clone())
    }

    #[test]
    fn one_node_of_the_allocation_is_a_spare() {
        let plain = program(Some("scr"), None);
        let slurm = choice(&plain, &SLURM, MpirunFound::First);
        assert_eq!((slurm.manager.what, slurm.allocation_nodes, slurm.run_nodes), ("slurm", None, Some(7)));
        let here = choice(&plain, &HERE, MpirunFound::First);
        assert_eq!((here.manager.what, here.allocation_nodes, here.run_nodes), ("local", Some(5), Some(4)));
        let one = Surroundings::HostsFile { path: "hosts".into(), hosts: 1 };
        assert_eq!(choice(&plain, &one, MpirunFound::First).run_nodes, Some(1));
        let outside = Surroundings::Outside { manager: "slurm", title: "Slurm", help: "salloc" };
        assert_eq!(choice(&plain, &outside, MpirunFound::First).run_nodes, None);
    }

    #[test]
    fn a_program_of_mpi_is_started_by_flux_run_in_a_flux_instance() {
        let flux = Surroundings::Allocation { manager: "flux", title: "Flux", nodes: Some(4) };
        let mpi = program(None, Some(Mpi::Mpich));
        let found = choose(&mpi, &flux, |_| MpirunFound::First);
        assert_eq!((found.launcher.what, found.launcher_is_default, found.launcher_option), ("flux", true, None));
        assert_eq!((found.allocation_nodes, found.run_nodes), (None, Some(3)));
    }

    #[test]
    fn a_program_of_mpi_gets_its_own_mpirun_but_under_slurm() {
        let mpi = program(None, Some(Mpi::Mpich));
        let named = MpirunFound::Named("mpirun.mpich".to_owned());
        let here = choice(&mpi, &HERE, named.clone());
        assert_eq!((here.launcher.what, here.launcher_program.as_deref()), ("mpirun", Some("mpirun.mpich")));
        assert!(!here.launcher_is_default);
        let slurm = choice(&mpi, &SLURM, named);
        assert_eq!((slurm.launcher.what, slurm.launcher_program, slurm.launcher_is_default), ("srun", None, true));
        assert_eq!((slurm.launcher_option, here.launcher_option), (Some("--mpi=pmi2"), None));
        let missing = choice(&mpi, &HERE, MpirunFound::Missing);
        assert!(missing.launcher.how.contains("no mpirun of MPICH is in PATH"), "{}", missing.launcher.how);
    }

    #[test]
    fn without_a_known_library_nothing_is_said_to_be_protected() {
        let source = choice(&program(None, None), &HERE, MpirunFound::First).source;
        assert_eq!(source.what, "none");
        assert!(source.how.contains("nothing is protected"), "{}", source.how);
    }
}
