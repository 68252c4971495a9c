//! An agent that expects the calls of a script and sends its replies, one rank at a time.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use holdfast_client::{AgentAddress, Environment, Rank, RestartSource};
use holdfast_model::{CheckpointId, Failure, FailureKind, Generation, NodeName, VariablesLayout};
use holdfast_wire::frame::HELLO;
use holdfast_wire::rank::{Call, Reply, Restart, TO_AGENT, TO_RANK, ToAgent, ToRank};
use holdfast_wire::{VERSION, environment, frame, socket};
use tempfile::TempDir;

/// One step of the script.
pub enum Act {
    /// Expect the call, reply.
    Answer(u64, Call, Reply),
    /// Expect the call, reply with a failure.
    Fail(u64, Call, &'static str),
    /// Expect the call, send any message.
    Send(u64, Call, ToRank),
    /// Expect the call, report that, and do not reply.
    Hold(u64, Call, mpsc::Sender<()>),
    /// Expect the call, close the connection.
    Die(u64, Call),
    /// Expect the call, close the connection inside the reply.
    DieInFrame(u64, Call),
    /// Expect the call, send an invalid message.
    Garbage(u64, Call),
    /// Refuse the next hello.
    Refuse(&'static str),
}

pub struct ScriptedAgent {
    directory: Arc<TempDir>,
    stop: Arc<AtomicBool>,
    connection: Arc<Mutex<Option<UnixStream>>>,
    /// Returns the number of connections, and of the acts that are left of the script. `None`: it has ended.
    thread: Option<JoinHandle<(usize, usize)>>,
}

impl ScriptedAgent {
    pub fn start(script: Vec<Act>) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), script)
    }

    pub fn start_in(directory: Arc<TempDir>, script: Vec<Act>) -> Self {
        let listener = socket::listen(&directory.path().join("agent.sock")).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let connection = Arc::new(Mutex::new(None));
        let (stopping, current) = (Arc::clone(&stop), Arc::clone(&connection));
        let thread = std::thread::spawn(move || {
            let mut script = script.into_iter().peekable();
            let mut hellos = 0;
            loop {
                let (stream, _) = listener.accept().unwrap();
                if stopping.load(Ordering::SeqCst) {
                    return (hellos, script.count());
                }
                *current.lock().unwrap() = Some(stream.try_clone().unwrap());
                hellos += 1;
                serve(stream, &mut script);
                // The clone would keep the connection open.
                *current.lock().unwrap() = None;
            }
        });
        ScriptedAgent { directory, stop, connection, thread: Some(thread) }
    }

    pub fn environment(&self, rank: u32, ranks: u32) -> Environment {
        let agent = AgentAddress { job: "heat.1".to_owned(), generation: Generation(4), socket: self.socket() };
        Environment { rank: Rank(rank), ranks, node: None, agent: Some(agent), reconnect: Duration::from_secs(20) }
    }

    pub fn variables(&self, rank: u32, ranks: u32) -> Vec<(&'static str, String)> {
        vec![
            (environment::JOB, "heat.1".to_owned()),
            (environment::GENERATION, "4".to_owned()),
            (environment::SOCKET, self.socket().to_str().unwrap().to_owned()),
            (environment::RANK, rank.to_string()),
            (environment::RANKS, ranks.to_string()),
        ]
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("agent.sock")
    }

    /// Ends the agent; checks that the script was completed, as dropping it does; returns the number of connections.
    pub fn finished(mut self) -> usize {
        self.finish()
    }

    /// Ends the agent with its connections; the directory is kept.
    pub fn end(mut self) -> Arc<TempDir> {
        self.stop();
        Arc::clone(&self.directory)
    }

    fn finish(&mut self) -> usize {
        let (hellos, left) = self.stop();
        assert_eq!(left, 0, "acts of the script are left");
        hellos
    }

    fn stop(&mut self) -> (usize, usize) {
        let Some(thread) = self.thread.take() else { return (0, 0) };
        self.stop.store(true, Ordering::SeqCst);
        if let Some(stream) = self.connection.lock().unwrap().take() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        drop(socket::connect(&self.socket()));
        thread.join().unwrap()
    }
}

impl Drop for ScriptedAgent {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.finish();
        }
    }
}

fn serve(mut stream: UnixStream, script: &mut std::iter::Peekable<impl Iterator<Item = Act>>) {
    let Ok(ToAgent::Hello(hello)) = frame::receive(&mut stream, HELLO) else { panic!("the first message is hello") };
    assert_eq!((hello.version, hello.job.as_str(), hello.generation), (VERSION, "heat.1", Generation(4)));
    if let Some(Act::Refuse(reason)) = script.next_if(|act| matches!(act, Act::Refuse(_))) {
        let refused = ToRank::Refused { failure: Failure::new(FailureKind::Superseded, reason) };
        return frame::send(&mut stream, &refused, HELLO).unwrap();
    }
    let welcome = ToRank::Welcome { node: NodeName::new("node7"), layout: VariablesLayout::default() };
    frame::send(&mut stream, &welcome, HELLO).unwrap();
    while let Ok(message) = frame::receive::<ToAgent>(&mut stream, TO_AGENT) {
        let ToAgent::Call { seq, call } = message else { panic!("a second hello") };
        let expect = |number, expected| assert_eq!((seq, &call), (number, &expected));
        match script.next().expect("no further call is expected") {
            Act::Answer(number, expected, reply) => {
                expect(number, expected);
                frame::send(&mut stream, &ToRank::Reply { seq, result: Ok(reply) }, TO_RANK).unwrap();
            }
            Act::Hold(number, expected, held) => {
                expect(number, expected);
                held.send(()).unwrap();
            }
            Act::Fail(number, expected, message) => {
                expect(number, expected);
                let failure = Failure::new(FailureKind::Io, message).remedy("free some space");
                let result = Err(failure.on_node(&NodeName::new("node7")));
                frame::send(&mut stream, &ToRank::Reply { seq, result }, TO_RANK).unwrap();
            }
            Act::Send(number, expected, message) => {
                expect(number, expected);
                frame::send(&mut stream, &message, TO_RANK).unwrap();
            }
            Act::Die(number, expected) => return expect(number, expected),
            Act::DieInFrame(number, expected) => {
                expect(number, expected);
                return stream.write_all(&[0, 0, 0, 50, b'{']).unwrap();
            }
            Act::Garbage(number, expected) => {
                expect(number, expected);
                stream.write_all(b"\0\0\0\x04nope").unwrap();
            }
            Act::Refuse(_) => panic!("{call:?} instead of a hello"),
        }
    }
}

pub fn fresh() -> Reply {
    Reply::Restart(Restart::default())
}

pub fn loaded(checkpoint: u64) -> Reply {
    Reply::Restart(Restart {
        checkpoint: Some(CheckpointId(checkpoint)),
        source: RestartSource::Rebuilt,
        directory: Some(PathBuf::from("/c")),
        files: vec!["r1.ckpt".to_owned()],
        ..Restart::default()
    })
}
