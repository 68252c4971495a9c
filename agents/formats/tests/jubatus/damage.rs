//! Damaged model files: each fails the check that a real server reported for it.

use std::fs;
use std::path::Path;

use crate::read_json;
use holdfast_formats::jubatus::{Engine, Jubatus, Judgement, Release, Rules, ScanOptions, Server, judge, scan};
use holdfast_formats::{Format, Options, recognise};
use holdfast_testkit::fixtures;
use serde_json::{Map, Value};

const HEADER: usize = 48;

fn variants() -> Map<String, Value> {
    let verdicts = read_json(&fixtures("jubatus").join("damaged/verdicts.json"));
    let variants = verdicts["variants"].as_object().unwrap().clone();
    assert_eq!(variants.len(), 74);
    variants
}

fn bytes_of(variant: &Value) -> Vec<u8> {
    fs::read(fixtures("jubatus").join(variant["file"].as_str().unwrap())).unwrap()
}

fn own_config() -> Vec<u8> {
    b"{\n  \"window_size\": 128\n}\n".to_vec()
}

/// The server that the variants were recorded with; `load` is called with this id.
fn server(release: Release, id: &str, rules: Rules) -> Server {
    Server { release, engine: Some(Engine::Stat), config: Some(own_config()), id: Some(id.to_owned()), rules }
}

fn judged(bytes: &[u8], server: &Server) -> Judgement {
    let scan = scan(bytes, bytes.len() as u64, ScanOptions::default(), &mut |_| ()).unwrap();
    judge(&scan, server)
}

fn stage(judgement: &Judgement) -> &'static str {
    judgement.refusal.as_ref().map_or("accepted", |refusal| refusal.stage.name())
}

fn crc(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..28]);
    hasher.update(&bytes[32..]);
    hasher.finalize()
}

#[test]
fn variants_fail_same_check_as_on_server_1_1_1() {
    let mut wrong = Vec::new();
    for (name, variant) in variants() {
        let judgement = judged(&bytes_of(&variant), &server(Release::new(1, 1, 1), &name, Rules::Released));
        let listed = &variant["jubastat_1_1_1"];
        if stage(&judgement) != listed["stage"] {
            wrong.push(format!("{name}: {judgement:?}, listed {}", listed["stage"]));
        }
        let same_message = ["magic", "format_version", "crc32", "system_data_version", "type", "user_data_version"];
        if let (Some(refusal), Some(error)) = (judgement.refusal, listed["error"].as_str())
            && same_message.contains(&refusal.stage.name())
        {
            assert!(refusal.what.starts_with(error), "{name}: {}, the server's message: {error}", refusal.what);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn variants_fail_same_check_as_on_server_0_9_4() {
    let mut compared = 0;
    for (name, variant) in variants() {
        let Some(listed) = variant["same_change_made_to_a_0_9_4_file_on_jubastat_0_9_4"]["stage"].as_str() else {
            continue;
        };
        let mut bytes = bytes_of(&variant);
        if bytes.len() >= 28
            && bytes[16..28] == [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]
            && name != "foreign_recommender_file"
        {
            let wrong = bytes.get(28..32).map(|at| u32::from_be_bytes(at.try_into().unwrap()));
            let wrong = wrong.filter(|_| bytes.len() >= HEADER).map(|stored| stored ^ crc(&bytes));
            bytes[16..28].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 4]);
            // A wrong checksum stays wrong by the same difference.
            if let Some(wrong) = wrong {
                let stored = (crc(&bytes) ^ wrong).to_be_bytes();
                bytes[28..32].copy_from_slice(&stored);
            }
            // `trailing_garbage` is outside the checksum.
            if name == "trailing_garbage" {
                let stored = crc(&bytes[..bytes.len() - 16]).to_be_bytes();
                bytes[28..32].copy_from_slice(&stored);
            }
        }
        let judgement = judged(&bytes, &server(Release::new(0, 9, 4), &name, Rules::Released));
        assert_eq!(stage(&judgement), listed, "{name}: {judgement:?}");
        compared += 1;
    }
    assert!(compared > 70, "{compared}");
}

#[test]
fn server_0_5_0_compares_id_and_text_of_configuration() {
    let mut compared = 0;
    let baseline = fs::read(fixtures("jubatus").join("damaged/ok_baseline.jubatus")).unwrap();
    let user = &baseline[88..];
    for (name, variant) in variants() {
        let Some(listed) = variant["same_change_made_to_a_0_5_0_file_on_jubastat_0_5_0"]["stage"].as_str() else {
            continue;
        };
        let old = bytes_of(&variant);
        // Variants that differ only in the system data; their model gets the enclosing array of 0.5.0.
        let Some(system) = old.get(HEADER..).and_then(|blocks| blocks.strip_suffix(user)) else { continue };
        if old[..32] != baseline[..32] && old[28..32] != crc(&old).to_be_bytes() {
            continue;
        }
        let mut bytes = old[..HEADER].to_vec();
        bytes.extend_from_slice(system);
        bytes.extend_from_slice(&[0x92, 0x01, 0x91]);
        bytes.extend_from_slice(&user[2..]);
        if old[16..28] == baseline[16..28] {
            bytes[16..28].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0]);
        }
        if !name.contains("size") && name != "boundary_shifted" {
            bytes[40..48].copy_from_slice(&(user.len() as u64 + 1).to_be_bytes());
        } else {
            continue;
        }
        let wrong = u32::from_be_bytes(old[28..32].try_into().unwrap()) ^ crc(&old);
        let stored = (crc(&bytes) ^ wrong).to_be_bytes();
        bytes[28..32].copy_from_slice(&stored);
        let asked = if name == "other_id" || name == "empty_id_inside" { "other" } else { "a" };
        let judgement = judged(&bytes, &server(Release::new(0, 5, 0), asked, Rules::Released));
        assert_eq!(stage(&judgement), listed, "{name}: {judgement:?}");
        compared += 1;
    }
    assert!(compared > 30, "{compared}");
}

#[test]
fn documented_rules_warn_of_other_configuration_and_compare_id() {
    for (name, variant) in variants() {
        let bytes = bytes_of(&variant);
        let released = judged(&bytes, &server(Release::NEWEST, &name, Rules::Released));
        let id = if name == "other_id" || name == "empty_id_inside" { "b" } else { "a" };
        let documented = judged(&bytes, &server(Release::NEWEST, id, Rules::Documented));
        let documented_result = variant["seed_document_says"].as_str().unwrap_or_default();
        if documented_result.starts_with("warning only") {
            assert_eq!(stage(&documented), "accepted", "{name}: {documented:?}");
            assert!(documented.notes.iter().any(|note| note.kind == "config"), "{name}: {documented:?}");
        } else if documented_result.starts_with("refused when the id asked for is not empty") {
            assert_eq!(stage(&documented), "id", "{name}: {documented:?}");
            let nothing_asked = judged(&bytes, &server(Release::NEWEST, "", Rules::Documented));
            assert_eq!(stage(&nothing_asked), "accepted", "{name}: {nothing_asked:?}");
        } else if !name.starts_with("config_49_bytes")
            && name != "order_config_before_user"
            && name != "foreign_recommender_file"
        {
            assert_eq!(stage(&documented), stage(&released), "{name}: {documented:?}");
        }
    }
}

#[test]
fn checks_requested_id_by_rule_of_release() {
    let bytes = fs::read(fixtures("jubatus").join("damaged/ok_baseline.jubatus")).unwrap();
    let result = |release, id: &str, rules| {
        let judgement = judged(&bytes, &Server { config: None, ..server(release, id, rules) });
        stage(&judgement)
    };
    for id in ["", "a/b", "日本", "a\tb"] {
        assert_eq!(result(Release::NEWEST, id, Rules::Released), "id", "{id}");
    }
    for id in ["..", " ", "a b~"] {
        assert_eq!(result(Release::NEWEST, id, Rules::Released), "accepted", "{id}");
        assert_eq!(result(Release::NEWEST, id, Rules::Documented), "id", "{id}");
    }
    // These fail the check of the release, which follows that of the id.
    assert_eq!(result(Release::new(1, 0, 2), "日本", Rules::Released), "jubatus_version");
    assert_eq!(result(Release::new(0, 8, 1), "", Rules::Released), "jubatus_version");
    assert_eq!(result(Release::new(0, 8, 2), "", Rules::Released), "id");
}

#[test]
fn recognises_and_describes_every_variant() {
    for (name, variant) in variants() {
        let path = fixtures("jubatus").join(variant["file"].as_str().unwrap());
        assert_eq!(recognise(&path).unwrap().format.map(Format::name), Some("jubatus"), "{name}");
        let readable = !name.contains("magic") && variant["bytes"].as_u64().unwrap() >= HEADER as u64;
        let description = described(&path);
        assert_eq!(description.is_ok(), readable, "{name}: {description:?}");
        // Without a server, only the variants whose check depends on the server pass.
        let check = Jubatus.verify(&path, &Options::default(), &mut |_, _| ()).unwrap();
        let unknown = ["other_config", "config_float", "config_extra_key", "foreign_recommender_file"];
        let refused = variant["jubastat_1_1_1"]["accepted"] == false && !unknown.contains(&name.as_str());
        assert_eq!(!check.is_intact(), refused, "{name}: {check:?}");
    }
}

fn described(path: &Path) -> Result<Value, String> {
    Jubatus
        .describe(path)
        .map(|description| serde_json::to_value(description).unwrap())
        .map_err(|error| error.to_string())
}

#[test]
fn error_names_directory_or_missing_file() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().to_owned(), directory.path().join("missing.jubatus")] {
        let error = described(&path).unwrap_err();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn accepts_and_reports_bytes_after_the_blocks() {
    for (name, place) in [
        ("trailing_garbage", "after the user data"),
        ("user_trailing_bytes", "in the user data"),
        ("system_trailing_bytes", "in the system data"),
    ] {
        let bytes = fs::read(fixtures("jubatus").join(format!("damaged/{name}.jubatus"))).unwrap();
        let judgement = judged(&bytes, &server(Release::NEWEST, "a", Rules::Released));
        assert!(
            judgement.refusal.is_none() && judgement.notes.iter().any(|note| note.what.contains(place)),
            "{judgement:?}"
        );
    }
}
