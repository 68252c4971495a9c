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

const fn meaning(code: u8, text: &'static str, remedy: &'static str) -> Meaning {
    Meaning { code, text, remedy }
}

/// The cases of each code: the table of `docs/exit-codes.md`.
pub const MEANINGS: &[Meaning] = &[
    meaning(0, "finished; nothing is wrong", ""),
    meaning(64, "the command line is wrong", "correct the command; the message names the nearest spelling"),
    meaning(65, "data is damaged or incomplete", "restart from an older checkpoint, or repair the file that is named"),
    meaning(65, "finished, but every [dataset] that the application wrote was dropped", "see the reason in the report"),
    meaning(69, "something is missing or cannot be used: a file, a command, a node, a running job", "see the message"),
    meaning(
        69,
        "the index in the [prefix directory] cannot be used for a restart",
        "correct what the message names, run again",
    ),
    meaning(
        69,
        "a checkpoint turned out to be of another number of ranks at the restart",
        "as for 78; it is kept as it is",
    ),
    meaning(
        69,
        "an [agent] refused the program: another source, release or number of ranks",
        "correct what the message names",
    ),
    meaning(69, "the first launch failed for a reason in the job, such as an option of the launcher", "as above"),
    meaning(
        69,
        "the program of the first launch ended with 126 or 127: it cannot be loaded",
        "read the output of the rank",
    ),
    meaning(69, "a command of `before` failed, and nothing was launched", "read its output, which the message names"),
    meaning(69, "another `holdfast run` has taken over the job with pairs", "nothing: the job goes on"),
    meaning(69, "not finished, and `requeue` failed", "correct the command, then submit the next allocation"),
    meaning(
        69,
        "`rehearse`: the fault was not injected ([rehearse.md](rehearse.md))",
        "see the reason; choose another moment",
    ),
    meaning(70, "an internal error of Holdfast", "report it"),
    meaning(
        73,
        "a [drain] could not write to the prefix directory",
        "correct the cause, then run `holdfast drain` again",
    ),
    meaning(73, "files of an output are not at their paths: something else is there", "`holdfast index place` (below)"),
    meaning(75, "not finished: halted, too few nodes, time limit", "start another allocation, which continues"),
    meaning(75, "not finished: the resource manager has lost the allocation ([slurm.md](slurm.md))", "as above"),
    meaning(75, "a job with pairs was halted ([pairs.md](pairs.md))", "start it again: its pairs begin from the start"),
    meaning(78, "the job spec or a parameter is wrong", "correct it; nothing was started"),
    meaning(78, "a program or a command is in the place of the job spec", "write what the message names"),
    meaning(
        78,
        "the newest checkpoint does not fit the spec ([restarts.md](restarts.md))",
        "see the message; nothing was changed",
    ),
    meaning(
        78,
        "the job's state is below the working directory, not beside the spec",
        "write the `prefix` that is named",
    ),
    meaning(78, "faults on machines are not allowed ([faults.md](faults.md))", "`--allow-faults`, or `manager: local`"),
    meaning(
        78,
        "a directory belongs to another user, or others may write to it",
        "see the message; nothing of it was used",
    ),
    meaning(90, "the application failed and is not relaunched again", "read the output of the rank that is named"),
    meaning(
        90,
        "both copies of each pair that is left failed too often ([pairs.md](pairs.md))",
        "read the output of the copies",
    ),
    meaning(
        91,
        "no progress: several [generations] or allocations made none ([progress.md](progress.md))",
        "as for 90",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_the_table_of_the_codes() {
        let row = |meaning: &Meaning| {
            let remedy = if meaning.remedy.is_empty() { String::new() } else { format!("{} ", meaning.remedy) };
            format!("| {} | {} | {remedy}|\n", meaning.code, meaning.text)
        };
        let table: String = MEANINGS.iter().map(row).collect();
        let written = include_str!("../../docs/exit-codes.md");
        assert!(
            written.contains(&format!("|---|---|---|\n{table}\n")),
            "docs/exit-codes.md needs this table:\n{table}"
        );
    }
}
