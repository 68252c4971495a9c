//! The result of a command: its exit code, or why it did not come to its end.

use std::fmt::Display;
use std::io::{self, Write as _};

use super::arguments::Usage;
use crate::cli::failure::Failure;
use crate::exit;

/// Why a command did not come to its end.
pub(super) enum CompatError {
    /// The arguments are wrong, or help was requested.
    Usage(Usage),
    Failed(Failure),
}

impl From<Usage> for CompatError {
    fn from(usage: Usage) -> Self {
        CompatError::Usage(usage)
    }
}

impl<E: Into<Failure>> From<E> for CompatError {
    fn from(error: E) -> Self {
        CompatError::Failed(error.into())
    }
}

/// The result of a command: its exit code.
pub(super) type ExitResult = Result<u8, CompatError>;

/// The exit codes of SCR's commands.
pub(super) const YES: u8 = 0;
pub(super) const NO: u8 = 1;

/// An error as the failure of a command. Its exit code is the command's.
pub(super) fn failed(error: &(dyn std::error::Error + 'static)) -> CompatError {
    CompatError::Failed(Failure::of(exit::UNAVAILABLE, error))
}

/// A failure with this message.
pub(super) fn refused(message: impl Into<String>) -> CompatError {
    CompatError::Failed(Failure::new(exit::UNAVAILABLE, message))
}

/// Prints the result.
pub(super) fn printed(line: impl Display) -> ExitResult {
    print(line)?;
    Ok(YES)
}

/// Prints a line of the result.
pub(super) fn print(line: impl Display) -> Result<(), CompatError> {
    Ok(writeln!(io::stdout(), "{line}")?)
}
