//! Who this process is and where its agent listens: the environment, read once, in one place for all faces of the
//! API.
//!
//! `holdfast run` sets `HOLDFAST_*` ([`holdfast_wire::environment`]). Where one command starts many ranks (srun,
//! mpirun) they inherit the same `HOLDFAST_*`, and the rank comes from what the launcher sets for each: the table
//! [`RANK_VARIABLES`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_model::{Generation, NodeName, Rank};
use holdfast_wire::environment::{GENERATION, JOB, NODE, RANK, RANK_VARIABLES, RANKS, SOCKET};

/// Seconds for which a client tries to reach its agent again before it gives up.
pub const RECONNECT: &str = "HOLDFAST_RECONNECT";
/// SCR's switch: `0` makes every call of the API do nothing.
pub const ENABLE: &str = "SCR_ENABLE";
/// Patience without [`RECONNECT`]: an agent that died is back within a second or two, on a loaded node somewhat
/// later; much longer than this and the orchestrator has ended the run anyway.
pub const DEFAULT_RECONNECT: Duration = Duration::from_secs(60);

/// Who this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// Its rank.
    pub rank: Rank,
    /// How many ranks there are.
    pub ranks: u32,
    /// The name of the node, where the launcher says it (virtual nodes: several on one machine).
    pub node: Option<NodeName>,
    /// Its agent; `None` when `SCR_ENABLE=0` switched the API off.
    pub agent: Option<AgentAddress>,
    /// How long to try to reach the agent again.
    pub reconnect: Duration,
}

/// Where the agent listens, and for which run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAddress {
    /// The job's id.
    pub job: String,
    /// The run.
    pub generation: Generation,
    /// The agent's Unix socket.
    pub socket: PathBuf,
}

/// What is missing or wrong in the environment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SurroundingsError {
    /// There is no agent to talk to.
    #[error(
        "this program looks for its Holdfast agent, but {0} is not set: start it with `holdfast run -- PROGRAM` \
         (or set SCR_ENABLE=0 to run it without checkpoints)"
    )]
    NotLaunched(&'static str),
    /// Nobody says which rank this is.
    #[error(
        "this program does not know its rank: {RANK} is not set, nor is a variable of a known launcher ({known}); \
         start it with `holdfast run`, or set {RANK} and {RANKS}",
        known = known_rank_variables()
    )]
    NoRank,
    /// There is a rank, but nobody says how many there are.
    #[error("{rank} is set, but how many ranks there are is not known: set {RANKS} (looked for {looked_for})")]
    NoSize {
        /// The variable that gave the rank.
        rank: &'static str,
        /// The variables that could have given the size.
        looked_for: String,
    },
    /// A value that cannot be read.
    #[error(
        "the environment variable {variable} is `{value}`, expected {expected}; start the program with `holdfast run`"
    )]
    Malformed {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Rank and size contradict each other.
    #[error("rank {rank} (from {variable}) does not exist among {ranks} ranks, which are numbered from 0")]
    OutOfRange {
        /// The variable that gave the rank.
        variable: &'static str,
        /// The rank.
        rank: Rank,
        /// The number of ranks.
        ranks: u32,
    },
}

fn known_rank_variables() -> String {
    let mut names: Vec<_> = RANK_VARIABLES.iter().map(|launcher| launcher.rank).collect();
    names.dedup();
    names.join(", ")
}

impl Surroundings {
    /// Reads the environment of this process.
    pub fn from_environment() -> Result<Self, SurroundingsError> {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    /// Reads an environment that is asked by name: the process's own, or a table in a test or an embedding.
    /// A variable that is set to nothing counts as not set.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, SurroundingsError> {
        let variables = Variables(&lookup);
        let node = variables.text(NODE)?.map(NodeName::new);
        let seconds = variables.number(RECONNECT, "a number of seconds")?;
        let reconnect = seconds.map_or(DEFAULT_RECONNECT, Duration::from_secs);
        if variables.text(ENABLE)?.as_deref() == Some("0") {
            // Nobody will look at the rank but the program itself, and one that is not told it is alone.
            let (rank, ranks) = variables.rank_and_size().unwrap_or((Rank(0), 1));
            return Ok(Surroundings { rank, ranks, node, agent: None, reconnect });
        }
        let socket = variables.raw(SOCKET).map(PathBuf::from).ok_or(SurroundingsError::NotLaunched(SOCKET))?;
        let job = variables.text(JOB)?.ok_or(SurroundingsError::NotLaunched(JOB))?;
        let generation = variables.number(GENERATION, "the number of the run")?;
        let generation = Generation(generation.ok_or(SurroundingsError::NotLaunched(GENERATION))?);
        let (rank, ranks) = variables.rank_and_size()?;
        Ok(Surroundings { rank, ranks, node, agent: Some(AgentAddress { job, generation, socket }), reconnect })
    }
}

struct Variables<'a>(&'a dyn Fn(&str) -> Option<OsString>);

impl Variables<'_> {
    fn raw(&self, name: &str) -> Option<OsString> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn text(&self, variable: &'static str) -> Result<Option<String>, SurroundingsError> {
        self.raw(variable).map(OsString::into_string).transpose().map_err(|value| SurroundingsError::Malformed {
            variable,
            value: value.to_string_lossy().into_owned(),
            expected: "UTF-8 text",
        })
    }

    fn number<N: std::str::FromStr>(
        &self,
        variable: &'static str,
        expected: &'static str,
    ) -> Result<Option<N>, SurroundingsError> {
        let Some(value) = self.text(variable)? else {
            return Ok(None);
        };
        match value.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(SurroundingsError::Malformed { variable, value, expected }),
        }
    }

    fn rank_and_size(&self) -> Result<(Rank, u32), SurroundingsError> {
        let announced = self.number::<u32>(RANKS, "the number of ranks")?;
        if let Some(rank) = self.number(RANK, "a rank, counted from 0")? {
            let ranks = announced.ok_or(SurroundingsError::NoSize { rank: RANK, looked_for: RANKS.to_owned() })?;
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
            unfinished.get_or_insert(SurroundingsError::NoSize {
                rank: launcher.rank,
                looked_for: launcher.ranks.join(", "),
            });
        }
        Err(unfinished.unwrap_or(SurroundingsError::NoRank))
    }
}

fn in_range(variable: &'static str, rank: u32, ranks: u32) -> Result<(Rank, u32), SurroundingsError> {
    if rank < ranks {
        Ok((Rank(rank), ranks))
    } else {
        Err(SurroundingsError::OutOfRange { variable, rank: Rank(rank), ranks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &[(&str, &str)] = &[(SOCKET, "/run/agent.sock"), (JOB, "heat.7"), (GENERATION, "3")];

    fn read(variables: &[(&str, &str)]) -> Result<Surroundings, SurroundingsError> {
        let all: Vec<_> = AGENT.iter().chain(variables).copied().collect();
        read_only(&all)
    }

    fn read_only(variables: &[(&str, &str)]) -> Result<Surroundings, SurroundingsError> {
        // The last one counts, so that a test can override what is usual.
        Surroundings::from_lookup(|name| {
            variables.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn every_launcher_s_variables_give_rank_and_size() {
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
            // mpirun inside srun: SLURM_PROCID is that of mpirun's helper on the node.
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
            // Ours beats theirs.
            (&[("HOLDFAST_RANK", "0"), ("HOLDFAST_RANKS", "2"), ("PMI_RANK", "1"), ("PMI_SIZE", "9")], (0, 2)),
        ];
        for (variables, (rank, ranks)) in table {
            let read = read(variables).unwrap();
            assert_eq!((read.rank, read.ranks), (Rank(*rank), *ranks), "{variables:?}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let none: &[(&str, &str)] = &[];
        let by_hand = read_only(none).unwrap_err();
        assert_eq!(by_hand, SurroundingsError::NotLaunched(SOCKET));
        assert!(by_hand.to_string().contains("start it with `holdfast run"));
        assert_eq!(read_only(&[(SOCKET, "s")]), Err(SurroundingsError::NotLaunched(JOB)));
        assert_eq!(read_only(&[(SOCKET, "s"), (JOB, "j")]), Err(SurroundingsError::NotLaunched(GENERATION)));
        assert_eq!(read(none), Err(SurroundingsError::NoRank));
        assert!(read(none).unwrap_err().to_string().contains("SLURM_PROCID"));
        assert!(matches!(read(&[(RANK, "1")]), Err(SurroundingsError::NoSize { rank: RANK, .. })));
        assert!(matches!(read(&[("PMIX_RANK", "1")]), Err(SurroundingsError::NoSize { rank: "PMIX_RANK", .. })));
    }

    #[test]
    fn values_that_make_no_sense_are_named_with_their_variable() {
        let with = |variable, value| read(&[(RANK, "0"), (RANKS, "1"), (variable, value)]);
        for variable in [RANK, RANKS, GENERATION, RECONNECT] {
            for value in ["one", "-1", "1.5", "99999999999999999999999"] {
                let error = with(variable, value).unwrap_err();
                assert!(error.to_string().contains(variable) && error.to_string().contains(value), "{error}");
            }
        }
        assert!(matches!(with(RANK, "1"), Err(SurroundingsError::OutOfRange { .. })));
        assert!(matches!(with(RANKS, "0"), Err(SurroundingsError::OutOfRange { .. })));
        assert!(matches!(with(RANK, ""), Err(SurroundingsError::NoRank)));
    }

    #[test]
    fn the_agent_and_the_patience_come_from_the_environment() {
        let read = read(&[(RANK, "0"), (RANKS, "1"), (RECONNECT, "7"), (NODE, "virtual2")]).unwrap();
        assert_eq!(read.reconnect, Duration::from_secs(7));
        assert_eq!(read.node, Some(NodeName::new("virtual2")));
        let agent = read.agent.unwrap();
        assert_eq!((agent.job.as_str(), agent.generation), ("heat.7", Generation(3)));
        assert_eq!(agent.socket, PathBuf::from("/run/agent.sock"));
    }

    #[test]
    fn scr_enable_0_needs_nothing_else() {
        let alone = read_only(&[(ENABLE, "0")]).unwrap();
        assert_eq!((alone.rank, alone.ranks, alone.agent), (Rank(0), 1, None));
        let one_of_four = read_only(&[(ENABLE, "0"), ("PMI_RANK", "3"), ("PMI_SIZE", "4")]).unwrap();
        assert_eq!((one_of_four.rank, one_of_four.ranks), (Rank(3), 4));
        assert!(read(&[(ENABLE, "1"), (RANK, "0"), (RANKS, "1")]).unwrap().agent.is_some());
    }
}
