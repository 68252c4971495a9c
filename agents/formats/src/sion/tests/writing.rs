//! With the parameters of SIONlib's calls, the writer produces SIONlib's bytes.

use std::io::Write;
use std::path::Path;

use serde_json::Value;

use super::super::*;
use super::world::*;

/// The calls and options of SIONlib whose layouts this writer does not make.
const OTHER_LAYOUTS: [&str; 5] = ["mapped", "merge", "buddy", "collsize", "defrag"];

/// One task of the manifest: rank, chunk, and what it wrote.
struct Task {
    plan: TaskPlan,
    wrote: Wrote,
}

enum Wrote {
    Plain { total: u64, step: u64 },
    Records(Vec<(u64, u64)>),
}

fn numbers(text: &str) -> Vec<u64> {
    text.split([':', ',']).filter(|part| *part != "K").map(|part| part.parse().unwrap()).collect()
}

fn wrote(chunk_and_rest: &str, global_rank: i64) -> Task {
    let (chunk, rest) = chunk_and_rest.split_once(':').unwrap();
    let wrote = if let Some(records) = rest.strip_prefix('K') {
        let flat = if records.is_empty() { Vec::new() } else { numbers(records.trim_start_matches(',')) };
        Wrote::Records(flat.chunks(2).map(|pair| (pair[0], pair[1])).collect())
    } else {
        let pair = numbers(rest);
        Wrote::Plain { total: pair[0], step: pair[1] }
    };
    Task { plan: TaskPlan { global_rank, chunk_bytes: chunk.parse().unwrap() }, wrote }
}

/// The distribution and the tasks of a fixture, as its writer was called; `None` if this writer does not make the
/// layout of that call.
fn called(fixture: &Value) -> Option<(FileDistribution, Vec<Task>)> {
    let specs: Vec<&str> = fixture["tasks"].as_array().unwrap().iter().map(|task| task.as_str().unwrap()).collect();
    if let Some(ranks) = fixture["ranks"].as_u64() {
        let tasks = (0..ranks).map(|rank| wrote(specs[rank as usize % specs.len()], rank as i64)).collect();
        let files = fixture["split"].as_str().unwrap().strip_prefix("numFiles=")?;
        return Some((FileDistribution::Parallel { files: files.parse().unwrap() }, tasks));
    }
    let tasks = specs.iter().map(|spec| {
        let (rank, rest) = spec.split_once(':').unwrap();
        wrote(rest, rank.parse().unwrap())
    });
    Some((FileDistribution::Serial, tasks.collect()))
}

fn options(fixture: &Value, distribution: FileDistribution) -> PlanOptions {
    let (file, mode) = (&fixture["files"][0], fixture["open_mode"].as_str().unwrap());
    let order = |at: usize| {
        let orders = file["endianness_bytes"].as_str().unwrap();
        if &orders[at..at + 2] == "01" { ByteOrder::Big } else { ByteOrder::Little }
    };
    PlanOptions {
        key_value: if mode.contains("keyval") { KeyValue::Inline } else { KeyValue::None },
        byte_order: order(0),
        user_order: order(2),
        patch_level: file["patchlevel"].as_i64().unwrap() as i32,
        ..PlanOptions::new(distribution, file["fsblksize"].as_u64().unwrap() as u32, file["prefix"].as_str().unwrap())
    }
}

fn write_task(mut writer: TaskWriter, task: &Task, rank: i64) -> Usage {
    match &task.wrote {
        Wrote::Plain { total, step } => {
            let mut at = 0;
            while at < *total {
                let end = (at + step).min(*total);
                writer.write_all(&content(rank, 0, at..end)).unwrap();
                at = end;
            }
        }
        Wrote::Records(records) => {
            for (key, length) in records {
                writer.record(*key, &content(rank, *key, 0..*length)).unwrap();
            }
        }
    }
    writer.finish()
}

/// True if SIONlib's plain writes, each of which it keeps in one chunk, filled the chunks of the task.
fn fills_chunks(task: &Task, block_size: u64) -> bool {
    let chunk = task.plan.chunk_bytes.next_multiple_of(block_size);
    match task.wrote {
        Wrote::Plain { total, step } => total <= chunk || chunk.is_multiple_of(step),
        Wrote::Records(_) => true,
    }
}

fn rebuild(fixture: &Value, (distribution, tasks): (FileDistribution, Vec<Task>), directory: &Path) {
    let plans: Vec<TaskPlan> = tasks.iter().map(|task| task.plan).collect();
    let plan = Plan::new(&plans, &options(fixture, distribution)).unwrap();
    let name = first_file(fixture).file_name().unwrap().to_owned();
    let creation = Creation::new(&directory.join(name), plan).unwrap();
    // All tasks at once: each writes to its own places.
    let usages: Vec<Usage> = std::thread::scope(|scope| {
        let running: Vec<_> = tasks
            .iter()
            .enumerate()
            .map(|(index, task)| {
                let writer = creation.task(index).unwrap();
                scope.spawn(move || write_task(writer, task, task.plan.global_rank))
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    creation.commit(&usages).unwrap();
}

#[test]
fn rewrites_containers_byte_for_byte() {
    let mut compared = 0;
    for fixture in intact() {
        let call = format!("{}, {}", fixture["api"], fixture["open_mode"]);
        if OTHER_LAYOUTS.iter().any(|other| call.contains(other)) {
            continue;
        }
        let Some((distribution, tasks)) = called(&fixture) else { continue };
        let block_size = fixture["files"][0]["fsblksize"].as_u64().unwrap();
        if !tasks.iter().all(|task| fills_chunks(task, block_size)) {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        rebuild(&fixture, (distribution, tasks), directory.path());
        for file in fixture["files"].as_array().unwrap() {
            let theirs = root().join(file["path"].as_str().unwrap());
            let ours = directory.path().join(theirs.file_name().unwrap());
            same_files(&ours, &theirs);
            compared += 1;
        }
    }
    assert!(compared >= 11, "{compared}");
}

#[test]
fn set_has_its_name_when_it_is_committed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drain.sion");
    let tasks: Vec<_> = (0..9).map(|global_rank| TaskPlan { global_rank, chunk_bytes: 3000 }).collect();
    let options = PlanOptions::new(FileDistribution::Parallel { files: 2 }, 512, "drain.sion");
    let creation = Creation::new(&path, Plan::new(&tasks, &options).unwrap()).unwrap();
    let mut usages = Vec::new();
    for rank in 0..tasks.len() {
        let bytes = content(rank as i64, 0, 0..10_000);
        let mut writer = creation.task(rank).unwrap();
        writer.write_all(&bytes[..4_321]).unwrap();
        writer.write_all(&bytes[4_321..]).unwrap();
        let usage = writer.finish();
        assert_eq!(usage.bytes(), 10_000);
        usages.push(usage);
    }
    assert!(!path.exists());
    creation.commit(&usages).unwrap();
    let container = Container::open(&path).unwrap();
    for rank in 0..9 {
        assert!(stream(&container, rank) == content(rank as i64, 0, 0..10_000), "rank {rank}");
    }
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 2, "only the two files of the set are left");
}

#[test]
fn uncommitted_container_leaves_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.sion");
    let tasks = [TaskPlan { global_rank: 0, chunk_bytes: 100 }];
    let options = PlanOptions::new(FileDistribution::Serial, 512, "x.sion");
    let plan = || Plan::new(&tasks, &options).unwrap();
    let creation = Creation::new(&path, plan()).unwrap();
    creation.task(0).unwrap().write_all(b"lost").unwrap();
    drop(creation);
    let wrong = Creation::new(&path, plan()).unwrap();
    assert!(wrong.commit(&[]).is_err());
    let wrong = Creation::new(&path, plan()).unwrap();
    let too_much = Usage::filled(700, 700);
    assert!(wrong.commit(&[too_much]).unwrap_err().to_string().contains("700 bytes in a chunk of 512"));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn does_not_replace_set_of_several_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.sion");
    std::fs::write(directory.path().join("x.sion.000001"), "existing").unwrap();
    let tasks = [0, 1].map(|global_rank| TaskPlan { global_rank, chunk_bytes: 100 });
    let plan = Plan::new(&tasks, &PlanOptions::new(FileDistribution::Parallel { files: 2 }, 512, "x.sion")).unwrap();
    assert!(matches!(Creation::new(&path, plan), Err(SionError::Exists { .. })));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn rejects_impossible_plans() {
    let task = |chunk_bytes| TaskPlan { global_rank: 0, chunk_bytes };
    let plan = |tasks: &[TaskPlan], distribution, block| {
        Plan::new(tasks, &PlanOptions::new(distribution, block, "x")).unwrap_err()
    };
    assert_eq!(plan(&[], FileDistribution::Serial, 512), PlanError::NoTask);
    assert_eq!(plan(&[task(1)], FileDistribution::Serial, 0), PlanError::BlockSize(0));
    assert_eq!(plan(&[task(1)], FileDistribution::Parallel { files: 2 }, 512), PlanError::Files { files: 2, tasks: 1 });
    assert_eq!(plan(&[task(u64::MAX)], FileDistribution::Serial, 512), PlanError::TooLarge);
    assert_eq!(plan(&[task(1 << 62), task(1 << 62)], FileDistribution::Serial, 512), PlanError::TooLarge);
}
