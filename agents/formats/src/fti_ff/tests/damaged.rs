//! The verification of each damaged file is at least as strict as its listed verdict.

use super::*;
use crate::fti_ff::FtiFf;
use crate::{Destination, FileCheck, Format, Options, recognise};

fn check(path: &Path) -> FileCheck {
    FtiFf.verify(path, &Options::default(), &mut |_, _| {}).unwrap()
}

/// The kinds of damage that the listed verdict names.
fn kinds(expected: &str) -> Vec<&'static str> {
    [
        ("file checksum", "checksum"),
        ("chunk hash of id", "chunk-hash"),
        ("hash of chunk (", "chunk-hash"),
        ("chunk hash and", "chunk-hash"),
        ("shorter than fs", "truncated"),
        ("FB hash mismatch", "file-hash"),
        ("file metadata hash mismatch", "file-hash"),
        ("empty file", "empty"),
        ("no blocks", "structure"),
        ("unreadable from block", "structure"),
        ("outside of the file", "missing-chunk"),
    ]
    .into_iter()
    .filter(|(words, _)| expected.contains(words) && !expected.contains(&format!("({words}")))
    .map(|(_, kind)| kind)
    .collect()
}

#[test]
fn verifies_damaged_files_at_least_as_strictly_as_listed() {
    let root = fixtures("fti").join("damaged");
    let list: Value = serde_json::from_slice(&fs::read(root.join("verdicts.json")).unwrap()).unwrap();
    let mut seen = 0;
    for (case, entry) in list.as_object().unwrap().values().flat_map(|cases| cases.as_object().unwrap()) {
        let path = root.join(entry["file"].as_str().unwrap());
        let expected = entry["expected"].as_str().unwrap();
        let found = check(&path);
        assert_eq!(recognise(&path).unwrap().format.unwrap().name(), "fti-ff", "{case}");
        if expected.starts_with("VALID") {
            assert!(found.is_intact(), "{case}: {expected}\n{found:?}");
            assert_eq!(expected.contains("remark"), !found.notes.is_empty(), "{case}: {found:?}");
        } else if expected.starts_with("CORRUPT") && !expected.contains("or VALID") {
            assert!(!found.is_intact(), "{case}: {expected}");
            for kind in kinds(expected).into_iter().filter(|_| !expected.contains("(file checksum and FB hash fine)")) {
                assert!(found.has(kind), "{case}: {expected}\n{found:?}");
            }
        }
        if expected.contains("every chunk hash still matches") || expected.contains("all chunk hashes match") {
            assert!(!found.has("chunk-hash"), "{case}: {found:?}");
        }
        seen += 1;
    }
    assert_eq!(seen, 44);
    let special = |name: &str| check(&root.join(name));
    assert!(special("v1.6/mf-ckptid-changed/Ckpt5-Rank2.fti").has("name"));
    assert!(!special("v1.1/hascontent-2-rehashed/Ckpt7-Rank2.fti").notes.is_empty());
    let one = special("v1.1/flip-chunk/Ckpt7-Rank2.fti");
    let chunks: Vec<_> = one.damages.iter().filter(|damage| damage.kind == "chunk-hash").collect();
    assert_eq!(chunks.len(), 1, "{one:?}");
    assert_eq!(chunks[0].place, "block 0, var 2, id 3, container 0");
}

#[test]
fn extracts_intact_variables_of_damaged_file_and_reports_the_others() {
    let path = fixtures("fti").join("damaged/v1.1/flip-chunk/Ckpt7-Rank2.fti");
    let directory = tempfile::tempdir().unwrap();
    let to = Destination::new(directory.path(), false).unwrap();
    let extracted = FtiFf.extract(&path, &to, &Options::default(), &mut |_, _| {}).unwrap();
    assert_eq!(extracted.files, ["var_1.bin", "var_2.bin", "var_4.bin", "var_5.bin"]);
    assert_eq!(extracted.damages.len(), 1, "{extracted:?}");
    assert!(!directory.path().join("var_3.bin").exists());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4, "a temporary file was left");
    let options = Options { recover: true, ..Options::default() };
    let again = Destination::new(directory.path(), true).unwrap();
    let extracted = FtiFf.extract(&path, &again, &options, &mut |_, _| {}).unwrap();
    assert!(extracted.files.contains(&"var_3.bin".to_owned()) && extracted.damages.len() == 1);
}
