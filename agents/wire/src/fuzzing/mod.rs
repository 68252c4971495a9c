//! The decoders of all messages as targets of mutation tests and fuzzing: what is accepted can be encoded, and is
//! accepted again.

// Tests report by panicking.
#![allow(clippy::unwrap_used)]

pub mod examples;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use ::bytes::{Bytes, BytesMut};
use holdfast_model::{Failure, Generation, HaltChange, HaltState, Inventory, Rank};
use holdfast_testkit::fuzz::FuzzTarget;
use holdfast_wire::agent::{
    CheckpointReply, CheckpointRequest, CopyReply, CopyRequest, Empty, EndRunRequest, FaultRequest, FlushedNote,
    ForgetRequest, HaltRequest, INVENTORY, KillReply, KillRequest, POLL, PeersUpdate, PollReply, PollRequest, Pulse,
    PulseReply, PulseRequest, RebuildReply, RebuildRequest, RunAccepted, StackReply, StackRequest, StopRequest,
    TerminateReply, TerminateRequest, VerifyReply, VerifyRequest,
};
use holdfast_wire::bytes::Base64;
use holdfast_wire::channel::{Answer, ChannelHello, Message, Request};
use holdfast_wire::frame::{self, HELLO, Limit};
use holdfast_wire::pairs::{CommandRequest, PairsAccepted, PairsPlan, PairsReport, PairsStop, PairsSync};
use holdfast_wire::payload;
use holdfast_wire::peer::{Delivery, LINK, MIRROR, MirrorAnswer, PeerHello, PeerWelcome, ToLeader, ToMirror};
use holdfast_wire::plan::RunRequest;
use holdfast_wire::rank::{TO_AGENT, TO_RANK, ToAgent, ToRank};
use holdfast_wire::run::{AgentReady, AgentStart, RunPlan, TrustMaterial};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A message in frames.
macro_rules! frames {
    ($name:literal, $type:ty, $limit:expr, $examples:expr) => {
        FuzzTarget {
            name: $name,
            corpus: || $examples.into_iter().map(|example| sent(&example, $limit)).collect(),
            words: WORDS,
            check: |bytes| received::<$type>(bytes, $limit),
        }
    };
}

/// A message in JSON: the body of a request or of its answer, or a line.
macro_rules! json {
    ($name:literal, $type:ty, $example:expr) => {
        FuzzTarget {
            name: $name,
            corpus: || vec![serde_json::to_vec::<$type>(&$example).unwrap_or_default()],
            words: WORDS,
            check: read::<$type>,
        }
    };
}

/// Messages of a channel, one after the other.
macro_rules! channel {
    ($name:literal, $type:ty, $examples:expr) => {
        FuzzTarget {
            name: $name,
            corpus: || {
                let mut all = BytesMut::new();
                $examples.iter().for_each(|example| example.encode(&mut all));
                vec![all.to_vec()]
            },
            words: WORDS,
            check: taken::<$type>,
        }
    };
}

/// A state file of an agent.
macro_rules! file {
    ($name:literal, $type:ty, $examples:expr) => {
        FuzzTarget {
            name: $name,
            corpus: || $examples.iter().filter_map(|example| payload::to_file(example).ok()).collect(),
            words: WORDS,
            check: state_file::<$type>,
        }
    };
}

/// How many messages were accepted: changes of examples must not be so coarse that none is.
pub static ACCEPTED: AtomicU64 = AtomicU64::new(0);

/// Keys and variants that decide what follows.
const WORDS: &[&str] = &[
    "{\"hello\":",
    "{\"call\":",
    "{\"order\":",
    "{\"results\":",
    "{\"calls\":",
    "{\"done\":",
    "{\"Ok\":",
    "{\"Err\":",
    "\"link\"",
    "\"init\"",
    "{\"allgather\":{\"data\":",
    "{\"gathered\":[",
    "{\"files\":",
    "\"XOR\"",
    "null",
    "true",
    "[]",
    "{}",
    ",",
    "\u{80}\0\0\u{1}",
    "@\0\0\u{1}",
];

pub const TARGETS: &[FuzzTarget] = &[
    frames!("to_agent", ToAgent, TO_AGENT, examples::to_agent()),
    frames!("to_agent_before_hello", ToAgent, HELLO, examples::to_agent()),
    frames!("to_rank", ToRank, TO_RANK, examples::to_rank()),
    frames!("peer_hello", PeerHello, HELLO, hellos()),
    frames!("peer_welcome", PeerWelcome, HELLO, [PeerWelcome::Welcome, PeerWelcome::Refused(examples::failure())]),
    frames!("to_mirror", ToMirror, MIRROR, examples::to_mirror()),
    frames!("mirror_answer", MirrorAnswer, MIRROR, examples::mirror_answers()),
    frames!("to_leader", ToLeader, LINK, examples::to_leader()),
    frames!("delivery", Delivery, LINK, examples::deliveries(directory())),
    json!("poll_request", PollRequest, examples::poll()),
    json!("poll_reply", PollReply, examples::poll_reply()),
    json!("run_request", RunRequest, run_request(examples::NODE)),
    json!("run_request_of_member", RunRequest, run_request("node1")),
    json!("run_accepted", RunAccepted, RunAccepted { socket: "/tmp/agent.sock".into() }),
    json!("kill_request", KillRequest, examples::kill()),
    json!("halt_request", HaltRequest, examples::halt_request()),
    json!("checkpoint_request", CheckpointRequest, examples::checkpoint_request()),
    json!("checkpoint_reply", CheckpointReply, examples::checkpoint_reply()),
    json!("terminate_request", TerminateRequest, examples::terminate()),
    json!("terminate_reply", TerminateReply, TerminateReply { terminated: vec![7, 8] }),
    json!("kill_reply", KillReply, KillReply { killed: vec![7, 8], may_halt: true }),
    json!("fault_requests", Vec<FaultRequest>, examples::faults()),
    json!("stack_request", StackRequest, examples::stack()),
    json!("stack_reply", StackReply, StackReply { stacks: [(Rank(1), "a\nb".to_owned())].into() }),
    json!("pulse_request", PulseRequest, examples::pulse()),
    json!("pulse_reply", PulseReply, PulseReply { found: Pulse::Stopped }),
    json!("peers_update", PeersUpdate, examples::peers()),
    json!("inventory", Inventory, examples::inventory()),
    json!("halt_change", HaltChange, examples::halt_change()),
    json!("halt_state", HaltState, examples::halt_state()),
    json!("forget_request", ForgetRequest, examples::forget()),
    json!("end_run_request", EndRunRequest, examples::end_run()),
    json!("copy_request", CopyRequest, examples::copy(directory())),
    json!("copy_reply", CopyReply, CopyReply { copied: [(Rank(1), 7)].into(), ..CopyReply::default() }),
    json!("rebuild_request", RebuildRequest, examples::rebuild(directory())),
    json!("rebuild_reply", RebuildReply, RebuildReply { ranks: vec![Rank(1)], files: vec!["a".to_owned()], bytes: 7 }),
    json!("verify_request", VerifyRequest, examples::verify(directory())),
    json!("verify_reply", VerifyReply, VerifyReply { damaged: [("a".to_owned(), "b".to_owned())].into() }),
    json!("flushed_note", FlushedNote, examples::flushed()),
    json!("stop_request", StopRequest, StopRequest { remove: false }),
    json!("pairs_plan", PairsPlan, examples::pairs_plan()),
    json!("pairs_accepted", PairsAccepted, examples::pairs_accepted()),
    json!("pairs_sync", PairsSync, examples::pairs_sync()),
    json!("pairs_report", PairsReport, examples::pairs_report()),
    json!("pair_command", CommandRequest, examples::pair_command()),
    json!("pairs_stop", PairsStop, examples::pairs_stop()),
    json!("empty", Empty, Empty {}),
    json!("failure", Failure, examples::failure()),
    json!("agent_start", AgentStart, start()),
    json!("agent_ready", AgentReady, examples::ready()),
    json!("run_plan", RunPlan, examples::run_plan(Path::new("/p"))),
    frames!("channel_hello", ChannelHello, HELLO, [ChannelHello { token: Base64(vec![3; 32]) }]),
    channel!("channel_request", Request, channel_requests()),
    channel!("channel_answer", Answer, channel_answers()),
    file!("agent_state_file", ToRank, examples::to_rank()),
    file!("agent_plan_file", RunRequest, [run_request(examples::NODE)]),
];

fn directory() -> &'static Path {
    Path::new("/p/scr.3")
}

fn hellos() -> Vec<PeerHello> {
    let purposes = examples::purposes().into_iter();
    purposes.map(|purpose| examples::peer_hello(&[3; 32], Generation(2), purpose)).collect()
}

fn channel_requests() -> [Request; 2] {
    let body = serde_json::to_vec(&examples::poll()).unwrap_or_default();
    let request = |number, path: &str, body| Request { number, path: path.to_owned(), body };
    [request(1, POLL, body.into()), request(2, INVENTORY, Bytes::new())]
}

fn channel_answers() -> [Answer; 2] {
    let body = serde_json::to_vec(&examples::poll_reply()).unwrap_or_default();
    [Answer { number: 1, status: 200, body: body.into() }, Answer { number: 2, status: 204, body: Bytes::new() }]
}

fn run_request(leader: &str) -> RunRequest {
    let address = SocketAddr::from(([127, 0, 0, 1], 7));
    let placement = examples::placement(address, address, leader);
    examples::run_request(Generation(2), placement, &examples::settings(Path::new("/p")))
}

fn start() -> AgentStart {
    let trust =
        TrustMaterial { certificate: Base64(vec![1; 300]), key: Base64(vec![2; 100]), token: Base64(vec![3; 32]) };
    let fault_injections = vec![examples::fault_injection()];
    let shared = Some(examples::shared_start());
    AgentStart { fault_injections, shared, ..examples::start(Path::new("/r"), Path::new("/p"), trust) }
}

fn sent(message: &impl Serialize, limit: Limit) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::send(&mut bytes, message, limit).unwrap();
    bytes
}

/// Counts what was accepted, and encodes it; its memory is free again when the result is decoded.
fn encoded_again<T>(message: T, encode: impl FnOnce(&T) -> Vec<u8>) -> Vec<u8> {
    ACCEPTED.fetch_add(1, Ordering::Relaxed);
    encode(&message)
}

fn received<T: Serialize + DeserializeOwned>(mut bytes: &[u8], limit: Limit) {
    if let Ok(message) = frame::receive::<T>(&mut bytes, limit) {
        let again = encoded_again(message, |message| sent(message, limit));
        frame::receive::<T>(&mut again.as_slice(), limit).unwrap();
    }
}

/// All messages are taken; each is the same when it was sent again.
fn taken<T: Message + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let mut rest = BytesMut::from(bytes);
    while let Ok(Some(message)) = T::decode(&mut rest) {
        ACCEPTED.fetch_add(1, Ordering::Relaxed);
        let mut again = BytesMut::new();
        message.encode(&mut again);
        assert_eq!(T::decode(&mut again).unwrap(), Some(message));
        assert!(again.is_empty());
    }
}

fn read<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<T>(bytes) {
        let again = encoded_again(message, |message| serde_json::to_vec(message).unwrap());
        serde_json::from_slice::<T>(&again).unwrap();
    }
}

fn state_file<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    if let Ok(value) = payload::from_file::<T>(bytes.to_vec()) {
        payload::from_file::<T>(encoded_again(value, |value| payload::to_file(value).unwrap())).unwrap();
    }
}
