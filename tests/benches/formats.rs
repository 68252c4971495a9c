//! Checkpoint file formats: verification compared with the speed of its hash, one SION container compared with
//! a file for each task, and its split and join compared with `cp`.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use holdfast_formats::fti_ff::writer::Stamp;
use holdfast_formats::fti_ff::{FtiFf, containers, writer};
use holdfast_formats::jubatus::{Engine, Jubatus, ModelId, NewModel, Release, write_model};
use holdfast_formats::sion::{
    Creation, FileDistribution, JoinInput, JoinOptions, Plan, PlanOptions, SplitOptions, TaskPlan, join, split,
};
use holdfast_formats::{Destination, Format, Options};
use md5::{Digest as _, Md5};

use crate::figures::{Samples, at_least, ratio, title};
use crate::{Extent, PART, Result};

const TASK_BYTES: u64 = 64 << 10;
const BLOCK_BYTES: u32 = 4096;
/// The destination of the streams, for a process that only writes them.
const TARGET: &str = "HOLDFAST_BENCH_TARGET";
const TASKS: &str = "HOLDFAST_BENCH_TASKS";

pub fn run(extent: Extent) -> Result<()> {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    verification(extent, &target)?;
    streams(extent, &target)
}

fn verification(extent: Extent, target: &Path) -> Result<()> {
    title(&format!("Verification of a file of {} MiB in the page cache", extent.bytes >> 20));
    let directory = tempfile::tempdir_in(target)?;
    let (checkpoint, model) = (directory.path().join("Ckpt1-Rank0.fti"), directory.path().join("model.jubatus"));
    let piece = piece();
    writer::write(&checkpoint, containers::next(&[], &[(1, extent.bytes)])?, Stamp::at(1), |to| {
        (0..extent.bytes / TASK_BYTES).try_for_each(|index| to.write(1, index * TASK_BYTES, &piece))
    })?;
    let new = NewModel {
        // Of later releases, the data of the engine's method is checked too: this is one string.
        release: Release::new(1, 0, 9),
        timestamp: 1,
        engine: Engine::Anomaly,
        id: ModelId::documented("bench")?,
        config: b"{}".to_vec(),
    };
    let length = u32::try_from(extent.bytes)?.to_be_bytes();
    let (head, weights) = ([&[0x92, 0xdb][..], &length].concat(), [0x90_u8]);
    write_model(&model, &new, head.chain(std::io::repeat(0x5a).take(extent.bytes)).chain(&weights[..]))?;
    let (mut md5, mut crc) = (Samples::default(), Samples::default());
    let (mut fti, mut jubatus) = (Samples::default(), Samples::default());
    for _ in 0..extent.tries {
        let mut hasher = Md5::new();
        md5.add(read_through(&checkpoint, |bytes| hasher.update(bytes))?);
        fti.add(verify(&FtiFf, &checkpoint)?);
        let mut hasher = crc32fast::Hasher::new();
        crc.add(read_through(&model, |bytes| hasher.update(bytes))?);
        jubatus.add(verify(&Jubatus, &model)?);
    }
    md5.show_seconds("read and MD5, one thread", Some(extent.bytes));
    fti.show_seconds("verify FTI-FF: MD5 of the file and of its chunk", Some(extent.bytes));
    crc.show_seconds("read and CRC32, one thread", Some(extent.bytes));
    jubatus.show_seconds("verify Jubatus: CRC32 and MessagePack", Some(extent.bytes));
    at_least("verify FTI-FF / MD5", md5.median() / fti.median(), 0.9);
    at_least("verify Jubatus / CRC32", crc.median() / jubatus.median(), 0.9);
    Ok(())
}

/// The data of a task; not all zeros, which a file system may omit.
fn piece() -> Vec<u8> {
    (0..TASK_BYTES).map(|at| (at * 31 % 251) as u8).collect()
}

fn read_through(path: &Path, mut each: impl FnMut(&[u8])) -> Result<f64> {
    let begun = Instant::now();
    let (mut file, mut buffer) = (File::open(path)?, vec![0; 256 << 10]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(begun.elapsed().as_secs_f64()),
            bytes => each(&buffer[..bytes]),
        }
    }
}

fn verify(format: &dyn Format, path: &Path) -> Result<f64> {
    let begun = Instant::now();
    let verdict = format.verify(path, &Options::default(), &mut |_, _| {})?;
    let seconds = begun.elapsed().as_secs_f64();
    if verdict.is_intact() { Ok(seconds) } else { Err(format!("{} is damaged: {verdict:?}", path.display()).into()) }
}

fn streams(extent: Extent, target: &Path) -> Result<()> {
    let tasks = (extent.bytes / TASK_BYTES).min(4096);
    let bytes = tasks * TASK_BYTES;
    title(&format!("{tasks} tasks of {} KiB each: one SION container beside a file for each", TASK_BYTES >> 10));
    let (mut files, mut container) = (Samples::default(), Samples::default());
    let (mut copied, mut split_up, mut put_together) = (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..extent.tries {
        let directory = tempfile::tempdir_in(target)?;
        let at = |name: &str| directory.path().join(name);
        settle(directory.path())?;
        let begun = Instant::now();
        write_files(&at("files"), tasks)?;
        settle(directory.path())?;
        files.add(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        write_container(&at("run.sion"), tasks)?;
        settle(directory.path())?;
        container.add(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        let status = Command::new("cp").arg("-r").arg(at("files")).arg(at("copy")).status()?;
        settle(directory.path())?;
        copied.add(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        let to = Destination::new(&at("tasks"), false)?;
        let done = split(&at("run.sion"), &to, &SplitOptions::default(), &mut |_, _| {})?;
        settle(directory.path())?;
        split_up.add(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        let input = JoinInput::from_directory(&at("tasks"))?;
        let joined = join(&input, &at("again.sion"), &JoinOptions::default(), &mut |_, _| {})?;
        settle(directory.path())?;
        put_together.add(begun.elapsed().as_secs_f64());
        if !status.success() || joined.bytes != bytes || done.files.len() as u64 != tasks {
            return Err("not everything was copied".into());
        }
    }
    files.show_seconds("a file for each task, on disk", Some(bytes));
    container.show_seconds("one container, on disk", Some(bytes));
    copied.show_seconds("cp -r of the files, on disk", Some(bytes));
    split_up.show_seconds("split, on disk, each file whole or not there", Some(bytes));
    put_together.show_seconds("join, on disk", Some(bytes));
    at_least("bandwidth: container / files", files.median() / container.median(), 1.0);
    ratio("split / cp", copied.median() / split_up.median());
    ratio("join / cp", copied.median() / put_together.median());
    let counted = (calls("files", tasks, target)?, calls("container", tasks, target)?);
    match counted {
        (Some(files), Some(container)) => {
            println!("  file-system calls: {files} for the files, {container} for the container");
            at_least("fewer file-system calls", files as f64 / container as f64, 2.5);
        }
        _ => println!("  file-system calls: not counted, strace is not here"),
    }
    Ok(())
}

/// Waits until all data is on disk.
fn settle(directory: &Path) -> Result<()> {
    let status = Command::new("sync").arg("-f").arg(directory).status()?;
    if status.success() { Ok(()) } else { Err(format!("sync ended with {status}").into()) }
}

fn write_files(directory: &Path, tasks: u64) -> Result<()> {
    fs::create_dir(directory)?;
    let piece = piece();
    for task in 0..tasks {
        File::create(directory.join(format!("t_{task:05}")))?.write_all(&piece)?;
    }
    Ok(())
}

fn write_container(path: &Path, tasks: u64) -> Result<()> {
    let piece = piece();
    let planned: Vec<TaskPlan> =
        (0..tasks).map(|rank| TaskPlan { global_rank: rank.cast_signed(), chunk_bytes: TASK_BYTES }).collect();
    let creation = Creation::new(
        path,
        Plan::new(&planned, &PlanOptions::new(FileDistribution::Serial, BLOCK_BYTES, "run.sion"))?,
    )?;
    let mut usages = Vec::with_capacity(planned.len());
    for task in 0..planned.len() {
        let mut writer = creation.task(task)?;
        writer.write_all(&piece)?;
        usages.push(writer.finish());
    }
    Ok(creation.commit(&usages)?)
}

/// The role of a process whose system calls are counted.
pub fn play() -> Result<()> {
    let target = PathBuf::from(std::env::var(TARGET)?);
    let tasks = std::env::var(TASKS)?.parse()?;
    if target.ends_with("files") { write_files(&target, tasks) } else { write_container(&target, tasks) }
}

/// File-system calls of a process that writes the streams this way, minus those of a process that writes one stream;
/// `None` without strace.
fn calls(way: &str, tasks: u64, target: &Path) -> Result<Option<u64>> {
    let directory = tempfile::tempdir_in(target)?;
    let mut counts = [0_u64; 2];
    for (count, tasks) in counts.iter_mut().zip([tasks, 1]) {
        let summary = directory.path().join("summary");
        let to = directory.path().join(tasks.to_string()).join(way);
        fs::create_dir_all(to.parent().unwrap_or(target))?;
        let ran = Command::new("strace")
            .args(["-f", "-c", "-e", "trace=%file,%desc", "-o"])
            .arg(&summary)
            .arg(std::env::current_exe()?)
            .env(PART, "streams")
            .env(TARGET, &to)
            .env(TASKS, tasks.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !ran.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        let text = fs::read_to_string(&summary)?;
        let total = text.lines().rfind(|line| line.trim_end().ends_with("total"));
        *count =
            total.and_then(|line| line.split_whitespace().nth(3)).and_then(|field| field.parse().ok()).unwrap_or(0);
    }
    Ok(Some(counts[0].saturating_sub(counts[1])))
}
