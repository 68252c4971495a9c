//! FTI's checkpoints, partner copies and parity.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_testkit::{fast_directory, files_below, fixtures, scratch_copy};
use serde_json::Value;

use crate::program::holdfast_in;
use crate::{json_file, only_file, path_of, run, sha256};

/// Every listed file of FTI-FF, with its expected properties.
fn listed() -> BTreeMap<PathBuf, Value> {
    let mut all = BTreeMap::new();
    let lists = files_below(&fixtures("fti")).into_iter().filter(|path| path.ends_with("expected.json"));
    for list in lists {
        for (snapshot, content) in json_file(&list)["snapshots"].as_object().unwrap() {
            for (name, file) in content["files"].as_object().unwrap() {
                if ["rank file", "partner copy", "Reed-Solomon parity"].contains(&file["role"].as_str().unwrap()) {
                    all.insert(list.with_file_name(snapshot).join(name), file.clone());
                }
            }
        }
    }
    assert!(all.len() > 800, "{}", all.len());
    all
}

#[test]
fn verifies_describes_and_extracts_every_intact_file() {
    let listed = listed();
    let root = fixtures("fti");
    let verified = run("verify --json", &[&root]);
    assert_eq!((verified.code, verified.err.as_str()), (65, ""), "damaged files are below it, too");
    let described = run("inspect --json", &[&root]).json();
    let directory = fast_directory();
    let extracted = run("extract --json --to", &[directory.path(), &root]);
    let by_path = |document: &Value| -> BTreeMap<PathBuf, Value> {
        document["files"].as_array().unwrap().iter().map(|file| (path_of(file), file.clone())).collect()
    };
    let (verified, described, extracted) = (by_path(&verified.json()), by_path(&described), by_path(&extracted.json()));
    for (path, file) in listed {
        let place = path.display();
        let verdict = &verified[&path];
        assert!(verdict["format"] == "fti-ff" && verdict["intact"] == true, "{place}: {verdict}");
        for key in ["fb", "checksum", "ckpt_id", "blocks"].into_iter().filter(|key| !file[key].is_null()) {
            assert_eq!(described[&path]["description"][key], file[key], "{key} of {place}");
        }
        let Some(variables) = file["variables"].as_object() else { continue };
        let parts = &extracted[&path];
        assert_eq!(parts["files"].as_array().unwrap().len(), variables.len(), "{place}: {parts}");
        let to = directory.path().join(path.strip_prefix(&root).unwrap());
        for (id, variable) in variables {
            let bytes = fs::read(to.join(format!("var_{id}.bin"))).unwrap();
            assert_eq!(sha256(&bytes), variable["sha256"].as_str().unwrap(), "variable {id} of {place}");
        }
    }
}

#[test]
fn every_damaged_file_ends_with_65_and_one_line() {
    let root = fixtures("fti").join("damaged");
    for cases in json_file(&root.join("verdicts.json")).as_object().unwrap().values() {
        for (case, entry) in cases.as_object().unwrap() {
            let expected = entry["expected"].as_str().unwrap();
            let path = root.join(entry["file"].as_str().unwrap());
            let ran = run("verify", &[&path]);
            let line = ran.out.lines().next().unwrap();
            assert!(line.starts_with(&format!("{}: FTI-FF checkpoint", path.display())), "{case}: {line}");
            match ran.code {
                0 => assert!(!expected.starts_with("CORRUPT") || expected.contains("or VALID"), "{case}: {expected}"),
                65 => assert!(!expected.starts_with("VALID") && line.contains(": damaged: "), "{case}: {expected}"),
                code => panic!("{case}: {code}: {}", ran.err),
            }
            assert_eq!(ran.err, "", "{case}");
        }
    }
}

#[test]
fn inspect_prints_tables_of_fti_document_and_damage_in_one_line() {
    let damaged = fixtures("fti").join("damaged/v1.1");
    let ran = run("inspect", &[&damaged.join("good/Ckpt7-Rank2.fti")]).with_code(0).err_is("");
    assert!(ran.out.starts_with("FTI-FF rank file, layout A (FTI v1.1)\nckptSize: "), "{}", ran.out);
    let table = "    DataBase-id: 0\n    numvars: 3\n    dbsize: ";
    assert!(ran.out.contains(table) && ran.out.contains("        containersize: "), "{}", ran.out);
    let path = damaged.join("fb-hash-broken/Ckpt7-Rank2.fti");
    let ran = run("inspect", &[&path]);
    assert_eq!((ran.code, ran.err.lines().count()), (65, 1), "{}", ran.err);
    assert!(ran.err.starts_with(&format!("{}: damaged: file metadata: its hash is ", path.display())), "{}", ran.err);
    run("inspect", &[&damaged.join("empty/Ckpt7-Rank2.fti")]).with_code(65).out_is("");
}

#[test]
fn extracts_damaged_parts_only_on_request() {
    let path = fixtures("fti").join("damaged/v1.1/flip-chunk/Ckpt7-Rank2.fti");
    let directory = fast_directory();
    let to = directory.path().join("vars");
    let names = || files_below(&to).iter().map(|path| path.file_name().unwrap().to_owned()).collect::<Vec<_>>();
    let dry = run("extract --json --dry-run --to", &[&to, &path]);
    assert_eq!((dry.code, to.exists()), (65, false));
    let ran = run("extract --json --to", &[&to, &path]).with_code(65);
    assert_eq!(names(), ["var_1.bin", "var_2.bin", "var_4.bin", "var_5.bin"]);
    assert_eq!(only_file(&dry.json()), only_file(&ran.json()), "a dry run reports the same result");
    run("extract --to", &[&to, &path]).with_code(69).complains(&["will not overwrite", "--force"]);
    let ran = run("extract --recover --force --to", &[&to, &path]);
    assert_eq!((ran.code, names().len()), (65, 5), "{}", ran.err);
}

#[test]
fn compares_copies_and_parity_of_each_group() {
    for (tree, groups) in
        [("v1.1/seven-l2/c6", 1), ("v1.1/seven-l3/c6", 1), ("v1.6/seven-l3/c6", 1), ("v1.1/head/l3", 1)]
    {
        let root = fixtures("fti").join(tree);
        if !root.exists() {
            // The snapshots of this tree have other names.
            continue;
        }
        let ran = run("fti verify --json", &[&root]);
        assert_eq!(ran.code, 0, "{tree}: {}", ran.err);
        let document = ran.json();
        assert_eq!(document["groups"].as_array().unwrap().len(), groups, "{tree}");
        assert!(document["groups"][0]["checked_bytes"].as_u64().unwrap() > 0, "{tree}");
    }
    let copy = scratch_copy(&fixtures("fti").join("v1.1/seven-l2/c6"));
    let partner = file_named(copy.path(), "Ckpt6-Pcof1.fti");
    let mut bytes = fs::read(&partner).unwrap();
    bytes[2000] ^= 1;
    fs::write(&partner, bytes).unwrap();
    let ran = run("fti verify", &[copy.path()]);
    assert_eq!((ran.code, ran.out.lines().count()), (65, 1), "{}", ran.err);
    assert!(
        ran.out.starts_with("checkpoint 6, ranks 0 1 2 3: damaged: ") && ran.out.contains("(offset 2000)"),
        "{}",
        ran.out
    );
}

fn file_named(root: &Path, name: &str) -> PathBuf {
    files_below(root).into_iter().find(|path| path.ends_with(name)).unwrap()
}

#[test]
fn reports_lost_ranks_and_wrong_groups_instead_of_intact() {
    let cases = [
        ("v1.1/seven-l1/c7", "l1"),
        ("v1.1/seven-l2/c6", "l2"),
        ("v1.6/seven-l3/c6", "l3"),
        ("v1.1/seven-l4/c6", "l4"),
    ];
    for (tree, level) in cases {
        let copy = scratch_copy(&fixtures("fti").join(tree));
        let ran = run("fti verify", &[copy.path()]);
        assert!(ran.code == 0 && !ran.out.contains(" 0 bytes"), "{tree}: {}", ran.out);
        let by_hash = ran.out.contains("checked by the files' hashes");
        assert_eq!(by_hash, ["l1", "l4"].contains(&level), "{tree}: {}", ran.out);
        let larger = run("fti verify --node-size 1 --group-size 8", &[copy.path()]);
        assert_eq!(larger.code, 65, "{tree}: {}", larger.out);
        assert!(larger.out.contains("rank 4: its file is missing"), "{tree}: {}", larger.out);
        let own =
            files_below(copy.path()).into_iter().find(|path| path.to_string_lossy().contains("-Rank2.fti")).unwrap();
        let bytes = fs::read(&own).unwrap();
        fs::remove_file(&own).unwrap();
        let lost = run("fti verify --json", &[copy.path()]);
        let group = &lost.json()["groups"][0];
        assert_eq!(
            (lost.code, &group["intact"], &group["damages"][0]["kind"]),
            (65, &false.into(), &"missing".into()),
            "{tree}"
        );
        assert_eq!(group["damages"][0]["place"], "rank 2", "{tree}");
        if level == "l2" || level == "l3" {
            fs::write(&own, bytes).unwrap();
            let (name, what) =
                if level == "l2" { ("-Pcof3", "copy of the file of rank 2") } else { ("-RSed3", "parity is missing") };
            let path = files_below(copy.path()).into_iter().find(|path| path.to_string_lossy().contains(name)).unwrap();
            fs::remove_file(path).unwrap();
            let lost = run("fti verify", &[copy.path()]);
            assert!(lost.code == 65 && lost.out.contains("rank 3") && lost.out.contains(what), "{tree}: {}", lost.out);
        } else {
            fs::write(&own, [&bytes[..2000], &[bytes[2000] ^ 1], &bytes[2001..]].concat()).unwrap();
            assert_eq!(run("fti verify", &[copy.path()]).code, 65, "{tree}: a changed byte");
        }
    }
}

/// Changes a byte of this file, and returns what `fti verify` prints.
fn verified_with_changed_byte(tree: &str, name: &str, offset: usize) -> (String, String) {
    let copy = scratch_copy(&fixtures("fti").join(tree));
    let path = file_named(copy.path(), name);
    let mut bytes = fs::read(&path).unwrap();
    bytes[offset] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (ran, json) = (run("fti verify", &[copy.path()]), run("fti verify --json", &[copy.path()]));
    assert_eq!((ran.code, json.code), (65, 65), "{tree}: {}", ran.out);
    (ran.out, json.json()["groups"][0]["damages"].to_string())
}

#[test]
fn verify_names_the_file_whose_hash_is_wrong_and_not_those_that_were_computed_from_it() {
    let cases = [
        ("v1.6/seven-l3/c7", "Ckpt7-Rank1.fti", 100, ["RSed", "not the parity"]),
        ("v1.1/seven-l2/c6", "Ckpt6-Rank1.fti", 2000, ["Pcof", "differs from"]),
    ];
    for (tree, name, offset, innocent) in cases {
        let (text, json) = verified_with_changed_byte(tree, name, offset);
        assert!(text.contains(name) && json.contains(name), "{text}{json}");
        assert!(!innocent.iter().any(|part| text.contains(part) || json.contains(part)), "{text}{json}");
    }
    let (text, json) = verified_with_changed_byte("v1.6/seven-l3/c7", "Ckpt7-RSed1.fti", 100);
    assert!(text.contains("Ckpt7-RSed1.fti") && !json.contains("-Rank"), "{text}{json}");
}

fn append(path: &Path, garbage: &str) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, [&bytes[..], garbage.as_bytes()].concat()).unwrap();
}

#[test]
fn appended_bytes_are_a_damage_of_their_file_and_are_not_restored() {
    for (tree, copies) in [("v1.1/seven-l2/c6", true), ("v1.1/seven-l3/c6", false)] {
        let copy = scratch_copy(&fixtures("fti").join(tree));
        let own = file_named(copy.path(), "Ckpt6-Rank1.fti");
        let original = fs::read(&own).unwrap();
        let restored = || {
            let to = fast_directory();
            let ran = run("fti restore --rank 1 --to", &[to.path(), copy.path()]);
            assert_eq!(ran.code, 0, "{tree}: {}{}", ran.out, ran.err);
            fs::read(to.path().join("Ckpt6-Rank1.fti")).unwrap()
        };
        append(&own, "garbage");
        let (ran, json) = (run("fti verify", &[copy.path()]), run("fti verify --json", &[copy.path()]).json());
        let damages = json["groups"][0]["damages"].as_array().unwrap();
        assert_eq!((ran.code, damages.len(), &damages[0]["kind"]), (65, 1, &"trailing".into()), "{tree}: {}", ran.out);
        assert!(ran.out.contains("Ckpt6-Rank1.fti") && ran.out.contains("7 bytes after the end"), "{}", ran.out);
        assert!(restored() == original, "{tree}");
        if copies {
            fs::remove_file(&own).unwrap();
            append(&file_named(copy.path(), "Ckpt6-Pcof2.fti"), "garbage");
            let ran = run("fti verify --json", &[copy.path()]).json();
            let named = ran["groups"][0]["damages"].to_string();
            assert!(named.contains("Ckpt6-Pcof2.fti") && !named.contains("copy-differs"), "{named}");
            assert!(restored() == original, "{tree}");
        }
    }
}

#[test]
fn verify_checks_the_differential_checkpoint_of_each_rank() {
    let copy = scratch_copy(&fixtures("fti").join("v1.6/dcp-md5/d5"));
    let ran = run("fti verify", &[copy.path()]).with_code(0);
    let intact = ran.out.lines().find(|line| line.starts_with("differential checkpoint, ranks 0 1 2 3: intact, "));
    assert!(intact.is_some_and(|line| line.ends_with("bytes checked by the files' hashes")), "{}", ran.out);

    let path = file_named(copy.path(), "dCPFile-Rank1.fti");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, [&bytes[..100], &[bytes[100] ^ 1], &bytes[101..]].concat()).unwrap();
    run("fti verify", &[copy.path()]).with_code(65).prints(&["dCPFile-Rank1.fti"]);

    fs::remove_file(&path).unwrap();
    let lost = run("fti verify", &[copy.path()]);
    let missing = "ranks 0 1 2 3: damaged: rank 1: its differential checkpoint is missing";
    assert!(lost.code == 65 && lost.out.contains(missing), "{}", lost.out);

    // Without groups, nothing is known of other ranks than those that have files.
    fs::remove_file(file_named(copy.path(), "config.fti")).unwrap();
    for path in files_below(copy.path()) {
        if path.file_name().unwrap().to_string_lossy().starts_with("Ckpt") {
            fs::remove_file(path).unwrap();
        }
    }
    let rest = run("fti verify --json", &[copy.path()]);
    assert_eq!((rest.code, &rest.json()["groups"][0]["ranks"]), (0, &serde_json::json!([0, 2, 3])), "{}", rest.out);
    assert_eq!(rest.json()["groups"][0]["checkpoint"], serde_json::Value::Null);
    assert_eq!(run("fti verify --checkpoint 5", &[copy.path()]).code, 69);
}

#[test]
fn verify_finds_groups_of_which_no_file_is_left() {
    let copy = scratch_copy(&fixtures("fti").join("v1.1/two-per-node/n2-l2"));
    assert_eq!(run("fti verify", &[copy.path()]).code, 0);
    for path in files_below(copy.path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if ["1.fti", "3.fti", "5.fti", "7.fti"].iter().any(|end| name.ends_with(end)) {
            fs::remove_file(path).unwrap();
        }
    }
    run("fti verify", &[copy.path()])
        .with_code(65)
        .prints(&["ranks 1 3 5 7: damaged: rank 1: its file is missing", "ranks 0 2 4 6: intact"]);

    // All nodes of a group: they are only in FTI's metadata.
    let copy = scratch_copy(&fixtures("fti").join("v1.1/seven-l2/c6"));
    let topology = file_named(copy.path(), "Topology.fti");
    let listed = fs::read_to_string(&topology).unwrap();
    let more = listed.replace("= node3\n", "= node3\n4 = node4\n5 = node5\n6 = node6\n7 = node7\n");
    assert_ne!(more, listed);
    fs::write(&topology, more).unwrap();
    let ran = run("fti verify --json", &[copy.path()]).json();
    let groups = ran["groups"].as_array().unwrap();
    assert_eq!((groups.len(), &ran["damaged"]), (2, &1.into()), "{ran}");
    assert_eq!(groups[1]["ranks"], serde_json::json!([4, 5, 6, 7]));
    assert_eq!((groups[1]["damages"].as_array().unwrap().len(), &groups[1]["notes"]), (4, &serde_json::json!([])));
}

#[test]
fn verify_names_an_empty_file_and_a_checkpoint_that_is_not_there() {
    let copy = scratch_copy(&fixtures("fti").join("v1.1/seven-l2/c6"));
    run("fti verify --checkpoint 77", &[copy.path()]).with_code(69).complains(&["there is no checkpoint 77"]);
    fs::write(file_named(copy.path(), "Ckpt6-Rank1.fti"), "").unwrap();
    let ran = run("fti verify", &[copy.path()]).with_code(65).prints(&["Ckpt6-Rank1.fti: it is empty"]);
    assert!(!ran.out.contains("Pcof2.fti: it has"), "the copy is intact: {}", ran.out);
}

#[test]
fn takes_no_other_file_in_place_of_partner_copy() {
    // Files of different size by rank, and of equal size.
    for (tree, checkpoint) in [("v1.1/seven-l2/c6", 6), ("v1.6/seven-l2/c6", 6), ("v1.1/mixed-levels", 3)] {
        let root = fixtures("fti").join(tree);
        let root = if tree.ends_with("mixed-levels") {
            files_below(&root)
                .iter()
                .find(|path| path.ends_with(format!("Ckpt{checkpoint}-Pcof3.fti")))
                .unwrap()
                .ancestors()
                .nth(5)
                .unwrap()
                .to_owned()
        } else {
            root
        };
        let copy = scratch_copy(&root);
        let named = |name: &str| file_named(copy.path(), &format!("Ckpt{checkpoint}-{name}.fti"));
        let (own, partner) = (named("Rank2"), named("Pcof3"));
        let bytes = fs::read(&own).unwrap();
        fs::remove_file(&own).unwrap();
        let directory = fast_directory();
        let words = format!("fti restore --rank 2 --checkpoint {checkpoint} --to");
        for other in ["Rank0", "Rank1", "Rank3", "Pcof1"] {
            fs::copy(named(other), &partner).unwrap();
            let ran = run(&words, &[directory.path(), copy.path()]);
            assert_eq!((ran.code, files_below(directory.path()).len()), (65, 0), "{tree} {other}: {}", ran.out);
            assert!(ran.out.contains("Pcof3.fti: it is Ckpt"), "{tree} {other}: {}", ran.out);
        }
        // Also if the file that was copied is lost: its size differs.
        if bytes.len() as u64 != fs::metadata(named("Rank0")).unwrap().len() {
            fs::copy(named("Rank0"), &partner).unwrap();
            fs::remove_file(named("Rank0")).unwrap();
            let ran = run(&words, &[directory.path(), copy.path()]);
            assert_eq!(ran.code, 65, "{tree}: {}", ran.out);
            assert!(ran.out.contains("it is another file"), "{tree}: {}", ran.out);
        }
        fs::write(&partner, &bytes).unwrap();
        assert_eq!(run(&words, &[directory.path(), copy.path()]).code, 0, "{tree}");
        assert!(fs::read(&files_below(directory.path())[0]).unwrap() == bytes, "{tree}");
    }
}

#[test]
fn repairs_files_that_fti_refuses() {
    let trees = [
        ("v1.6/seven-l1/c7", 4),
        ("v1.6/seven-l2/c7", 8),
        ("v1.6/seven-l3/c7", 8),
        ("v1.6/seven-l4/c7", 4),
        ("v1.6/dcp-md5/d5", 4),
        ("other/v1.3/seven-l1/c7", 4),
        ("other/v1.4/seven-l1/c7", 4),
        ("other/master/seven-l1/c7", 4),
    ];
    for (tree, expected) in trees {
        let root = fixtures("fti").join(tree);
        let copy = scratch_copy(&root);
        let noted = |path: &Path| {
            let document = run("verify --json", &[path]).json();
            let file = only_file(&document);
            assert_eq!(file["intact"], true, "{tree}: {file}");
            file["notes"].as_array().unwrap().iter().any(|note| note["kind"] == "refused-by-fti")
        };
        let is_checkpoint = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.ends_with(".fti") && (name.contains("-Rank") || name.contains("-Pcof"))
        };
        let checkpoints: Vec<PathBuf> = files_below(copy.path()).into_iter().filter(is_checkpoint).collect();
        assert!(checkpoints.iter().all(|path| noted(path)), "{tree}");
        let dry = run("fti repair --dry-run --json", &[copy.path()]);
        assert_eq!((dry.code, dry.json()["corrected"].as_u64()), (0, Some(expected)), "{tree}: {}", dry.out);
        assert!(checkpoints.iter().all(|path| noted(path)), "{tree}: a dry run writes nothing");
        let ran = run("fti repair --json", &[copy.path()]);
        assert_eq!(
            (ran.code, ran.json()["corrected"].as_u64()),
            (0, Some(expected)),
            "{tree}: {} {}",
            ran.out,
            ran.err
        );
        assert!(!checkpoints.iter().any(|path| noted(path)), "{tree}");
        for path in &checkpoints {
            let (before, after) =
                (fs::read(root.join(path.strip_prefix(copy.path()).unwrap())).unwrap(), fs::read(path).unwrap());
            let changed: Vec<usize> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
            assert_eq!(before.len(), after.len(), "{tree}");
            assert!(changed.last().unwrap() - changed[0] < 49, "{tree}: only the checksum and the hash: {changed:?}");
        }
        if !tree.contains("dcp") {
            let verified = run("fti verify", &[copy.path()]);
            assert_eq!(verified.code, 0, "{tree}: {}", verified.out);
        }
        assert_eq!(run("fti repair --json", &[copy.path()]).json()["corrected"], 0, "{tree}: a second run");
    }
}

#[test]
fn repair_of_level_3_continues_and_requires_complete_groups() {
    let root = fixtures("fti").join("v1.6/seven-l3/c7");
    // As after a kill: some files are corrected, no parity is.
    let copy = scratch_copy(&root);
    let complete = scratch_copy(&root);
    assert_eq!(run("fti repair", &[complete.path()]).code, 0);
    for name in ["Ckpt7-Rank0.fti", "Ckpt7-Rank2.fti"] {
        fs::copy(file_named(complete.path(), name), file_named(copy.path(), name)).unwrap();
    }
    assert_eq!(run("fti repair --json", &[copy.path()]).json()["corrected"], 6);
    let same = |name: &str| {
        fs::read(file_named(copy.path(), name)).unwrap() == fs::read(file_named(complete.path(), name)).unwrap()
    };
    for rank in 0..4 {
        assert!(same(&format!("Ckpt7-Rank{rank}.fti")) && same(&format!("Ckpt7-RSed{rank}.fti")), "{rank}");
    }
    // A lost rank is restored with the new parity.
    fs::remove_file(file_named(copy.path(), "Ckpt7-Rank1.fti")).unwrap();
    let directory = fast_directory();
    assert_eq!(run("fti restore --rank 1 --to", &[directory.path(), copy.path()]).code, 0);
    let restored = fs::read(directory.path().join("Ckpt7-Rank1.fti")).unwrap();
    assert!(restored == fs::read(file_named(complete.path(), "Ckpt7-Rank1.fti")).unwrap());

    // Without a file of the group, or with wrong groups, nothing is changed.
    for words in ["fti repair", "fti repair --node-size 1 --group-size 2"] {
        let copy = scratch_copy(&root);
        if words == "fti repair" {
            fs::remove_file(file_named(copy.path(), "Ckpt7-Rank1.fti")).unwrap();
        }
        let before: Vec<Vec<u8>> = files_below(copy.path()).iter().map(|path| fs::read(path).unwrap()).collect();
        run(words, &[copy.path()]).with_code(65).prints(&["fti restore"]);
        let after: Vec<Vec<u8>> = files_below(copy.path()).iter().map(|path| fs::read(path).unwrap()).collect();
        assert!(before == after, "{words}");
    }
}

#[test]
fn restores_lost_file_byte_for_byte() {
    for (tree, source) in
        [("v1.1/seven-l2/c6", "partner"), ("v1.1/seven-l3/c6", "reed-solomon"), ("v1.6/seven-l3/c6", "reed-solomon")]
    {
        let root = fixtures("fti").join(tree);
        let copy = scratch_copy(&root);
        fs::remove_dir_all(copy.path().join("local/node2")).unwrap();
        let directory = fast_directory();
        let to = directory.path().join("restored");
        let dry = run("fti restore --json --dry-run --rank 2 --to", &[&to, copy.path()]);
        assert_eq!((dry.code, to.exists()), (0, false), "{tree}: {}", dry.err);
        let ran = run("fti restore --json --rank 2 --to", &[&to, copy.path()]);
        assert_eq!(only_file(&ran.json())["source"], source, "{tree}: {}", ran.err);
        let name = "Ckpt6-Rank2.fti";
        assert!(fs::read(to.join(name)).unwrap() == fs::read(file_named(&root, name)).unwrap(), "{tree}");
        let ran = run("fti restore --rank 2 --to", &[&to, copy.path()]);
        assert_eq!(ran.code, 69, "the file exists: {}", ran.out);
        fs::remove_dir_all(copy.path().join("local/node3")).unwrap();
        fs::remove_dir_all(copy.path().join("local/node0")).unwrap();
        let ran = run("fti restore --force --rank 2 --to", &[&to, copy.path()]);
        assert_eq!((ran.code, ran.err.as_str()), (65, ""), "{tree}");
        assert!(ran.out.starts_with("cannot restore Ckpt6-Rank2.fti: "), "{}", ran.out);
    }
}

#[test]
fn requires_groups_without_configuration() {
    let copy = scratch_copy(&fixtures("fti").join("v1.1/seven-l3/c6"));
    fs::remove_file(copy.path().join("config.fti")).unwrap();
    run("fti verify", &[copy.path()]).with_code(64).complains(&["--node-size"]);
    assert_eq!(run("fti verify --node-size 1 --group-size 4", &[copy.path()]).code, 0);
    let nothing = tempfile::tempdir().unwrap();
    assert_eq!(run("fti verify --node-size 1 --group-size 4", &[nothing.path()]).code, 69);
    let wild = nothing.path().join("l1/Ckpt4294967295-Rank4294967295.fti");
    fs::create_dir(wild.parent().unwrap()).unwrap();
    fs::write(wild, "").unwrap();
    assert!([64, 65].contains(&run("fti verify --node-size 1 --group-size 3", &[nothing.path()]).code));
    assert_eq!(holdfast_in(nothing.path(), ["fti", "verify", "--node-size", "1", "."]).code, 64);
}

#[test]
fn writes_the_checkpoint_that_was_extracted() {
    let directory = fast_directory();
    let series = fixtures("fti").join("v1.1/seven-l1-small");
    let file = |snapshot: &str, id: u32| {
        let found = files_below(&series.join(snapshot));
        found.into_iter().find(|path| path.ends_with(format!("Ckpt{id}-Rank0.fti"))).unwrap()
    };
    let (first, third) = (file("c1", 1), file("c3", 3));
    // The document's checkpoints 2 and 3: a variable appears, then two grow.
    run("extract --force --to", &[directory.path(), &third]);
    let written = directory.path().join("Ckpt3-Rank0.fti");
    let write = |options: &[&str], variables: &[&str]| {
        let fixed = ["fti", "write", "--json", "Ckpt3-Rank0.fti", "--previous", first.to_str().unwrap()];
        holdfast_in(directory.path(), [&fixed[..], options, variables].concat())
    };
    let variables = ["1:a:int:var_1.bin", "2:b:int:var_2.bin", "3:c:int:var_3.bin", "4:d:4:var_4.bin"];
    assert!(write(&["--dry-run"], &variables).code == 0 && !written.exists());
    let ran = write(&[], &variables).with_code(0);
    assert_eq!(write(&[], &variables).code, 69, "it exists");
    for (wrong, code) in [("4:d:real:var_4.bin", 64), ("d:4:var_4.bin", 64), ("4:d:7:var_4.bin", 65), ("4:d:4:x", 69)] {
        let ran = write(&["--force"], &[&variables[..3], &[wrong]].concat());
        assert!(ran.code == code && ran.err.contains("help"), "{wrong}: {}", ran.err);
    }
    write(&["--force"], &variables[..2]).with_code(64).complains(&["variable 3 of the previous checkpoint is missing"]);
    let counts: Vec<_> = ran.json()["variables"].as_array().unwrap().iter().map(|v| v["containers"].clone()).collect();
    assert_eq!(counts, [1, 2, 2, 1]);
    assert_eq!(run("verify", &[&written]).code, 0);
    let extracted = directory.path().join("again");
    run("extract --to", &[&extracted, &written]);
    for id in 1..=4 {
        let name = format!("var_{id}.bin");
        let pair = [directory.path(), &extracted].map(|place| fs::read(place.join(&name)).unwrap());
        assert!(pair[0] == pair[1], "variable {id} differs");
    }
}
