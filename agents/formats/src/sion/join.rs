//! Joins files into a container: the inverse of `split`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_core::store::StoredFile as _;

use super::copying::{copy_between, each};
use super::error::{Result, SionError};
use super::header::KeyValue;
use super::input_mismatch::InputMismatch;
use super::key_value::RECORD_HEADER;
use super::limits::{LARGEST_BLOCK, MOST_TASKS};
use super::plan::{FileDistribution, Plan, PlanOptions, TaskPlan};
use super::reading::open_regular;
use super::replaced;
use super::slot::place;
use super::usage::Usage;
use super::writer::Creation;
use crate::format::Progress;

/// Block size if SIONlib does not accept that of the file system.
const DEFAULT_BLOCK: u32 = 2 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinInput {
    /// One file for each task, in the order of the tasks.
    Plain(Vec<PathBuf>),
    /// For each task its keys and their files, in the order of the records.
    KeyValue(Vec<Vec<(u64, PathBuf)>>),
}

impl JoinInput {
    /// The files of a directory of `split`. Every entry must have a name of `split`: a file that is omitted would be
    /// missing in the container.
    ///
    /// # Errors
    /// When the directory cannot be read, has no files or files of both kinds, has an entry with another name or two
    /// files of one stream, or a task's plain file is missing.
    pub fn from_directory(directory: &Path) -> Result<JoinInput> {
        let reading = || SionError::io("read the directory", directory);
        let (mut plain, mut keyed) = (BTreeMap::new(), BTreeMap::<u64, BTreeMap<u64, PathBuf>>::new());
        let wrong = |mismatch| Err(SionError::Input { path: directory.to_owned(), mismatch });
        let mut others = Vec::new();
        for entry in fs::read_dir(directory).map_err(reading())? {
            let entry = entry.map_err(reading())?;
            let before = match entry.file_name().to_str().and_then(parse_name) {
                Some((task, None)) => plain.insert(task, entry.path()),
                Some((task, Some(key))) => keyed.entry(task).or_default().insert(key, entry.path()),
                None => {
                    others.push(place(&entry.path()));
                    None
                }
            };
            if let Some(before) = before {
                let mut names = [place(&before), place(&entry.path())];
                names.sort();
                let [first, second] = names;
                return wrong(InputMismatch::SameStream { first, second });
            }
        }
        if let Some(first) = others.iter().min() {
            return wrong(InputMismatch::OtherFiles { first: first.clone(), more: others.len() - 1 });
        }
        match (plain.last_key_value(), keyed.last_key_value()) {
            (None, None) => wrong(InputMismatch::NoFiles),
            (Some(_), Some(_)) => wrong(InputMismatch::MixedFiles),
            (Some((last, _)), None) if *last != plain.len() as u64 - 1 => wrong(InputMismatch::Gaps),
            (Some(_), None) => Ok(JoinInput::Plain(plain.into_values().collect())),
            (None, Some((last, _))) if *last >= MOST_TASKS => wrong(InputMismatch::TaskNumber),
            (None, Some((last, _))) => {
                // A task without records has no file.
                let tasks = (0..=*last).map(|task| keyed.get(&task).cloned().unwrap_or_default().into_iter().collect());
                Ok(JoinInput::KeyValue(tasks.collect()))
            }
        }
    }
}

/// Parses the task and the key of a name of `split`. A key from 2^63 on is a negative number, as sionsplit writes it,
/// or a positive one.
fn parse_name(name: &str) -> Option<(u64, Option<u64>)> {
    let is_number = |digits: &str, least: usize| {
        digits.len() >= least && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let task = |digits: &str| digits.parse().ok().filter(|_| is_number(digits, 5));
    let rest = name.strip_prefix("t_")?;
    let Some((number, key)) = rest.split_once('_') else { return Some((task(rest)?, None)) };
    let key = match key.strip_prefix('-') {
        // The sign is one of the twelve characters.
        Some(digits) if is_number(digits, 11) => key.parse().ok().filter(|key| *key < 0).map(i64::cast_unsigned)?,
        Some(_) => return None,
        None => key.parse().ok().filter(|_| is_number(key, 12))?,
    };
    Some((task(number)?, Some(key)))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinOptions {
    /// Physical files of the container.
    pub files: u32,
    /// Alignment of chunks; by default the block size of the file system.
    pub block_size: Option<u32>,
    /// Bytes of a chunk; by default the size of the task's stream, which results in one block.
    pub chunk_bytes: Option<u64>,
    /// Only report what would be written.
    pub dry_run: bool,
}

impl Default for JoinOptions {
    fn default() -> Self {
        JoinOptions { files: 1, block_size: None, chunk_bytes: None, dry_run: false }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    pub tasks: usize,
    /// Bytes of all streams.
    pub bytes: u64,
    /// The further files of a replaced set, which were removed.
    pub removed: Vec<PathBuf>,
}

/// One file, and the key of its record in a key-value container.
struct InputFile<'a> {
    path: &'a Path,
    bytes: u64,
    key: Option<u64>,
}

/// Writes a container of these files. It gets its name when it is complete.
///
/// # Errors
/// When an input cannot be read or changes during the copy, or the container cannot be written.
pub fn join(input: &JoinInput, output: &Path, options: &JoinOptions, progress: Progress<'_>) -> Result<Joined> {
    let (tasks, key_value) = sources(input)?;
    let stream_bytes = |sources: &Vec<InputFile<'_>>| {
        let each = sources
            .iter()
            .map(|source| source.bytes.saturating_add(if source.key.is_some() { RECORD_HEADER } else { 0 }));
        each.fold(0, u64::saturating_add)
    };
    let sizes: Vec<u64> = tasks.iter().map(stream_bytes).collect();
    let total = sizes.iter().copied().fold(0, u64::saturating_add);
    let block_size = match options.block_size {
        Some(block_size) => block_size,
        None => file_system_block(output)?,
    };
    let distribution =
        if options.files == 1 { FileDistribution::Serial } else { FileDistribution::Parallel { files: options.files } };
    let plan_options = PlanOptions { key_value, ..PlanOptions::new(distribution, block_size, &place(output)) };
    let planned = sizes.iter().zip(0..).map(|(bytes, global_rank)| {
        let chunk_bytes = options.chunk_bytes.filter(|_| *bytes > 0).unwrap_or(*bytes);
        TaskPlan { global_rank, chunk_bytes }
    });
    let planned: Vec<TaskPlan> = planned.collect();
    let plan =
        Plan::new(&planned, &plan_options).map_err(|source| SionError::Plan { path: output.to_owned(), source })?;
    let removed = replaced::further_files(output)?;
    let joined = Joined { tasks: tasks.len(), bytes: total, removed };
    if options.dry_run {
        return Ok(joined);
    }
    let creation = Creation::new(output, plan)?;
    let jobs: Vec<_> = tasks.iter().enumerate().collect();
    let usages = each(&jobs, total, progress, |(task, sources)| {
        let usage = copy_in(&creation, *task, sources, output)?;
        let bytes = usage.bytes();
        Ok((usage, bytes))
    })?;
    creation.commit(&usages)?;
    replaced::remove(&joined.removed)?;
    Ok(joined)
}

fn copy_in(creation: &Creation, task: usize, sources: &[InputFile<'_>], output: &Path) -> Result<Usage> {
    let mut writer = creation.task(task)?;
    for source in sources {
        let file = open_regular(source.path)?;
        let length = file.length();
        if length != source.bytes {
            let mismatch = InputMismatch::Changed { before: source.bytes, now: length };
            return Err(SionError::Input { path: source.path.to_owned(), mismatch });
        }
        if let Some(key) = source.key {
            writer.record_header(key, source.bytes)?;
        }
        copy_between((&mut &file.file, source.path), (&mut writer, output), source.bytes)?;
    }
    Ok(writer.finish())
}

fn sources(input: &JoinInput) -> Result<(Vec<Vec<InputFile<'_>>>, KeyValue)> {
    match input {
        JoinInput::Plain(paths) => {
            let tasks = paths.iter().map(|path| Ok(vec![InputFile { path, bytes: bytes_of(path)?, key: None }]));
            Ok((tasks.collect::<Result<_>>()?, KeyValue::None))
        }
        JoinInput::KeyValue(tasks) => {
            let source = |(key, path): &'_ (u64, PathBuf)| Ok((*key, bytes_of(path)?));
            let mut all = Vec::with_capacity(tasks.len());
            for records in tasks {
                let lengths = records.iter().map(source).collect::<Result<Vec<_>>>()?;
                let with = records.iter().zip(lengths);
                all.push(with.map(|((_, path), (key, bytes))| InputFile { path, bytes, key: Some(key) }).collect());
            }
            Ok((all, KeyValue::Inline))
        }
    }
}

fn bytes_of(path: &Path) -> Result<u64> {
    Ok(open_regular(path)?.length())
}

/// The default block size of SIONlib: that of the file system.
pub(super) fn file_system_block(output: &Path) -> Result<u32> {
    use std::os::unix::fs::MetadataExt;
    let directory = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let block = fs::metadata(directory).map_err(SionError::io("look at the directory", directory))?.blksize();
    Ok(block_size(block))
}

/// A block size for a file system that prefers this one.
pub(super) fn block_size(preferred: u64) -> u32 {
    u32::try_from(preferred).ok().filter(|block| (1..=LARGEST_BLOCK).contains(block)).unwrap_or(DEFAULT_BLOCK)
}
