//! Which ranks are connected, and their processes.

use std::collections::BTreeMap;

use holdfast_model::{Generation, Rank};
use holdfast_wire::run::AgentStart;
use parking_lot::Mutex;

use super::admission::Refusal;
use super::marked::{Marked, Marks};
use super::memory_kills::Killed;
use super::process::Process;

#[derive(Debug)]
pub struct Ranks {
    marks: Marks,
    connected: Mutex<BTreeMap<Rank, Connected>>,
    /// The newest generation of which a process was refused for good.
    refused: Mutex<Generation>,
    /// What the last rank of a generation showed that had ended while processes were killed for lack of memory.
    killed: Mutex<Option<(Generation, Killed)>>,
    /// The number of the last message of the kernel that a rank has shown.
    reported: Mutex<Option<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct Connected {
    generation: Generation,
    pid: u32,
    /// Distinguishes a rank's connections, so that the end of an old one does not remove the new one.
    connection: u64,
    /// The process has ended.
    ended: bool,
    /// The process is about to end, and another one may be the rank.
    left: bool,
}

/// How a connection of a rank was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// A process that is not watched yet.
    New,
    /// A further connection of the same process, which is watched already.
    Again,
}

impl Ranks {
    /// `start` names the job and the node.
    pub fn new(start: &AgentStart) -> Self {
        let (connected, refused, killed) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ranks { marks: Marks::new(start), connected, refused, killed, reported: Mutex::default() }
    }

    /// True if no other rank of the generation has shown the same killed processes.
    pub(crate) fn is_first_to_show(&self, generation: Generation, killed: Killed) -> bool {
        self.killed.lock().replace((generation, killed)) != Some((generation, killed))
    }

    /// True if no rank has shown this message of the kernel, or a later one.
    pub(crate) fn is_first_to_report(&self, number: u64) -> bool {
        let mut reported = self.reported.lock();
        let is_first = reported.is_none_or(|reported| number > reported);
        if is_first {
            *reported = Some(number);
        }
        is_first
    }

    /// True for the first process of a generation that is refused for good.
    pub fn is_first_refused(&self, generation: Generation) -> bool {
        let mut refused = self.refused.lock();
        let is_first = generation > *refused;
        *refused = generation.max(*refused);
        is_first
    }

    /// The ranks of `generation` that are connected and alive, ascending.
    pub fn alive(&self, generation: Generation) -> Vec<Rank> {
        let connected = self.connected.lock();
        connected
            .iter()
            .filter(|(_, known)| known.generation == generation && !known.ended)
            .map(|(rank, _)| *rank)
            .collect()
    }

    /// The processes of the ranks of `generation` and older ones that have not ended.
    pub(super) fn processes(&self, generation: Generation) -> Vec<u32> {
        let connected = self.connected.lock();
        connected
            .values()
            .filter(|known| known.generation <= generation && !known.ended)
            .map(|known| known.pid)
            .collect()
    }

    /// The connected process of a rank.
    pub(super) fn process_of(&self, rank: Rank) -> Option<u32> {
        self.connected.lock().get(&rank).filter(|known| !known.ended).map(|known| known.pid)
    }

    /// The processes of the ranks of `generation` that are connected and have not ended.
    pub fn connected(&self, generation: Generation) -> Vec<(Rank, u32)> {
        let connected = self.connected.lock();
        let alive = connected.iter().filter(|(_, known)| known.generation == generation && !known.ended);
        alive.map(|(rank, known)| (*rank, known.pid)).collect()
    }

    /// Records a rank's connection; refuses a second process while the first is alive. The watch of a process that has
    /// ended just now may not have reported it yet.
    pub(crate) fn join(
        &self,
        rank: Rank,
        generation: Generation,
        pid: u32,
        connection: u64,
    ) -> Result<Joined, Refusal> {
        let mut connected = self.connected.lock();
        let known = connected.get(&rank).filter(|known| known.generation == generation && !known.ended);
        let joined = match known {
            Some(known) if known.pid == pid => Joined::Again,
            Some(known) if !known.left && Process::is_alive(known.pid) => {
                return Err(Refusal::Duplicate { rank, pid: known.pid });
            }
            _ => Joined::New,
        };
        connected.insert(rank, Connected { generation, pid, connection, ended: false, left: false });
        Ok(joined)
    }

    /// Records that the process of this connection is about to end, and that another one may be the rank. Returns its
    /// number; `None` if the rank has another process already.
    pub(crate) fn leave(&self, rank: Rank, connection: u64) -> Option<u32> {
        let mut connected = self.connected.lock();
        let known = connected.get_mut(&rank).filter(|known| known.connection == connection)?;
        known.left = true;
        Some(known.pid)
    }

    /// Records that the process of a rank has ended; false if the rank has another process now.
    pub(crate) fn process_ended(&self, rank: Rank, pid: u32) -> bool {
        let mut connected = self.connected.lock();
        match connected.get_mut(&rank) {
            Some(known) if known.pid == pid && !known.ended => {
                known.ended = true;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn is_current(&self, rank: Rank, connection: u64) -> bool {
        self.connected.lock().get(&rank).is_some_and(|known| known.connection == connection)
    }

    /// Processes of this user whose environment names the job, a generation that `matches`, and this node or its agent.
    /// Reads all of `/proc`.
    pub fn marked(&self, matches: impl Fn(Generation) -> bool) -> Vec<Marked> {
        self.marks.find(matches)
    }

    /// Removes the ranks of generations before this one.
    pub fn fence(&self, generation: Generation) {
        self.connected.lock().retain(|_, known| known.generation >= generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::process::Command;

    use crate::agent::fixtures::fixture_agent;

    const RUN: Generation = Generation(2);

    #[test]
    fn a_process_that_ended_before_its_watch_saw_it_does_not_keep_its_rank() {
        let (_root, agent) = fixture_agent("node1", "1145655");
        let mut first = Command::new("sleep").arg("600").spawn().unwrap();
        assert_eq!(agent.ranks.join(Rank(1), RUN, first.id(), 1).unwrap(), Joined::New);
        let refused = agent.ranks.join(Rank(1), RUN, std::process::id(), 2);
        assert!(matches!(refused, Err(Refusal::Duplicate { pid, .. }) if pid == first.id()), "{refused:?}");
        first.kill().unwrap();
        first.wait().unwrap();
        assert_eq!(agent.ranks.join(Rank(1), RUN, std::process::id(), 3).unwrap(), Joined::New);
        assert_eq!(agent.ranks.connected(RUN), [(Rank(1), std::process::id())]);
    }

    #[test]
    fn a_process_that_leaves_makes_room_for_another_before_it_has_ended() {
        let (_root, agent) = fixture_agent("node1", "1145655");
        let mut helper = Command::new("sleep").arg("600").spawn().unwrap();
        agent.ranks.join(Rank(1), RUN, helper.id(), 1).unwrap();
        assert_eq!(agent.ranks.leave(Rank(1), 7), None, "another connection");
        assert_eq!(agent.ranks.leave(Rank(1), 1), Some(helper.id()));
        assert_eq!(agent.ranks.join(Rank(1), RUN, std::process::id(), 2).unwrap(), Joined::New);
        let refused = agent.ranks.join(Rank(1), RUN, helper.id(), 3);
        assert!(matches!(refused, Err(Refusal::Duplicate { .. })), "{refused:?}");
        helper.kill().unwrap();
        helper.wait().unwrap();
    }
}
