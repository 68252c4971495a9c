//! The destination of the agent's log: standard error, or a file for each node if one standard error has many agents.

use std::io::{self, Write as _};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use holdfast_core::regular_file;
use holdfast_wire::run::AgentStart;

/// The agent goes on without the file if it is not open within this: the file system of the prefix directory may hang.
const OPEN_WITHIN: Duration = Duration::from_secs(1);

/// Redirects standard error to `<node>.log` in the directory of the start message, if it names one. That directory is
/// below the prefix, which this node may not have: then standard error stays as it is. Until the file is open, it stays
/// too.
pub fn settle(start: &AgentStart) {
    let Some(shared) = &start.shared else { return };
    let (node, path) = (start.node.clone(), shared.logs.join(format!("{}.log", start.node)));
    let (done, is_done) = mpsc::channel();
    let redirect = move || {
        let opened = regular_file::append(&path);
        if let Err(error) = opened.and_then(|file| Ok(rustix::stdio::dup2_stderr(&file)?)) {
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "{node}: the log {} cannot be written: {error}", path.display());
        }
        let _ = done.send(());
    };
    match thread::Builder::new().name("log".to_owned()).spawn(redirect) {
        Ok(_) => drop(is_done.recv_timeout(OPEN_WITHIN)),
        Err(error) => drop(writeln!(io::stderr(), "{}: no thread opens the log: {error}", start.node)),
    }
}
