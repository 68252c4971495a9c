//! The readers of all formats as targets of mutation tests and fuzzing. Their own mutation tests change fixtures with
//! regard to the structure of the format; here, every reader gets any content.

#![allow(clippy::unwrap_used)]

use std::fs;

use holdfast_testkit::fast_directory;
use holdfast_testkit::fuzz::{FuzzTarget, fixture_files};

use crate::jubatus::config::same_config;
use crate::jubatus::{Release, ScanOptions, scan};
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

#[cfg(test)]
mod tests {
    holdfast_testkit::mutation_test!(super::TARGETS, 1_500);
}
