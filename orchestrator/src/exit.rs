//! Exit codes: what batch scripts may rely on. They follow sysexits where one fits.

use std::process::ExitCode;

/// The job is finished.
pub const FINISHED: u8 = 0;
/// The command line is wrong.
pub const USAGE: u8 = 64;
/// A file is damaged, or a dataset could not be completed.
pub const DAMAGED_DATA: u8 = 65;
/// Something that is needed is missing: a directory, a command, a running job; or the next allocation could not be
/// submitted.
pub const UNAVAILABLE: u8 = 69;
/// A defect of Holdfast.
pub const INTERNAL: u8 = 70;
/// A drain could not write to the prefix directory: the data is still on the nodes; correct the cause, then run
/// `holdfast drain` again. Or files of a complete output are not at their paths, because something else is there:
/// `holdfast index place`.
pub const CANNOT_WRITE: u8 = 73;
/// Not finished; another allocation can continue: halted, out of nodes, out of time.
pub const NOT_FINISHED: u8 = 75;
/// The job spec or a parameter is wrong; or a directory that it names cannot be trusted: another user made it, or may
/// write to it.
pub const CONFIGURATION: u8 = 78;
/// The application ended with an error for which the policy excludes a relaunch; another allocation would not help.
pub const APPLICATION_ERROR: u8 = 90;
/// No progress: `relaunch.no_progress_limit` generations, or `requeue.no_progress_limit` allocations, in a row made
/// none.
pub const NO_PROGRESS: u8 = 91;

/// The code as the return value of `main`.
pub fn code(code: u8) -> ExitCode {
    ExitCode::from(code)
}

/// What a code means in one of its cases.
#[derive(Clone, Copy, Debug)]
pub struct Meaning {
    pub code: u8,
    /// Markdown.
    pub text: &'static str,
    /// What to do, if anything; Markdown.
    pub remedy: &'static str,
}

/// The cases of each code: the first table of `docs/exit-codes.md`.
pub fn meanings() -> impl Iterator<Item = Meaning> {
    include_str!("../../docs/exit-codes.md").lines().filter_map(|line| {
        let (code, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
        let (text, remedy) = rest.strip_suffix('|')?.trim_end().split_once(" |")?;
        Some(Meaning { code: code.parse().ok()?, text, remedy: remedy.trim_start() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_the_table_of_the_codes() {
        let mut codes: Vec<u8> = meanings().map(|meaning| meaning.code).collect();
        codes.dedup();
        assert_eq!(codes, [0, 64, 65, 69, 70, 73, 75, 78, 90, 91]);
    }
}
