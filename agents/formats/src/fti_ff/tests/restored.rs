//! Lost files are restored byte for byte wherever FTI restores them, and also where FTI restores wrong bytes.

use holdfast_core::galois::products::Kernel;
use holdfast_testkit::{fast_directory, scratch_copy};

use super::*;
use crate::Destination;
use crate::fti_ff::checkpoint::{FtiFile, inspect};
use crate::fti_ff::group_check;
use crate::fti_ff::name::{FileName, FileRole};
use crate::fti_ff::parity::Combination;
use crate::fti_ff::restore::{RestoreSource, restore};
use crate::fti_ff::survivors::Survivors;
use crate::fti_ff::topology::Topology;
use crate::input::Input;

fn topology(json: &Value) -> Topology {
    let number = |key: &str| json["topology"][key].as_u64().unwrap() as u32;
    Topology {
        ranks: number("ranks"),
        node_size: number("node_size"),
        group_size: number("group_size"),
        head: number("head") == 1,
    }
}

fn tree(name: &str) -> (PathBuf, Value) {
    let path = fixtures("fti").join(name);
    let json = serde_json::from_slice(&fs::read(path.join("expected.json")).unwrap()).unwrap();
    (path, json)
}

/// The content of the lost file: that of any file of this name in the snapshot.
fn original(snapshot: &Path, name: &str) -> Vec<u8> {
    let found = files_below(snapshot).into_iter().find(|path| path.ends_with(name));
    fs::read(found.unwrap_or_else(|| panic!("no {name}"))).unwrap()
}

/// Restores all ranks of a checkpoint and compares them with the originals. Returns the sources, or the first error.
fn restore_all(
    root: &Path,
    snapshot: &Path,
    topology: Topology,
    checkpoint: u32,
) -> Result<Vec<RestoreSource>, String> {
    let survivors = Survivors::scan(&[root], None).unwrap();
    let directory = fast_directory();
    let to = Destination::new(directory.path(), false).unwrap();
    let mut sources = Vec::new();
    for rank in topology.checkpointing() {
        let group = topology.group_of(rank).unwrap();
        let source = restore(&survivors, &group, checkpoint, rank, &to, &mut |_, _| {});
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), sources.len() + usize::from(source.is_ok()));
        sources.push(source.map_err(|error| error.to_string())?);
        let name = format!("Ckpt{checkpoint}-Rank{rank}.fti");
        assert!(fs::read(directory.path().join(&name)).unwrap() == original(snapshot, &name), "{name} of {snapshot:?}");
    }
    Ok(sources)
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// Applies to a copy the change that was made before the recorded run of FTI; false if `change` is unknown.
fn damage(root: &Path, change: &str, json: &Value) -> bool {
    let named = |role: FileRole, rank: u32| -> Vec<PathBuf> {
        let is = |path: &PathBuf| {
            let name = FileName::parse(path.file_name().unwrap().to_str().unwrap());
            name.is_some_and(|name| name.role == role && name.rank == rank)
        };
        files_below(root).into_iter().filter(is).collect()
    };
    let nodes = |list: &str| {
        for node in list.split(',') {
            fs::remove_dir_all(root.join(format!("local/node{node}"))).unwrap();
        }
    };
    let words: Vec<&str> = change.split(' ').collect();
    match words.as_slice() {
        ["intact"] | ["all", "levels", "present"] | ["restart", ..] | ["head", "intact"] => {}
        ["all", "local", "lost"] => {
            if root.join("local").exists() {
                fs::remove_dir_all(root.join("local")).unwrap();
            }
        }
        ["one", "L4", "file", "lost"] => fs::remove_file(&named(FileRole::Rank, 2)[0]).unwrap(),
        ["nodes", list, "lost"] => nodes(list),
        ["l1", "file", "of", "rank", "0", "lost"] => {
            let l1 = named(FileRole::Rank, 0).into_iter().find(|path| path.to_string_lossy().contains("/l1/"));
            fs::remove_file(l1.unwrap()).unwrap();
        }
        ["odd", "maxFs:", node, .., "lost"] | ["head", node, "lost"] | [node, "lost"] => {
            nodes(node.strip_prefix("node").unwrap());
        }
        ["rank2", "file", "flipped"] | ["rank2", "FB", "flipped"] => {
            named(FileRole::Rank, 2).iter().for_each(|path| flip(path));
        }
        ["rank2", "file", "cut", ..] => {
            for path in named(FileRole::Rank, 2) {
                fs::write(&path, &fs::read(&path).unwrap()[..50]).unwrap();
            }
        }
        ["rank2", "partner", ..] => named(FileRole::Partner, 3).iter().for_each(|path| flip(path)),
        ["rank2", "file", "and", ..] => {
            named(FileRole::Rank, 2).iter().chain(&named(FileRole::Partner, 3)).for_each(|path| flip(path));
        }
        ["rank2", "RS", ..] => named(FileRole::Parity, 2).iter().for_each(|path| flip(path)),
        ["all", "four", ..] => topology(json).checkpointing().for_each(|rank| flip(&named(FileRole::Rank, rank)[0])),
        _ => return false,
    }
    true
}

#[test]
fn restores_wherever_fti_does_and_corrects_its_errors() {
    let list: Value =
        serde_json::from_slice(&fs::read(fixtures("fti").join("real-fti-behaviour.json")).unwrap()).unwrap();
    let (mut cases, mut better) = (0, Vec::new());
    for case in list.as_array().unwrap() {
        let text = |key: &str| case[key].as_str().unwrap();
        let (path, json) = tree(text("tree"));
        let snapshot = path.join(text("snapshot"));
        let copy = scratch_copy(&snapshot);
        assert!(damage(copy.path(), text("change"), &json), "{case}");
        let survivors = Survivors::scan(&[copy.path()], None).unwrap();
        let results: Vec<_> = survivors
            .checkpoints()
            .into_iter()
            .map(|checkpoint| restore_all(copy.path(), &snapshot, topology(&json), checkpoint))
            .collect();
        let restored = results.iter().any(Result::is_ok);
        let theirs = case["wrong_bytes"] == 0;
        assert!(restored || !theirs, "{} {}: {results:?}", text("tree"), text("change"));
        if restored && !theirs {
            better.push(format!("{} {}", text("tree"), text("change")));
        }
        cases += 1;
    }
    assert_eq!(cases, 70);
    let expected = ["v1.1/odd-l3 odd maxFs: node3 (largest file) lost", "v1.1/seven-l3 all four Rank files flipped"];
    assert_eq!(better, expected);
}

#[test]
fn restores_after_loss_of_any_half_of_nodes_at_level_3_in_every_layout() {
    let trees = [
        ("v1.1/odd-l3", "odd", 1),
        ("v1.6/odd-l3", "odd", 1),
        ("other/v1.2/seven-l3", "c6", 6),
        ("other/v1.3/seven-l3", "c6", 6),
        ("other/v1.4/seven-l3", "c6", 6),
        ("other/v1.4.1/seven-l3", "c6", 6),
        ("other/master/seven-l3", "c6", 6),
    ];
    for (name, snapshot, checkpoint) in trees {
        let (path, json) = tree(name);
        let snapshot = path.join(snapshot);
        for lost in 0_u32..16 {
            let copy = scratch_copy(&snapshot);
            for node in (0..4).filter(|node| lost >> node & 1 == 1) {
                fs::remove_dir_all(copy.path().join(format!("local/node{node}"))).unwrap();
            }
            let result = restore_all(copy.path(), &snapshot, topology(&json), checkpoint);
            assert_eq!(result.is_ok(), lost.count_ones() <= 2, "{name} {lost:04b}: {result:?}");
            if let Ok(sources) = result {
                let solved = sources.iter().filter(|source| **source == RestoreSource::ReedSolomon).count();
                assert_eq!(solved, lost.count_ones() as usize);
            }
        }
    }
}

#[test]
fn every_kernel_computes_the_parity_that_fti_wrote() {
    let mut compared = 0;
    for (path, json) in trees() {
        let topology = topology(&json);
        for snapshot in json["snapshots"].as_object().unwrap().keys() {
            let survivors = Survivors::scan(&[&path.join(snapshot)], None).unwrap();
            for file in survivors.files.iter().filter(|file| file.name.role == FileRole::Parity) {
                let (id, rank) = (file.name.checkpoint.unwrap(), file.name.rank);
                let group = topology.group_of(rank).unwrap();
                let place = group.iter().position(|member| *member == rank).unwrap();
                let own = |rank: &u32| Some(survivors.of(id, FileRole::Rank, *rank).next()?.path.as_path());
                let Some(data) = group.iter().map(own).collect::<Option<Vec<&Path>>>() else { continue };
                let found = inspect(Input::open(&file.path).unwrap()).unwrap();
                // Those of another mode of FTI have no metadata.
                let FtiFile::Parity(parity) = found else { continue };
                // The last byte of an odd length is not the same in each version of FTI: see `group_check`.
                let length = usize::try_from(parity.data_bytes()).unwrap() & !1;
                let expected = &fs::read(&file.path).unwrap()[..length];
                for kernel in Kernel::usable() {
                    let mut computed = vec![0; length];
                    let sum = Combination::of_group(&data, place, &parity).unwrap();
                    sum.with_kernel(kernel).read(0, &mut computed).unwrap();
                    assert!(computed == expected, "{:?} {kernel:?}", file.path);
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn group_check_accepts_real_groups_and_finds_changed_copy_or_parity() {
    let mut rows = 0;
    for (path, json) in trees() {
        for (snapshot, content) in json["snapshots"].as_object().unwrap() {
            let has = |role: &str| content["files"].as_object().unwrap().values().any(|file| file["role"] == role);
            if !has("Reed-Solomon parity") && !has("partner copy") {
                continue;
            }
            let topology = topology(&json);
            let survivors = Survivors::scan(&[&path.join(snapshot)], None).unwrap();
            for rank in topology.checkpointing() {
                for checkpoint in survivors.checkpoints() {
                    let group = topology.group_of(rank).unwrap();
                    let check = group_check::check(&survivors, &group, checkpoint).unwrap();
                    assert!(check.is_intact(), "{path:?} {snapshot}: {check:?}");
                    rows += usize::from(check.checked_bytes > 0);
                }
            }
        }
    }
    assert!(rows > 100, "{rows}");
    for (name, file) in [("v1.1/seven-l2", "Ckpt6-Pcof1.fti"), ("v1.6/seven-l3", "Ckpt6-RSed1.fti")] {
        let (path, json) = tree(name);
        let copy = scratch_copy(&path.join("c6"));
        flip(&files_below(copy.path()).into_iter().find(|path| path.ends_with(file)).unwrap());
        let survivors = Survivors::scan(&[copy.path()], None).unwrap();
        let check = group_check::check(&survivors, &topology(&json).group_of(0).unwrap(), 6).unwrap();
        assert_eq!(check.damages.len(), 1, "{check:?}");
        assert!(check.damages[0].place.ends_with(file) && check.damages[0].offset.is_some());
    }
}

#[test]
fn failed_restoration_names_missing_files() {
    let (path, json) = tree("v1.1/seven-l3");
    let copy = scratch_copy(&path.join("c6"));
    for node in 0..3 {
        fs::remove_dir_all(copy.path().join(format!("local/node{node}"))).unwrap();
    }
    let why = restore_all(copy.path(), &path.join("c6"), topology(&json), 6).unwrap_err();
    assert!(
        why.contains("Ckpt6-Rank0.fti") && why.contains("2 intact files and parities") && why.contains("4 needed"),
        "{why}"
    );
}

#[test]
fn ignores_bytes_after_end_of_surviving_file() {
    let (path, json) = tree("v1.1/seven-l3");
    let copy = scratch_copy(&path.join("c6"));
    fs::remove_dir_all(copy.path().join("local/node3")).unwrap();
    let survivor = files_below(copy.path()).into_iter().find(|path| path.ends_with("Ckpt6-Rank0.fti")).unwrap();
    let mut bytes = fs::read(&survivor).unwrap();
    bytes.extend([7; 64]);
    fs::write(&survivor, bytes).unwrap();
    let survivors = Survivors::scan(&[copy.path()], None).unwrap();
    let directory = fast_directory();
    let to = Destination::new(directory.path(), false).unwrap();
    let group = topology(&json).group_of(3).unwrap();
    assert_eq!(restore(&survivors, &group, 6, 3, &to, &mut |_, _| {}).unwrap(), RestoreSource::ReedSolomon);
    let name = "Ckpt6-Rank3.fti";
    assert!(fs::read(directory.path().join(name)).unwrap() == original(&path.join("c6"), name));
}
