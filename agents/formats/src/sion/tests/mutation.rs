//! No content of a file causes a panic, a hang or unbounded allocation.
//!
//! Fixtures are changed at random places, mostly in their metadata, and every command runs on the result. The seed is
//! fixed; `mutation_rounds` of the test kit documents how to run more rounds and how to set the seed.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_testkit::{Dice, mutation_rounds, mutation_seed};

use super::super::*;
use super::world::*;
use crate::{Destination, Format};

const ROUNDS: u64 = 1500;
/// Longer streams are not copied by the test: a changed head may declare a long, sparse chunk.
const MOST_BYTES: u64 = 1 << 22;

struct Seed {
    files: Vec<(String, Vec<u8>)>,
    /// The ranges of the first file that contain numbers.
    fields: Vec<std::ops::Range<usize>>,
}

fn corpus() -> Vec<Seed> {
    let manifest = manifest();
    let mut seeds = Vec::new();
    for list in ["fixtures", "damaged"] {
        for set in manifest[list].as_array().unwrap() {
            let paths: Vec<PathBuf> = set["files"]
                .as_array()
                .unwrap()
                .iter()
                .map(|file| root().join(file["path"].as_str().unwrap()))
                .collect();
            let files: Vec<_> = paths
                .iter()
                .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap()))
                .collect();
            let length = files[0].1.len();
            // The sparse fixture is long and adds no coverage.
            if length > 100_000 {
                continue;
            }
            let head = 0..52.min(length);
            let mut fields = Vec::from([head]);
            if let Ok(part) = PhysicalFile::open(&paths[0]) {
                let tail = part.layout.tail(part.table.blocks).unwrap() as usize;
                let tasks = part.header.tasks();
                fields.extend([1076..1088 + 16 * tasks, tail..length]);
                if part.header.key_value == KeyValue::Inline {
                    let data = part.layout.start_of_data as usize;
                    fields.push(data..data + 64);
                }
            }
            fields.retain(|range| range.start < range.end && range.end <= length);
            if !fields.is_empty() {
                seeds.push(Seed { files, fields });
            }
        }
    }
    seeds
}

fn mutate(dice: &mut Dice, seed: &Seed, bytes: &mut Vec<u8>) {
    const VALUES: [i64; 12] =
        [0, 1, -1, 2, 7, 511, 1 << 20, i32::MAX as i64, i32::MIN as i64, 1 << 40, i64::MAX, i64::MIN];
    for _ in 0..=dice.below(3) {
        let field = seed.fields[dice.below(seed.fields.len())].clone();
        let at = (field.start + dice.below(field.len())).min(bytes.len().saturating_sub(1));
        match dice.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.extend((0..dice.below(100)).map(|_| 1)),
            2 | 3 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << dice.below(8);
                }
            }
            kind => {
                let at = if kind < 6 { at & !3 } else { field.start + (at - field.start.min(at)) / 8 * 8 };
                let value = VALUES[dice.below(VALUES.len())].to_le_bytes();
                let width = if dice.below(2) == 0 { 4 } else { 8 };
                for (byte, value) in bytes.iter_mut().skip(at).zip(&value[..width]) {
                    *byte = *value;
                }
            }
        }
    }
}

fn run_everything(path: &Path, scratch: &Path) {
    drop(verify(path, &VerifyOptions::default(), &mut nothing()));
    for container in [Container::open(path), recover(path)].into_iter().flatten() {
        let total: u64 =
            (0..container.tasks()).map(|task| container.stream_bytes(task).unwrap()).fold(0, u64::saturating_add);
        assert!(total <= container.parts.iter().map(|part| part.length).sum(), "more data than the files have");
        let mut buffer = vec![0; 4096];
        for task in 0..container.tasks().min(64) {
            let bytes = container.stream_bytes(task).unwrap();
            drop(container.read_at(task, bytes / 2, &mut buffer));
        }
        let mut out = std::io::sink();
        drop(describe(&container, &DumpOptions { keys: true, records: true, ..DumpOptions::default() }, &mut out));
        drop(Sion.describe(path));
        if total < MOST_BYTES {
            let to = Destination::new(scratch, true).unwrap();
            let options = SplitOptions { recover: true, dry_run: true, ..SplitOptions::default() };
            drop(split(path, &to, &options, &mut nothing()));
            let options = DefragOptions { recover: true, dry_run: true, ..DefragOptions::default() };
            drop(defrag(path, &scratch.join("out.sion"), &options, &mut nothing()));
        }
    }
}

#[test]
fn changed_containers_cause_no_panic_hang_or_unbounded_allocation() {
    let mut dice = Dice(mutation_seed());
    let seeds = corpus();
    assert!(seeds.len() > 80, "{}", seeds.len());
    let directory = tempfile::tempdir().unwrap();
    let scratch = directory.path().join("split");
    for round in mutation_rounds(ROUNDS) {
        let seed = &seeds[dice.below(seeds.len())];
        let state = dice.0;
        for (index, (name, bytes)) in seed.files.iter().enumerate() {
            let mut bytes = bytes.clone();
            if index == 0 || dice.below(3) == 0 {
                mutate(&mut dice, seed, &mut bytes);
            }
            fs::write(directory.path().join(name), &bytes).unwrap();
        }
        let path = directory.path().join(&seed.files[0].0);
        let outcome = std::panic::catch_unwind(|| run_everything(&path, &scratch));
        assert!(outcome.is_ok(), "round {round} on {} from state {state}", seed.files[0].0);
        for (name, _) in &seed.files {
            fs::remove_file(directory.path().join(name)).unwrap();
        }
    }
}
