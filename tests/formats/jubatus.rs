//! The model files of Jubatus servers.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_testkit::{fast_directory, files_below, fixtures};
use serde_json::Value;

use crate::{json_file, only_file, run, sha256};

fn models() -> Vec<(PathBuf, Value)> {
    let home = fixtures("jubatus");
    let expected = |path: &Path| {
        let name = format!("{}.json", path.strip_prefix(home.join("models")).unwrap().display());
        json_file(&home.join("expected").join(name))
    };
    files_below(&home.join("models")).into_iter().map(|path| (path.clone(), expected(&path))).collect()
}

fn release(expected: &Value) -> String {
    let number = |name: &str| expected["header"]["jubatus_version"][name].as_u64().unwrap();
    format!("{}.{}.{}", number("major"), number("minor"), number("maintenance"))
}

#[test]
fn verifies_describes_and_extracts_every_model() {
    let directory = fast_directory();
    for (index, (path, expected)) in models().into_iter().enumerate() {
        let place = path.display();
        let ran = run("inspect --json", &[&path]);
        assert_eq!((ran.code, ran.json()), (0, expected.clone()), "{place}");
        let config = directory.path().join("config.json");
        fs::write(&config, expected["system_data"]["config"].as_str().unwrap()).unwrap();
        let words = format!("verify --release {} --config", release(&expected));
        let ran = run(&words, &[&config, &path]);
        assert_eq!(ran.code, 0, "{place}: {}", ran.out);
        let to = directory.path().join(index.to_string());
        assert_eq!(run("extract --to", &[&to, &path]).code, 0, "{place}");
        assert_eq!(fs::read(to.join("config.json")).unwrap(), fs::read(&config).unwrap(), "{place}");
        // The user data is an array of two: its version, which is 1, and the model.
        let block = [&[0x92, 1][..], &fs::read(to.join("model.msgpack")).unwrap()].concat();
        assert_eq!(sha256(&block), expected["user_data"]["sha256_of_block"].as_str().unwrap(), "{place}");
    }
}

/// Changes to the model of a file, each with a valid checksum.
fn with_model_byte(path: &Path, changed: &Path, at: usize, byte: u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] = byte;
    let mut crc = crc32fast::Hasher::new();
    [&bytes[..28], &bytes[32..]].into_iter().for_each(|part| crc.update(part));
    bytes[28..32].copy_from_slice(&crc.finalize().to_be_bytes());
    fs::write(changed, bytes).unwrap();
}

#[test]
fn engine_data_are_checked_or_reported_as_not_checked() {
    let directory = tempfile::tempdir().unwrap();
    let (mut checked_models, mut others) = (0, 0);
    for (path, expected) in models() {
        let words = format!("verify --release {}", release(&expected));
        let document = run(&format!("{words} --json"), &[&path]).json();
        let file = only_file(&document);
        let line = run(&words, &[&path]).out;
        let engine = expected["system_data"]["type"].as_str().unwrap();
        let is_checked = file["unchecked"] == serde_json::json!([]);
        assert_eq!(line.contains("engine data not checked"), !is_checked, "{line}");
        let old = path.to_string_lossy().contains("/0.5.0/") && engine != "stat";
        assert_eq!(is_checked, !old, "{}: {file}", path.display());
        if !is_checked {
            others += 1;
            continue;
        }
        checked_models += 1;
        // No value of a model that is checked can be nil: a server refuses each of these files.
        let length = fs::metadata(&path).unwrap().len() as usize;
        let start = 48 + u64::from_be_bytes(fs::read(&path).unwrap()[32..40].try_into().unwrap()) as usize + 2;
        let changed = directory.path().join(path.file_name().unwrap());
        let bytes = fs::read(&path).unwrap();
        let heads = value_offsets(&bytes[start..]);
        let step = heads.len().div_ceil(20);
        for offset in heads.iter().step_by(step.max(1)) {
            let at = start + offset;
            assert!(at < length);
            // Only values of one byte, so that the values after it stay in place.
            if bytes[at] < 0x80 || bytes[at] == 0xa0 || bytes[at] == 0x90 || bytes[at] == 0x80 {
                with_model_byte(&path, &changed, at, 0xc0);
                let ran = run(&format!("{words} --json"), &[&changed]);
                assert_eq!(ran.code, 65, "{} offset {at}: {}", path.display(), ran.out);
                assert_eq!(only_file(&ran.json())["damages"][0]["kind"], "user_data");
            }
        }
    }
    assert_eq!((checked_models, others), (21, 1));
}

/// The offsets of all values of a MessagePack block in the forms that servers write.
fn value_offsets(bytes: &[u8]) -> Vec<usize> {
    let (mut at, mut offsets) = (0, Vec::new());
    while at < bytes.len() {
        offsets.push(at);
        let number =
            |width: usize| bytes[at + 1..=at + width].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        at += match bytes[at] {
            head @ 0xa0..=0xbf => 1 + usize::from(head - 0xa0),
            0xcc | 0xd0 => 2,
            0xcd | 0xd1 | 0xdc | 0xde => 3,
            0xca | 0xce | 0xd2 | 0xdd | 0xdf => 5,
            0xcb | 0xcf | 0xd3 => 9,
            0xda => 3 + number(2),
            0xdb => 5 + number(4),
            _ => 1,
        };
    }
    offsets
}

#[test]
fn every_variant_fails_same_check_as_on_server() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("stat.json");
    fs::write(&config, "{\n  \"window_size\": 128\n}\n").unwrap();
    let home = fixtures("jubatus");
    for (name, variant) in json_file(&home.join("damaged/verdicts.json"))["variants"].as_object().unwrap() {
        let path = home.join(variant["file"].as_str().unwrap());
        let ran = run(&format!("verify --json --type stat --id {name} --config"), &[&config, &path]);
        let listed = &variant["jubastat_1_1_1"];
        let document = ran.json();
        let file = only_file(&document);
        let stage = file["damages"][0]["kind"].as_str().unwrap_or("accepted");
        assert_eq!(stage, listed["stage"].as_str().unwrap(), "{name}: {}", ran.out);
        assert_eq!(ran.code, if listed["accepted"] == true { 0 } else { 65 }, "{name}");
        let line = run("verify", &[&path]);
        assert_eq!(line.out.lines().filter(|line| !line.starts_with("  ")).count(), 1, "{name}: {}", line.out);
    }
}

#[test]
fn as_documented_reports_other_configuration_as_note_and_checks_ids() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("stat.json");
    fs::write(&config, "{\"window_size\": 128}").unwrap();
    let other = fixtures("jubatus").join("damaged/other_config.jubatus");
    assert_eq!(run("verify --config", &[&config, &other]).code, 65);
    run("verify --as-documented --config", &[&config, &other]).with_code(0).prints(&["1 note\n  note: model file: "]);
    let spaces = fixtures("jubatus").join("models/1.1.1/127.0.0.1_9199_classifier_arow v2 (copy)~.jubatus");
    assert_eq!(run("verify", &[&spaces]).code, 0);
    run("verify --as-documented", &[&spaces]).with_code(65).prints(&["system data"]);
}

#[test]
fn unknown_type_or_release_is_a_usage_error() {
    run("verify --type statt model.jubatus", &[]).with_code(64).complains(&["nearest_neighbor"]);
    run("verify --release 1.1 model.jubatus", &[]).with_code(64).complains(&["three numbers"]);
}
