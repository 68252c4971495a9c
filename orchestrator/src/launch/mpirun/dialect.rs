//! Recognises an mpirun by its answer to `--version`.

use serde::{Deserialize, Serialize};

/// A family of mpirun programs with the same options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// Open MPI 3 and 4: ORTE.
    OpenMpi,
    /// Open MPI 5: PRRTE.
    Prrte,
    /// MPICH and its relatives: Hydra.
    Hydra,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recognised {
    pub dialect: Dialect,
    /// Name and version, for messages.
    pub name: String,
}

/// The supported families, for messages.
pub const KNOWN: &str = "Open MPI 3, 4 and 5, and Hydra (MPICH and its relatives)";

/// Parses the answer to `--version`; `None` for an unsupported mpirun.
pub fn recognise(answer: &str) -> Option<Recognised> {
    let mut lines = answer.lines().map(str::trim);
    let first = lines.clone().find(|line| !line.is_empty())?;
    if first.contains("(Open MPI)") || first.contains("(OpenRTE)") || first.contains("(PRRTE)") {
        let version = first.split_whitespace().last()?;
        let major: u32 = version.split('.').next()?.parse().ok()?;
        // PRRTE has a version of its own, independent of Open MPI's.
        let dialect = match major {
            _ if first.contains("(PRRTE)") => Dialect::Prrte,
            3 | 4 => Dialect::OpenMpi,
            5.. => Dialect::Prrte,
            _ => return None,
        };
        let name = if first.contains("(PRRTE)") { "PRRTE" } else { "Open MPI" };
        return Some(Recognised { dialect, name: format!("{name} {version}") });
    }
    if first.starts_with("HYDRA build details") {
        let version = lines.find_map(|line| line.strip_prefix("Version:")).map(str::trim).unwrap_or_default();
        return Some(Recognised { dialect: Dialect::Hydra, name: format!("Hydra {version}").trim().to_owned() });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_each_supported_mpirun() {
        let table = [
            ("mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to …\n", Dialect::OpenMpi, "Open MPI 4.1.4"),
            ("mpirun (Open MPI) 4.0.3\n", Dialect::OpenMpi, "Open MPI 4.0.3"),
            ("mpirun (Open MPI) 5.0.11\n\nReport bugs to …\n", Dialect::Prrte, "Open MPI 5.0.11"),
            ("prterun (PRRTE) 3.0.2\n", Dialect::Prrte, "PRRTE 3.0.2"),
            ("HYDRA build details:\n    Version:                4.0.2\n    CC: gcc\n", Dialect::Hydra, "Hydra 4.0.2"),
        ];
        for (answer, dialect, name) in table {
            let expected = Recognised { dialect, name: name.to_owned() };
            assert_eq!(recognise(answer), Some(expected), "{answer}");
        }
    }

    #[test]
    fn other_programs_are_not_recognised() {
        for answer in
            ["", "mpirun (Open MPI) 1.10.7\n", "mpirun 3.0\n", "Some MPI launcher, version 4.1\n", "(Open MPI)"]
        {
            assert_eq!(recognise(answer), None, "{answer}");
        }
    }
}
