//! Every message of the wire, changed at random, as its receiver decodes it: never a panic, never memory out of
//! proportion to what arrived; and what is accepted can be encoded and is accepted again.
//!
//! `mutation_rounds` of the test kit documents how to run it longer and how to set the seed. A failure names the round.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../src/fuzzing/examples.rs"]
#[allow(dead_code, reason = "the suite of hostile clients uses the rest")]
mod examples;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use holdfast_model::Generation;
use holdfast_testkit::mutation::{mutate_bytes, mutate_json};
use holdfast_testkit::{Dice, mutation_rounds, mutation_seed};
use holdfast_wire::frame::{self, HELLO, Limit};
use holdfast_wire::peer::{LINK, MIRROR, PeerWelcome};
use holdfast_wire::rank::{TO_AGENT, TO_RANK};
use holdfast_wire::{agent, payload, run};
use peak_alloc::PeakAlloc;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Flags of the length of a frame.
const MORE: u32 = 1 << 31;
const RAW: u32 = 1 << 30;

/// A decoded value takes at most so many bytes for each byte that arrived: the smallest elements of lists, such as `0,`
/// in a list of payloads, are the worst.
const BYTES_A_BYTE: usize = 128;
/// For buffers and error messages.
const BYTES_MORE: usize = 64 << 10;

/// An example of a message, and its decoder.
struct Message {
    name: &'static str,
    /// The JSON of the message.
    json: Value,
    /// The payloads beside it.
    raw: Vec<u8>,
    carrier: Carrier,
    /// Decodes; encodes again what was accepted.
    decode: Box<Decoder>,
}

type Decoder = dyn Fn(&[u8]) -> Option<Vec<u8>>;

#[derive(Clone, Copy, PartialEq)]
enum Carrier {
    Frames,
    Json,
    File,
}

impl Message {
    fn encoded(&self, json: &Value) -> Vec<u8> {
        let mut bytes = Vec::new();
        let json = serde_json::to_vec(json).unwrap();
        match self.carrier {
            Carrier::Json => bytes = json,
            Carrier::File => {
                bytes.extend(json);
                bytes.push(b'\n');
                bytes.extend(&self.raw);
            }
            Carrier::Frames => {
                let more = if self.raw.is_empty() { 0 } else { MORE };
                bytes.extend((json.len() as u32 | more).to_be_bytes());
                bytes.extend(json);
                if !self.raw.is_empty() {
                    bytes.extend((self.raw.len() as u32 | RAW).to_be_bytes());
                    bytes.extend(&self.raw);
                }
            }
        }
        bytes
    }
}

fn parts(message: &impl Serialize) -> (Value, Vec<u8>) {
    let mut json = Vec::new();
    let payloads = payload::encode(message, &mut json).unwrap();
    let raw = payloads.iter().flat_map(|payload| payload.as_slice().to_vec()).collect();
    (serde_json::from_slice(&json).unwrap(), raw)
}

fn framed<T: Serialize + DeserializeOwned>(
    name: &'static str,
    limit: Limit,
    examples: impl IntoIterator<Item = T>,
) -> Vec<Message> {
    let message = |example: T| {
        let (json, raw) = parts(&example);
        let decode = move |mut bytes: &[u8]| {
            let value: T = frame::receive(&mut bytes, limit).ok()?;
            let mut again = Vec::new();
            frame::send(&mut again, &value, limit).unwrap();
            Some(again)
        };
        Message { name, json, raw, carrier: Carrier::Frames, decode: Box::new(decode) }
    };
    examples.into_iter().map(message).collect()
}

fn json<T: Serialize + DeserializeOwned>(name: &'static str, example: T) -> Vec<Message> {
    let decode = |bytes: &[u8]| {
        let value: T = serde_json::from_slice(bytes).ok()?;
        Some(serde_json::to_vec(&value).unwrap())
    };
    let json = serde_json::to_value(example).unwrap();
    vec![Message { name, json, raw: Vec::new(), carrier: Carrier::Json, decode: Box::new(decode) }]
}

fn file<T: Serialize + DeserializeOwned>(name: &'static str, examples: impl IntoIterator<Item = T>) -> Vec<Message> {
    let message = |example: T| {
        let (json, raw) = parts(&example);
        let decode = |bytes: &[u8]| {
            let value: T = payload::from_file(bytes.to_vec()).ok()?;
            Some(payload::to_file(&value).unwrap())
        };
        Message { name, json, raw, carrier: Carrier::File, decode: Box::new(decode) }
    };
    examples.into_iter().map(message).collect()
}

/// Every type that is read from a connection, from standard input or from a state file of an agent.
fn messages() -> Vec<Message> {
    let directory = Path::new("/p/scr.3");
    let trust = || holdfast_wire::run::TrustMaterial {
        certificate: holdfast_wire::bytes::Base64(vec![1; 300]),
        key: holdfast_wire::bytes::Base64(vec![2; 100]),
        token: holdfast_wire::bytes::Base64(vec![3; 32]),
    };
    let hellos = || {
        let purposes = examples::purposes().into_iter();
        purposes.map(|purpose| examples::peer_hello(&[3; 32], Generation(2), purpose)).collect::<Vec<_>>()
    };
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 7));
    let settings = examples::settings(Path::new("/p"));
    let request =
        |leader| examples::run_request(Generation(2), examples::placement(address, address, leader), &settings);
    let mut start = examples::start(Path::new("/r"), Path::new("/p"), trust());
    start.fault_injections.push(examples::fault_injection());
    start.shared = Some(examples::shared_start());
    let all = [
        framed("ToAgent", TO_AGENT, examples::to_agent()),
        framed("ToAgent before the hello", HELLO, examples::to_agent()),
        framed("ToRank", TO_RANK, examples::to_rank()),
        framed("PeerHello", HELLO, hellos()),
        framed("PeerWelcome", HELLO, [PeerWelcome::Welcome, PeerWelcome::Refused(examples::failure())]),
        framed("ToMirror", MIRROR, examples::to_mirror()),
        framed("MirrorAnswer", MIRROR, examples::mirror_answers()),
        framed("ToLeader", LINK, examples::to_leader()),
        framed("Delivery", LINK, examples::deliveries(directory)),
        json("PollRequest", examples::poll()),
        json("PollReply", examples::poll_reply()),
        json("HaltRequest", examples::halt_request()),
        json("CheckpointRequest", examples::checkpoint_request()),
        json("CheckpointReply", examples::checkpoint_reply()),
        json("TerminateRequest", examples::terminate()),
        json("KillRequest", examples::kill()),
        json("KillReply", agent::KillReply { killed: vec![7, 8] }),
        json("FaultRequest", examples::faults()),
        json("StackRequest", examples::stack()),
        json("StackReply", agent::StackReply { stacks: [(holdfast_model::Rank(1), "a\nb".to_owned())].into() }),
        json("PeersUpdate", examples::peers()),
        json("Inventory", examples::inventory()),
        json("HaltChange", examples::halt_change()),
        json("HaltState", examples::halt_state()),
        json("ForgetRequest", examples::forget()),
        json("CopyRequest", examples::copy(directory)),
        json("CopyReply", agent::CopyReply { copied: [(holdfast_model::Rank(1), 7)].into(), ..Default::default() }),
        json("RebuildRequest", examples::rebuild(directory)),
        json("RebuildReply", agent::RebuildReply { ranks: Vec::new(), files: vec!["a".to_owned()], bytes: 7 }),
        json("VerifyRequest", examples::verify(directory)),
        json("VerifyReply", agent::VerifyReply { damaged: [("a".to_owned(), "b".to_owned())].into() }),
        json("FlushedNote", examples::flushed()),
        json("StopRequest", agent::StopRequest { remove: false }),
        json("PairsPlan", examples::pairs_plan()),
        json("PairsAccepted", examples::pairs_accepted()),
        json("PairsSync", examples::pairs_sync()),
        json("PairsReport", examples::pairs_report()),
        json("CommandRequest", examples::pair_command()),
        json("PairsStop", examples::pairs_stop()),
        json("RunAccepted", agent::RunAccepted { socket: "/tmp/agent.sock".into() }),
        json("Empty", agent::Empty {}),
        json("Failure", examples::failure()),
        json("RunRequest", request(examples::NODE)),
        json("RunRequest of a member", request("node1")),
        json::<run::AgentStart>("AgentStart", start),
        json::<run::AgentReady>("AgentReady", examples::ready()),
        json("RunPlan", examples::run_plan(Path::new("/p"))),
        file("a state file with the plan", [request(examples::NODE)]),
        file("a state file with results", examples::to_rank()),
    ];
    all.into_iter().flatten().collect()
}

/// Decodes; returns what was accepted, encoded again.
fn checked(message: &Message, bytes: &[u8], round: &str) -> Option<Vec<u8>> {
    let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned();
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let decoded = catch_unwind(AssertUnwindSafe(|| (message.decode)(bytes)));
    let used = MEMORY.peak_usage().saturating_sub(before);
    let accepted = decoded.unwrap_or_else(|_| panic!("{round}: a panic for {}", shown()));
    let allowed = bytes.len() * BYTES_A_BYTE + BYTES_MORE;
    assert!(used <= allowed, "{round}: {used} bytes for {} bytes of {}", bytes.len(), shown());
    accepted
}

/// One test, because it measures the memory of the process.
#[test]
fn mutated_messages_are_refused_or_accepted_within_bounded_memory() {
    let (messages, seed) = (messages(), mutation_seed());
    println!("seed {seed}");
    for message in &messages {
        let bytes = message.encoded(&message.json);
        assert!(checked(message, &bytes, message.name).is_some(), "the example of {} is accepted", message.name);
        for end in 0..bytes.len() {
            checked(message, &bytes[..end], message.name);
        }
    }
    let mut accepted = 0;
    for round in mutation_rounds(20_000) {
        let mut dice = Dice(seed.wrapping_add(round));
        let message = &messages[dice.below(messages.len())];
        let mut changed = message.json.clone();
        if dice.percent(70) {
            mutate_json(&mut dice, &mut changed, &[]);
        }
        let mut bytes = message.encoded(&changed);
        if dice.percent(50) {
            mutate_bytes(&mut dice, &mut bytes);
        }
        let named = format!("seed {seed}, round {round}, {}", message.name);
        if let Some(again) = checked(message, &bytes, &named) {
            accepted += 1;
            assert!((message.decode)(&again).is_some(), "{named}: not accepted again");
        }
    }
    assert!(accepted > 0, "no changed message was accepted: the changes are too coarse to test what follows");
}
