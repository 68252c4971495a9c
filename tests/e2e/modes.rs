//! The modes of what a job makes: private on the nodes and in `.holdfast`; on the prefix directory by the umask,
//! because the members of a project share restarts.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::job::Job;
use crate::pfs;
use crate::world::World;

/// Everything below a directory, links excepted.
fn all_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        if !kind.is_symlink() {
            found.push(path);
        }
    }
    found
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[track_caller]
fn assert_private(path: &Path) {
    let kind = fs::symlink_metadata(path).unwrap().file_type();
    let allowed: &[u32] = if kind.is_dir() { &[0o700] } else { &[0o600, 0o400, 0o700] };
    assert!(kind.is_dir() || kind.is_file() || kind.is_socket(), "{}", path.display());
    assert!(allowed.contains(&mode(path)), "{} has mode {:o}", path.display(), mode(path));
}

#[test(unchecked)]
fn what_a_job_makes_on_nodes_and_in_its_own_directory_is_private(world: &World) {
    let job = Job::new(world, 0).flush("{every: 2}").holding_after(4);
    let mut command = world.command("sh");
    // The widest umask.
    command.args(["-c", "umask 000; exec \"$0\" run \"$1\"", env!("CARGO_BIN_EXE_holdfast")]).arg(job.spec());
    let mut running = world.start(command);
    running.sees_checkpoint(4);
    // Made by the application.
    let by_rank = |path: &PathBuf| path.to_string_lossy().ends_with(".ckpt");
    let below = |directory: &Path| all_below(directory).into_iter().filter(|path| !by_rank(path)).collect::<Vec<_>>();
    let (nodes, own) = (below(&world.node_root("node1")), below(&world.prefix().join(".holdfast")));
    let has = |found: &[PathBuf], name: &str| found.iter().any(|path| path.ends_with(name));
    assert!(has(&nodes, "filemap_0.scrinfo") && has(&nodes, "agent.sock") && has(&nodes, "index.0"), "{nodes:?}");
    assert!(has(&own, "job.json") && has(&own, "events.jsonl") && has(&own, "index.lock"), "{own:?}");
    // The directories of virtual node and base are above those of the job.
    let job_s = |path: &&PathBuf| path.ancestors().any(|above| above.file_name().is_some_and(|it| it == "u"));
    nodes.iter().filter(job_s).chain(&own).for_each(|path| assert_private(path));
    // The application's own files have the mode that its umask leaves, in directories that nobody else may enter.
    let written: Vec<_> = all_below(&world.node_root("node1")).into_iter().filter(by_rank).collect();
    assert!(!written.is_empty() && written.iter().all(|path| mode(path) == 0o666), "{written:?}");
    job.finishes(running);
}

#[test]
fn checkpoints_and_their_index_on_the_prefix_follow_the_umask() {
    for (mask, of_directory, of_file) in [("027", 0o750, 0o640), ("077", 0o700, 0o600), ("007", 0o770, 0o660)] {
        let world = World::unchecked();
        // One lost node: its files are rebuilt on the prefix, or in cache, and then flushed.
        let job = Job::new(&world, 1).flush("{every: 2}").faults("{node: 2, after_checkpoint: 7}");
        let mut command = world.command("sh");
        let line = format!("umask {mask}; exec \"$0\" run \"$1\"");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_holdfast")]).arg(job.spec());
        world.run(command).with_code(0);
        job.assert_result();
        pfs::assert_current(&world.prefix(), 8);
        assert_eq!(mode(&world.prefix()), of_directory, "{mask}");
        let mut files = 0;
        for entry in fs::read_dir(world.prefix()).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with(".holdfast") {
                assert_eq!(mode(&path), 0o700);
                continue;
            }
            for path in all_below(&path) {
                let expected = if path.is_dir() { of_directory } else { of_file };
                assert_eq!(mode(&path), expected, "umask {mask}: {}", path.display());
                files += 1;
            }
        }
        assert!(files > 10, "{files}");
    }
}
