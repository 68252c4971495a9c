//! Every command ends with a result for any file content: the fixtures are changed at random and passed to the program.
//!
//! Few rounds; the mutation tests of the libraries have tens of thousands. `mutation_rounds` of the
//! test kit documents how to run more rounds.

use std::fs;
use std::path::PathBuf;

use holdfast_testkit::{Dice, fast_directory, files_below, fixtures, mutation_rounds, mutation_seed};

use crate::run;

const ROUNDS: u64 = 60;
const LARGEST: u64 = 40_000;

/// The files of each format.
fn corpora() -> Vec<Vec<PathBuf>> {
    let endings = ["fti", "sion", "jubatus", "scr", "scrinfo", "xor"];
    let wanted = |path: &PathBuf| {
        let named = path.extension().is_some_and(|end| endings.iter().any(|it| end == *it));
        named && !path.is_symlink() && fs::metadata(path).unwrap().len() <= LARGEST
    };
    let of = |name: &&str| files_below(&fixtures(name)).into_iter().filter(wanted).collect();
    ["fti", "sion", "jubatus", "scr"].iter().map(of).collect()
}

fn mutate(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..=dice.below(4) {
        let at = match dice.below(3) {
            0 => dice.below(bytes.len()),
            1 => bytes.len().saturating_sub(1 + dice.below(200)),
            _ => dice.below(bytes.len().min(120)),
        };
        match dice.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.extend((0..dice.below(64)).map(|byte| byte as u8)),
            2 => bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte = 0xff),
            3 => bytes.iter_mut().skip(at).take(4).for_each(|byte| *byte = dice.roll() as u8),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << dice.below(8)),
        }
    }
}

#[test]
fn mutated_files_do_not_crash_or_hang_commands() {
    let mut dice = Dice(mutation_seed());
    let corpora = corpora();
    let directory = fast_directory();
    for round in mutation_rounds(ROUNDS) {
        let state = dice.0;
        // The formats take turns, because some have many files.
        let corpus = &corpora[round as usize % corpora.len()];
        let source = &corpus[dice.below(corpus.len())];
        let path = directory.path().join(source.file_name().unwrap());
        let mut bytes = fs::read(source).unwrap();
        match dice.below(8) {
            0 => bytes.iter_mut().for_each(|byte| *byte = dice.roll() as u8),
            _ => mutate(&mut dice, &mut bytes),
        }
        fs::write(&path, bytes).unwrap();
        for words in ["inspect", "verify --details", "inspect --json", "extract --dry-run --recover --to nowhere"] {
            // A signal, as after a panic or when memory is exhausted, fails `run` itself.
            let ran = run(words, &[&path]);
            let place = format!("{words} of {} from state {state}", source.display());
            assert!([0, 64, 65].contains(&ran.code), "{place}: {} {}", ran.code, ran.err);
            assert!(!ran.err.contains("panicked"), "{place}: {}", ran.err);
            assert!(ran.out.len() < 8 << 20, "{place}: {} bytes", ran.out.len());
        }
        fs::remove_file(&path).unwrap();
    }
}
