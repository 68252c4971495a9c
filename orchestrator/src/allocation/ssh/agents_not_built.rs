//! A build without ssh: all operations fail with [`SshError::NotBuilt`].

use std::path::Path;
use std::time::Duration;

use holdfast_wire::run::{AgentReady, AgentStart};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::error::SshError;
use super::on_node::{NodeCommand, SurveyRequest};
use super::survey_answer::SurveyAnswer;
use super::target::Target;

pub(super) fn survey_host(_target: &Target, _question: &SurveyRequest) -> Result<SurveyAnswer, SshError> {
    Err(SshError::NotBuilt)
}

pub(super) fn start(
    _target: &Target,
    _start: AgentStart,
    _log: &Path,
    _cancelled: &CancellationToken,
) -> Result<AgentReady, SshError> {
    Err(SshError::NotBuilt)
}

pub(super) fn end(_target: &Target, _pid: u32, _patience: Duration) -> Result<(), SshError> {
    Err(SshError::NotBuilt)
}

/// Runs a command on a host.
///
/// # Errors
/// [`SshError::NotBuilt`].
pub fn run_command(_target: &Target, _what: &NodeCommand) -> Result<u8, SshError> {
    Err(SshError::NotBuilt)
}

/// Follows the ranks of a host.
///
/// # Errors
/// [`SshError::NotBuilt`].
pub fn follow<T>(
    _target: &Target,
    _verb: &str,
    _message: &impl Serialize,
    _bytes_behind: impl Fn(&T) -> usize,
    _receive: impl FnMut(T, Vec<u8>) -> bool,
) -> Result<(), SshError> {
    Err(SshError::NotBuilt)
}
