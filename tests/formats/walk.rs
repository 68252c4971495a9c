//! Directories with files of all formats: each is recognised, and unknown files are reported as unknown.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use holdfast_testkit::{files_below, fixtures};
use serde_json::Value;

use crate::{path_of, run};

/// The format by the name of a fixture; `None` if the name has none.
fn promised(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let sion = name.contains(".sion") && !name.contains("_BUDDY_");
    // One file of all ranks, in FTI's mode for MPI-IO, is not FTI-FF.
    let fti = !name.contains("mpiio")
        && ["Ckpt", "dCPFile"].iter().any(|start| name.starts_with(start))
        && name.ends_with(".fti");
    match name.rsplit_once('.').map(|(_, end)| end) {
        _ if fti => Some("fti-ff"),
        _ if sion => Some("sion"),
        Some("scrinfo" | "scr" | "scrfilemap") => Some("scr-hash"),
        Some("xor") => Some("scr-xor"),
        Some("jubatus") => Some("jubatus"),
        Some("md" | "json" | "log" | "tsv" | "ckpt" | "conf" | "txt") => Some("unknown"),
        _ => None,
    }
}

fn found(document: &Value) -> BTreeMap<PathBuf, String> {
    let known = document["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (path_of(file), file["format"].as_str().unwrap().to_owned()));
    let unknown = document["unknown"].as_array().unwrap().iter();
    known.chain(unknown.map(|path| (PathBuf::from(path.as_str().unwrap()), "unknown".to_owned()))).collect()
}

#[test]
fn recognises_every_file_of_all_fixtures() {
    for name in ["scr", "fti", "sion", "jubatus"] {
        let root = fixtures(name);
        let ran = run("inspect --brief --json", &[&root]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{name}");
        let found = found(&ran.json());
        let regular = files_below(&root).into_iter().filter(|path| !path.is_symlink());
        let regular: Vec<PathBuf> = regular.collect();
        assert!(regular.iter().eq(found.keys()), "{name}: {} files, {} reported", regular.len(), found.len());
        for path in regular {
            if let Some(promised) = promised(&path) {
                assert_eq!(found[&path], promised, "{}", path.display());
            }
        }
    }
}

#[test]
fn reports_no_intact_scr_file_as_damaged() {
    let root = fixtures("scr");
    let document = run("verify --json --damaged", &[&root]).json();
    let damaged = document["files"].as_array().unwrap();
    assert!(damaged.iter().all(|file| path_of(file).starts_with(root.join("h-control-files/halt"))), "{damaged:#?}");
    assert_eq!(damaged.len(), 2, "the two that SCR's own program damaged");
}

#[test]
fn prints_line_per_file_and_fails_only_on_damage() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let fti = fixtures("fti").join("damaged/v1.1");
    fs::copy(fti.join("good/Ckpt7-Rank2.fti"), at("Ckpt7-Rank2.fti")).unwrap();
    fs::write(at("notes.txt"), "step 400\n").unwrap();
    fs::write(at("output.txt"), "siondump: sid:                       0\n").unwrap();
    for words in ["inspect", "inspect --check", "verify", "extract --dry-run --to parts"] {
        let ran = run(words, &[directory.path()]).with_code(0).err_is("");
        let unknown = ran.out.lines().filter(|line| line.ends_with(".txt: unknown")).count();
        assert_eq!(unknown, if words == "inspect --check" { 0 } else { 2 }, "{words}:\n{}", ran.out);
    }
    fs::copy(fti.join("flip-chunk/Ckpt7-Rank2.fti"), at("Ckpt8-Rank2.fti")).unwrap();
    for words in ["inspect --check", "verify --damaged", "extract --dry-run --to parts"] {
        let ran = run(words, &[directory.path()]).with_code(65);
        let damaged: Vec<&str> = ran.out.lines().filter(|line| line.contains("damaged: ")).collect();
        assert!(
            damaged.len() == 1 && damaged[0].starts_with(at("Ckpt8-Rank2.fti").to_str().unwrap()),
            "{words}:\n{}",
            ran.out
        );
    }
}

#[test]
fn named_file_of_unknown_format_is_a_data_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    fs::write(&path, "step 400\n").unwrap();
    for words in ["inspect", "verify", "extract --to parts"] {
        let ran = run(words, &[&path]).with_code(65);
        assert!(format!("{}{}", ran.out, ran.err).contains("notes.txt: unknown"), "{words}");
    }
    for words in ["inspect", "verify", "extract --to parts", "sion dump", "sion verify"] {
        run(words, &[&directory.path().join("missing")]).with_code(69);
    }
    let index = fixtures("scr").join("h-index/1-three-flushed/tree/pfs/index.scr");
    run("extract --to parts", &[&index]).with_code(64).complains(&["holds no files"]);
}

#[test]
fn does_not_follow_links_and_limits_depth() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("inside");
    fs::create_dir(&inside).unwrap();
    symlink(fixtures("jubatus"), inside.join("out")).unwrap();
    symlink(&inside, inside.join("round")).unwrap();
    symlink(fixtures("jubatus").join("damaged/crc_zero.jubatus"), inside.join("linked.jubatus")).unwrap();
    let ran = run("verify --json", &[&inside]);
    assert!(ran.code == 0 && found(&ran.json()).is_empty(), "{}", ran.out);
    let mut deep = inside.clone();
    (0..40).for_each(|_| deep.push("d"));
    fs::create_dir_all(&deep).unwrap();
    run("verify", &[&inside]).with_code(69).prints(&["deeper than 32 levels; not entered"]);
}
