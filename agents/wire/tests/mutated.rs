//! Every message of the wire, changed at random, as its receiver decodes it: never a panic, never memory out of
//! proportion to what arrived; and what is accepted can be encoded and is accepted again.
//!
//! `mutation_rounds` of the test kit documents how to run it longer and how to set the seed. A failure names the round.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../src/fuzzing/mod.rs"]
#[allow(dead_code, reason = "the suite of hostile clients uses the rest of the examples")]
mod fuzzing;

use std::panic::catch_unwind;
use std::sync::atomic::Ordering;

use fuzzing::{ACCEPTED, TARGETS};
use holdfast_testkit::mutation::{mutate_bytes, mutate_json};
use holdfast_testkit::{Dice, mutation_rounds, mutation_seed};
use peak_alloc::PeakAlloc;
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

/// An example of a message, and what decodes it.
struct Message {
    name: &'static str,
    bytes: Vec<u8>,
    check: fn(&[u8]),
}

/// A message with another JSON; unchanged if its JSON stands between other bytes than frames and state files have.
fn with_json(bytes: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let changed = |json: &[u8]| {
        let mut value = serde_json::from_slice(json).ok()?;
        change(&mut value);
        Some(serde_json::to_vec(&value).unwrap())
    };
    let is_text = bytes.first().is_some_and(u8::is_ascii_graphic);
    let changed = if is_text {
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
        changed(&bytes[..end]).map(|json| [&json, &bytes[end..]].concat())
    } else {
        let (length, rest) = bytes.split_first_chunk().unwrap();
        let length = u32::from_be_bytes(*length);
        let json = rest.split_at_checked((length & !(MORE | RAW)) as usize);
        json.and_then(|(json, raw)| {
            let json = changed(json)?;
            let length = json.len() as u32 | length & MORE;
            Some([&length.to_be_bytes(), &*json, raw].concat())
        })
    };
    changed.unwrap_or_else(|| bytes.to_vec())
}

/// Decodes; true if a message was accepted.
fn is_accepted(message: &Message, bytes: &[u8], round: &str) -> bool {
    let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned();
    let (before, accepted) = (MEMORY.current_usage(), ACCEPTED.load(Ordering::Relaxed));
    MEMORY.reset_peak_usage();
    let decoded = catch_unwind(|| (message.check)(bytes));
    let used = MEMORY.peak_usage().saturating_sub(before);
    assert!(decoded.is_ok(), "{round}: a panic for {}", shown());
    let allowed = bytes.len() * BYTES_A_BYTE + BYTES_MORE;
    assert!(used <= allowed, "{round}: {used} bytes for {} bytes of {}", bytes.len(), shown());
    ACCEPTED.load(Ordering::Relaxed) > accepted
}

/// One test, because it measures the memory of the process.
#[test]
fn mutated_messages_are_refused_or_accepted_within_bounded_memory() {
    let examples = TARGETS.iter().flat_map(|target| (target.corpus)().into_iter().map(move |bytes| (target, bytes)));
    let messages: Vec<Message> =
        examples.map(|(target, bytes)| Message { name: target.name, bytes, check: target.check }).collect();
    let seed = mutation_seed();
    println!("seed {seed}");
    for message in &messages {
        assert!(is_accepted(message, &message.bytes, message.name), "the example of {} is accepted", message.name);
        for end in 0..message.bytes.len() {
            is_accepted(message, &message.bytes[..end], message.name);
        }
    }
    let mut accepted = 0;
    for round in mutation_rounds(20_000) {
        let mut dice = Dice(seed.wrapping_add(round));
        let message = &messages[dice.below(messages.len())];
        let mut bytes = message.bytes.clone();
        if dice.percent(70) {
            bytes = with_json(&bytes, |json| mutate_json(&mut dice, json, &[]));
        }
        if dice.percent(50) {
            mutate_bytes(&mut dice, &mut bytes);
        }
        accepted += u32::from(is_accepted(message, &bytes, &format!("seed {seed}, round {round}, {}", message.name)));
    }
    assert!(accepted > 0, "no changed message was accepted: the changes are too coarse to test what follows");
}
