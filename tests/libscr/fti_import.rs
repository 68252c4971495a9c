//! Checkpoints that FTI itself has written, imported into a prefix directory, and recovered by a program of this
//! libfti.

use std::fs::{self, File};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use holdfast_testkit::{fixtures, scratch_copy};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::world::{FTI, Link, World, exits_with, holdfast, in_repository, output, program_source, quiet};

/// `holdfast fti import` of a directory into the prefix directory of the world's job.
fn import(world: &World, from: &Path, more: &[&str]) -> Output {
    let arguments = ["fti", "import", from.to_str().unwrap(), "--prefix", "prefix"];
    holdfast(&[&arguments, more].concat(), world.path())
}

fn json(printed: &Output) -> Value {
    serde_json::from_slice(&printed.stdout).unwrap_or_else(|error| panic!("{error}: {}", output(printed)))
}

/// Runs a program of four ranks, and compares what it recovered with what FTI's program had: rank `n` of the job is
/// the `n`-th of `ranks` in the names of FTI's files.
fn recovers(world: &World, tree: &str, snapshot: &str, ranks: [u32; 4]) {
    let without_mpi = format!("-I{}", in_repository("tests/libscr/programs/mpi_stub").display());
    let source = program_source("fti_imported.c");
    let program = world.compile_for(FTI, &["cc", &without_mpi], &[&source], Link::Shared);
    let spec = format!(
        "job: imported\nprefix: ./prefix\nallocation: {{manager: local, nodes: 2}}\n\
         run: {{nodes: 2, ranks_per_node: 2, command: [{program:?}, {:?}]}}\n\
         checkpoint: {{source: variables}}\nrelaunch: {{attempts: 0}}\n",
        world.results()
    );
    fs::write(world.path().join("job.yaml"), spec).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    run.args(["run", "job.yaml"]).current_dir(world.path()).env("TMPDIR", world.path().join("tmp"));
    exits_with(&quiet(&mut run).output().unwrap(), 0);
    let list = fs::read(fixtures("fti").join(tree).join("expected.json")).unwrap();
    let list: Value = serde_json::from_slice(&list).unwrap();
    let files = list["snapshots"][snapshot]["files"].as_object().unwrap();
    for (rank, from) in (0..).zip(ranks) {
        assert_eq!(world.result(rank), "1", "rank {rank} restarted");
        let named = |name: &str| name.ends_with(&format!("-Rank{from}.fti"));
        let (_, expected) = files.iter().find(|(name, _)| named(name)).unwrap();
        let variables = expected["variables"].as_object().unwrap();
        assert!(!variables.is_empty());
        for (id, variable) in variables {
            let bytes = fs::read(world.path().join(format!("results/var.{rank}.{id}"))).unwrap();
            let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digest, variable["sha256"].as_str().unwrap(), "variable {id} of rank {rank}");
        }
    }
}

fn prepared() -> World {
    let world = World::new();
    fs::create_dir(world.path().join("prefix")).unwrap();
    world
}

#[test]
fn checkpoint_of_fti_1_1_without_two_of_its_nodes_is_imported_and_recovered() {
    let (world, tree) = (prepared(), scratch_copy(&fixtures("fti").join("v1.1/seven-l3/c6")));
    for node in ["node1", "node2"] {
        fs::remove_dir_all(tree.path().join("local").join(node)).unwrap();
    }
    let tested = import(&world, tree.path(), &["--dry-run"]);
    assert!(exits_with(&tested, 0).contains("checkpoint 6 of 4 ranks: can be imported"), "{}", output(&tested));
    assert_eq!(fs::read_dir(world.path().join("prefix")).unwrap().count(), 0, "a dry run writes nothing");

    let ran = import(&world, tree.path(), &["--json"]);
    let document = (exits_with(&ran, 0), json(&ran)).1;
    let sources: Vec<&str> =
        document["files"].as_array().unwrap().iter().map(|file| file["source"].as_str().unwrap()).collect();
    assert_eq!(sources, ["copy", "reed-solomon", "reed-solomon", "copy"], "{document}");
    let entries = world.indexed();
    assert!(entries.len() == 1 && entries[0]["complete"] == true, "{entries:?}");
    assert_eq!(entries[0]["directory"], document["directory"]);
    recovers(&world, "v1.1/seven-l3", "c6", [0, 1, 2, 3]);
}

/// FTI itself refuses these files: a variable has shrunk.
#[test]
fn checkpoint_of_fti_1_6_that_it_refuses_itself_is_imported_and_recovered() {
    let world = prepared();
    let ran = import(&world, &fixtures("fti").join("v1.6/seven-l3/c7"), &[]);
    let printed = exits_with(&ran, 0);
    assert_eq!(printed.matches("its checksum, which FTI refuses, was corrected").count(), 4, "{printed}");
    assert!(printed.contains("the next run of 4 ranks with `checkpoint: {source: variables}`"), "{printed}");
    recovers(&world, "v1.6/seven-l3", "c7", [0, 1, 2, 3]);
}

#[test]
fn ranks_of_a_checkpoint_with_heads_are_numbered_without_them() {
    let world = prepared();
    let ran = import(&world, &fixtures("fti").join("v1.1/head/hd-l4"), &[]);
    assert!(exits_with(&ran, 0).contains("Ckpt3-Rank5.fti: is rank 2 without heads"), "{}", output(&ran));
    recovers(&world, "v1.1/head", "hd-l4", [1, 3, 5, 7]);
}

#[test]
fn what_cannot_be_imported_is_refused_and_nothing_is_left_of_it() {
    let (world, trees) = (prepared(), fixtures("fti"));
    let lost = scratch_copy(&trees.join("v1.1/seven-l3/c6"));
    for node in ["node1", "node2", "node3"] {
        fs::remove_dir_all(lost.path().join("local").join(node)).unwrap();
    }
    let global = trees.join("v1.6/seven-l4/c5/global");
    let lost_ranks = "the files of 3 ranks are lost: nothing is imported";
    for (from, more, code, reason) in [
        (lost.path().to_owned(), &[][..], 65, lost_ranks),
        (trees.join("v1.1/posix/px-l3"), &[], 65, "no file of the checkpoint is an FTI-FF file"),
        (global.clone(), &[], 64, "the number of ranks is unknown"),
        (global.clone(), &["--ranks", "0"], 64, "0 ranks"),
        (global.clone(), &["--ranks", "5"], 65, "the files of 1 ranks are lost"),
        (trees.join("v1.1/seven-l3/c6"), &["--ranks", "3"], 64, "4 ranks wrote it"),
        (trees.join("v1.1/seven-l3/c6"), &["--checkpoint", "5"], 69, "there is no checkpoint 5"),
        (world.path().join("results"), &[], 69, "no FTI checkpoint in these directories"),
    ] {
        let printed = exits_with(&import(&world, &from, more), code);
        assert!(printed.contains(reason), "{reason}: {printed}");
        let left: Vec<_> = fs::read_dir(world.path().join("prefix")).unwrap().flatten().collect();
        assert!(!left.iter().any(|entry| entry.file_name().to_string_lossy().starts_with("scr.")), "{left:?}");
        assert!(scratch_directories(&world.path().join("prefix")).is_empty());
    }
    exits_with(&import(&world, &global, &["--ranks", "4"]), 0);
    // The next run would not restart from its own checkpoint.
    let printed = exits_with(&import(&world, &global, &["--ranks", "4"]), 69);
    assert!(printed.contains("the next run restarts from scr.") && printed.contains("--current"), "{printed}");
    let ran = import(&world, &global, &["--ranks", "4", "--current", "--json"]);
    exits_with(&ran, 0);
    let current = holdfast(&["index", "current", "--prefix", "prefix"], world.path());
    assert_eq!(exits_with(&current, 0).trim(), json(&ran)["directory"].as_str().unwrap());
}

/// The directories of commands below a prefix directory.
fn scratch_directories(prefix: &Path) -> Vec<PathBuf> {
    let trash = prefix.join(format!(".hf-trash-{}", rustix::process::geteuid().as_raw()));
    let entries = fs::read_dir(trash).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_dir()).collect()
}

#[test]
fn what_a_killed_import_left_is_removed_by_the_next_one_and_nothing_else() {
    let (world, tree) = (prepared(), fixtures("fti").join("v1.1/seven-l3/c6"));
    let prefix = world.path().join("prefix");
    // With the lock of the index, it cannot end: it is killed while its directory is there.
    let state = prefix.join(".holdfast");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    let lock = File::options().create(true).append(true).mode(0o600).open(state.join("index.lock")).unwrap();
    lock.lock().unwrap();
    let mut killed = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    killed.args(["fti", "import"]).arg(&tree).args(["--prefix", "prefix"]).current_dir(world.path());
    let mut killed = quiet(&mut killed).spawn().unwrap();
    let left = loop {
        if let Some(left) = scratch_directories(&prefix).pop() {
            break left;
        }
        assert!(killed.try_wait().unwrap().is_none(), "it ended although the index is locked");
        std::thread::sleep(std::time::Duration::from_millis(2));
    };
    killed.kill().unwrap();
    killed.wait().unwrap();
    drop(lock);
    assert_eq!(scratch_directories(&prefix), std::slice::from_ref(&left));

    // A process that runs, and directories that anyone may have made.
    let name = left.file_name().unwrap().to_str().unwrap();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let start = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().to_owned();
    let machine = name.split('-').nth(1).unwrap();
    let of_this_process = left.with_file_name(format!(".hf-{machine}-{}-{start}-0.tmp", std::process::id()));
    let others = [of_this_process, prefix.join(name), prefix.join(".holdfast-import.a1b2c3")];
    for other in &others {
        fs::create_dir(other).unwrap();
        fs::write(other.join("Ckpt6-Rank0.fti"), "").unwrap();
    }
    exits_with(&import(&world, &tree, &[]), 0);
    assert!(!left.exists() && others.iter().all(|other| other.join("Ckpt6-Rank0.fti").exists()));
    assert_eq!(scratch_directories(&prefix), [others[0].clone()], "its own directory is removed at the end");
}

#[test]
fn index_add_of_a_directory_of_fti_names_the_command_that_imports_it() {
    let world = prepared();
    let (tree, below) = (fixtures("fti").join("v1.1/seven-l3/c6"), world.path().join("prefix/of-fti"));
    assert!(Command::new("cp").arg("-r").args([&tree, &below]).status().unwrap().success());
    for name in ["of-fti", tree.to_str().unwrap(), below.to_str().unwrap()] {
        let printed = exits_with(&holdfast(&["index", "add", name, "--prefix", "prefix"], world.path()), 65);
        assert!(printed.contains("it has checkpoint files of FTI"), "{printed}");
        assert!(printed.contains("`holdfast fti import ") && printed.contains("--prefix prefix`"), "{printed}");
    }
    exits_with(&import(&world, &below, &[]), 0);
}
