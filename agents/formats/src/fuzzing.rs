//! The readers of all formats as targets of mutation tests and fuzzing. Their own mutation tests change fixtures with
//! regard to the structure of the format; here, every reader gets any content.

#![allow(clippy::unwrap_used)]

use std::fs;

use holdfast_testkit::fast_directory;
use holdfast_testkit::fuzz::{FuzzTarget, fixture_files};

use crate::jubatus::config::same_config;
use crate::jubatus::examples::EXAMPLES;
use crate::jubatus::header::{FORMAT_VERSION, Header, MAGIC};
use crate::jubatus::{Engine, Release, Rules, ScanOptions, Server, SystemData, judge, scan};
use crate::{Destination, Options, by_name, recognise};

/// Reads an input as a file of this format and name.
macro_rules! format_target {
    ($name:literal, $file:literal, $archive:literal, $ending:literal, $words:expr) => {
        FuzzTarget {
            name: $name,
            corpus: || fixture_files(&[$archive], &[$ending]),
            words: $words,
            check: |bytes| read_as($name, $file, bytes),
        }
    };
}

pub const TARGETS: &[FuzzTarget] = &[
    format_target!("fti-ff", "Ckpt7-Rank2.fti", "fti", ".fti", &["fti-ff", "\0\0\0\0\0\0\0\u{1}"]),
    format_target!("sion", "data.sion", "sion", ".sion", &["sion", "\0\0\0\0\0\0\0\u{1}"]),
    format_target!("jubatus", "127.0.0.1_9199_stat_a.jubatus", "jubatus", ".jubatus", &["jubatus", "stat", "{}"]),
    format_target!("scr-hash", "summary.scr", "scr", ".scr", &["CKPT", "RANK", "\0\0\0\0\0"]),
    format_target!("scr-xor", "1_of_4_in_0.xor", "scr", ".xor", &["GROUP", "RANK", "CHUNK", "\0\0\0\0\0"]),
    FuzzTarget {
        name: "jubatus_config",
        corpus: || vec![b"{\"window_size\": 128}\0{\"window_size\":128}".to_vec()],
        words: &["{", "[", "\"a\":", "1e5", "\0"],
        check: jubatus_config,
    },
    FuzzTarget {
        name: "jubatus_model",
        corpus: jubatus_models,
        words: &["recommender", "\"unlearner\":\"lru\"", "\"method\":\"lof\"", "\u{0}", "\"hash_num\":"],
        check: jubatus_model,
    },
];

fn read_as(format: &str, name: &str, bytes: &[u8]) {
    let directory = fast_directory();
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    let _ = recognise(&path).unwrap();
    let format = by_name(format).unwrap();
    let progress = &mut |_, _| {};
    if let Ok(description) = format.describe(&path) {
        // A few lines for each element, which takes bytes of the file.
        let (mut text, json) = (Vec::new(), serde_json::to_vec(&description).unwrap());
        description.write_text(&mut text).unwrap();
        let most = (64 << 10) + 4096 * bytes.len();
        assert!(text.len() < most && json.len() < most, "{} and {} bytes", text.len(), json.len());
    }
    let check = format.verify(&path, &Options::default(), progress).unwrap();
    assert!(check.checked_bytes <= 4 * bytes.len() as u64, "{} bytes were checked", check.checked_bytes);
    if format.name() == "jubatus" {
        let _ = scan(bytes, bytes.len() as u64, ScanOptions::default(), &mut |_| ()).unwrap();
    }
    let to = Destination::new(&directory.path().join("out"), true).unwrap();
    for recover in [false, true] {
        if let Ok(extracted) = format.extract(&path, &to, &Options { recover, ..Options::default() }, progress) {
            assert!(extracted.files.iter().all(|file| !file.contains('/') && file != ".."), "{extracted:?}");
        }
    }
}

fn jubatus_config(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (left, right) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    for release in [Release::NEWEST, Release::new(0, 9, 4)] {
        let _ = same_config(release, left, right);
    }
}

/// The engine and the configuration, each with this behind it, and the model.
const BEFORE_NEXT: u8 = 0;

fn jubatus_models() -> Vec<Vec<u8>> {
    let parts = EXAMPLES.iter().map(|example| [example.engine.name().into(), example.config.into(), example.model().0]);
    parts.map(|parts: [Vec<u8>; 3]| parts.join(&BEFORE_NEXT)).collect()
}

/// A model in a file whose header and system data are correct.
fn jubatus_model(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == BEFORE_NEXT);
    let mut next = || parts.next().unwrap_or_default();
    let (engine, config, model) = (next(), next().to_vec(), next());
    let Some(engine) = Engine::from_name(engine) else { return };
    let name = engine.name().as_bytes().to_vec();
    let system = SystemData { version: 1, timestamp: 1, engine: name, id: b"a".to_vec(), config };
    let Some(system) = system.encode() else { return };
    let user = [&[0x92, 1], model].concat();
    let mut header = Header {
        magic: MAGIC,
        format_version: FORMAT_VERSION,
        release: Release::NEWEST,
        crc32: 0,
        system_data_size: system.len() as u64,
        user_data_size: user.len() as u64,
    };
    let mut crc = Header::start_checksum(&header.encode());
    [&system, &user].into_iter().for_each(|block| crc.update(block));
    header.crc32 = crc.finalize();
    let file = [&header.encode()[..], &system, &user].concat();
    let scanned = scan(&file[..], file.len() as u64, ScanOptions::default(), &mut |_| ()).unwrap();
    let judgement = judge(&scanned, &Server { engine: Some(engine), ..Server::newest(Rules::Released) });
    let place = judgement.refusal.and_then(|refusal| refusal.offset).unwrap_or_default();
    assert!(place <= file.len() as u64, "{place} of {}", file.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_of_the_corpus_are_models_that_are_accepted() {
        for input in jubatus_models() {
            jubatus_model(&input);
        }
    }

    holdfast_testkit::mutation_test!(super::TARGETS, 1_500);
}
