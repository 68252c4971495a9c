//! The shared code of the test suites: the fixture archives, unpacked once below target/.
//!
//! `tests/fixtures/*.tar.zst` hold real files of the original programs, and of earlier versions of Holdfast (`old`).
//! They are unpacked into the target directory by the first test that needs them; the directory is named for the
//! archive's content, so that a changed archive is unpacked again. The directory that [`fixtures`] returns is shared by
//! all tests of all processes and must not be changed: a test that changes files takes a [`scratch_copy`].
//!
//! [`Dice`] generates seeded random numbers, with which [`mutation`] changes valid messages and [`fuzz`] the inputs of
//! parsers; [`cluster`] is the Slurm cluster of containers and the jobs on it; [`awake`] reads which copies of a pair
//! were awake when; [`documents`] compares what commands print with their schemas; [`harness`] runs suites whose tests
//! may be ignored on some machines; [`pages`] carries out pages of the documentation.

#![forbid(unsafe_code)]
// Test support panics, as tests do, with the file that failed.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)]

pub mod awake;
pub mod cluster;
mod dice;
pub mod documents;
pub mod fuzz;
pub mod harness;
pub mod mutation;
pub mod pages;

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use dice::Dice;
use rustix::fs::{StatVfs, StatVfsMountFlags};
use tempfile::TempDir;

/// The directory of the unpacked fixtures of this name (`scr`, `fti`, `sion`, `jubatus`, `old`). Read only.
///
/// # Panics
/// When there is no such archive, or it cannot be unpacked.
pub fn fixtures(name: &str) -> PathBuf {
    unpacked(name).unwrap_or_else(|error| panic!("cannot unpack the fixtures {name:?}: {error}"))
}

/// A copy of a directory that the test may change; removed when dropped.
///
/// # Panics
/// When it cannot be copied.
pub fn scratch_copy(source: &Path) -> TempDir {
    let copy = || -> io::Result<TempDir> {
        let directory = tempfile::tempdir()?;
        copy_tree(source, directory.path())?;
        Ok(directory)
    };
    copy().unwrap_or_else(|error| panic!("cannot copy {}: {error}", source.display()))
}

/// A new directory in memory, where there is a file system for that from which programs can be started; for tests that
/// write many files: on a disk the kernel searches long for the number of a new file when many were just deleted.
///
/// # Panics
/// When it cannot be made.
pub fn fast_directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let can_start = |found: StatVfs| !found.f_flag.contains(StatVfsMountFlags::NOEXEC);
    let is_suitable = memory.is_dir() && rustix::fs::statvfs(memory).is_ok_and(can_start);
    if is_suitable { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// Copies the content of a directory into another one that exists; links are copied as links.
///
/// # Errors
/// When a file cannot be read or written.
pub fn copy_tree(source: &Path, destination: &Path) -> io::Result<()> {
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let (from, to, kind) = (entry.path(), destination.join(entry.file_name()), entry.file_type()?);
        if kind.is_dir() {
            fs::create_dir_all(&to)?;
            copy_tree(&from, &to)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// All files below a directory, sorted, links not followed.
///
/// # Panics
/// When a directory cannot be read.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                collect(&entry.path(), files)?;
            } else {
                files.push(entry.path());
            }
        }
        Ok(())
    }
    let mut files = Vec::new();
    collect(directory, &mut files).unwrap_or_else(|error| panic!("cannot list {}: {error}", directory.display()));
    files.sort();
    files
}

/// The rounds of a mutation test: `usual` of them, the number in `HOLDFAST_MUTATIONS`, or as many as fit into the
/// seconds in `HOLDFAST_MUTATION_SECONDS`. `HOLDFAST_MUTATION_SEED` is for [`mutation_seed`].
pub fn mutation_rounds(usual: u64) -> impl Iterator<Item = u64> {
    let until = number("HOLDFAST_MUTATION_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let rounds = if until.is_some() { u64::MAX } else { number("HOLDFAST_MUTATIONS").unwrap_or(usual) };
    (0..rounds).take_while(move |_| until.is_none_or(|until| Instant::now() < until))
}

/// The seed of a mutation test: constant, unless the environment sets another.
pub fn mutation_seed() -> u64 {
    number("HOLDFAST_MUTATION_SEED").unwrap_or(20_261_120)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

/// The bytes that a rank wrote as its `file`-th routed file in a checkpoint of the SCR fixtures.
pub fn application_bytes(checkpoint: u64, rank: u32, file: u32, size: usize) -> Vec<u8> {
    // The generator works modulo 2^32: only the lower half of the id is used.
    let mut state = (checkpoint as u32)
        .wrapping_mul(1_000_003)
        .wrapping_add(rank.wrapping_mul(10_007))
        .wrapping_add(file.wrapping_mul(101))
        .wrapping_add(12_345);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..size).map(|_| next()).collect()
}

fn unpacked(name: &str) -> io::Result<PathBuf> {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(format!("{name}.tar.zst"));
    let key = content_key(&fs::read(&archive)?);
    let home = target_directory()?.join("fixtures");
    let directory = home.join(format!("{name}-{key}"));
    if directory.is_dir() {
        return Ok(directory);
    }
    // Several test processes may unpack at the same time: each unpacks to its own directory, the first one renames it.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mine = format!(".{name}-{key}.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let temporary = home.join(mine);
    fs::create_dir_all(&temporary)?;
    let result = unpack(&archive, &temporary).and_then(|()| fs::rename(&temporary, &directory));
    if result.is_err() {
        fs::remove_dir_all(&temporary)?;
    }
    if directory.is_dir() { Ok(directory) } else { result.map(|()| directory) }
}

fn unpack(archive: &Path, directory: &Path) -> io::Result<()> {
    let compressed = BufReader::new(File::open(archive)?);
    let plain = ruzstd::decoding::StreamingDecoder::new(compressed).map_err(io::Error::other)?;
    let mut archive = tar::Archive::new(plain);
    archive.set_preserve_mtime(false);
    archive.unpack(directory)
}

/// FNV-1a over the bytes, and their number.
fn content_key(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}-{}", bytes.len())
}

/// The directory that cargo builds into: the one above the running test that cargo marked as a cache.
fn target_directory() -> io::Result<PathBuf> {
    let executable = std::env::current_exe()?;
    let marked = executable.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file());
    Ok(marked.map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), Path::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacks_every_archive_for_concurrent_threads() {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                for name in ["scr", "fti", "sion", "jubatus", "old"] {
                    scope.spawn(move || assert!(fixtures(name).join("README.md").is_file()));
                }
            }
        });
        assert!(fixtures("scr").join("a-xor4/killed-after-flush/tree/pfs/scr.2026-11-20_10:21:52.1145655.2").is_dir());
    }

    #[test]
    fn application_bytes_are_those_of_the_fixtures() {
        let tree = fixtures("scr").join("a-xor4/killed-after-flush/tree/node2/user1/scr.1145655/index.0/checkpoint.3");
        let bytes = fs::read(tree.join("rank_2.ckpt")).unwrap();
        assert_eq!(bytes, application_bytes(3, 2, 0, bytes.len()));
    }

    #[test]
    fn scratch_copy_is_complete_and_writable() {
        let source = fixtures("scr").join("a-xor4/finalized/tree");
        let copy = scratch_copy(&source);
        let relative = |root: &Path| -> Vec<PathBuf> {
            files_below(root).iter().map(|path| path.strip_prefix(root).unwrap().to_owned()).collect()
        };
        assert_eq!(relative(copy.path()), relative(&source));
        fs::write(copy.path().join("pfs/index.scr"), "changed").unwrap();
    }
}
