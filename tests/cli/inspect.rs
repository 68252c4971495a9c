//! `holdfast inspect` with every file that SCR wrote.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use holdfast_testkit::{files_below, fixtures};

use crate::program::{holdfast, holdfast_in};

/// `<state>/dumps/x.txt` of `<state>/tree/x`, for every file of one scenario that has one.
fn dumped(scenario: &str) -> Vec<(PathBuf, PathBuf)> {
    let root = fixtures("scr").join(scenario);
    let mut pairs = Vec::new();
    for dump in files_below(&root) {
        let parts: Vec<_> = dump.iter().map(|part| part.to_str().unwrap()).collect();
        let Some(at) = parts.iter().rposition(|part| *part == "dumps") else { continue };
        let mut file: PathBuf = parts[..at].iter().collect();
        file.push("tree");
        file.extend(&parts[at + 1..]);
        for candidate in [file.clone(), file.with_extension("")] {
            if candidate.is_file() {
                pairs.push((candidate, dump.clone()));
                break;
            }
        }
    }
    pairs
}

#[test]
fn prints_file_byte_for_byte_as_scr() {
    let pairs = dumped("h-control-files");
    assert!(pairs.len() > 5, "{pairs:?}");
    for (file, dump) in pairs {
        let ran = holdfast([Path::new("inspect"), &file]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", file.display());
        assert_eq!(ran.out, fs::read_to_string(dump).unwrap(), "{}", file.display());
    }
}

#[test]
fn inspect_shows_header_of_xor_file() {
    let (file, dump) =
        dumped("a-xor4").into_iter().find(|(file, _)| file.extension().is_some_and(|ending| ending == "xor")).unwrap();
    let ran = holdfast([Path::new("inspect"), &file]);
    assert_eq!(ran.out, fs::read_to_string(dump).unwrap());
}

#[test]
fn json_of_one_file_is_its_tree() {
    let index = fixtures("scr").join("h-index/1-three-flushed/tree/pfs/index.scr");
    let tree = holdfast([Path::new("inspect"), Path::new("--json"), &index]).json();
    assert!(tree["CKPT"]["3"]["DIR"].is_object());
    assert_eq!(tree["VERSION"], serde_json::json!({"1": {}}));
}

#[test]
fn verifies_directory_and_skips_application_files() {
    let tree = fixtures("scr").join("a-xor4/killed-after-flush/tree");
    let document = holdfast([Path::new("inspect"), Path::new("--json"), &tree]).json();
    let files = document["files"].as_array().unwrap();
    assert_eq!((&document["version"], &document["damaged"]), (&serde_json::json!(2), &serde_json::json!(0)));
    let shown = |end: &str| files.iter().filter(|file| file["path"].as_str().unwrap().ends_with(end)).count();
    assert!(shown("/filemap.scrinfo") == 4 && shown(".xor") > 0 && shown("/index.scr") == 1, "{files:?}");
    assert_eq!(shown(".ckpt"), 0);
    assert!(files.iter().all(|file| file["tree"].is_object()));
}

#[test]
fn each_damaged_file_has_one_line_and_exit_code_is_65() {
    let good = fixtures("scr").join("h-index/1-three-flushed/tree/pfs/index.scr");
    let bytes = fs::read(good).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    write("good.scr", &bytes);
    write("cut.scr", &bytes[..bytes.len() - 7]);
    write("magic.scr", b"this is some other file altogether");
    let mut flipped = bytes.clone();
    flipped[30] ^= 1;
    write("crc.scr", &flipped);
    write("empty.scr", b"");
    write("application.ckpt", b"data");
    let ran = holdfast_in(directory.path(), ["inspect", "--check", "."]).with_code(65).err_is("");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines.len(), 4, "{}", ran.out);
    for (line, (name, what)) in
        lines.iter().zip([("crc", "CRC32"), ("cut", "cut short"), ("empty", "header"), ("magic", "starts with")])
    {
        assert!(line.starts_with(&format!("./{name}.scr ")) && line.contains(what), "{line}");
    }
    let ran = holdfast_in(directory.path(), ["inspect", "crc.scr"]).with_code(65).out_is("");
    assert!(ran.err.starts_with("error: crc.scr is not a readable SCR file: damaged"), "{}", ran.err);
}

#[test]
fn rejects_deeply_nested_hashes() {
    let directory = tempfile::tempdir().unwrap();
    let bomb = directory.path().join("bomb.scr");
    let mut packed = Vec::new();
    for _ in 0..100_000 {
        packed.extend([0, 0, 0, 1, b'k', 0]);
    }
    packed.extend([0; 4]);
    let mut file = vec![0x95, 0x1f, 0xc3, 0xf5, 0, 1, 0, 1];
    file.extend((20 + packed.len() as u64).to_be_bytes());
    file.extend([0; 4]);
    file.extend(&packed);
    fs::write(&bomb, &file).unwrap();
    holdfast([Path::new("inspect"), &bomb]).with_code(65).complains(&["nested deeper"]);
    // A count of four billion elements, without any element.
    let mut claim = vec![0x95, 0x1f, 0xc3, 0xf5, 0, 1, 0, 1];
    claim.extend(24_u64.to_be_bytes());
    claim.extend([0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    fs::write(&bomb, &claim).unwrap();
    assert_eq!(holdfast([Path::new("inspect"), &bomb]).code, 65);
}

#[test]
fn missing_file_ends_with_69() {
    holdfast(["inspect", "/nowhere/index.scr"]).with_code(69).out_is("").complains(&["/nowhere/index.scr"]);
    let directory = tempfile::tempdir().unwrap();
    let closed = directory.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    // Who may read everything sees an empty directory.
    let expected = if fs::read_dir(&closed).is_ok() { 0 } else { 69 };
    assert_eq!(holdfast([Path::new("inspect"), directory.path()]).code, expected);
}

#[test]
fn escapes_control_characters_of_keys() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("halt.scrinfo");
    let mut tree = holdfast_core::kvtree::Tree::new();
    tree.set_kv("ExitReason", "\u{1b}[2Jgone");
    holdfast_core::kvtree::file::write(&path, &tree).unwrap();
    let ran = holdfast([Path::new("inspect"), &path]);
    assert_eq!(ran.out, "  ExitReason\n    \\u{1b}[2Jgone\n");
}
