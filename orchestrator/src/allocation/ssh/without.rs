//! A build without ssh: every way to a host says so.

use std::path::Path;
use std::time::Duration;

use holdfast_wire::run::{AgentReady, AgentStart};

use super::Target;
use super::error::SshError;
use super::survey::Seen;
use crate::on_node::{NodeCommand, NodeRanks, Question, RanksNews};

pub(super) fn ask(_target: &Target, _question: &Question) -> Result<Seen, SshError> {
    Err(SshError::NotBuilt)
}

pub(super) fn start(_target: &Target, _start: AgentStart, _log: &Path) -> Result<AgentReady, SshError> {
    Err(SshError::NotBuilt)
}

pub(super) fn end(_target: &Target, _pid: u32, _patience: Duration) -> Result<(), SshError> {
    Err(SshError::NotBuilt)
}

/// Would run a command on a host.
///
/// # Errors
/// [`SshError::NotBuilt`].
pub fn run_command(_target: &Target, _what: &NodeCommand) -> Result<u8, SshError> {
    Err(SshError::NotBuilt)
}

/// Would start the ranks of a host and follow them.
///
/// # Errors
/// [`SshError::NotBuilt`].
pub fn follow_ranks(
    _target: &Target,
    _ranks: &NodeRanks,
    _tell: impl FnMut(RanksNews, Vec<u8>) -> bool,
) -> Result<(), SshError> {
    Err(SshError::NotBuilt)
}
