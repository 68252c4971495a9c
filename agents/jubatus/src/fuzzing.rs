//! The parser of answers as a target of mutation tests and fuzzing.

use holdfast_formats::jubatus::msgpack::TokenReader;
use holdfast_testkit::fuzz::{FuzzTarget, fixture_files};

use crate::rpc::message::{Limits, read_answer};

pub const TARGETS: &[FuzzTarget] = &[FuzzTarget {
    name: "jubatus_answer",
    corpus: || fixture_files(&["jubatus"], &[".response.bin"]),
    words: &["127.0.0.1_9199", "\u{1}", "\u{0}"],
    check: answer,
}];

fn answer(bytes: &[u8]) {
    let limits = Limits { bytes: 1 << 10, ..Limits::STANDARD };
    let mut tokens = TokenReader::to_end(bytes);
    if read_answer(&mut tokens, 1, limits).is_ok() {
        assert!(tokens.offset() <= limits.bytes, "{} bytes were read", tokens.offset());
    }
}

#[cfg(test)]
mod tests {
    holdfast_testkit::mutation_test!(super::TARGETS, 20_000);
}
