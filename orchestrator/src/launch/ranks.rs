//! The ranks that are children of this process: started one after the other, then waited for. The `local` launcher runs
//! them in the supervisor, the `ssh` launcher at the host's end of each connection; they differ in where the ranks
//! print, and in who is told.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use holdfast_model::{Rank, RankEnd};
use holdfast_process::{Children, OutputPipes, descendants};

/// What all ranks have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankCommand<'a> {
    pub program: &'a Path,
    pub arguments: &'a [String],
    pub directory: &'a Path,
    /// In addition to the variables of this process.
    pub environment: &'a BTreeMap<String, String>,
}

/// Where ranks print, and who is told what becomes of them.
pub(super) trait RankReports {
    type Error;

    /// Standard output and standard error of a rank.
    ///
    /// # Errors
    /// The rank is not started.
    fn streams(&mut self, rank: Rank) -> io::Result<(Stdio, Stdio)>;

    fn started(&mut self, rank: Rank, pid: u32, pipes: OutputPipes) -> Result<(), Self::Error>;

    /// A rank could not be started; all others were killed.
    fn refused(&mut self, rank: Rank, error: &io::Error) -> Result<(), Self::Error>;

    /// Blocks until a rank may have ended.
    fn wait(&mut self) -> Result<(), Self::Error>;

    fn ended(&mut self, rank: Rank, end: RankEnd) -> Result<(), Self::Error>;

    /// False while there is work for [`RankReports::wait`] although no process is left.
    fn is_done(&self) -> bool {
        true
    }
}

/// Starts the ranks, each with its variables, and returns when the last one has ended. After [`Children::kill_all`], no
/// more are started.
///
/// # Errors
/// Those of the reports.
pub(super) fn run<'a, R: RankReports>(
    children: &Children,
    command: RankCommand<'_>,
    ranks: impl Iterator<Item = (Rank, &'a BTreeMap<String, String>)>,
    reports: &mut R,
) -> Result<(), R::Error> {
    for (rank, variables) in ranks {
        match start(children, command, rank, variables, reports) {
            Ok(Some((pid, pipes))) => reports.started(rank, pid, pipes)?,
            Ok(None) => break,
            Err(error) => {
                kill_all(children);
                reports.refused(rank, &error)?;
                break;
            }
        }
    }
    while !(children.is_empty() && reports.is_done()) {
        reports.wait()?;
        for (rank, end) in children.reap() {
            reports.ended(rank, end)?;
        }
    }
    Ok(())
}

fn start(
    children: &Children,
    command: RankCommand<'_>,
    rank: Rank,
    variables: &BTreeMap<String, String>,
    reports: &mut impl RankReports,
) -> io::Result<Option<(u32, OutputPipes)>> {
    let (output, errors) = reports.streams(rank)?;
    let mut process = Command::new(command.program);
    process
        .args(command.arguments)
        .current_dir(command.directory)
        .envs(command.environment)
        .envs(variables)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors);
    children.start(rank, &mut process).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot start {} for rank {rank}: {error}", command.program.display()))
    })
}

/// Kills all processes and their descendants: helpers of a launcher have their own process groups. Nothing is started
/// afterwards.
pub(super) fn kill_all(children: &Children) {
    children.kill_all();
    descendants::kill();
}
