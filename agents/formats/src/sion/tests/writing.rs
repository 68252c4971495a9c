//! With the parameters of SIONlib's calls, the writer produces SIONlib's bytes.

use std::io::Write;
use std::path::Path;

use serde_json::Value;

use super::super::*;
use super::world::*;

/// Merged streams and buddy copies are not supported.
const NOT_MODELLED: [&str; 2] = ["cmerge8", "buddy4"];

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

/// The distribution and the tasks of a fixture, as its writer was called.
fn called(fixture: &Value) -> (FileDistribution, Vec<Task>) {
    let specs: Vec<&str> = fixture["tasks"].as_array().unwrap().iter().map(|task| task.as_str().unwrap()).collect();
    let mode = fixture["api"].as_str().unwrap();
    if mode.contains("mapped") {
        let mut places = Vec::new();
        let tasks = specs.iter().enumerate().map(|(rank, spec)| {
            let mut parts = spec.splitn(3, ':');
            let mut place = || parts.next().unwrap().parse::<u32>().unwrap();
            places.push((place(), place()));
            wrote(parts.next().unwrap(), rank as i64)
        });
        let tasks = tasks.collect();
        return (FileDistribution::Mapped { place_of: places }, tasks);
    }
    if let Some(ranks) = fixture["ranks"].as_u64() {
        let tasks = (0..ranks).map(|rank| wrote(specs[rank as usize % specs.len()], rank as i64)).collect();
        let split = fixture["split"].as_str().unwrap();
        let distribution = match split.strip_prefix("numFiles=") {
            Some(files) => FileDistribution::Parallel { files: files.parse().unwrap() },
            None => {
                let groups: u64 = split.rsplit(' ').next().unwrap().parse().unwrap();
                FileDistribution::Grouped { file_of: (0..ranks).map(|rank| (rank % groups) as u32).collect() }
            }
        };
        return (distribution, tasks);
    }
    let tasks = specs.iter().map(|spec| {
        let (rank, rest) = spec.split_once(':').unwrap();
        wrote(rest, rank.parse().unwrap())
    });
    (FileDistribution::Serial, tasks.collect())
}

fn options(fixture: &Value, distribution: FileDistribution) -> PlanOptions {
    let (file, mode) = (&fixture["files"][0], fixture["open_mode"].as_str().unwrap());
    let order = |at: usize| {
        let orders = file["endianness_bytes"].as_str().unwrap();
        if &orders[at..at + 2] == "01" { ByteOrder::Big } else { ByteOrder::Little }
    };
    PlanOptions {
        key_value: if mode.contains("keyval") { KeyValue::Inline } else { KeyValue::None },
        collector: mode.split("collsize=").nth(1).map(|size| size.parse().unwrap()),
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
                writer.write_whole(&content(rank, 0, at..end)).unwrap();
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

fn rebuild(fixture: &Value, directory: &Path) {
    let (distribution, tasks) = called(fixture);
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
fn rewrites_every_container_byte_for_byte() {
    let mut compared = 0;
    for fixture in intact() {
        let name = fixture["name"].as_str().unwrap();
        if NOT_MODELLED.contains(&name) || fixture["api"] == "siondefrag" {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        rebuild(&fixture, directory.path());
        for file in fixture["files"].as_array().unwrap() {
            let theirs = root().join(file["path"].as_str().unwrap());
            let ours = directory.path().join(theirs.file_name().unwrap());
            same_files(&ours, &theirs);
            compared += 1;
        }
    }
    assert!(compared >= 29, "{compared}");
}

#[test]
fn other_processes_write_into_created_container() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drain.sion");
    let tasks: Vec<_> = (0..9).map(|global_rank| TaskPlan { global_rank, chunk_bytes: 3000 }).collect();
    let options = PlanOptions::new(FileDistribution::Parallel { files: 2 }, 512, "drain.sion");
    let creation = Creation::new(&path, Plan::new(&tasks, &options).unwrap()).unwrap();
    let names = creation.temporary_paths();
    // Sent to the other processes: tasks, options and names; sent back: usages.
    let received: PlanOptions = serde_json::from_str(&serde_json::to_string(&options).unwrap()).unwrap();
    let elsewhere = Plan::new(&tasks, &received).unwrap();
    let mut usages = Vec::new();
    for (rank, _) in tasks.iter().enumerate() {
        let slot = elsewhere.slot(rank).unwrap();
        let part = Attachment::open(names[slot.part], &elsewhere.parts()[slot.part]).unwrap();
        let bytes = content(rank as i64, 0, 0..10_000);
        let usage = if rank % 2 == 0 {
            // In pieces from the end, as several threads could.
            for begin in (0..10_000).step_by(2_500).rev() {
                part.write_at(slot.local, begin as u64, &bytes[begin..begin + 2_500]).unwrap();
            }
            Usage::filled(10_000, part_chunk(&elsewhere, slot))
        } else {
            let mut writer = part.task(slot.local).unwrap();
            writer.write_all(&bytes[..4_321]).unwrap();
            let so_far: Usage = serde_json::from_str(&serde_json::to_string(&writer.finish()).unwrap()).unwrap();
            let mut writer = part.resume(slot.local, so_far).unwrap();
            writer.write_all(&bytes[4_321..]).unwrap();
            writer.finish()
        };
        part.synchronise().unwrap();
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

fn part_chunk(plan: &Plan, slot: Slot) -> u64 {
    plan.parts()[slot.part].layout().chunk_size(slot.local)
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
    let twice = FileDistribution::Mapped { place_of: vec![(0, 0), (0, 0)] };
    assert_eq!(plan(&[task(1), task(1)], twice, 512), PlanError::Gap { file: 0 });
    let gap = FileDistribution::Grouped { file_of: vec![0, 2] };
    assert_eq!(plan(&[task(1), task(1)], gap, 512), PlanError::Gap { file: 2 });
}

#[test]
fn gathered_streams_equal_streams_written_one_by_one() {
    for (distribution, sizes) in [
        (FileDistribution::Serial, vec![512; 40]),
        (FileDistribution::Serial, vec![512, 100, 512, 0, 512, 512]),
        (FileDistribution::Parallel { files: 3 }, vec![300; 9]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        let tasks: Vec<TaskPlan> =
            (0..sizes.len()).map(|rank| TaskPlan { global_rank: rank as i64, chunk_bytes: 512 }).collect();
        let plan = Plan::new(&tasks, &PlanOptions::new(distribution, 512, "same")).unwrap();
        let streams: Vec<Vec<u8>> = (0..).zip(&sizes).map(|(rank, bytes)| content(rank, 0, 0..*bytes)).collect();
        let creation = Creation::new(&one, plan.clone()).unwrap();
        let mut usages = Vec::new();
        for (task, stream) in streams.iter().enumerate() {
            let mut writer = creation.task(task).unwrap();
            writer.write_whole(stream).unwrap();
            usages.push(writer.finish());
        }
        creation.commit(&usages).unwrap();
        let creation = Creation::new(&other, plan.clone()).unwrap();
        let slices: Vec<&[u8]> = streams.iter().map(Vec::as_slice).collect();
        let mut usages = creation.gather(0, &slices[..2]).unwrap();
        usages.extend(creation.gather(2, &slices[2..]).unwrap());
        assert!(creation.gather(sizes.len(), &slices[..1]).is_err() && creation.gather(0, &[&[1; 513]]).is_err());
        creation.commit(&usages).unwrap();
        for number in 0..plan.parts.len() as u32 {
            same_files(&part_path(&one, number), &part_path(&other, number));
        }
    }
}
