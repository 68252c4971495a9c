//! The ranks on this node: their socket, who is connected, and killing them.
//!
//! A rank has one connection at a time and makes one call at a time. A connection may break without the rank (the agent
//! was restarted) and the rank without the connection; the process is watched by its pidfd.

mod connection;
mod kill;
mod marked;
mod process;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use holdfast_model::{Generation, Rank};
use holdfast_wire::socket;
use parking_lot::Mutex;
use tokio::net::UnixListener;

pub use kill::{kill, kill_now, others_alive};
pub use marked::marked;

use crate::admission::Refusal;
use crate::agent::Agent;

/// The ranks of this node.
#[derive(Debug, Default)]
pub struct Ranks {
    connected: Mutex<BTreeMap<Rank, Connected>>,
}

#[derive(Clone, Copy, Debug)]
struct Connected {
    generation: Generation,
    pid: u32,
    /// Distinguishes a rank's connections, so that the end of an old one does not remove the new one.
    connection: u64,
    /// The process is gone.
    gone: bool,
}

impl Ranks {
    /// The ranks of `generation` that are connected and alive, ascending.
    pub fn alive(&self, generation: Generation) -> Vec<Rank> {
        let connected = self.connected.lock();
        connected
            .iter()
            .filter(|(_, known)| known.generation == generation && !known.gone)
            .map(|(rank, _)| *rank)
            .collect()
    }

    /// The processes of the ranks of `generation` and older ones that have not gone.
    fn processes(&self, generation: Generation) -> Vec<u32> {
        let connected = self.connected.lock();
        connected
            .values()
            .filter(|known| known.generation <= generation && !known.gone)
            .map(|known| known.pid)
            .collect()
    }

    /// The processes of the ranks of `generation` that are connected and have not gone.
    pub fn connected(&self, generation: Generation) -> Vec<(Rank, u32)> {
        let connected = self.connected.lock();
        let living = connected.iter().filter(|(_, known)| known.generation == generation && !known.gone);
        living.map(|(rank, known)| (*rank, known.pid)).collect()
    }

    /// Notes a rank's connection; refuses a second process for a rank that lives.
    fn join(&self, rank: Rank, generation: Generation, pid: u32, connection: u64) -> Result<(), Refusal> {
        let mut connected = self.connected.lock();
        if let Some(known) = connected.get(&rank)
            && known.generation == generation
            && known.pid != pid
            && !known.gone
        {
            return Err(Refusal::Duplicate { rank, pid: known.pid });
        }
        connected.insert(rank, Connected { generation, pid, connection, gone: false });
        Ok(())
    }

    /// Notes that the process behind a connection is gone; false if the rank has another process now.
    fn process_gone(&self, rank: Rank, pid: u32) -> bool {
        let mut connected = self.connected.lock();
        match connected.get_mut(&rank) {
            Some(known) if known.pid == pid && !known.gone => {
                known.gone = true;
                true
            }
            _ => false,
        }
    }

    fn is_current(&self, rank: Rank, connection: u64) -> bool {
        self.connected.lock().get(&rank).is_some_and(|known| known.connection == connection)
    }

    /// Forgets the ranks of generations before this one.
    pub fn fence(&self, generation: Generation) {
        self.connected.lock().retain(|_, known| known.generation >= generation);
    }
}

/// Serves the ranks' socket until the agent ends.
pub async fn serve(agent: Arc<Agent>) -> io::Result<()> {
    let listener = socket::listen(&agent.paths.socket())?;
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let uid = rustix::process::getuid().as_raw();
    let mut count = 0;
    loop {
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, for instance: others may close theirs.
                tracing::warn!(%error, "a rank could not be accepted");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        let credentials = stream.peer_cred()?;
        let Some(pid) = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|_| credentials.uid() == uid)
        else {
            tracing::warn!(uid = credentials.uid(), "another user's process on the ranks' socket was turned away");
            continue;
        };
        count += 1;
        tokio::spawn(connection::serve(agent.clone(), stream, pid, count));
    }
}
