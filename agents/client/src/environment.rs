//! The identity of this process and the address of its agent, from the environment variables. The only place that reads
//! them, for all interfaces of the API.
//!
//! `holdfast run` sets `HOLDFAST_*` ([`holdfast_wire::environment`]). If one command starts many ranks (srun, mpirun),
//! all ranks inherit the same `HOLDFAST_*`, and the rank comes from the launcher's own variables: see the table
//! [`RANK_VARIABLES`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_model::{Generation, NodeName, Rank};
use holdfast_wire::environment::{GENERATION, JOB, NODE, RANK, RANK_VARIABLES, RANKS, SOCKET};

/// Seconds for which a client tries to reconnect to its agent.
pub const RECONNECT: &str = "HOLDFAST_RECONNECT";
/// SCR's switch: `0` makes every call of the API do nothing.
pub const ENABLE: &str = "SCR_ENABLE";
/// The default of [`RECONNECT`]. An agent that ended is started again within one or two seconds, somewhat later on a
/// loaded node; after this time the orchestrator has usually ended the run.
pub const DEFAULT_RECONNECT: Duration = Duration::from_secs(60);

/// The identity of this process, and its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The rank of this process.
    pub rank: Rank,
    /// The number of ranks.
    pub ranks: u32,
    /// The name of the node, if the launcher sets it (virtual nodes: several on one machine).
    pub node: Option<NodeName>,
    /// The agent; `None` if `SCR_ENABLE=0` disables the API.
    pub agent: Option<AgentAddress>,
    /// How long to try to reconnect to the agent.
    pub reconnect: Duration,
}

/// The address of an agent, and the launch it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAddress {
    /// The id of the job, as `holdfast run` prints it.
    pub job: String,
    /// Counts the launches of the application; agents refuse calls of an older one.
    pub generation: Generation,
    /// The agent's Unix socket.
    pub socket: PathBuf,
}

/// What is missing or invalid in the environment variables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum EnvironmentError {
    #[error(
        "this program needs a Holdfast agent, but {0} is not set: start it with `holdfast run -- PROGRAM` \
         (or set SCR_ENABLE=0 to run it without checkpoints)"
    )]
    NotLaunched(&'static str),
    #[error(
        "the rank of this program is unknown: neither {RANK} nor a variable of a known launcher ({known}) is set; \
         start it with `holdfast run`, or set {RANK} and {RANKS}",
        known = known_rank_variables()
    )]
    NoRank,
    /// The rank is set, but the number of ranks is not.
    #[error("{rank} is set, but the number of ranks is unknown: set {RANKS} (checked: {looked_for})")]
    NoSize { rank: &'static str, looked_for: String },
    #[error(
        "the environment variable {variable} is `{value}`, expected {expected}; start the program with `holdfast run`"
    )]
    Malformed { variable: &'static str, value: String, expected: &'static str },
    /// The rank is not below the number of ranks.
    #[error("rank {rank} (from {variable}) does not exist among {ranks} ranks, which are numbered from 0")]
    OutOfRange { variable: &'static str, rank: Rank, ranks: u32 },
}

fn known_rank_variables() -> String {
    let mut names: Vec<_> = RANK_VARIABLES.iter().map(|launcher| launcher.rank).collect();
    names.dedup();
    names.join(", ")
}

impl Environment {
    /// Reads the environment of this process.
    pub fn from_environment() -> Result<Self, EnvironmentError> {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    /// Reads variables with `lookup`: those of the process, or of a table in a test. Empty variables count as not set.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, EnvironmentError> {
        let variables = Variables(&lookup);
        let node = variables.text(NODE)?.map(NodeName::new);
        let seconds = variables.number(RECONNECT, "a number of seconds")?;
        let reconnect = seconds.map_or(DEFAULT_RECONNECT, Duration::from_secs);
        if variables.text(ENABLE)?.as_deref() == Some("0") {
            // Only the program itself uses the rank; without a launcher's variables it is the only one.
            let (rank, ranks) = variables.rank_and_size().unwrap_or((Rank(0), 1));
            return Ok(Environment { rank, ranks, node, agent: None, reconnect });
        }
        let socket = variables.raw(SOCKET).map(PathBuf::from).ok_or(EnvironmentError::NotLaunched(SOCKET))?;
        let job = variables.text(JOB)?.ok_or(EnvironmentError::NotLaunched(JOB))?;
        let generation = variables.number(GENERATION, "the number of the run")?;
        let generation = Generation(generation.ok_or(EnvironmentError::NotLaunched(GENERATION))?);
        let (rank, ranks) = variables.rank_and_size()?;
        Ok(Environment { rank, ranks, node, agent: Some(AgentAddress { job, generation, socket }), reconnect })
    }
}

struct Variables<'a>(&'a dyn Fn(&str) -> Option<OsString>);

impl Variables<'_> {
    fn raw(&self, name: &str) -> Option<OsString> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn text(&self, variable: &'static str) -> Result<Option<String>, EnvironmentError> {
        self.raw(variable).map(OsString::into_string).transpose().map_err(|value| EnvironmentError::Malformed {
            variable,
            value: value.to_string_lossy().into_owned(),
            expected: "UTF-8 text",
        })
    }

    fn number<N: std::str::FromStr>(
        &self,
        variable: &'static str,
        expected: &'static str,
    ) -> Result<Option<N>, EnvironmentError> {
        let Some(value) = self.text(variable)? else {
            return Ok(None);
        };
        match value.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(EnvironmentError::Malformed { variable, value, expected }),
        }
    }

    fn rank_and_size(&self) -> Result<(Rank, u32), EnvironmentError> {
        let announced = self.number::<u32>(RANKS, "the number of ranks")?;
        if let Some(rank) = self.number(RANK, "a rank, counted from 0")? {
            let ranks = announced.ok_or(EnvironmentError::NoSize { rank: RANK, looked_for: RANKS.to_owned() })?;
            return in_range(RANK, rank, ranks);
        }
        let mut unfinished = None;
        for launcher in RANK_VARIABLES {
            if launcher.marker.is_some_and(|marker| self.raw(marker).is_none()) {
                continue;
            }
            let Some(rank) = self.number(launcher.rank, "a rank, counted from 0")? else {
                continue;
            };
            let mut ranks = announced;
            for variable in launcher.ranks {
                if ranks.is_none() {
                    ranks = self.number(variable, "the number of ranks")?;
                }
            }
            if let Some(ranks) = ranks {
                return in_range(launcher.rank, rank, ranks);
            }
            unfinished
                .get_or_insert(EnvironmentError::NoSize { rank: launcher.rank, looked_for: launcher.ranks.join(", ") });
        }
        Err(unfinished.unwrap_or(EnvironmentError::NoRank))
    }
}

fn in_range(variable: &'static str, rank: u32, ranks: u32) -> Result<(Rank, u32), EnvironmentError> {
    if rank < ranks {
        Ok((Rank(rank), ranks))
    } else {
        Err(EnvironmentError::OutOfRange { variable, rank: Rank(rank), ranks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &[(&str, &str)] = &[(SOCKET, "/run/agent.sock"), (JOB, "heat.7"), (GENERATION, "3")];

    fn read(variables: &[(&str, &str)]) -> Result<Environment, EnvironmentError> {
        let all: Vec<_> = AGENT.iter().chain(variables).copied().collect();
        read_only(&all)
    }

    fn read_only(variables: &[(&str, &str)]) -> Result<Environment, EnvironmentError> {
        // The last entry has precedence, so that a test can override defaults.
        Environment::from_lookup(|name| {
            variables.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn reads_rank_and_size_from_variables_of_every_launcher() {
        type Case<'a> = (&'a [(&'a str, &'a str)], (u32, u32));
        let table: &[Case<'_>] = &[
            (&[("HOLDFAST_RANK", "1"), ("HOLDFAST_RANKS", "4")], (1, 4)),
            (&[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "5")], (2, 5)),
            (&[("PMIX_RANK", "3"), ("SLURM_NTASKS", "6")], (3, 6)),
            (&[("PMIX_RANK", "3"), ("HOLDFAST_RANKS", "9")], (3, 9)),
            (&[("PMI_RANK", "4"), ("PMI_SIZE", "7")], (4, 7)),
            (&[("FLUX_TASK_RANK", "5"), ("FLUX_JOB_SIZE", "8")], (5, 8)),
            (&[("SLURM_PROCID", "6"), ("SLURM_NTASKS", "9")], (6, 9)),
            (&[("SLURM_PROCID", "6"), ("SLURM_NTASKS", "9"), ("SLURM_STEP_NUM_TASKS", "8")], (6, 8)),
            (&[("RANK", "7"), ("WORLD_SIZE", "10")], (7, 10)),
            // mpirun inside srun: SLURM_PROCID is that of mpirun's daemon on the node.
            (
                &[
                    ("SLURM_PROCID", "0"),
                    ("SLURM_NTASKS", "2"),
                    ("OMPI_COMM_WORLD_RANK", "3"),
                    ("OMPI_COMM_WORLD_SIZE", "4"),
                ],
                (3, 4),
            ),
            // torchrun inside srun.
            (
                &[
                    ("SLURM_PROCID", "1"),
                    ("SLURM_NTASKS", "2"),
                    ("TORCHELASTIC_RUN_ID", "x"),
                    ("RANK", "5"),
                    ("WORLD_SIZE", "8"),
                ],
                (5, 8),
            ),
            // A stray RANK does not hide the launcher.
            (&[("RANK", "5"), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")], (1, 2)),
            // HOLDFAST_RANK has precedence over the launcher's variables.
            (&[("HOLDFAST_RANK", "0"), ("HOLDFAST_RANKS", "2"), ("PMI_RANK", "1"), ("PMI_SIZE", "9")], (0, 2)),
        ];
        for (variables, (rank, ranks)) in table {
            let read = read(variables).unwrap();
            assert_eq!((read.rank, read.ranks), (Rank(*rank), *ranks), "{variables:?}");
        }
    }

    #[test]
    fn names_missing_variables() {
        let none: &[(&str, &str)] = &[];
        let by_hand = read_only(none).unwrap_err();
        assert_eq!(by_hand, EnvironmentError::NotLaunched(SOCKET));
        assert!(by_hand.to_string().contains("start it with `holdfast run"));
        assert_eq!(read_only(&[(SOCKET, "s")]), Err(EnvironmentError::NotLaunched(JOB)));
        assert_eq!(read_only(&[(SOCKET, "s"), (JOB, "j")]), Err(EnvironmentError::NotLaunched(GENERATION)));
        assert_eq!(read(none), Err(EnvironmentError::NoRank));
        assert!(read(none).unwrap_err().to_string().contains("SLURM_PROCID"));
        assert!(matches!(read(&[(RANK, "1")]), Err(EnvironmentError::NoSize { rank: RANK, .. })));
        assert!(matches!(read(&[("PMIX_RANK", "1")]), Err(EnvironmentError::NoSize { rank: "PMIX_RANK", .. })));
    }

    #[test]
    fn names_variable_of_invalid_value() {
        let with = |variable, value| read(&[(RANK, "0"), (RANKS, "1"), (variable, value)]);
        for variable in [RANK, RANKS, GENERATION, RECONNECT] {
            for value in ["one", "-1", "1.5", "99999999999999999999999"] {
                let error = with(variable, value).unwrap_err();
                assert!(error.to_string().contains(variable) && error.to_string().contains(value), "{error}");
            }
        }
        assert!(matches!(with(RANK, "1"), Err(EnvironmentError::OutOfRange { .. })));
        assert!(matches!(with(RANKS, "0"), Err(EnvironmentError::OutOfRange { .. })));
        assert!(matches!(with(RANK, ""), Err(EnvironmentError::NoRank)));
    }

    #[test]
    fn reads_agent_and_reconnect_time() {
        let read = read(&[(RANK, "0"), (RANKS, "1"), (RECONNECT, "7"), (NODE, "virtual2")]).unwrap();
        assert_eq!(read.reconnect, Duration::from_secs(7));
        assert_eq!(read.node, Some(NodeName::new("virtual2")));
        let agent = read.agent.unwrap();
        assert_eq!((agent.job.as_str(), agent.generation), ("heat.7", Generation(3)));
        assert_eq!(agent.socket, PathBuf::from("/run/agent.sock"));
    }

    #[test]
    fn scr_enable_0_needs_no_other_variables() {
        let alone = read_only(&[(ENABLE, "0")]).unwrap();
        assert_eq!((alone.rank, alone.ranks, alone.agent), (Rank(0), 1, None));
        let one_of_four = read_only(&[(ENABLE, "0"), ("PMI_RANK", "3"), ("PMI_SIZE", "4")]).unwrap();
        assert_eq!((one_of_four.rank, one_of_four.ranks), (Rank(3), 4));
        assert!(read(&[(ENABLE, "1"), (RANK, "0"), (RANKS, "1")]).unwrap().agent.is_some());
    }
}
