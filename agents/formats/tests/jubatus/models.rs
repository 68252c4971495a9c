//! Model files that real servers wrote: described as listed, accepted for the servers that wrote them, extracted, and
//! rewritten byte for byte.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{models, read_json};
use holdfast_formats::jubatus::msgpack::TokenReader;
use holdfast_formats::jubatus::schema::{Schema, ValueFindings, walk};
use holdfast_formats::jubatus::{
    Engine, Jubatus, ModelFileName, ModelId, NewModel, Release, Rules, Server, verify_for, write_block, write_model,
};
use holdfast_formats::{Destination, Format, FormatsError, Options, recognise};
use holdfast_testkit::{files_below, fixtures};
use serde_json::Value;

fn release_of(expected: &Value) -> Release {
    let number = |name: &str| expected["header"]["jubatus_version"][name].as_u64().unwrap() as u32;
    Release::new(number("major"), number("minor"), number("maintenance"))
}

fn text<'a>(expected: &'a Value, name: &str) -> &'a str {
    expected["system_data"][name].as_str().unwrap()
}

fn new_model(expected: &Value) -> NewModel {
    NewModel {
        release: release_of(expected),
        timestamp: expected["system_data"]["timestamp"].as_i64().unwrap(),
        engine: Engine::from_name(text(expected, "type").as_bytes()).unwrap(),
        id: ModelId::accepted_by_servers(text(expected, "id")).unwrap(),
        config: text(expected, "config").as_bytes().to_vec(),
    }
}

/// The user data block of a fixture.
fn block(path: &Path, expected: &Value) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    let size = expected["header"]["user_data_size"].as_u64().unwrap() as usize;
    bytes[bytes.len() - size..].to_vec()
}

#[test]
fn describes_every_model_as_listed() {
    for (path, expected) in models() {
        let description = Jubatus.describe(&path).unwrap();
        // Compared after printing and parsing: the parser of floats is inexact, so both sides must pass through it.
        let printed: Value = serde_json::from_str(&serde_json::to_string(&description).unwrap()).unwrap();
        assert_eq!(printed, expected, "{}", path.display());
        assert!(
            description.to_string().contains(&format!("id              {}", text(&expected, "id"))),
            "{description}"
        );
    }
}

#[test]
fn recognises_every_model_by_content() {
    for (path, _) in models() {
        assert_eq!(recognise(&path).unwrap().format.unwrap().name(), "jubatus", "{}", path.display());
    }
    let fti = fixtures("fti");
    for path in files_below(&fti).iter().take(40) {
        assert_ne!(recognise(path).unwrap().format.map(Format::name), Some("jubatus"), "{}", path.display());
    }
}

#[test]
fn accepts_every_model_for_the_server_that_wrote_it() {
    for (path, expected) in models() {
        for rules in [Rules::Released, Rules::Documented] {
            let name = ModelFileName::of(&path).unwrap();
            let mut server = Server::for_name(&name, rules);
            server.release = release_of(&expected);
            server.engine = Engine::from_name(text(&expected, "type").as_bytes());
            server.config = Some(text(&expected, "config").as_bytes().to_vec());
            let mut reported = (0, 0);
            let check = verify_for(&path, &server, &mut |done, all| reported = (done, all)).unwrap();
            let outside = name.id.contains(' ');
            if rules == Rules::Documented && outside {
                assert!(check.has("id"), "{check:?}");
                continue;
            }
            assert!(check.is_intact() && check.notes.is_empty(), "{}: {check:?}", path.display());
            let size = fs::metadata(&path).unwrap().len();
            assert_eq!((check.checked_bytes, reported), (size, (size, size)));
        }
    }
}

#[test]
fn verifies_for_newest_server_and_file_name_by_default() {
    for (path, expected) in models() {
        let check = Jubatus.verify(&path, &Options::default(), &mut |_, _| ()).unwrap();
        assert_eq!(check.has("jubatus_version"), release_of(&expected).major == 0, "{}", path.display());
        assert_eq!(check.is_intact(), release_of(&expected).major == 1, "{}: {check:?}", path.display());
    }
    let directory = tempfile::tempdir().unwrap();
    let model = fixtures("jubatus").join("models/1.1.1/127.0.0.1_9199_recommender_small.jubatus");
    let renamed = directory.path().join("127.0.0.1_9199_stat_small.jubatus");
    fs::copy(model, &renamed).unwrap();
    assert!(Jubatus.verify(&renamed, &Options::default(), &mut |_, _| ()).unwrap().has("type"));
}

#[test]
fn rewrites_every_model_byte_for_byte() {
    let directory = tempfile::tempdir().unwrap();
    for (path, expected) in models() {
        let copy = directory.path().join(path.file_name().unwrap());
        let block = block(&path, &expected);
        let header = write_block(&copy, &new_model(&expected), &block[..]).unwrap();
        assert_eq!(fs::read(&copy).unwrap(), fs::read(&path).unwrap(), "{}", path.display());
        assert_eq!(format!("{:08x}", header.crc32), expected["header"]["crc32"]);
        write_model(&copy, &new_model(&expected), &block[2..]).unwrap();
        assert_eq!(fs::read(&copy).unwrap(), fs::read(&path).unwrap(), "{}", path.display());
    }
}

#[test]
fn file_name_is_that_of_the_server() {
    for (path, expected) in models() {
        let model = new_model(&expected);
        let address = expected["file_name"]["address"].as_str().unwrap();
        let port = expected["file_name"]["port"].as_u64().unwrap() as u16;
        let name = ModelFileName::new(address, port, model.engine, &model.id, model.release);
        assert_eq!(name.to_string(), path.file_name().unwrap().to_str().unwrap());
        assert_eq!(ModelFileName::of(Path::new(&name.to_string())), Some(name));
    }
}

#[test]
fn rejected_model_does_not_replace_previous_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("127.0.0.1_9199_stat_a.jubatus");
    let fixture = fixtures("jubatus").join("models/1.1.1/127.0.0.1_9199_stat_a.jubatus");
    let expected = read_json(&fixtures("jubatus").join("expected/1.1.1/127.0.0.1_9199_stat_a.jubatus.json"));
    let good = block(&fixture, &expected);
    write_block(&path, &new_model(&expected), &good[..]).unwrap();

    let other_version = [&b"\x92\x02"[..], &good[2..]].concat();
    let trailing = [&good[..], b"\xc0"].concat();
    let blocks: [(&[u8], &str); 7] = [
        (b"", "insufficient bytes"),
        (&good[..good.len() - 1], "insufficient bytes"),
        (b"\x92\x01\xc1", "parse error"),
        (b"\x92\x01\x80", "not one of stat"),
        (b"\x91\x01", "not an array of two"),
        (&other_version, "version of the user data"),
        (&trailing, "after"),
    ];
    for (block, why) in blocks {
        let error = write_block(&path, &new_model(&expected), block).unwrap_err();
        assert!(matches!(error, FormatsError::Unwritable { .. }) && error.to_string().contains(why), "{error}");
    }
    let zero = b"\xcb\0\0\0\0\0\0\0\0".as_slice();
    let new_form = [b"\x92\x01\x95\x01\x90\x81\xd9\x01x\x95\x01".as_slice(), &zero.repeat(6)].concat();
    let error = write_block(&path, &new_model(&expected), &new_form[..]).unwrap_err();
    assert!(error.to_string().contains("str8"), "{error}");
    let no_json = NewModel { config: b"hello".to_vec(), ..new_model(&expected) };
    assert!(write_block(&path, &no_json, &good[..]).unwrap_err().to_string().contains("JSON"));

    assert_eq!(fs::read(&path).unwrap(), fs::read(&fixture).unwrap());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "a temporary file was left behind");
}

#[test]
fn extracted_files_make_the_same_model() {
    for (path, expected) in models() {
        let directory = tempfile::tempdir().unwrap();
        let to = Destination::new(directory.path(), false).unwrap();
        let extracted = Jubatus.extract(&path, &to, &Options::default(), &mut |_, _| ()).unwrap();
        assert_eq!(extracted.files, ["config.json", "model.msgpack"], "{extracted:?}");
        let part = |name: &str| fs::read(directory.path().join(name)).unwrap();
        assert_eq!(part("config.json"), text(&expected, "config").as_bytes());
        let copy = directory.path().join("copy.jubatus");
        let model = NewModel { config: part("config.json"), ..new_model(&expected) };
        write_model(&copy, &model, &part("model.msgpack")[..]).unwrap();
        assert_eq!(fs::read(&copy).unwrap(), fs::read(&path).unwrap(), "{}", path.display());
    }
}

#[test]
fn extracts_damaged_model_only_with_recovery() {
    let damaged = |name: &str| -> PathBuf { fixtures("jubatus").join(format!("damaged/{name}.jubatus")) };
    let recover = Options { recover: true, ..Options::default() };
    for (name, options, files) in [
        ("bitflip_user_data", Options::default(), &[][..]),
        ("bitflip_user_data", recover, &["config.json", "model.msgpack"]),
        ("truncated_user_data", recover, &["config.json"]),
        ("truncated_header", recover, &[]),
        ("system_size_max", recover, &[]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let to = Destination::new(directory.path(), false).unwrap();
        let extracted = Jubatus.extract(&damaged(name), &to, &options, &mut |_, _| ()).unwrap();
        assert_eq!(
            (extracted.files.as_slice().len(), extracted.damages.len()),
            (files.len(), 1),
            "{name}: {extracted:?}"
        );
        assert!(extracted.files.iter().eq(files), "{name}: {extracted:?}");
    }
}

#[test]
fn reads_every_recorded_rpc_response() {
    let answers = files_below(&fixtures("jubatus").join("rpc"));
    let answers = answers.iter().filter(|path| path.to_str().unwrap().ends_with(".response.bin"));
    let mut messages = 0;
    for path in answers {
        let bytes = fs::read(path).unwrap();
        let mut source = TokenReader::block(&bytes[..], bytes.len() as u64);
        while source.offset() < bytes.len() as u64 {
            let mut seen = ValueFindings::default();
            walk(&mut source, 0, &ANSWER, &mut seen).unwrap();
            assert!(seen.mismatch.is_none() && !seen.new_forms, "{}: {seen:?}", path.display());
            messages += 1;
        }
    }
    assert!(messages > 55, "{messages}");
}

/// Type, message id, error, result.
static ANSWER: Schema = Schema::Exactly(&[Schema::Unsigned, Schema::Unsigned, Schema::Any, Schema::Any]);
