//! Checkpoints of variables that are interrupted at every call, by a kill, a loss of power, or an error. What the next
//! launch recovers is what was saved, and it is the newest checkpoint that cannot have been lost.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use holdfast_core::calls;
use holdfast_core::control::meta::Meta;
use holdfast_core::crash::{ALL_ERRORS, Subject, Tried};
use holdfast_core::temporary;
use holdfast_formats::fti_ff::checkpoint::Checkpoint;
use holdfast_formats::fti_ff::differential::{CheckpointFile, Image, UNIT, VariableSource};
use holdfast_formats::fti_ff::layout::Layout;
use holdfast_formats::fti_ff::name::{FileName, FileRole};
use holdfast_formats::fti_ff::verify;
use holdfast_model::{CheckpointId, Rank};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::cached_files::{CachedFiles, LINK};

/// The program's id of its checkpoints.
const ID: u32 = 1;
/// Checkpoints that a cache keeps.
const KEPT: u32 = 2;
/// The newest one before the interrupted launch.
const BEFORE: u32 = 2;
/// The newest one after it. Its file is that of an evicted checkpoint, whose content is known to the launch.
const LAST: u32 = 4;

fn text<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

/// The variables of a program at a step.
#[derive(Clone, PartialEq, Eq)]
struct Memory(Vec<(i32, Vec<u8>)>);

impl Memory {
    /// Each step changes one of the two units of the first variable, and the second one as a whole.
    fn at(step: u32, grows: bool) -> Memory {
        let mut field = vec![7; UNIT + 100];
        (1..=step as usize).for_each(|step| field[step % 2 * UNIT + step] = step as u8);
        let bytes = if grows { step as usize } else { 1 };
        Memory(vec![(1, field), (2, vec![step as u8; 10 * bytes])])
    }
}

impl VariableSource for Memory {
    fn variables(&self) -> Vec<(i32, u64)> {
        self.0.iter().map(|(id, bytes)| (*id, bytes.len() as u64)).collect()
    }

    fn read(&self, id: i32, read: &mut dyn FnMut(&[u8])) {
        self.0.iter().filter(|(known, _)| *known == id).for_each(|(_, bytes)| read(bytes));
    }
}

/// The file of every checkpoint: programs may use an id again.
fn name() -> String {
    FileName { checkpoint: Some(ID), role: FileRole::Rank, rank: 0 }.to_string()
}

fn directory(cache: &Path, step: u32) -> PathBuf {
    cache.join(format!("checkpoint.{step}"))
}

/// The names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The checkpoints in a cache, the newest first, and whether they count as complete.
fn checkpoints(cache: &Path) -> BTreeMap<Reverse<u32>, bool> {
    let steps = names(cache).into_iter().map(|name| name.strip_prefix("checkpoint.").unwrap().parse().unwrap());
    let is_complete = |step: u32| {
        let file = directory(cache, step).join(name());
        Meta::of_usable(&file, CheckpointId(u64::from(step)), Rank(0), Some(1)).is_ok()
    };
    steps.map(|step| (Reverse(step), is_complete(step))).collect()
}

/// Deletes a checkpoint, as an agent does.
fn delete(cache: &Path, step: u32) -> Result<(), String> {
    let above = directory(cache, step);
    for name in names(&above) {
        calls::unlinkat(CWD, &above.join(name), AtFlags::empty()).map_err(text)?;
    }
    calls::unlinkat(CWD, &above, AtFlags::REMOVEDIR).map_err(text)
}

/// The content of a complete checkpoint; `None` if it is damaged.
fn recovered(cache: &Path, step: u32) -> Result<Option<(Memory, Image)>, String> {
    let path = directory(cache, step).join(name());
    if !verify::verify_own(&path, &mut |_, _| {}).map_err(text)?.damages.is_empty() {
        return Ok(None);
    }
    let file = Checkpoint::open(&path).map_err(text)?;
    let mut image = Image::of_file(file.meta.layout, file.blocks());
    let mut memory = Memory(Vec::new());
    for stored in file.variables() {
        let mut bytes = vec![0; stored.size() as usize];
        file.read(&stored, 0, &mut bytes).map_err(text)?;
        image.learn(stored.id, &bytes);
        memory.0.push((stored.id, bytes));
    }
    Ok(Some((memory, image)))
}

/// How checkpoints are made.
#[derive(Clone, Copy, Debug)]
struct Job {
    layout: Layout,
    /// Files are cloned instead of written over.
    clones: bool,
    /// What is older than a checkpoint is on disk when it begins.
    settled: bool,
    /// A variable grows.
    grows: bool,
}

impl Job {
    /// Saves a checkpoint; an error drops it.
    fn checkpoint(self, files: &mut CachedFiles, cache: &Path, step: u32) -> Result<(), String> {
        files.link();
        if step > KEPT && directory(cache, step - KEPT).exists() {
            delete(cache, step - KEPT)?;
        }
        calls::mkdirat(CWD, &directory(cache, step), Mode::from_raw_mode(0o700)).map_err(text)?;
        let path = directory(cache, step).join(name());
        let saved = self.save(files, &path, step);
        files.unlink();
        match saved {
            Ok(image) => files.add(&path, image),
            Err(error) => {
                files.forget(&path);
                delete(cache, step)?;
                return Err(error);
            }
        }
        let (id, size) = (CheckpointId(u64::from(step)), path.metadata().map_err(text)?.len());
        Meta::of_application(name(), size, id, Rank(0), 1).write_unsynced(&path).map_err(text)
    }

    fn save(self, files: &mut CachedFiles, path: &Path, step: u32) -> Result<Image, String> {
        let next = files.open(path).map_err(text)?;
        let (held, previous) = (next.held, next.previous);
        let (layout, checkpoint, timestamp, partner_size) = (self.layout, ID, 77, None);
        let into =
            CheckpointFile { file: &next.file, path, layout, checkpoint, timestamp, partner_size, held, previous };
        Ok(into.write(&Memory::at(step, self.grows)).map_err(text)?.0)
    }

    /// A launch of the program: it recovers the newest intact checkpoint, and goes on to the last one. A checkpoint
    /// that fails is tried once more.
    fn launch(self, cache: &Path, last: u32) -> Result<(), String> {
        temporary::remove_abandoned_below(cache).map_err(text)?;
        let mut found = None;
        for (Reverse(step), is_complete) in checkpoints(cache) {
            if found.is_none() && is_complete {
                found = recovered(cache, step)?.map(|(memory, image)| (step, memory, image));
            }
            if found.as_ref().is_none_or(|(newest, ..)| step + KEPT <= *newest) {
                delete(cache, step)?;
            }
        }
        let restart = found.as_ref().map(|(step, ..)| directory(cache, *step));
        let mut files = CachedFiles::new(restart.as_deref());
        let mut step = 0;
        if let Some((newest, memory, image)) = found {
            assert!(memory == Memory::at(newest, self.grows), "checkpoint {newest} has other content");
            files.add(&directory(cache, newest).join(name()), image);
            step = newest;
        }
        for step in step + 1..=last {
            if self.settled {
                sync(cache)?;
            }
            if self.checkpoint(&mut files, cache, step).is_err() {
                self.checkpoint(&mut files, cache, step)?;
            }
        }
        Ok(())
    }

    fn interrupted(self, power: bool, errors: &[Errno]) -> Tried {
        let check = |cache: &Path| {
            let (mut newest, mut complete) = (None, None);
            let all = checkpoints(cache);
            for (Reverse(step), _) in all.iter().filter(|(_, is_complete)| **is_complete) {
                complete = complete.max(Some(*step));
                let Some((memory, _)) = recovered(cache, *step)? else { continue };
                if memory != Memory::at(*step, self.grows) {
                    return Err(format!("checkpoint {step} has other content"));
                }
                newest = newest.max(Some(*step));
            }
            let least = match (power, self.settled) {
                (false, _) => complete.max(Some(BEFORE)),
                (true, true) => all.keys().next().map(|begun| BEFORE.max(begun.0 - 1)),
                (true, false) => None,
            };
            if newest >= least { Ok(()) } else { Err(format!("{newest:?} is recovered instead of {least:?}")) }
        };
        let result = |cache: &Path| {
            assert!(names(cache).len() <= KEPT as usize, "{:?}", names(cache));
            let mut files = names(&directory(cache, LAST));
            // A second link that could not be removed lasts as long as the checkpoint.
            files.retain(|name| !name.starts_with(LINK));
            format!("{files:?}, intact: {}", recovered(cache, LAST).unwrap().is_some())
        };
        let with = |cache: &Path, last| match self.clones {
            true => calls::with_clones(|| self.launch(cache, last)),
            false => self.launch(cache, last),
        };
        Subject {
            name: &format!("variables, {self:?}"),
            prepare: &|cache| {
                std::fs::create_dir(cache).unwrap();
                with(cache, BEFORE).unwrap();
            },
            work: &|cache| with(cache, LAST),
            check: &check,
            result: &result,
            power,
            errors,
        }
        .interrupt()
    }
}

/// The kernel has written everything to the disk.
fn sync(cache: &Path) -> Result<(), String> {
    let open = |path: &Path| calls::openat(CWD, path, OFlags::RDONLY, Mode::empty());
    let below = holdfast_testkit::files_below(cache);
    let directories = names(cache).into_iter().map(|name| cache.join(name)).chain([cache.to_owned()]);
    for path in below.into_iter().chain(directories) {
        calls::fsync(&File::from(open(&path).map_err(text)?)).map_err(text)?;
    }
    Ok(())
}

#[test]
fn crash_checkpoints_of_variables() {
    std::thread::scope(|scope| {
        for layout in [Layout::A, Layout::F] {
            for clones in [false, true] {
                scope.spawn(move || {
                    let tried = Job { layout, clones, settled: true, grows: false }.interrupted(true, ALL_ERRORS);
                    assert!(tried.losses > 20 && tried.errors > 20, "{tried:?}");
                    Job { layout, clones, settled: false, grows: true }.interrupted(true, &[]);
                    Job { layout, clones, settled: false, grows: false }.interrupted(false, &[]);
                });
            }
        }
    });
}
