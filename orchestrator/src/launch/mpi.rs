//! The MPI that a program is linked with, and the mpirun that starts its programs.

use std::path::Path;

use super::mpirun::{Dialect, dialect_of};
use crate::host::libraries::Libraries;

/// An implementation of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpi {
    OpenMpi,
    /// MPICH and its relatives.
    Mpich,
    /// The one of a module that is loaded when the program runs.
    Unknown,
}

impl Mpi {
    /// The name, for people.
    pub fn title(self) -> &'static str {
        match self {
            Mpi::OpenMpi => "Open MPI",
            Mpi::Mpich => "MPICH",
            Mpi::Unknown => "MPI",
        }
    }

    /// True if this mpirun starts its programs.
    pub fn is_of(self, dialect: Dialect) -> bool {
        match self {
            Mpi::OpenMpi => matches!(dialect, Dialect::OpenMpi | Dialect::Prrte),
            Mpi::Mpich => dialect == Dialect::Hydra,
            Mpi::Unknown => true,
        }
    }

    /// The implementation that a program is linked with, and the name of the library.
    pub fn linked(libraries: &Libraries) -> Option<(Mpi, String)> {
        libraries.iter().find_map(|(name, path)| Some((Mpi::of(name, path)?, name.to_owned())))
    }

    /// Its mpirun in PATH: the first one, or one with the name of the MPI.
    pub fn find_mpirun(self, here: &Path) -> MpirunFound {
        let names: &[&str] = match self {
            Mpi::OpenMpi => &["mpirun.openmpi", "orterun", "prterun"],
            Mpi::Mpich => &["mpirun.mpich", "mpiexec.hydra"],
            Mpi::Unknown => &[],
        };
        let is_of = |name: Option<&str>| dialect_of(name, here).is_some_and(|dialect| self.is_of(dialect));
        if is_of(None) {
            return MpirunFound::First;
        }
        let named = names.iter().find(|name| is_of(Some(name)));
        named.map_or(MpirunFound::Missing, |name| MpirunFound::Named((*name).to_owned()))
    }

    /// The implementation of a library, by its name and path; `None` if it is none of MPI.
    fn of(name: &str, path: Option<&Path>) -> Option<Mpi> {
        let path = path.map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()));
        let path = path.unwrap_or_default().to_string_lossy().to_lowercase();
        if name.starts_with("libmpich") || name.starts_with("libmpi.so.12") || path.contains("mpich") {
            return Some(Mpi::Mpich);
        }
        let is_mpi = name.starts_with("libmpi.so") || name.starts_with("libmpi_");
        is_mpi.then(|| if path.contains("mvapich") { Mpi::Mpich } else { Mpi::OpenMpi })
    }
}

/// The mpirun that starts programs of an MPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MpirunFound {
    /// The first one in PATH.
    First,
    /// Another name in PATH.
    Named(String),
    Missing,
}

impl MpirunFound {
    /// The name for `run.launcher_program`, unless it is the first one in PATH.
    pub fn name(&self) -> Option<&str> {
        match self {
            MpirunFound::Named(name) => Some(name),
            MpirunFound::First | MpirunFound::Missing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_mpi_are_told_apart_by_name_and_path() {
        let of = |name: &str, path: &str| Mpi::of(name, Some(Path::new(path)));
        assert_eq!(of("libmpich.so.12", "/lib/libmpich.so.12"), Some(Mpi::Mpich));
        assert_eq!(of("libmpi.so.12", "/opt/intel/libmpi.so.12"), Some(Mpi::Mpich));
        assert_eq!(of("libmpi.so.40", "/usr/lib/libmpi.so.40"), Some(Mpi::OpenMpi));
        assert_eq!(of("libmpi_mpifh.so.40", "/usr/lib/libmpi_mpifh.so.40"), Some(Mpi::OpenMpi));
        assert_eq!(of("libmpfr.so.6", "/usr/lib/libmpfr.so.6"), None);
    }
}
