//! One rank under mpirun or `flux run`: `holdfast rank -- PROGRAM ARGUMENTS`.
//!
//! How an mpirun reports a failed rank depends on the implementation, and may be late or missing: MPICH's Hydra reports
//! exit codes only after all ranks have ended, and does not kill them. So each rank has this parent process, which
//! starts it, waits for its end and reports it as a line on standard error, where the step supervisor reads it.

use std::fmt;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use holdfast_model::{Rank, RankEnd};
use holdfast_process::end::{self, shell_code};
use holdfast_wire::environment;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::host::host_name;

/// The prefix of our reports.
const MARK: &str = "@holdfast-rank ";
/// Exit code if the program cannot be run, as in a shell.
const NOT_RUN: u8 = 127;

/// A report about a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankReport {
    Begins,
    /// The program cannot be run.
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
        let (kind, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let report = match kind {
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

/// True for a report, which is not output of the application.
pub fn is_internal(line: &[u8]) -> bool {
    line.starts_with(MARK.as_bytes())
}

/// The environment does not contain the rank.
#[derive(Debug, thiserror::Error)]
#[error(
    "none of {} is set; this command is started by mpirun or flux under `holdfast run`, not by hand",
    rank_names().collect::<Vec<_>>().join(", ")
)]
pub struct NoRank;

/// The variables in which the launcher sets the rank, innermost first.
fn rank_names() -> impl Iterator<Item = &'static str> {
    environment::RANK_VARIABLES.iter().filter(|variables| variables.has_parents).map(|variables| variables.rank)
}

fn own_rank(variable: impl Fn(&str) -> Option<String>) -> Result<Rank, NoRank> {
    rank_names().find_map(|name| variable(name)?.parse().ok()).map(Rank).ok_or(NoRank)
}

/// Runs a rank to its end. Returns its exit code.
pub fn run(command: &[String]) -> Result<u8, NoRank> {
    let rank = own_rank(|name| std::env::var(name).ok())?;
    // Launchers send signals to the entire process group, so the rank gets them too, and we wait for its end. Handlers,
    // unlike ignored signals, are not inherited.
    for signal in [SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2] {
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    report(rank, &RankReport::Begins);
    let Some((program, arguments)) = command.split_first() else {
        report(rank, &RankReport::Refused("the command is missing".to_owned()));
        return Ok(NOT_RUN);
    };
    // Overrides the rank of an outer launcher.
    let mut command = Command::new(program);
    command.args(arguments).env(environment::RANK, rank.to_string());
    if rank != Rank(0) {
        // Only the first rank gets the input. Some launchers give the others a pipe that never ends.
        command.stdin(Stdio::null());
    }
    let ended = command.spawn().and_then(|mut child| child.wait());
    match ended {
        Ok(status) => {
            let end = end::of(status);
            if end != RankEnd::SUCCESS {
                report(rank, &RankReport::Ended(end));
            }
            Ok(shell_code(end))
        }
        Err(error) => {
            report(rank, &RankReport::Refused(format!("cannot run {program} on {}: {error}", host_name())));
            Ok(NOT_RUN)
        }
    }
}

/// Writes a report in one write, so that lines of several ranks are not mixed. The rank may have left an incomplete
/// line.
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
    fn local_ranks_and_ranks_of_an_outer_launcher_are_ignored() {
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
    fn reports_are_parsed() {
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
    fn output_of_the_application_is_not_a_report() {
        for line in ["", "rank 3 code 3", "@holdfast-rank x code 3", "@holdfast-rank 3 code x", "@holdfast-rank 3"] {
            assert_eq!(RankReport::parse(line), None, "{line}");
        }
    }
}
