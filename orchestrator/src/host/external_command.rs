//! Runs commands of the system or the site (`ldd`, `squeue`, `mpirun --version`) to their end, with a time limit.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

/// Output beyond this is not read.
const LONGEST_OUTPUT: u64 = 16 << 20;

/// A command that could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum ExternalCommandError {
    /// It could not be started or waited for.
    #[error("{command} cannot be run: {source}")]
    Start { command: String, source: io::Error },
    /// It did not end in time, and was killed.
    #[error("{command} did not answer within {} s", within.as_secs_f64())]
    Timeout { command: String, within: Duration },
}

impl ExternalCommandError {
    /// A command that could not be started or waited for.
    pub fn start(command: impl Into<String>, source: io::Error) -> Self {
        ExternalCommandError::Start { command: command.into(), source }
    }
}

/// What a command printed, and whether it succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// Exit status 0.
    pub success: bool,
    pub output: String,
    pub errors: String,
}

/// Runs `program` with `arguments` and these changes to its environment (`None` removes a variable). After `within` the
/// command and all processes of its group are killed.
///
/// # Errors
/// [`ExternalCommandError`]; a non-zero exit status is not an error here.
pub fn run(
    program: impl AsRef<OsStr>,
    arguments: &[&str],
    environment: &BTreeMap<String, Option<String>>,
    within: Duration,
) -> Result<CommandOutput, ExternalCommandError> {
    run_with_input(program, arguments, environment, &[], within)
}

/// As [`run`], with these bytes as its standard input. A command that does not read them has not failed for that.
///
/// # Errors
/// Those of [`run`].
pub fn run_with_input(
    program: impl AsRef<OsStr>,
    arguments: &[&str],
    environment: &BTreeMap<String, Option<String>>,
    input: &[u8],
    within: Duration,
) -> Result<CommandOutput, ExternalCommandError> {
    // Not as a `Path`: that would be resolved in the working directory.
    let program = program.as_ref();
    let command = || program.to_string_lossy().into_owned();
    let failed = |source: io::Error| ExternalCommandError::start(command(), source);
    // Files instead of pipes: a process that the command leaves behind cannot block a reader.
    let (output, errors) = (tempfile::tempfile().map_err(failed)?, tempfile::tempfile().map_err(failed)?);
    let mut read = tempfile::tempfile().map_err(failed)?;
    read.write_all(input).and_then(|()| read.rewind()).map_err(failed)?;
    let mut expression = duct::cmd(program, arguments.iter().map(OsString::from))
        .stdin_file(read)
        .stdout_file(output.try_clone().map_err(failed)?)
        .stderr_file(errors.try_clone().map_err(failed)?)
        .unchecked()
        .before_spawn(|command| {
            command.process_group(0);
            Ok(())
        });
    for (name, value) in environment {
        expression = match value {
            Some(value) => expression.env(name, value),
            None => expression.env_remove(name),
        };
    }
    let handle = expression.start().map_err(failed)?;
    let Some(status) = handle.wait_timeout(within).map_err(failed)?.map(|output| output.status) else {
        for group in handle.pids().into_iter().filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            // The process has not been waited for, so its id cannot have been reused.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = handle.kill();
        return Err(ExternalCommandError::Timeout { command: command(), within });
    };
    let text = |mut file: std::fs::File| -> io::Result<String> {
        file.rewind()?;
        let mut bytes = Vec::new();
        file.take(LONGEST_OUTPUT).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (output, errors) = (text(output).map_err(failed)?, text(errors).map_err(failed)?);
    Ok(CommandOutput { success: status.success(), output, errors })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn shell(script: &str, within: Duration) -> Result<CommandOutput, ExternalCommandError> {
        run("sh", &["-c", script], &BTreeMap::new(), within)
    }

    #[test]
    fn kills_a_command_that_hangs_with_its_children() {
        let base = tempfile::tempdir().unwrap();
        let file = base.path().join("child");
        let begun = Instant::now();
        let script = format!("sleep 600 & echo $! >{}; wait", file.display());
        let error = shell(&script, Duration::from_secs(1)).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(60));
        assert!(error.to_string().contains("sh did not answer within 1 s"), "{error}");
        let child: u32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        assert!(super::super::process::wait_for_end(child, Duration::from_secs(10)));
    }

    #[test]
    fn does_not_wait_for_processes_that_a_command_leaves_behind() {
        let begun = Instant::now();
        let answer = shell("sleep 20 & echo done; echo why >&2; exit 3", Duration::from_secs(600)).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(15));
        let expected = CommandOutput { success: false, output: "done\n".to_owned(), errors: "why\n".to_owned() };
        assert_eq!(answer, expected);
    }

    #[test]
    fn names_a_command_that_does_not_exist() {
        let error = run("/no/such", &[], &BTreeMap::new(), Duration::from_secs(1)).unwrap_err();
        assert!(error.to_string().starts_with("/no/such cannot be run"), "{error}");
    }

    #[test]
    fn sets_and_removes_variables() {
        let changes = BTreeMap::from([("PATH".to_owned(), None), ("ANSWER".to_owned(), Some("42".to_owned()))]);
        let answer = run("/usr/bin/env", &[], &changes, Duration::from_secs(600)).unwrap();
        assert!(answer.output.contains("ANSWER=42") && !answer.output.lines().any(|line| line.starts_with("PATH=")));
    }
}
