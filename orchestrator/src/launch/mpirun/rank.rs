//! One rank under mpirun: `holdfast rank -- PROGRAM ARGUMENTS`.
//!
//! What an mpirun says of a rank that ends badly differs from one to the other, comes late, or never (MPICH's Hydra says
//! nothing of an exit code before all ranks have ended, and does not end them). So each rank has this parent, which
//! starts it, waits, and says how it ended, as a line of its own on standard error, where the step supervisor reads it.

use std::fmt;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use holdfast_model::{Rank, RankEnd};
use holdfast_wire::environment;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::host::host_name;
use crate::launch::children::end_of;

/// So begins what we say; nobody else does.
const MARK: &str = "@holdfast-rank ";
/// Code of a process that cannot run its program, as in a shell.
const NOT_RUN: u8 = 127;

/// What is said of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankReport {
    Begins,
    /// Its program cannot be run.
    Refused(String),
    Ended(RankEnd),
}

impl fmt::Display for RankReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RankReport::Begins => write!(f, "begins"),
            RankReport::Refused(reason) => write!(f, "refused {}", reason.replace('\n', " ")),
            RankReport::Ended(RankEnd::Code(code)) => write!(f, "code {code}"),
            RankReport::Ended(RankEnd::Signal(signal)) => write!(f, "signal {signal}"),
            RankReport::Ended(RankEnd::Unknown) => write!(f, "unknown"),
        }
    }
}

impl RankReport {
    fn line(&self, rank: Rank) -> String {
        format!("{MARK}{rank} {self}\n")
    }

    /// Reads a line of a rank's standard error, without its label.
    pub fn parse(line: &str) -> Option<(Rank, RankReport)> {
        let (rank, rest) = line.strip_prefix(MARK)?.split_once(' ')?;
        let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let report = match word {
            "begins" => RankReport::Begins,
            "refused" => RankReport::Refused(rest.to_owned()),
            "code" => RankReport::Ended(RankEnd::Code(rest.trim().parse().ok()?)),
            "signal" => RankReport::Ended(RankEnd::Signal(rest.trim().parse().ok()?)),
            "unknown" => RankReport::Ended(RankEnd::Unknown),
            _ => return None,
        };
        Some((Rank(rank.parse().ok()?), report))
    }
}

/// True for a line of a rank's parent, which is not the application's.
pub fn is_internal(line: &[u8]) -> bool {
    line.starts_with(MARK.as_bytes())
}

/// The environment does not tell which rank this is.
#[derive(Debug, thiserror::Error)]
#[error("none of {} is set: mpirun starts this program, told to by `holdfast run`", rank_names().collect::<Vec<_>>().join(", "))]
pub struct NoRank;

/// Where an mpirun puts the rank, innermost first.
fn rank_names() -> impl Iterator<Item = &'static str> {
    environment::RANK_VARIABLES.iter().filter(|variables| variables.mpirun).map(|variables| variables.rank)
}

fn own_rank(variable: impl Fn(&str) -> Option<String>) -> Result<Rank, NoRank> {
    rank_names().find_map(|name| variable(name)?.parse().ok()).map(Rank).ok_or(NoRank)
}

/// Runs one rank to its end; the exit code to end with.
///
/// # Errors
/// [`NoRank`].
pub fn run(command: &[String]) -> Result<u8, NoRank> {
    let rank = own_rank(|name| std::env::var(name).ok())?;
    // What a launcher sends goes to the whole process group: the rank has it, and we wait how it takes it. A handler,
    // unlike an ignored signal, is not inherited.
    for signal in [SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2] {
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    report(rank, &RankReport::Begins);
    let Some((program, arguments)) = command.split_first() else {
        report(rank, &RankReport::Refused("there is no command".to_owned()));
        return Ok(NOT_RUN);
    };
    // The innermost launcher's number, whatever an outer one has left in the environment.
    let mut command = Command::new(program);
    command.args(arguments).env(environment::RANK, rank.to_string());
    if rank != Rank(0) {
        // Input is the first rank's. To the others some launchers give an end of a pipe on which nothing ever comes.
        command.stdin(Stdio::null());
    }
    let ended = command.spawn().and_then(|mut child| child.wait());
    match ended {
        Ok(status) => {
            let end = end_of(status);
            if end != RankEnd::SUCCESS {
                report(rank, &RankReport::Ended(end));
            }
            Ok(code_of(end))
        }
        Err(error) => {
            report(rank, &RankReport::Refused(format!("cannot run {program} on {}: {error}", host_name())));
            Ok(NOT_RUN)
        }
    }
}

/// As a shell says it.
fn code_of(end: RankEnd) -> u8 {
    match end {
        RankEnd::Code(code) => u8::try_from(code).unwrap_or(u8::MAX),
        RankEnd::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        RankEnd::Unknown => u8::MAX,
    }
}

/// One write: lines of several ranks never mix. The rank may have left half a line behind.
fn report(rank: Rank, report: &RankReport) {
    let line = match report {
        RankReport::Begins => report.line(rank),
        _ => format!("\n{}", report.line(rank)),
    };
    let _ = io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_within_one_node_or_of_the_outer_launcher_is_not_the_rank() {
        let of = |set: &[(&str, &str)]| {
            let set: Vec<(String, String)> =
                set.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            own_rank(move |name| set.iter().find(|(set, _)| set == name).map(|(_, value)| value.clone())).ok()
        };
        assert_eq!(of(&[("MPI_LOCALRANKID", "1"), ("PMI_RANK", "5")]), Some(Rank(5)));
        assert_eq!(of(&[("MPI_LOCALRANKID", "1")]), None);
        assert_eq!(of(&[("SLURM_PROCID", "1")]), None);
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("OMPI_COMM_WORLD_RANK", "3")]), Some(Rank(3)));
    }

    #[test]
    fn what_is_said_is_understood() {
        let all = [
            RankReport::Begins,
            RankReport::Refused("no such file".to_owned()),
            RankReport::Ended(RankEnd::Code(3)),
            RankReport::Ended(RankEnd::Signal(11)),
        ];
        for report in all {
            let line = report.line(Rank(7));
            assert!(is_internal(line.as_bytes()));
            assert_eq!(RankReport::parse(line.trim_end()), Some((Rank(7), report)));
        }
    }

    #[test]
    fn what_the_application_says_is_not_taken_for_ours() {
        for line in ["", "rank 3 code 3", "@holdfast-rank x code 3", "@holdfast-rank 3 code x", "@holdfast-rank 3"] {
            assert_eq!(RankReport::parse(line), None, "{line}");
        }
    }

    #[test]
    fn an_end_is_passed_on_to_the_launcher_as_a_shell_would() {
        assert_eq!(code_of(RankEnd::Code(3)), 3);
        assert_eq!(code_of(RankEnd::Signal(11)), 139);
    }
}
