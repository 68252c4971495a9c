//! Where the agent's log goes: standard error, as its starter made it; under a launcher that starts many agents, which has
//! one standard error for all, a file of the node's own.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use holdfast_wire::environment;

use crate::identity::SLURM_NODE;

/// Makes `<node>.log` in the directory that the environment names our standard error, if it names one. It lies in the
/// prefix directory, which this node may not have: then everything that is said goes where it went before.
pub fn settle(variable: impl Fn(&str) -> Option<String>) {
    let named = |name| variable(name).filter(|value| !value.is_empty());
    let (Some(directory), Some(node)) = (named(environment::AGENT_LOGS), named(SLURM_NODE)) else { return };
    let path = Path::new(&directory).join(format!("{node}.log"));
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    if let Err(error) = opened.and_then(|file| Ok(rustix::stdio::dup2_stderr(&file)?)) {
        // Nobody may listen.
        let _ = writeln!(io::stderr(), "{node}: its log {} cannot be written: {error}", path.display());
    }
}
