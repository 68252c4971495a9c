//! `holdfast agent`: the daemon of one node.

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
