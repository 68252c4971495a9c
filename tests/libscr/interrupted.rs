//! Checkpoints of variables that are interrupted at every operation on files: the newest complete one is recovered. And
//! variables that change their sizes: the content is compared after each recovery, not only its hashes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::harness::ignore;
use tempfile::TempDir;

use crate::world::{Link, VARIABLES, World, exits_with, program_source};

/// Bytes of the variables in `programs/interrupted.c`.
const VARIABLES_BYTES: u64 = 40_000 * 8 + 8;

/// A checkpoint that was not interrupted, after all that were.
struct Undisturbed {
    operations: u64,
    renames: u64,
    written: u64,
}

/// Runs the job; the program itself compares the content after each launch.
fn interrupted_at_every_operation(world: &World, layout: &str) -> Undisturbed {
    let program = world.compile_for(VARIABLES, &["cc"], &[&program_source("interrupted.c")], Link::Shared);
    let source = format!("source: variables, variables: {{layout: {layout}}}");
    let command = [program.to_str().unwrap(), &world.results()];
    exits_with(&world.run_on(3, "", &command, &source, "", "relaunch: {attempts: 100}"), 0);
    let result = world.result(3);
    let numbers: Vec<u64> = result.split(' ').map(|number| number.parse().unwrap()).collect();
    let [step, operations, renames, written] = numbers[..] else { panic!("{result}") };
    let launches: u64 = fs::read_to_string(world.path().join("results/kill")).unwrap().trim().parse().unwrap();
    assert_eq!(launches, operations + 1, "one launch for each operation, and one that is not interrupted");
    assert_eq!(step, 2 * launches + 1, "each interrupted launch continued from its second checkpoint");
    Undisturbed { operations, renames, written }
}

/// True if files can be cloned in this directory.
fn clones(directory: &Path) -> bool {
    let (original, copy) = (directory.join("original"), directory.join("copy"));
    fs::write(&original, "content").unwrap();
    let cloned = Command::new("cp").arg("--reflink=always").args([&original, &copy]).output().unwrap();
    cloned.status.success()
}

#[test]
fn kill_at_any_operation_of_a_write_in_place_leaves_the_newest_checkpoint() {
    for layout in ["document", "chunked"] {
        let world = World::new();
        if clones(world.path()) {
            ignore("the file system of the temporary directory clones files: nothing is written in place");
        }
        let undisturbed = interrupted_at_every_operation(&world, layout);
        assert_eq!(undisturbed.renames, 1, "{layout}: the evicted file is written over");
        assert!(undisturbed.operations > 10, "{layout}: {}", undisturbed.operations);
        assert!(undisturbed.written * 3 < VARIABLES_BYTES * 2, "{layout}: {} bytes", undisturbed.written);
    }
}

#[test]
fn kill_at_any_operation_of_a_write_to_a_clone_leaves_the_newest_checkpoint() {
    let mounted = CloningFileSystem::mount();
    let world = World::with_nodes_in(&mounted.directory());
    let undisturbed = interrupted_at_every_operation(&world, "chunked");
    assert_eq!(undisturbed.renames, 0, "no file is written over");
    assert!(undisturbed.written * 3 < VARIABLES_BYTES * 2, "{} bytes", undisturbed.written);
}

/// Runs the job, whose program compares the content after each recovery.
fn has_its_content_after_each_launch(world: &World, layout: &str) {
    let program = world.compile_for(VARIABLES, &["cc"], &[&program_source("changing.c")], Link::Shared);
    let source =
        format!("source: variables, variables: {{layout: {layout}}}, redundancy: [{{scheme: xor, set_size: 3}}]");
    let command = [program.to_str().unwrap(), "7", &world.results()];
    exits_with(&world.run_on(3, "", &command, &source, "", "relaunch: {attempts: 10}"), 0);
    world.assert_results(|_| "28 6".to_owned());
}

#[test]
fn variables_that_grow_shrink_appear_and_disappear_have_their_content_when_written_in_place() {
    for layout in ["document", "chunked"] {
        has_its_content_after_each_launch(&World::new(), layout);
    }
}

#[test]
fn variables_that_grow_shrink_appear_and_disappear_have_their_content_when_cloned() {
    let mounted = CloningFileSystem::mount();
    for layout in ["document", "chunked"] {
        has_its_content_after_each_launch(&World::with_nodes_in(&mounted.directory()), layout);
    }
}

/// A file system in a file that can clone files.
struct CloningFileSystem {
    scratch: TempDir,
}

impl CloningFileSystem {
    /// Ignores the test where that is not possible.
    fn mount() -> CloningFileSystem {
        let made = CloningFileSystem { scratch: tempfile::tempdir().unwrap() };
        let image = made.scratch.path().join("image");
        fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
        fs::create_dir(made.directory()).unwrap();
        let succeeds = |program: &str, options: &[&str], paths: &[&Path]| {
            let ran = Command::new(program).args(options).args(paths).output();
            ran.is_ok_and(|ran| ran.status.success())
        };
        let formatted = succeeds("mkfs.xfs", &["-q", "-m", "reflink=1"], &[&image])
            || succeeds("mkfs.btrfs", &["-q", "-f"], &[&image]);
        if !formatted {
            ignore("neither mkfs.xfs nor mkfs.btrfs is installed");
        }
        if !succeeds("mount", &["-o", "loop"], &[&image, &made.directory()]) {
            ignore("a file system in a file cannot be mounted: not root, or no loop devices");
        }
        assert!(clones(&made.directory()), "the file system that was made cannot clone files");
        made
    }

    fn directory(&self) -> PathBuf {
        self.scratch.path().join("mounted")
    }
}

impl Drop for CloningFileSystem {
    fn drop(&mut self) {
        // Fails if it is not mounted.
        let _ = Command::new("umount").arg("--lazy").arg(self.directory()).output();
    }
}
