//! The destination of the agent's log: standard error, or a file for each node under a launcher that starts many agents
//! with one standard error.

use std::io::{self, Write as _};
use std::path::Path;

use holdfast_core::regular_file;
use holdfast_wire::environment;

use crate::identity::SLURM_NODE;

/// Redirects standard error to `<node>.log` in the directory that the environment names, if it names one. That
/// directory is below the prefix, which this node may not have: then standard error stays as it is.
pub fn settle(variable: impl Fn(&str) -> Option<String>) {
    let named = |name| variable(name).filter(|value| !value.is_empty());
    let (Some(directory), Some(node)) = (named(environment::AGENT_LOGS), named(SLURM_NODE)) else { return };
    let path = Path::new(&directory).join(format!("{node}.log"));
    let opened = regular_file::append(&path);
    if let Err(error) = opened.and_then(|file| Ok(rustix::stdio::dup2_stderr(&file)?)) {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "{node}: the log {} cannot be written: {error}", path.display());
    }
}
