//! An agent for all ranks of a run: collective calls end when all ranks have made them, checkpoints are directories
//! without redundancy. When a rank ends without finalize, the run ends for all.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use holdfast_client::{
    AgentAddress, CheckpointId, Environment, Failure, FailureKind, Generation, NodeName, Rank, RestartSource,
};
use holdfast_wire::frame::HELLO;
use holdfast_wire::rank::{Call, Reply, Restart, RestartFile, RestartFiles, TO_AGENT, TO_RANK, ToAgent, ToRank};
use holdfast_wire::{frame, socket};
use tempfile::TempDir;

type Files = BTreeMap<Rank, Vec<String>>;

pub struct SmallAgent {
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

struct Shared {
    directory: TempDir,
    ranks: u32,
    state: Mutex<AgentState>,
    changed: Condvar,
}

#[derive(Default)]
struct AgentState {
    generation: u64,
    over: bool,
    ended: bool,
    finalized: bool,
    streams: Vec<UnixStream>,
    calls: BTreeMap<Rank, Call>,
    replies: BTreeMap<u64, BTreeMap<Rank, Reply>>,
    needs: u32,
    last: u64,
    /// The checkpoint being written; before the first one, the checkpoint to restart from.
    current: u64,
    writing: bool,
    files: Files,
    complete: BTreeMap<CheckpointId, Files>,
    refused: Option<CheckpointId>,
    halt_after: Option<CheckpointId>,
}

impl SmallAgent {
    pub fn new(ranks: u32) -> Self {
        let shared =
            Shared { directory: tempfile::tempdir().unwrap(), ranks, state: Mutex::default(), changed: Condvar::new() };
        let listener = socket::listen(&shared.directory.path().join("agent.sock")).unwrap();
        let shared = Arc::new(shared);
        let serving = Arc::clone(&shared);
        let listening = std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                if serving.state().ended {
                    return;
                }
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        SmallAgent { shared, listening: Some(listening) }
    }

    pub fn ranks(&self) -> u32 {
        self.shared.ranks
    }

    pub fn environment(&self, rank: u32) -> Environment {
        let generation = Generation(self.shared.state().generation);
        let socket = self.shared.directory.path().join("agent.sock");
        Environment {
            rank: Rank(rank),
            ranks: self.shared.ranks,
            node: Some(NodeName::new("small")),
            agent: Some(AgentAddress { job: "heat".to_owned(), generation, socket }),
            reconnect: Duration::from_secs(10),
        }
    }

    /// Starts a new generation with the complete checkpoints.
    pub fn next_generation(&mut self) {
        let mut state = self.shared.state();
        state.end();
        let old = std::mem::take(&mut *state);
        state.generation = old.generation + 1;
        state.last = old.last;
        state.complete = old.complete;
        state.refused = old.refused;
        state.halt_after = old.halt_after;
    }

    pub fn finalized(&self) -> bool {
        self.shared.state().finalized
    }

    pub fn checkpoints(&self) -> Vec<CheckpointId> {
        self.shared.state().complete.keys().copied().collect()
    }

    pub fn directory(&self, checkpoint: CheckpointId) -> PathBuf {
        self.shared.checkpoint_directory(checkpoint)
    }

    /// Sets a halt condition when this checkpoint is complete.
    pub fn halt_after(&mut self, checkpoint: CheckpointId) {
        self.shared.state().halt_after = Some(checkpoint);
    }

    /// Does not create the directory of this checkpoint.
    pub fn refuse_writes(&mut self, checkpoint: CheckpointId) {
        self.shared.state().refused = Some(checkpoint);
    }
}

impl Drop for SmallAgent {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.ended = true;
        state.end();
        drop(state);
        let _ = socket::connect(&self.shared.directory.path().join("agent.sock"));
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
    }
}

impl AgentState {
    fn end(&mut self) {
        self.over = true;
        for stream in self.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn halt(&self) -> Option<String> {
        let last = CheckpointId(self.last);
        self.halt_after.filter(|checkpoint| *checkpoint <= last).map(|_| "JOB_HALTED".to_owned())
    }

    fn offer(&mut self, below: Option<CheckpointId>) -> Option<CheckpointId> {
        let newest = self.complete.keys().rev().find(|id| below.is_none_or(|below| **id < below)).copied();
        self.current = newest.map_or(0, |id| id.0);
        newest
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, AgentState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn checkpoint_directory(&self, checkpoint: CheckpointId) -> PathBuf {
        self.directory.path().join(format!("checkpoint.{checkpoint}"))
    }

    fn serve(&self, mut stream: UnixStream) {
        let Ok(ToAgent::Hello(hello)) = frame::receive(&mut stream, HELLO) else { return };
        let mut state = self.state();
        if state.over || hello.generation.0 != state.generation {
            drop(state);
            let _ = frame::send(
                &mut stream,
                &ToRank::Refused { failure: Failure::new(FailureKind::Superseded, "this run is over") },
                HELLO,
            );
            return;
        }
        state.streams.push(stream.try_clone().unwrap());
        drop(state);
        let _ = frame::send(
            &mut stream,
            &ToRank::Welcome { node: NodeName::new("small"), layout: Default::default() },
            HELLO,
        );
        let mut done = false;
        while let Ok(ToAgent::Call { seq, call }) = frame::receive(&mut stream, TO_AGENT) {
            done = call == Call::Finalize;
            let result = match call {
                Call::Route { name } => self.route(hello.rank, name),
                Call::RestartFiles => Ok(self.restart_files(hello.rank)),
                call => match self.collective(hello.generation, hello.rank, seq, call) {
                    Some(reply) => Ok(reply),
                    None => break,
                },
            };
            if frame::send(&mut stream, &ToRank::Reply { seq, result }, TO_RANK).is_err() {
                break;
            }
        }
        let mut state = self.state();
        // A program that ends with code 0 without finalize (--no-finalize) ends the run too, on all ranks at once.
        if !done && state.generation == hello.generation.0 {
            state.over = true;
            self.changed.notify_all();
        }
    }

    fn route(&self, rank: Rank, name: String) -> Result<Reply, Failure> {
        let mut state = self.state();
        let path = self.checkpoint_directory(CheckpointId(state.current)).join(&name);
        if state.writing {
            state.files.entry(rank).or_default().push(name);
        } else if !path.exists() {
            return Err(Failure::new(FailureKind::NotFound, format!("{name} is not in the checkpoint")));
        }
        Ok(Reply::Path(path))
    }

    fn restart_files(&self, rank: Rank) -> Reply {
        let state = self.state();
        let files = state.complete[&CheckpointId(state.current)].get(&rank).into_iter().flatten();
        let files = files.map(|name| RestartFile { name: name.clone(), rank }).collect();
        Reply::RestartFiles(RestartFiles { ranks: self.ranks, files })
    }

    fn collective(&self, generation: Generation, rank: Rank, seq: u64, call: Call) -> Option<Reply> {
        let mut state = self.state();
        state.calls.insert(rank, call);
        if state.calls.len() == self.ranks as usize {
            let calls = std::mem::take(&mut state.calls);
            let replies = self.decide(&mut state, calls);
            state.replies.insert(seq, replies);
            self.changed.notify_all();
        }
        loop {
            if state.generation != generation.0 {
                return None;
            }
            if let Some(reply) = state.replies.get(&seq).and_then(|replies| replies.get(&rank)) {
                return Some(reply.clone());
            }
            if state.over {
                return None;
            }
            state = self.changed.wait(state).unwrap();
        }
    }

    fn decide(&self, state: &mut AgentState, calls: BTreeMap<Rank, Call>) -> BTreeMap<Rank, Reply> {
        let all_valid = calls
            .values()
            .all(|call| !matches!(call, Call::Complete { valid: false } | Call::CompleteRestart { valid: false }));
        let for_all = |reply: Reply| calls.keys().map(|rank| (*rank, reply.clone())).collect();
        let first = &calls[&Rank(0)];
        assert!(calls.values().all(|call| call.name() == first.name()), "all ranks make the same call: {calls:?}");
        match first {
            Call::Init => self.restart(state, None),
            Call::CompleteRestart { .. } if all_valid => for_all(Reply::Done),
            Call::CompleteRestart { .. } => {
                let given_up = CheckpointId(state.current);
                state.complete.remove(&given_up);
                self.restart(state, Some(given_up))
            }
            Call::Need => {
                state.needs += 1;
                for_all(Reply::Flag(state.needs.is_multiple_of(7)))
            }
            Call::Start => {
                state.last += 1;
                state.current = state.last;
                state.writing = true;
                state.files = Files::new();
                let directory = self.checkpoint_directory(CheckpointId(state.current));
                if state.refused != Some(CheckpointId(state.current)) {
                    std::fs::create_dir(&directory).unwrap();
                }
                for_all(Reply::Started { checkpoint: CheckpointId(state.current), directory, mirrored: None })
            }
            Call::Complete { .. } => {
                state.writing = false;
                let (checkpoint, files) = (CheckpointId(state.current), std::mem::take(&mut state.files));
                if all_valid {
                    state.complete.insert(checkpoint, files);
                }
                for_all(Reply::Completed { checkpoint, kept: all_valid, halt: state.halt() })
            }
            Call::ShouldExit => for_all(Reply::Flag(false)),
            Call::Allgather { .. } => {
                let parts = calls.values().filter_map(|call| match call {
                    Call::Allgather { data } => Some(data.clone()),
                    _ => None,
                });
                for_all(Reply::Gathered(parts.collect()))
            }
            Call::Finalize => {
                state.finalized = true;
                for_all(Reply::Done)
            }
            other => unreachable!("the example makes no such collective call: {other:?}"),
        }
    }

    fn restart(&self, state: &mut AgentState, below: Option<CheckpointId>) -> BTreeMap<Rank, Reply> {
        let checkpoint = state.offer(below);
        (0..self.ranks)
            .map(Rank)
            .map(|rank| {
                let files = checkpoint.and_then(|id| state.complete[&id].get(&rank).cloned());
                let restart = Restart {
                    checkpoint,
                    source: checkpoint.map_or(RestartSource::Fresh, |_| RestartSource::Cache),
                    directory: checkpoint.map(|id| self.checkpoint_directory(id)),
                    files: files.unwrap_or_default(),
                    halt: state.halt(),
                    ..Restart::default()
                };
                (rank, Reply::Restart(restart))
            })
            .collect()
    }
}
