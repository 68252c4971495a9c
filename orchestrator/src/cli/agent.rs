//! `holdfast agent`: the daemon of one node.

use std::ffi::OsString;

use super::failure::Failure;
use super::output::Style;
use crate::exit;

/// Serve one node: started by `holdfast run` and `holdfast drain`, never by hand
///
/// Reads its identity, the job's certificate and its token from standard input, as one JSON line: secrets are never on
/// a command line. Writes one JSON line to standard output when it is up.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast agent < start.json               what `holdfast run` does on every node")]
pub struct AgentArgs {
    /// Run in a new session, so that the end of the caller's session does not end the agent
    #[arg(long, hide = true)]
    own_session: bool,
}

/// The arguments of a command line as the orchestrator writes it. To parse it, the definitions of all commands would be
/// made, whose code and data would stay in the memory of each node.
pub(super) fn called(words: impl Iterator<Item = OsString>) -> Option<AgentArgs> {
    let words: Vec<OsString> = words.skip(1).take(3).collect();
    let (command, options) = words.split_first()?;
    let own_session = match options {
        [] => false,
        [option] if option == "--own-session" => true,
        _ => return None,
    };
    (command == "agent").then_some(AgentArgs { own_session })
}

pub(super) fn run(args: AgentArgs, _style: Style) -> Result<u8, Failure> {
    if args.own_session
        && let Err(error) = rustix::process::setsid()
    {
        // Not an error: the process may already lead a session.
        tracing::info!(%error, "no_session_of_its_own");
    }
    let result = holdfast_agent::daemon::run(std::io::stdin().lock(), std::io::stdout());
    result.map(|()| exit::FINISHED).map_err(|error| Failure::of(exit::UNAVAILABLE, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_of_the_orchestrator_is_recognised_and_every_other_one_is_parsed() {
        let called = |line: &str| called(line.split(' ').map(OsString::from)).map(|args| args.own_session);
        assert_eq!(called("holdfast agent"), Some(false));
        assert_eq!(called("/opt/bin/holdfast agent --own-session"), Some(true));
        for other in
            ["holdfast", "agent", "holdfast run agent", "holdfast agent --help", "holdfast agent -q --own-session"]
        {
            assert_eq!(called(other), None, "{other}");
        }
    }
}
