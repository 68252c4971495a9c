//! How a process ended.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use holdfast_model::RankEnd;

/// The end that a parent was told.
pub fn of(status: ExitStatus) -> RankEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => RankEnd::Code(code),
        (None, Some(signal)) => RankEnd::Signal(signal),
        (None, None) => RankEnd::Unknown,
    }
}

/// The exit code in the convention of shells: 128 and the number of the signal.
pub fn shell_code(end: RankEnd) -> u8 {
    match end {
        RankEnd::Code(code) => u8::try_from(code).unwrap_or(u8::MAX),
        RankEnd::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        RankEnd::Unknown => u8::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_follows_the_convention_of_shells() {
        assert_eq!(shell_code(RankEnd::Code(3)), 3);
        assert_eq!(shell_code(RankEnd::Signal(11)), 139);
        assert_eq!(shell_code(RankEnd::Unknown), 255);
    }
}
