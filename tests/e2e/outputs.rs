//! Commands that write files replace regular files only: a device, a pipe, a socket, a link or a directory at the path
//! of an output is refused and stays as it is.

use std::fs::{self, FileType};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::harness::ignore;
use rustix::fs::{CWD, Mode, makedev, mkfifoat, mknodat};
use rustix::process::geteuid;

use crate::world::World;

const KINDS: [&str; 5] = ["named pipe", "socket", "symbolic link", "directory", "device"];

/// Makes something of this kind.
fn make(kind: &str, path: &Path) {
    match kind {
        "named pipe" => mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap(),
        "socket" => drop(UnixListener::bind(path).unwrap()),
        "symbolic link" => {
            fs::write(path.with_extension("target"), "kept").unwrap();
            std::os::unix::fs::symlink(path.with_extension("target"), path).unwrap();
        }
        "directory" => fs::create_dir(path).unwrap(),
        // As /dev/null.
        "device" => {
            let kind = rustix::fs::FileType::CharacterDevice;
            mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, makedev(1, 3)).unwrap();
        }
        other => panic!("{other}"),
    }
}

fn kind_of(path: &Path) -> FileType {
    fs::symlink_metadata(path).unwrap().file_type()
}

/// The commands that write the file `path`, each with the one that makes its input, if it needs one.
fn commands(world: &World, path: &Path) -> Vec<Command> {
    let sion = holdfast_testkit::fixtures("sion").join("ser4_fs512");
    let container = sion.join("ser4_fs512.sion");
    let tasks = world.path("tasks");
    if !tasks.exists() {
        let split = world.holdfast(["sion".as_ref(), "split".as_ref(), container.as_os_str()]);
        world.run(with(split, &["--to".as_ref(), tasks.as_path()])).with_code(0);
    }
    let fti = holdfast_testkit::fixtures("fti").join("v1.1/seven-l2/c6");
    let (directory, name) = (path.parent().unwrap(), path.file_name().unwrap().to_str().unwrap());
    let mut commands = vec![
        with(world.holdfast(["example", "heat-init", "--size", "8x8"]), &[path]),
        with(
            alone(world.holdfast(["example", "heat", "--steps", "1", "--size", "8x8", "--step-delay", "0"])),
            &["--output".as_ref(), path],
        ),
        with(world.holdfast(["sion", "join", "--force"]), &[&tasks, path]),
        with(world.holdfast(["sion", "join", "--force", "--dry-run"]), &[&tasks, path]),
        with(world.holdfast(["sion", "defrag", "--force"]), &[&container, path]),
    ];
    // These commands choose the names of their files.
    if name == "t_00000" {
        for words in [["sion", "split", "--force"], ["extract", "--force", "--quiet"]] {
            commands.push(with(world.holdfast(words), &[&container, "--to".as_ref(), directory]));
        }
    }
    if name == "Ckpt6-Rank2.fti" {
        let restore = world.holdfast(["fti", "restore", "--force", "--rank", "2", "--to"]);
        commands.push(with(restore, &[directory, &fti]));
    }
    commands
}

fn with(mut command: Command, paths: &[&Path]) -> Command {
    command.args(paths);
    command
}

fn alone(mut command: Command) -> Command {
    command.env("SCR_ENABLE", "0");
    command
}

fn outputs(world: &World, kind: &str) -> Vec<PathBuf> {
    let directory = world.path(&format!("outputs of kind {kind}"));
    fs::create_dir(&directory).unwrap();
    ["output", "t_00000", "Ckpt6-Rank2.fti"].map(|name| directory.join(name)).to_vec()
}

fn assert_nothing_of_this_kind_is_replaced(kind: &str) {
    let world = World::unchecked();
    for path in outputs(&world, kind) {
        make(kind, &path);
        let before = kind_of(&path);
        for command in commands(&world, &path) {
            let line = format!("{command:?}");
            let ran = world.run(command);
            let printed = ran.out.clone() + &ran.err;
            assert!(!ran.status.success(), "{line}");
            let expected = format!("will not replace {}: it is a {kind}", path.display());
            assert!(printed.contains(&expected), "{line}: {printed}");
            assert_eq!(kind_of(&path), before, "{line}");
        }
        if kind == "symbolic link" {
            assert_eq!(fs::read(path.with_extension("target")).unwrap(), b"kept");
        }
        assert!(!leftovers(path.parent().unwrap()), "temporary files are removed");
    }
}

fn leftovers(directory: &Path) -> bool {
    let hidden = |name: &str| name.starts_with(".hf-") || name.ends_with(".partial");
    fs::read_dir(directory).unwrap().any(|entry| hidden(entry.unwrap().file_name().to_str().unwrap()))
}

#[test]
fn outputs_do_not_replace_pipes_sockets_links_and_directories() {
    for kind in KINDS.iter().filter(|kind| **kind != "device") {
        assert_nothing_of_this_kind_is_replaced(kind);
    }
}

#[test]
fn outputs_do_not_replace_devices() {
    if !geteuid().is_root() {
        ignore("making a device needs root");
    }
    assert_nothing_of_this_kind_is_replaced("device");
}

#[test]
fn outputs_replace_regular_files_with_the_mode_that_the_umask_leaves() {
    use std::os::unix::fs::PermissionsExt as _;
    for (mask, mode) in [("027", 0o640), ("077", 0o600), ("007", 0o660)] {
        let world = World::unchecked();
        let path = world.write("output", "old");
        for command in commands(&world, &path) {
            let mut shell = world.command("sh");
            shell.args(["-c", &format!("umask {mask}; exec \"$@\""), "sh"]).arg(command.get_program());
            shell.args(command.get_args());
            for (name, value) in command.get_envs().filter_map(|(name, value)| Some((name, value?))) {
                shell.env(name, value);
            }
            let line = format!("{command:?}");
            if line.contains("--dry-run") {
                continue;
            }
            fs::write(&path, "old").unwrap();
            world.run(shell).with_code(0);
            assert_ne!(fs::read(&path).unwrap(), b"old", "{line}");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode, "{line}");
        }
    }
}

#[test(unchecked)]
fn the_current_link_replaces_only_a_link(world: &World) {
    let prefix = world.prefix();
    fs::create_dir_all(prefix.join("scr.1")).unwrap();
    fs::write(prefix.join("scr.current"), "kept").unwrap();
    let ran = world.run(world.holdfast(["index", "current", "--prefix", "pfs", "scr.1"]));
    assert!(!ran.status.success() && ran.err.contains("it is not a symbolic link"), "{}", ran.err);
    assert_eq!(fs::read(prefix.join("scr.current")).unwrap(), b"kept");
}
