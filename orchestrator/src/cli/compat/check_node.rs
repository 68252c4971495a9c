//! `scr_check_node`: whether the directories of a node can be used.

use std::fs::{self, OpenOptions};
use std::path::Path;

use clap::Parser;
use rustix::fs::statvfs;

use super::arguments::parse;
use super::result::{ExitResult, NO, YES, print};

/// Check the control and cache directories of this node
#[derive(Parser)]
#[command(name = "scr_check_node", no_binary_name = true, infer_long_args = true)]
struct CheckNodeArgs {
    /// Compare with the free space instead of the size of the file system
    #[arg(long)]
    free: bool,
    /// Control directories, each perhaps with the bytes that it needs
    #[arg(long, value_name = "DIR[:BYTES],…", value_delimiter = ',')]
    cntl: Vec<String>,
    /// Cache directories, each perhaps with the bytes that it needs
    #[arg(long, value_name = "DIR[:BYTES],…", value_delimiter = ',')]
    cache: Vec<String>,
}

pub(super) fn check_node(words: &[String]) -> ExitResult {
    let args: CheckNodeArgs = parse(words)?;
    Ok(match [args.cntl, args.cache].iter().try_for_each(|directories| check(directories, args.free)) {
        Ok(()) => {
            print("PASS")?;
            YES
        }
        Err(fault) => {
            print(format!("FAIL: {fault}"))?;
            NO
        }
    })
}

/// Checks directories: first whether all can be listed, then their sizes, then whether they can be written to.
fn check(given: &[String], free: bool) -> Result<(), String> {
    let directories: Vec<(&str, Option<u64>)> =
        given.iter().filter(|text| !text.is_empty()).map(|text| split(text)).collect();
    for (directory, _) in &directories {
        fs::read_dir(directory).map_err(|_| format!("Could not access directory: {directory}"))?;
    }
    for (directory, bytes) in &directories {
        // Rounded as by perl, whose numbers are floating-point.
        let Some(expected) = bytes.map(|bytes| (bytes as f64 / 1024.0) as u64) else { continue };
        let found = kilobytes(directory, free).ok_or_else(|| format!("Could not access directory: {directory}"))?;
        if found < expected {
            return Err(format!(
                "Insufficient space in directory: {directory}, expected {expected} KB, found {found} KB"
            ));
        }
    }
    directories.iter().try_for_each(|(directory, _)| probe(directory))
}

/// A directory, and the bytes behind the last colon.
fn split(text: &str) -> (&str, Option<u64>) {
    let sized = text.rsplit_once(':').and_then(|(directory, bytes)| Some((directory, Some(bytes.parse().ok()?))));
    sized.unwrap_or((text, None))
}

/// The size of the file system of a directory, or its free space.
fn kilobytes(directory: &str, free: bool) -> Option<u64> {
    let found = statvfs(directory).ok()?;
    let blocks = if free { found.f_bavail } else { found.f_blocks };
    Some(blocks.saturating_mul(found.f_frsize) / 1024)
}

/// Creates a file and removes it. An existing file or link of this name is not followed or changed.
fn probe(directory: &str) -> Result<(), String> {
    let name = "testfile.txt";
    let path = Path::new(directory).join(name);
    // An existing file may be left of a check that was killed, or be of one that runs now.
    let random = tempfile::Builder::new().prefix("testfile.").suffix(".txt").tempfile_in(directory);
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(_) => fs::remove_file(&path).map_err(|_| format!("Could not rm test file: {directory}/{name}")),
        Err(_) if random.is_ok() => Ok(()),
        Err(_) => Err(format!("Could not touch test file: {directory}/{name}")),
    }
}
