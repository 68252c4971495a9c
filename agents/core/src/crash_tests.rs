//! Files that are replaced, and those of the control directory, interrupted at every call.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use holdfast_model::{CheckpointId, HaltCondition, Locations, NodeName, Rank};

use crate::control::filemap::log::{self, FilemapLog};
use crate::control::filemap::{Filemap, FilemapChange, RankChange};
use crate::control::flush::FlushFile;
use crate::control::halt::HaltFile;
use crate::control::meta::Meta;
use crate::control::{nodes, transfer::TransferFile};
use crate::crash::{ALL_ERRORS, Subject, Tried};
use crate::durable::{self, CreationMode};
use crate::state_directory::StateDirectory;
use crate::{state_files, temporary};

/// Every file with its content; temporary ones count, because nothing may be left behind.
fn files(path: &Path) -> String {
    let below = holdfast_testkit::files_below(path).into_iter();
    let shown =
        below.map(|file| format!("{}: {:?}", file.display(), String::from_utf8_lossy(&fs::read(&file).unwrap())));
    shown.collect::<Vec<_>>().join("\n")
}

fn text<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

fn interrupted(
    (name, power): (&str, bool),
    prepare: &dyn Fn(&Path),
    work: &dyn Fn(&Path) -> Result<(), String>,
    check: &dyn Fn(&Path) -> Result<(), String>,
) -> Tried {
    let prepare = |path: &Path| {
        fs::create_dir(path).unwrap();
        prepare(path);
    };
    // As an agent and the orchestrator do when they start.
    let work = |path: &Path| {
        temporary::remove_abandoned_below(path).map_err(text)?;
        work(path)
    };
    Subject { name, prepare: &prepare, work: &work, check, result: &files, power, errors: ALL_ERRORS }.interrupt()
}

/// The content is one of these.
fn is_one_of(path: &Path, contents: &[&str]) -> Result<(), String> {
    let found = fs::read_to_string(path).map_err(text)?;
    contents.contains(&found.as_str()).then_some(()).ok_or(format!("{} has {found:?}", path.display()))
}

#[test]
fn crash_a_file_that_is_replaced_has_the_old_or_the_new_content() {
    let tried = interrupted(
        ("replaced file", true),
        &|path| fs::write(path.join("file"), "the old content").unwrap(),
        &|path| durable::replace(&path.join("file"), CreationMode::Umask, b"new").map_err(text),
        &|path| is_one_of(&path.join("file"), &["the old content", "new"]),
    );
    assert!(tried.losses > 5 && tried.errors > 20, "{tried:?}");
}

#[test]
fn crash_a_file_of_the_control_directory_has_the_old_or_the_new_content() {
    interrupted(
        ("replaced file, without a sync", false),
        &|path| fs::write(path.join("file"), "the old content").unwrap(),
        &|path| durable::replace_unsynced(&path.join("file"), b"new").map_err(text),
        &|path| is_one_of(&path.join("file"), &["the old content", "new"]),
    );
}

#[test]
fn crash_a_file_that_is_made_is_whole() {
    interrupted(
        ("new file", true),
        &|_| {},
        &|path| durable::create_new(&path.join("file"), b"content").map(drop).map_err(text),
        &|path| if path.join("file").exists() { is_one_of(&path.join("file"), &["content"]) } else { Ok(()) },
    );
}

#[test]
fn crash_a_state_file() {
    interrupted(
        ("state file", true),
        &|path| {
            StateDirectory::below(path).create().unwrap();
            state_files::replace(&StateDirectory::below(path).join("job.json"), b"{\"generation\":1}").unwrap();
        },
        &|path| {
            state_files::replace(&StateDirectory::below(path).join("job.json"), b"{\"generation\":2}").map_err(text)
        },
        &|path| {
            let file = StateDirectory::below(path).join("job.json");
            let found = state_files::read(&file, 1 << 20).map_err(text)?.ok_or("it is gone")?;
            match found.as_slice() {
                b"{\"generation\":1}" | b"{\"generation\":2}" => Ok(()),
                other => Err(String::from_utf8_lossy(other).into_owned()),
            }
        },
    );
}

#[test]
fn crash_a_state_directory_that_is_made() {
    interrupted(
        ("state directory", true),
        &|_| {},
        &|path| StateDirectory::below(path).create().map(drop).map_err(text),
        &|path| StateDirectory::below(path).open().map(drop).map_err(text),
    );
}

#[test]
fn crash_the_halt_file() {
    let file = |path: &Path| path.join("halt.scr");
    interrupted(
        ("halt file", false),
        &|path| HaltFile::update(&file(path), |halt| halt.set_number(HaltCondition::Seconds, 1200)).unwrap(),
        &|path| HaltFile::update(&file(path), |halt| halt.set_number(HaltCondition::CheckpointsLeft, 3)).map_err(text),
        &|path| {
            let halt = HaltFile::read(&file(path)).map_err(text)?.ok_or("it counts as absent")?;
            let (kept, new) = (halt.number(HaltCondition::Seconds), halt.number(HaltCondition::CheckpointsLeft));
            (kept == Some(1200) && [None, Some(3)].contains(&new)).then_some(()).ok_or(format!("{kept:?} {new:?}"))
        },
    );
}

#[test]
fn crash_the_nodes_file() {
    let file = |path: &Path| path.join("nodes.scrinfo");
    interrupted(
        ("nodes file", false),
        &|path| nodes::write(&file(path), 4).unwrap(),
        &|path| nodes::write(&file(path), 3).map_err(text),
        &|path| match nodes::read(&file(path)).map_err(text)? {
            Some(3 | 4) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
}

#[test]
fn crash_the_flush_file() {
    let file = |path: &Path| path.join("flush.scrinfo");
    let (id, cached) = (CheckpointId(7), Locations { cache: true, ..Locations::default() });
    interrupted(
        ("flush file", false),
        &|path| {
            let mut flush = FlushFile::new();
            flush.record(id, cached);
            flush.write(&file(path)).unwrap();
        },
        &|path| {
            let mut flush = FlushFile::read(&file(path)).map_err(text)?.unwrap_or_default();
            flush.record(id, Locations { pfs: true, ..cached });
            flush.write(&file(path)).map_err(text)
        },
        &|path| {
            let flush = FlushFile::read(&file(path)).map_err(text)?.ok_or("it is gone")?;
            flush.locations(id).filter(|found| found.cache).map(drop).ok_or_else(|| format!("{:?}", flush.tree()))
        },
    );
}

#[test]
fn crash_the_transfer_file() {
    let file = |path: &Path| path.join("transfer.scrinfo");
    interrupted(
        ("transfer file", false),
        &|path| TransferFile::update(&file(path), |transfer| transfer.request(&[], 1e6, 20.0)).unwrap(),
        &|path| TransferFile::update(&file(path), |transfer| transfer.request(&[], 2e6, 20.0)).map_err(text),
        &|path| {
            let transfer = TransferFile::read(&file(path)).map_err(text)?.ok_or("it counts as absent")?;
            let found = transfer.bandwidth();
            [Some(1e6), Some(2e6)].contains(&found).then_some(()).ok_or(format!("{found:?}"))
        },
    );
}

#[test]
fn crash_a_meta_file() {
    let meta =
        |complete: bool| Meta { complete, ..Meta::of_application("rank_1.ckpt", 4, CheckpointId(3), Rank(1), 4) };
    let file = |path: &Path| path.join("rank_1.ckpt");
    interrupted(
        ("meta file", true),
        &|path| meta(false).write(&file(path)).unwrap(),
        &|path| meta(true).write(&file(path)).map_err(text),
        &|path| Meta::read(&file(path)).map(drop).map_err(text),
    );
}

/// Changes that were acknowledged are there, whatever interrupts the next one.
#[test]
fn crash_the_log_of_a_filemap() {
    let paths = |path: &Path| (path.join("filemap_0.scrinfo"), path.join("log"));
    let change = |file: &str| FilemapChange::of_rank(CheckpointId(3), Rank(1), RankChange::AddFile(file.to_owned()));
    let add = move |path: &Path, file: &str, fold: bool| -> Result<(), String> {
        let (filemap, log) = paths(path);
        let (mut map, position) = log::read(&filemap, &log).map_err(text)?;
        let mut log = FilemapLog::new(log, position);
        let change = change(file);
        if !change.is_void(&map) {
            log.append(&change).map_err(text)?;
            change.apply(&mut map);
        }
        if fold { log.fold(&filemap, &map).map_err(text) } else { Ok(()) }
    };
    for fold in [false, true] {
        let read = |path: &Path| {
            let (filemap, log) = paths(path);
            log::read(&filemap, &log).map_err(text)
        };
        Subject {
            name: if fold { "filemap, folded log" } else { "filemap, log" },
            prepare: &|path| {
                fs::create_dir(path).unwrap();
                let partner =
                    FilemapChange::of_rank(CheckpointId(3), Rank(1), RankChange::SetPartner(NodeName::from("node3")));
                let (filemap, log) = paths(path);
                Filemap::new().write_unsynced(&filemap).unwrap();
                let (_, position) = log::read(&filemap, &log).unwrap();
                FilemapLog::new(log, position).append(&partner).unwrap();
                add(path, "/cache/a", false).unwrap();
            },
            work: &|path| {
                temporary::remove_abandoned_below(path).map_err(text)?;
                add(path, "/cache/b", fold)
            },
            check: &|path| {
                let (map, _) = read(path)?;
                let files: Vec<&str> = map.files(CheckpointId(3), Rank(1)).collect();
                let partner = map.partner(CheckpointId(3), Rank(1));
                let known = files.contains(&"/cache/a") && partner == Some(NodeName::from("node3"));
                known.then_some(()).ok_or(format!("{files:?} {partner:?}"))
            },
            // Records of the log that belong to an older filemap are ignored, until the next change removes them.
            result: &|path| {
                let names = fs::read_dir(path).unwrap().flatten().map(|entry| entry.file_name());
                format!("{:?} {:?}", read(path).unwrap().0, names.collect::<BTreeSet<_>>())
            },
            power: false,
            errors: ALL_ERRORS,
        }
        .interrupt();
    }
}
