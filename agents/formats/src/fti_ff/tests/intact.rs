//! Every intact file is decoded as listed.

use super::*;
use crate::fti_ff::checkpoint::Checkpoint;
use crate::fti_ff::{FtiFf, name::FileName};
use crate::{Destination, Format, Options, recognise};

#[test]
fn recognises_describes_and_verifies_every_real_file() {
    let mut seen = BTreeMap::new();
    for file in all_files() {
        let recognised = recognise(&file.path).unwrap();
        let place = file.path.display();
        *seen.entry(file.role().to_owned()).or_insert(0) += 1;
        if !["rank file", "partner copy", "Reed-Solomon parity"].contains(&file.role()) {
            // FTI's other modes use the same names for files of raw bytes without hashes.
            assert!(recognised.confidence < crate::Confidence::Certain, "{place}");
            continue;
        }
        assert_eq!(recognised.confidence, crate::Confidence::Certain, "{place}");
        assert_eq!(recognised.format.unwrap().name(), "fti-ff", "{place}");
        let check = FtiFf.verify(&file.path, &Options::default(), &mut |_, _| {}).unwrap();
        assert!(check.is_intact(), "{place}: {check:?}");
        let described = serde_json::to_value(FtiFf.describe(&file.path).unwrap()).unwrap();
        let mut keys = vec!["role", "fb", "checksum", "ckpt_id", "blocks", "fb_ok", "trailer_bytes", "stored_on_rank"];
        if file.path.to_string_lossy().contains("dCPFile") {
            keys.retain(|key| *key != "stored_on_rank");
        }
        for key in keys.into_iter().filter(|key| !file.json[*key].is_null()) {
            assert_eq!(described[key], file.json[key], "{key} of {place}");
        }
    }
    assert!(seen["rank file"] == 616 && seen["partner copy"] == 88 && seen["Reed-Solomon parity"] == 104, "{seen:?}");
}

#[test]
fn reads_every_variable_of_every_real_file() {
    for file in all_files().iter().filter(|file| matches!(file.role(), "rank file" | "partner copy")) {
        let checkpoint = Checkpoint::open(&file.path).unwrap();
        let found = checkpoint.variables();
        let expected = file.variables();
        assert!(found.iter().map(|variable| variable.id).eq(expected.keys().copied()), "{}", file.path.display());
        for variable in found {
            let wanted = &expected[&variable.id];
            assert_eq!(variable.size(), wanted.len() as u64, "variable {} of {}", variable.id, file.path.display());
            assert!(value(&checkpoint, &variable) == *wanted, "variable {} of {}", variable.id, file.path.display());
        }
    }
}

#[test]
fn extracts_each_variable_joined_over_its_containers() {
    for tree in ["v1.1/seven-l1/c7", "v1.1/grow/g10", "v1.6/seven-l1/c5", "other/v1.2/seven-l1/c7"] {
        let root = fixtures("fti").join(tree);
        for file in all_files().iter().filter(|file| file.path.starts_with(&root) && file.role() == "rank file") {
            let directory = tempfile::tempdir().unwrap();
            let to = Destination::new(directory.path(), false).unwrap();
            let extracted = FtiFf.extract(&file.path, &to, &Options::default(), &mut |_, _| {}).unwrap();
            assert!(extracted.damages.is_empty(), "{extracted:?}");
            let expected = file.variables();
            assert_eq!(extracted.files.len(), expected.len());
            for (id, bytes) in expected {
                assert!(fs::read(directory.path().join(format!("var_{id}.bin"))).unwrap() == bytes, "{id} of {tree}");
            }
            assert!(FtiFf.extract(&file.path, &to, &Options::default(), &mut |_, _| {}).is_err());
        }
    }
}

#[test]
fn table_matches_example_of_fti_document() {
    let mut path = files_below(&fixtures("fti").join("v1.1/seven-l1/c2")).into_iter();
    let path = path.rfind(|path| path.to_string_lossy().ends_with("Ckpt2-Rank0.fti")).unwrap();
    let text = FtiFf.describe(&path).unwrap().to_string();
    let head = "DataBase-id: 1\n    numvars: 1\n    dbsize: 16076\n    [size metadata: 76]\n\n";
    let block = format!("{head}        Var-id: 0\n        id: 4\n");
    assert!(text.contains(&block), "{text}");
    assert!(
        text.contains("        hascontent: true\n        dptr: 0\n        fptr: 24376\n        chunksize: 16000\n"),
        "{text}"
    );
}

#[test]
fn parses_the_names_that_it_writes() {
    for name in ["Ckpt7-Rank2.fti", "Ckpt10-Pcof0.fti", "Ckpt1-RSed31.fti", "dCPFile-Rank3.fti"] {
        assert_eq!(FileName::parse(name).unwrap().to_string(), name);
    }
    for name in ["Ckpt-Rank2.fti", "Ckpt7-Rank+2.fti", "Ckpt7-Rank2", "Ckpt7-Rank99999999999.fti", "Topology.fti"] {
        assert_eq!(FileName::parse(name), None, "{name}");
    }
}
