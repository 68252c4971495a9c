//! Prefix directories that other users have changed at random: links, pipes, files and directories of theirs in the
//! place of anything, renamed and exchanged names, hard links. Every command that works on a prefix is run on them:
//! nothing outside the prefix is touched, nothing hangs, and what cannot be done is an error.
//!
//! `HOLDFAST_TEST_EXCHANGES` sets the number of prefixes (50).

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_testkit::{Dice, files_below};
use rustix::fs::{CWD, Mode, RenameFlags, mkfifoat, renameat_with};
use rustix::process::geteuid;

use crate::exchanged::{Seen, copy_tree, rounds, seen};
use crate::job::Job;
use crate::pfs;
use crate::world::{OTHER_USER, World};

/// No command needs so long.
const HUNG: Duration = Duration::from_secs(60);

/// Everything below a directory that others can reach, itself not included, without following links.
fn entries_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        found.push(entry.path());
        // What is below a private directory only the user changes.
        let is_open = || entry.metadata().is_ok_and(|found| found.permissions().mode() & 0o077 != 0);
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_open() {
            found.extend(entries_below(&entry.path()));
        }
    }
    found.sort();
    found
}

fn remove(path: &Path) {
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
}

/// One change by another user; what it was, for messages.
fn change(dice: &mut Dice, prefix: &Path, private: &Path) -> String {
    let entries = entries_below(prefix);
    let mut any = || entries[usize::try_from(dice.below(entries.len() as u64)).unwrap()].clone();
    let (one, other) = (any(), any());
    let file = files_below(private).swap_remove(usize::try_from(dice.below(3)).unwrap());
    let target = match dice.below(4) {
        0 => private.to_owned(),
        1 => private.join("below"),
        2 => file.clone(),
        _ => other.clone(),
    };
    let what = match dice.below(8) {
        0 | 1 => {
            remove(&one);
            let _ = symlink(&target, &one);
            format!("link to {}", target.display())
        }
        2 => {
            remove(&one);
            let _ = mkfifoat(CWD, &one, Mode::from_raw_mode(0o666));
            "pipe".to_owned()
        }
        3 => {
            let _ = renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE);
            format!("exchanged with {}", other.display())
        }
        4 => {
            let name = [".hf-1-1-1-1.tmp", ".hf-trash-0", "scr.current", "index.scr", "out"][dice.below(5) as usize];
            remove(&prefix.join(name));
            let _ = fs::rename(&one, prefix.join(name));
            format!("renamed to {name}")
        }
        5 => {
            remove(&one);
            let _ = fs::hard_link(&file, &one);
            format!("another name of {}", file.display())
        }
        6 => {
            if geteuid().is_root() {
                let _ = lchown(&one, Some(OTHER_USER), Some(OTHER_USER));
            }
            "given away".to_owned()
        }
        _ => {
            remove(&one);
            "removed".to_owned()
        }
    };
    format!("{}: {what}", one.display())
}

/// Runs a command to its end; what it printed.
fn ended(mut command: Command, output: &Path, changes: &[String]) -> String {
    let to = fs::File::create(output).unwrap();
    let mut child = command.stdin(Stdio::null()).stdout(to.try_clone().unwrap()).stderr(to).spawn().unwrap();
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begun.elapsed() > HUNG => {
                let _ = child.kill();
                panic!("{command:?} hangs after {changes:#?}");
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let printed = String::from_utf8_lossy(&fs::read(output).unwrap()).into_owned();
    let context = || format!("{command:?} after {changes:#?}: {status}: {printed}");
    let code = status.code().unwrap_or_else(|| panic!("{}", context()));
    assert!([0, 1, 64, 65, 69, 73, 75, 78].contains(&code) && !printed.contains("panicked"), "{}", context());
    assert!(code == 0 || !printed.trim().is_empty(), "it failed silently: {}", context());
    printed
}

#[test]
fn no_command_touches_anything_outside_a_prefix_that_others_have_changed() {
    if !geteuid().is_root() {
        println!("without root, nothing is given to another user");
    }
    let world = World::unchecked();
    Job::new(&world, 0).flush("{every: 1}").run(0);
    let (prefix, pristine, private) = (world.prefix(), world.path("pristine"), world.path("private"));
    let newest = pfs::directory_of(&prefix, 8).unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let older = pfs::directory_of(&prefix, 4).unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let spec = world.path("job.yaml").display().to_string();
    copy_tree(&prefix, &pristine);
    fs::create_dir_all(private.join("below")).unwrap();
    for name in ["run.sh", "below/summary.scr", "below/rank_0.ckpt"] {
        fs::write(private.join(name), "of the user").unwrap();
    }
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    // The number of links of a file, and with it its last field, changes when the attacker links it.
    let content = |seen: Seen| seen.into_iter().map(|(path, facts)| (path, facts[..5].to_vec())).collect::<Vec<_>>();
    let before = content(seen(&private));
    let commands: [&[&str]; 14] = [
        &["status", "--prefix", "PREFIX"],
        &["index", "list", "--prefix", "PREFIX"],
        &["verify", "prefix", "PREFIX"],
        &["index", "add", "--rescan", &newest, "--prefix", "PREFIX"],
        &["index", "add", "--copy", &older, "--prefix", "PREFIX"],
        &["index", "place", "--replace", &newest, "--prefix", "PREFIX"],
        &["index", "current", &older, "--prefix", "PREFIX"],
        &["drain", "--prefix", "PREFIX"],
        &["run", "--again", &spec],
        &["index", "drop", &older, "--prefix", "PREFIX"],
        &["index", "add", &older, "--prefix", "PREFIX"],
        &["index", "current", "--unset", "--prefix", "PREFIX"],
        &["index", "delete", "--yes", &newest, "--prefix", "PREFIX"],
        &["index", "prune", "--yes", "--keep", "1", "--incomplete", "--failed", "--prefix", "PREFIX"],
    ];
    for seed in 1..=rounds() {
        remove(&prefix);
        copy_tree(&pristine, &prefix);
        let mut dice = Dice(seed);
        let count = 1 + dice.below(6);
        let mut changes: Vec<String> = (0..count).map(|_| change(&mut dice, &prefix, &private)).collect();
        changes.insert(0, format!("seed {seed}"));
        for words in commands {
            // A job takes seconds.
            if words[0] == "run" && seed % 10 != 0 {
                continue;
            }
            let path = prefix.display().to_string();
            let words = words.iter().map(|word| if *word == "PREFIX" { path.as_str() } else { word });
            let words: Vec<&str> = words.collect();
            let printed = ended(world.holdfast(&words), &world.path("printed"), &changes);
            assert_eq!(content(seen(&private)), before, "{words:?} after {changes:#?}: {printed}");
        }
    }
}
