//! Valid and invalid messages in random sequences, from every role that can reach the agent with or without a right to.
//!
//! After each round the agent answers a poll, has not panicked, uses bounded memory, and has created or changed no file
//! outside of the job's own directory and the prefix directory; at the end it has no descriptor and no thread more than
//! before, and a well-behaved job runs with it. The seed is printed; `mutation_rounds` of the test kit documents how to
//! set it and how to run longer.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use holdfast_model::{CheckpointId, FailureKind, Generation, HaltChange, HaltCondition, Placement, Rank, RunNode};
use holdfast_testkit::mutation::{mutate_bytes, mutate_json};
use holdfast_testkit::{Dice, mutation_rounds, mutation_seed};
use holdfast_wire::agent::{
    CHECKPOINT, COPY, CopyReply, END_RUN, FLUSHED, FORGET, HALT, HALT_RANKS, INJECT_FAULT, INVENTORY, KILL, PEERS,
    POLL, PULSE, REBUILD, RUN, STACK, TERMINATE, VERIFY,
};
use holdfast_wire::channel::{self, ALPN_CHANNEL, ChannelHello, Message as _};
use holdfast_wire::frame::{self, HELLO, Limit};
use holdfast_wire::peer::{LINK, Order, PeerHello, PeerWelcome, Purpose, ToLeader, ToMember};
use holdfast_wire::plan::{OwnPlan, PlanParts};
use holdfast_wire::rank::{Call, Reply, TO_AGENT, TO_RANK, ToAgent, ToRank};
use holdfast_wire::run::Settings;
use holdfast_wire::{ALPN_HTTP, ALPN_PEER, payload, trust};
use rustls::{ServerConnection, StreamOwned};
use serde::Serialize;
use serde_json::{Value, json};

use crate::agent::{AgentProcess, checkpoint_directory};
use crate::client;
use crate::examples;
use crate::rank::RankProcess;

/// What the agent may use in addition to what it used before the first round, bytes.
const MEMORY: u64 = 256 << 20;
/// Rounds of each role without a request for more.
const ROUNDS: u64 = 60;
/// So often, a well-behaved job runs between the rounds.
const JOB_EVERY: u64 = 10;
/// How long a hostile client waits for an answer before it goes on.
const SHORT: Duration = Duration::from_millis(50);

const MORE: u32 = 1 << 31;
const RAW: u32 = 1 << 30;

/// An agent under attack.
struct Attack {
    agent: AgentProcess,
    /// Strings that mutated messages contain: paths at which nothing may be created, and below the prefix directory.
    strings: Vec<String>,
    generation: u64,
    /// A complete checkpoint in cache, as long as no message has deleted it.
    checkpoint: CheckpointId,
}

impl Attack {
    fn begin() -> Attack {
        let agent = AgentProcess::start();
        let (outside, prefix) = (agent.outside(), agent.prefix());
        // What a member of the project's group could place in a prefix directory.
        std::os::unix::fs::symlink(&outside, prefix.join("link")).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(prefix.join("link"), Some(65_534), Some(65_534)).unwrap();
        }
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let strings = vec![
            text(outside.clone()),
            text(outside.join("new/a")),
            text(outside.join("precious")),
            text(prefix.join("../outside/b")),
            text(prefix.join("link/c")),
            text(prefix.join("link")),
            text(prefix.clone()),
            format!("{}/../outside", text(prefix.clone())),
            "../outside/d".to_owned(),
            "relative/e".to_owned(),
            "/../outside".to_owned(),
            text(checkpoint_directory(&prefix)),
            text(prefix.join("scr.3/../../outside/f")),
            "/tmp/u/scr.18".to_owned(),
            "/tmp/u/scr.17/index.0".to_owned(),
            "/tmp/u/scr.17/../scr.18".to_owned(),
            "/elsewhere".to_owned(),
        ];
        Attack { agent, strings, generation: 0, checkpoint: CheckpointId(0) }
    }

    /// Runs a campaign; then a well-behaved job runs with the same agent.
    fn campaign(mut self, role: &str, mut round: impl FnMut(&mut Attack, &mut Dice)) {
        let seed = mutation_seed();
        println!("seed {seed}");
        // Once, so that what is allocated once is part of what was used before.
        self.well_behaved_job();
        let foreign = self.agent.foreign_files();
        let (memory, descriptors) = (self.agent.memory(), self.agent.descriptors());
        let threads = self.agent.threads();
        for number in mutation_rounds(ROUNDS) {
            let named = format!("{role}, seed {seed}, round {number}");
            // Messages may have deleted what others name.
            if number % JOB_EVERY == JOB_EVERY - 1 {
                self.well_behaved_job();
            }
            round(&mut self, &mut Dice(seed.wrapping_add(number)));
            self.agent.assert_no_panic(&named);
            self.generation = self.agent.poll().health.generation.0;
            let used = self.agent.memory().saturating_sub(memory);
            assert!(used < MEMORY, "{named}: {used} bytes");
            assert!(foreign == self.agent.foreign_files(), "{named}: {:#?}", self.agent.foreign_files().keys());
        }
        self.well_behaved_job();
        self.agent.assert_no_panic(role);
        assert!(foreign == self.agent.foreign_files());
        self.agent.wait("descriptors are closed", || (self.agent.descriptors() <= descriptors + 8).then_some(()));
        // Threads for file work end after some seconds without any.
        self.agent.wait("threads have ended", || (self.agent.threads() <= threads + 8).then_some(()));
    }

    /// Begins the next generation with this placement.
    fn prepare(&mut self, placement: &Arc<Placement>) {
        self.prepare_with(placement, &examples::settings(&self.agent.prefix()));
    }

    fn prepare_with(&mut self, placement: &Arc<Placement>, settings: &Settings) {
        self.generation += 1;
        let generation = Generation(self.generation);
        let parts = PlanParts::new(generation, self.generation, placement.clone(), settings).unwrap();
        let body = parts.request_to(&examples::NODE.into()).unwrap();
        let (status, answer) = self.request("POST", RUN, &body).unwrap();
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
    }

    fn request(&self, method: &str, path: &str, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        client::request(&self.agent, Some(&self.agent.trust), method, path, body)
    }

    /// Has a message concern the checkpoint in cache instead of that of the examples.
    fn aim(&self, message: &mut Value) {
        match message {
            Value::Array(items) => items.iter_mut().for_each(|item| self.aim(item)),
            Value::Object(map) => map.iter_mut().for_each(|(key, value)| match key.as_str() {
                "checkpoint" if value.is_u64() => *value = Value::from(self.checkpoint.0),
                _ => self.aim(value),
            }),
            _ => {}
        }
    }

    /// Changes a message, often only one of its paths: everything else in it is as the agent expects it.
    fn change(&self, dice: &mut Dice, message: &mut Value) {
        let mut paths = Vec::new();
        collect_paths(message, &mut paths);
        if !paths.is_empty() && dice.percent(60) {
            let at = dice.below(paths.len());
            *paths[at] = self.strings[dice.below(self.strings.len())].clone();
        } else {
            mutate_json(dice, message, &self.strings);
        }
    }

    /// The bytes of a message, most often changed.
    fn frames(&self, dice: &mut Dice, message: &impl Serialize) -> Vec<u8> {
        let mut json = Vec::new();
        let payloads = payload::encode(message, &mut json).unwrap();
        let raw: Vec<u8> = payloads.iter().flat_map(|payload| payload.as_slice().to_vec()).collect();
        let mut value: Value = serde_json::from_slice(&json).unwrap();
        self.aim(&mut value);
        if dice.percent(50) {
            self.change(dice, &mut value);
        }
        let json = serde_json::to_vec(&value).unwrap();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        let more = if raw.is_empty() { 0 } else { MORE };
        let mut frames = client::frame(length(&json) | more, &json);
        if !raw.is_empty() {
            frames.extend(client::frame(length(&raw) | RAW, &raw));
        }
        match dice.below(20) {
            0 => mutate_bytes(dice, &mut frames),
            // A wrong length, or flags that do not belong there.
            1 => frames[..4].copy_from_slice(&(dice.roll() as u32).to_be_bytes()),
            2 => frames[0] ^= 0x80 | (0x40 * dice.below(2_u8)),
            3 => frames.truncate(dice.below(frames.len())),
            4 => frames.extend_from_within(..),
            _ => {}
        }
        frames
    }

    /// The orchestrator, two ranks and the drain as they should be.
    fn well_behaved_job(&mut self) {
        let change = HaltChange { unset: HaltCondition::ALL.to_vec(), ..HaltChange::default() };
        let (status, answer) = self.request("POST", HALT, &serde_json::to_vec(&change).unwrap()).unwrap();
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
        // A checkpoint that the attack completed may be of another number of ranks, and such a restart is refused.
        let mut settings = examples::settings(&self.agent.prefix());
        settings.restart.distribute = false;
        self.prepare_with(&solo(self.agent.address), &settings);
        let (generation, agent) = (Generation(self.generation), &self.agent);
        let checkpoints: Vec<_> = std::thread::scope(|scope| {
            let ranks: Vec<_> =
                (0..2).map(|rank| scope.spawn(move || RankClient::run(agent, generation, rank))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        assert_eq!(checkpoints[0], checkpoints[1]);
        self.checkpoint = checkpoints[0];
        let mut copy = examples::copy(&self.agent.prefix().join(format!("scr.job.{}", self.generation)));
        copy.checkpoint = checkpoints[0];
        // That of the example was not created.
        copy.container = None;
        let (status, answer) = self.request("POST", COPY, &serde_json::to_vec(&copy).unwrap()).unwrap();
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
        let reply: CopyReply = serde_json::from_slice(&answer).unwrap();
        assert_eq!(reply.copied.keys().collect::<Vec<_>>(), [&Rank(0), &Rank(1)], "{reply:?}");
        for rank in 0..2 {
            let file = copy.directory.join(format!("rank_{rank}.dat"));
            assert_eq!(std::fs::read(&file).unwrap(), content(rank), "{}", file.display());
        }
    }
}

/// The strings of a message that are absolute paths.
fn collect_paths<'a>(message: &'a mut Value, paths: &mut Vec<&'a mut String>) {
    match message {
        Value::String(text) if text.starts_with('/') => paths.push(text),
        Value::Array(items) => items.iter_mut().for_each(|item| collect_paths(item, paths)),
        Value::Object(map) => map.values_mut().for_each(|value| collect_paths(value, paths)),
        _ => {}
    }
}

/// All ranks on the attacked node, which leads.
fn solo(address: SocketAddr) -> Arc<Placement> {
    let name = examples::NODE;
    let ranks = vec![Rank(0), Rank(1)];
    let node = RunNode { name: name.into(), address, failure_domain: name.to_owned(), ranks };
    Arc::new(Placement { nodes: vec![node], leader: name.into() })
}

fn content(rank: u32) -> Vec<u8> {
    format!("the data of rank {rank}").repeat(100).into_bytes()
}

/// A rank that behaves well.
struct RankClient {
    process: RankProcess,
    seq: u64,
}

impl RankClient {
    fn run(agent: &AgentProcess, generation: Generation, rank: u32) -> CheckpointId {
        let mut process = RankProcess::connect(&agent.socket());
        frame::send(&mut process.stream, &examples::hello(generation, rank, 2), HELLO).unwrap();
        let welcome: ToRank = frame::receive(&mut process.stream, HELLO).unwrap();
        assert!(matches!(welcome, ToRank::Welcome { .. }), "{welcome:?}");
        let mut rank_client = RankClient { process, seq: 0 };
        rank_client.call(Call::Init);
        let Reply::Started { checkpoint, .. } = rank_client.call(Call::Start) else { panic!("not started") };
        let Reply::Path(path) = rank_client.call(Call::Route { name: format!("rank_{rank}.dat") }) else {
            panic!("no path")
        };
        std::fs::write(path, content(rank)).unwrap();
        let completed = rank_client.call(Call::Complete { valid: true });
        assert!(matches!(completed, Reply::Completed { kept: true, .. }), "{completed:?}");
        rank_client.call(Call::Finalize);
        checkpoint
    }

    fn call(&mut self, call: Call) -> Reply {
        self.seq += u64::from(call.is_collective());
        frame::send(&mut self.process.stream, &ToAgent::Call { seq: self.seq, call }, TO_AGENT).unwrap();
        match frame::receive(&mut self.process.stream, TO_RANK).unwrap() {
            ToRank::Reply { result, .. } => result.unwrap(),
            other => panic!("a reply was expected, not {other:?}"),
        }
    }
}

/// Reads what is there, for a short time; messages are not expected to be of any kind.
fn read_some<T: serde::de::DeserializeOwned>(stream: &mut impl io::Read, limit: Limit) -> Option<T> {
    frame::receive(stream, limit).ok()
}

#[test]
fn mutated_sequences_of_a_rank_leave_the_agent_serving() {
    Attack::begin().campaign("a rank", |attack, dice| {
        attack.prepare(&solo(attack.agent.address));
        let generation = Generation(attack.generation);
        let processes: Vec<RankProcess> =
            (0..1 + dice.below(3_usize)).map(|_| RankProcess::connect(&attack.agent.socket())).collect();
        let mut ranks: Vec<UnixStream> = processes
            .iter()
            .enumerate()
            .map(|(number, process)| {
                let mut stream = process.stream.try_clone().unwrap();
                stream.set_read_timeout(Some(SHORT)).unwrap();
                let hello = examples::hello(generation, number as u32 % 2, 2);
                if dice.percent(85) {
                    frame::send(&mut stream, &hello, HELLO).unwrap();
                } else {
                    let _ = stream.write_all(&attack.frames(dice, &hello));
                }
                let _: Option<ToRank> = read_some(&mut stream, HELLO);
                stream
            })
            .collect();
        let calls = examples::calls();
        let mut seq = 0;
        for _ in 0..dice.below(10) {
            seq = match dice.below(10) {
                0 => seq,
                1 => dice.roll(),
                2 => seq.saturating_add(dice.below(4)),
                _ => seq.wrapping_add(1),
            };
            let call = calls[dice.below(calls.len())].clone();
            let together = dice.percent(70);
            for stream in &mut ranks {
                let message = ToAgent::Call { seq, call: call.clone() };
                if together {
                    let _ = frame::send(stream, &message, TO_AGENT);
                } else {
                    let _ = stream.write_all(&attack.frames(dice, &message));
                }
            }
            for stream in ranks.iter_mut().filter(|_| dice.percent(60)) {
                // It may also write to the path that it received.
                if let Some(ToRank::Reply { result: Ok(Reply::Path(path)), .. }) = read_some(stream, TO_RANK) {
                    let _ = std::fs::write(path, b"hostile");
                }
            }
        }
    });
}

#[test]
fn mutated_sequences_of_a_peer_with_and_without_token_leave_the_agent_serving() {
    Attack::begin().campaign("a peer", |attack, dice| {
        attack.prepare(&examples::placement(attack.agent.address, attack.agent.address, examples::NODE));
        let with_token = dice.percent(60);
        let mut token = attack.agent.trust.token.0.clone();
        if !with_token {
            token[dice.below(32_usize)] ^= 1 << dice.below(8);
            token.truncate(32 - dice.below(3_usize));
        }
        let generation = Generation(attack.generation.saturating_sub(dice.below(2_u64)));
        let purposes = examples::purposes();
        let hello = examples::peer_hello(&token, generation, purposes[dice.below(purposes.len())].clone());
        let Ok(mut stream) = client::tls(&attack.agent, ALPN_PEER) else { return };
        stream.sock.set_read_timeout(Some(SHORT)).unwrap();
        let valid = dice.percent(70);
        if valid {
            let _ = frame::send(&mut stream, &hello, HELLO);
        } else {
            let _ = stream.write_all(&attack.frames(dice, &hello));
        }
        let welcome: Option<PeerWelcome> = read_some(&mut stream, HELLO);
        assert!(with_token || welcome.is_none(), "an answer without the token: {welcome:?}");
        let messages = examples::to_leader();
        for _ in 0..dice.below(8) {
            let bytes = match dice.below(3) {
                0 => (0..dice.below(4000)).map(|_| dice.roll() as u8).collect(),
                // Of a ring: the announced length of a piece, and less than that.
                1 => client::frame(dice.roll() as u32 >> dice.below(32), &[7; 100]),
                _ => {
                    let at = dice.below(messages.len());
                    attack.frames(dice, &messages[at])
                }
            };
            if stream.write_all(&bytes).is_err() {
                break;
            }
            let _: Option<Value> = read_some(&mut stream, LINK);
        }
    });
}

/// Every request of the orchestrator but that to end the agent.
fn requests(attack: &Attack) -> Vec<(&'static str, &'static str, Value)> {
    let directory = checkpoint_directory(&attack.agent.prefix());
    let settings = examples::settings(&attack.agent.prefix());
    let here = attack.agent.address;
    let run = |leader| {
        let placement = match leader {
            "node1" => examples::placement(here, here, leader),
            _ => solo(here),
        };
        examples::run_request(Generation(attack.generation + 1), placement, &settings)
    };
    fn value(message: impl Serialize) -> Value {
        serde_json::to_value(message).unwrap()
    }
    vec![
        ("POST", POLL, value(examples::poll())),
        ("POST", RUN, value(run(examples::NODE))),
        ("POST", RUN, value(run("node1"))),
        ("POST", HALT_RANKS, value(examples::halt_request())),
        ("POST", CHECKPOINT, value(examples::checkpoint_request())),
        ("POST", TERMINATE, value(examples::terminate())),
        ("POST", KILL, value(examples::kill())),
        ("POST", INJECT_FAULT, json!({"fault": {"kind": "unknown"}})),
        ("POST", STACK, value(examples::stack())),
        ("POST", PULSE, value(examples::pulse())),
        ("POST", PEERS, value(examples::peers())),
        ("GET", INVENTORY, Value::Null),
        ("GET", HALT, Value::Null),
        ("POST", HALT, value(examples::halt_change())),
        ("POST", END_RUN, value(examples::end_run())),
        ("POST", FORGET, value(examples::forget())),
        ("POST", COPY, value(examples::copy(&directory))),
        ("POST", REBUILD, value(examples::rebuild(&directory))),
        ("POST", VERIFY, value(examples::verify(&directory))),
        ("POST", FLUSHED, value(examples::flushed())),
    ]
}

#[test]
fn mutated_sequences_of_an_orchestrator_leave_the_agent_serving_and_change_no_foreign_file() {
    Attack::begin().campaign("an orchestrator", |attack, dice| {
        for _ in 0..1 + dice.below(8) {
            let all = requests(attack);
            let (method, path, mut value) = all[dice.below(all.len())].clone();
            attack.aim(&mut value);
            if dice.percent(80) {
                attack.change(dice, &mut value);
            }
            // Held polls would only take time.
            if let Some(wait) = value.get_mut("wait_ms") {
                *wait = Value::from(0);
            }
            let mut body = serde_json::to_vec(&value).unwrap();
            if dice.percent(10) {
                mutate_bytes(dice, &mut body);
            }
            let method = if dice.percent(95) { method } else { ["GET", "POST", "PUT", "\0"][dice.below(4_usize)] };
            let trust = Some(&attack.agent.trust);
            if dice.percent(10) {
                // A length that the body does not have, or pieces without a length.
                let Ok(mut stream) = client::tls(&attack.agent, ALPN_HTTP) else { return };
                stream.sock.set_read_timeout(Some(SHORT)).unwrap();
                let length = [dice.roll(), body.len() as u64 / 2, u64::from(u32::MAX)][dice.below(3_usize)];
                let kind = match dice.below(3) {
                    0 => format!("content-length: {length}\r\n\r\n"),
                    1 => format!("transfer-encoding: chunked\r\n\r\n{length:x}\r\n"),
                    _ => format!("content-length: 1\r\ncontent-length: {length}\r\n\r\n"),
                };
                let _ = stream.write_all(format!("{}{kind}", client::head(trust, method, path)).as_bytes());
                let _ = stream.write_all(&body);
                let _ = stream.read(&mut [0; 100]);
                continue;
            }
            if dice.percent(20) {
                over_channel(attack, dice, path, &body);
                continue;
            }
            let answer = client::request(&attack.agent, trust, method, path, &body);
            // A body that is not a request of this kind is refused with a failure, not with a closed connection.
            if let Ok((status, answer)) = answer
                && status >= 400
                && method != "\0"
            {
                assert!(!answer.is_empty(), "{method} {path}: {status}");
            }
            attack.generation = attack.agent.poll().health.generation.0;
        }
    });
}

/// The same request some times at once over a channel, whose bytes may be changed.
fn over_channel(attack: &Attack, dice: &mut Dice, path: &str, body: &[u8]) {
    let Ok(mut stream) = client::tls(&attack.agent, ALPN_CHANNEL) else { return };
    stream.sock.set_read_timeout(Some(SHORT)).unwrap();
    let mut requests = BytesMut::new();
    for number in 0..=dice.below(4_u32) {
        let (path, body) = (path.to_owned(), Bytes::copy_from_slice(body));
        channel::Request { number, path, body }.encode(&mut requests);
    }
    let mut requests = requests.to_vec();
    if dice.percent(50) {
        mutate_bytes(dice, &mut requests);
    }
    let hello = ChannelHello { token: attack.agent.trust.token.clone() };
    let _ = frame::send(&mut stream, &hello, frame::HELLO);
    let _ = stream.write_all(&requests);
    let _ = stream.read(&mut [0; 100]);
}

#[test]
fn mutated_orders_of_a_leader_leave_the_agent_serving_and_change_no_foreign_file() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = listener.local_addr().unwrap();
    Attack::begin().campaign("a leader", |attack, dice| {
        attack.prepare(&examples::placement(attack.agent.address, there, "node1"));
        let Some(mut link) = accept(attack, &listener) else { return };
        let mut orders = examples::deliveries(&checkpoint_directory(&attack.agent.prefix()));
        for (node, endpoint) in orders.iter_mut().flat_map(|delivery| &mut delivery.addresses) {
            (*node, endpoint.address) = ("node1".into(), there);
        }
        for _ in 0..1 + dice.below(12) {
            let at = dice.below(orders.len());
            let bytes = attack.frames(dice, &orders[at]);
            if link.write_all(&bytes).is_err() {
                break;
            }
            if dice.percent(50) {
                let _: Option<Value> = read_some(&mut link, LINK);
            }
        }
        // Connections for groups and files that the orders have made it open.
        listener.set_nonblocking(true).unwrap();
        while let Ok((socket, _)) = listener.accept() {
            let _ = serve(attack, socket).map(|mut stream| {
                let _ = frame::send(&mut stream, &PeerWelcome::Welcome, HELLO);
                let at = dice.below(orders.len());
                let _ = stream.write_all(&attack.frames(dice, &orders[at]));
                let _ = stream.read(&mut [0; 100]);
            });
        }
        listener.set_nonblocking(false).unwrap();
    });
}

type Served = StreamOwned<ServerConnection, TcpStream>;

/// The TLS server of a hostile peer that has the job's key.
fn serve(attack: &Attack, socket: TcpStream) -> Option<Served> {
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let config = Arc::new(trust::server_config(&attack.agent.trust, &[ALPN_PEER]).unwrap());
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
    let hello: PeerHello = frame::receive(&mut stream, HELLO).ok()?;
    stream.sock.set_read_timeout(Some(SHORT)).unwrap();
    assert_eq!(hello.token.0, attack.agent.trust.token.0);
    Some(stream)
}

/// The link of the agent to its leader, which is this test.
fn accept(attack: &Attack, listener: &TcpListener) -> Option<Served> {
    // Links of earlier generations may still wait.
    for _ in 0..100 {
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(false).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let config = Arc::new(trust::server_config(&attack.agent.trust, &[ALPN_PEER]).unwrap());
        let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
        let Ok(hello) = frame::receive::<PeerHello>(&mut stream, HELLO) else { continue };
        if hello.purpose == Purpose::Link && hello.generation.0 == attack.generation {
            frame::send(&mut stream, &PeerWelcome::Welcome, HELLO).unwrap();
            stream.sock.set_read_timeout(Some(SHORT)).unwrap();
            return Some(stream);
        }
    }
    None
}

/// Directories in which no message may make the agent read or write.
fn forbidden(attack: &Attack) -> Vec<PathBuf> {
    let (prefix, outside) = (attack.agent.prefix(), attack.agent.outside());
    let mut forbidden = vec![
        outside.clone(),
        outside.join("new"),
        prefix.join("../outside/new"),
        prefix.join("scr.3/../../outside"),
        "relative".into(),
        prefix.clone(),
        "/".into(),
    ];
    if rustix::process::geteuid().is_root() {
        forbidden.push(prefix.join("link"));
        forbidden.push(prefix.join("link/new"));
    }
    forbidden
}

#[test]
fn orders_of_a_leader_outside_of_the_prefix_directory_are_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut attack = Attack::begin();
    attack.well_behaved_job();
    attack.prepare(&examples::placement(attack.agent.address, listener.local_addr().unwrap(), "node1"));
    let foreign = attack.agent.foreign_files();
    let mut link = accept(&attack, &listener).unwrap();
    link.sock.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut order = 0;
    for directory in forbidden(&attack) {
        let orders = examples::orders(&directory).into_iter();
        let orders = orders.filter(|what| names_directory(what, &directory)).collect::<Vec<_>>();
        assert_eq!(orders.len(), 5, "{orders:?}");
        for what in orders {
            order += 1;
            let mut message = serde_json::to_value(ToMember::Order { order, what: what.clone() }).unwrap();
            attack.aim(&mut message);
            frame::send(&mut link, &serde_json::json!({ "message": message }), LINK).unwrap();
            let result = loop {
                let answer: ToLeader = frame::receive(&mut link, LINK).unwrap();
                match answer {
                    ToLeader::Done { order: of, result } if of == order => break result,
                    _ => {}
                }
            };
            let failure = result.expect_err(&format!("{what:?}"));
            assert_eq!(failure.kind, FailureKind::InvalidRequest, "{what:?}: {failure}");
        }
    }
    assert!(foreign == attack.agent.foreign_files());
    attack.well_behaved_job();
}

fn names_directory(what: &Order, directory: &Path) -> bool {
    let message = serde_json::to_string(what).unwrap();
    message.contains(&serde_json::to_string(directory).unwrap())
}

/// The requests in which the directory decides: each with every path that must not be used.
#[test]
fn requests_to_write_outside_of_the_prefix_directory_are_refused() {
    let mut attack = Attack::begin();
    attack.well_behaved_job();
    let foreign = attack.agent.foreign_files();
    let (prefix, outside) = (attack.agent.prefix(), attack.agent.outside());
    for directory in &forbidden(&attack) {
        let requests = [
            (COPY, serde_json::to_value(examples::copy(directory)).unwrap()),
            (REBUILD, serde_json::to_value(examples::rebuild(directory)).unwrap()),
            (VERIFY, serde_json::to_value(examples::verify(directory)).unwrap()),
        ];
        for (path, mut body) in requests {
            attack.aim(&mut body);
            let (status, answer) = attack.request("POST", path, body.to_string().as_bytes()).unwrap();
            assert_eq!(status, 400, "{path} {}: {}", directory.display(), String::from_utf8_lossy(&answer));
        }
    }
    let next = Generation(attack.generation + 1);
    let run = |change: &dyn Fn(&mut Settings)| {
        let mut settings = examples::settings(&prefix);
        change(&mut settings);
        examples::run_request(next, solo(attack.agent.address), &settings)
    };
    let mut plans = vec![
        run(&|settings| settings.prefix = outside.clone()),
        run(&|settings| settings.prefix = prefix.join("below")),
        run(&|settings| settings.caches[0].base = "/elsewhere".to_owned()),
        run(&|settings| settings.descriptors[0].base = "/elsewhere".to_owned()),
    ];
    let mut absurd = run(&|_| ());
    absurd.shared.generation = Generation(u64::MAX);
    plans.push(absurd);
    let mut ranks = run(&|_| ());
    ranks.own = OwnPlan { node: examples::NODE.into(), ranks: vec![Rank(0); 100_000] };
    plans.push(ranks);
    for plan in plans {
        let (status, answer) = attack.request("POST", RUN, &serde_json::to_vec(&plan).unwrap()).unwrap();
        assert!(status >= 400, "{}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(attack.agent.poll().health.generation.0, attack.generation, "the run in force goes on");
    assert!(foreign == attack.agent.foreign_files());
    attack.well_behaved_job();
}
