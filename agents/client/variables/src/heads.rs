//! Head processes, as FTI has them: one rank of each node does not belong to the application. The agents do their work;
//! they only take part in the collective calls, of which the run expects one of each rank.
//!
//! Before each collective call, the ranks of the application announce it to the heads. A head makes one call after the
//! other ([`Session::serve`]).

use holdfast_boundary::Halt;
use holdfast_client::variables::{SnapshotIntervals, VariablesError};
use serde::{Deserialize, Serialize};

use crate::session::{Saved, Session, SessionError, SessionResult};

/// What a rank is for the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// All ranks belong to the application.
    #[default]
    Alone,
    /// There are heads, and this rank is none.
    Application,
    Head,
}

/// A collective call that the heads must make, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Command {
    Checkpoint {
        id: i32,
        level: i32,
    },
    Start {
        id: i32,
        level: i32,
    },
    Complete,
    /// `last`: the id of the last checkpoint. Without intervals: those of the job.
    Snapshot {
        last: u32,
        intervals: Option<SnapshotIntervals>,
    },
    Recover {
        exactly: bool,
    },
    ShouldExit,
    Finalize,
}

/// What a head does after a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// It waits for the next one.
    Next,
    /// A halt condition holds: the process must end.
    Halted(Halt),
    /// The run has ended.
    Finalized,
}

/// The head of each node: its first rank. `nodes`: the name of each rank's node.
///
/// # Errors
/// The name of a node that has no other rank.
fn heads_of(nodes: &[Vec<u8>]) -> Result<Vec<bool>, String> {
    let is_head = |rank: usize, node: &Vec<u8>| !nodes.iter().take(rank).any(|before| before == node);
    let alone = nodes.iter().find(|node| nodes.iter().filter(|other| other == node).count() == 1);
    match alone {
        Some(node) => Err(String::from_utf8_lossy(node).into_owned()),
        None => Ok(nodes.iter().enumerate().map(|(rank, node)| is_head(rank, node)).collect()),
    }
}

impl Session {
    /// Makes one rank of each node a head. Collective, before the first other call. If it fails on any rank, it fails
    /// on all ranks, and the initialisation can be repeated.
    ///
    /// # Errors
    /// When a node has one rank only, another number of ranks wrote the checkpoint to restart from, or there is no
    /// agent.
    pub fn separate_heads(&mut self) -> SessionResult<Role> {
        let separated = self.find_role();
        match &separated {
            Ok(role) => self.set_role(*role)?,
            Err(_) => self.refuse(),
        }
        separated
    }

    fn find_role(&mut self) -> SessionResult<Role> {
        let variables = self.variables()?;
        if !variables.enabled() {
            return Err(SessionError::HeadsWithoutAgent);
        }
        if variables.is_of_other_ranks() {
            return Err(SessionError::HeadsOfOtherRanks);
        }
        let rank = variables.rank().0 as usize;
        let client = variables.client();
        let node = client.node().map(ToString::to_string).unwrap_or_default();
        let nodes = client.allgather(node.as_bytes()).map_err(VariablesError::from)?;
        let heads = heads_of(&nodes).map_err(SessionError::OneRank)?;
        Ok(if heads.get(rank) == Some(&true) { Role::Head } else { Role::Application })
    }

    /// Announces to the heads a call that this rank makes next. Collective if there are any.
    pub(crate) fn announce(&mut self, command: &Command) -> SessionResult<()> {
        if self.role() != Role::Application {
            return Ok(());
        }
        let text = serde_json::to_vec(command).map_err(|error| SessionError::Announcement(error.to_string()))?;
        self.variables()?.client().allgather(&text).map_err(VariablesError::from)?;
        Ok(())
    }

    /// On a head: waits for the next collective call of the application, and makes it.
    ///
    /// # Errors
    /// When the agent cannot be reached. Errors of the call itself are reported by the ranks of the application.
    pub fn serve(&mut self) -> SessionResult<Served> {
        let all = self.variables()?.client().allgather(&[]).map_err(VariablesError::from)?;
        let text = all.into_iter().find(|part| !part.is_empty()).unwrap_or_default();
        let command = serde_json::from_slice(&text).map_err(|error| SessionError::Announcement(error.to_string()))?;
        let saved = match command {
            Command::Checkpoint { id, level } => self.checkpoint(id, level).map(Some),
            Command::Start { id, level } => self.start_checkpoint(id, level).map(|()| None),
            Command::Complete => self.complete_checkpoint().map(Some),
            Command::Snapshot { last, intervals } => {
                self.variables()?.set_last_id(last);
                match intervals {
                    Some(intervals) => self.snapshot_by(intervals),
                    None => self.snapshot(),
                }
            }
            Command::Recover { exactly: true } => self.recover_exactly().map(|_| None),
            Command::Recover { exactly: false } => self.recover().map(|_| None),
            Command::ShouldExit => self.should_exit().map(|_| None),
            Command::Finalize => {
                self.finalize()?;
                return Ok(Served::Finalized);
            }
        };
        Ok(match saved {
            Ok(Some(Saved::Halted(halt))) => Served::Halted(halt),
            _ => Served::Next,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rank_of_each_node_is_its_head() {
        let nodes = |names: &str| names.bytes().map(|name| vec![name]).collect::<Vec<_>>();
        assert_eq!(heads_of(&nodes("aabb")), Ok(vec![true, false, true, false]));
        // Round robin.
        assert_eq!(heads_of(&nodes("ababab")), Ok(vec![true, true, false, false, false, false]));
        assert_eq!(heads_of(&nodes("aab")), Err("b".to_owned()));
    }
}
