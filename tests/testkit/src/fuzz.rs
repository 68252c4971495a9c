//! Parsers of untrusted content as targets of mutation tests and of coverage-guided fuzzing.
//!
//! A crate lists its targets in its module `fuzzing`. [`mutation_test!`](crate::mutation_test) runs them on changed
//! inputs of the corpus, in `cargo test`; `fuzz/run` runs the same targets under libFuzzer. Both limit the memory of
//! the process, so that an allocation by a number from the input fails.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZero;
use std::os::unix::process::ExitStatusExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use crate::{Dice, files_below, fixtures, mutation_rounds, mutation_seed};

/// A parser of untrusted content.
pub struct FuzzTarget {
    pub name: &'static str,
    /// Inputs to start from.
    pub corpus: fn() -> Vec<Vec<u8>>,
    /// Words of the format, which mutations insert.
    pub words: &'static [&'static str],
    /// Parses an input, and panics when a property of the parser does not hold.
    pub check: fn(&[u8]),
}

/// Address space of the process of a mutation test, in KiB.
const MOST_MEMORY_KIB: u64 = 3 << 20;
/// Processor time of that process, in seconds: an input whose parsing does not end fails the test.
const MOST_PROCESSOR_SECONDS: u64 = 1200;
/// Set in the process that runs the mutations.
const BOUNDED: &str = "HOLDFAST_MUTATION_PROCESS";
/// Larger files of the fixtures are no part of a corpus: they would take most of the time.
const LARGEST_INPUT: u64 = 16 << 10;
/// The number of files of the fixtures in a corpus.
const MOST_INPUTS: usize = 100;

/// Text inserted in every format: numbers at the limits of their types, and what separates values.
const WORDS: [&str; 22] = [
    "0",
    "1",
    "-1",
    "00",
    "255",
    "65536",
    "2147483647",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "999999999999999999",
    "1e999",
    "nan",
    "\0",
    "\n",
    "..",
    "/",
    "\u{e9}",
    "\u{1f980}",
];

/// The content of different small files of the fixtures whose names end like this.
///
/// # Panics
/// When there are none.
pub fn fixture_files(archives: &[&str], endings: &[&str]) -> Vec<Vec<u8>> {
    let mut contents = BTreeSet::new();
    for archive in archives {
        for path in files_below(&fixtures(archive)) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let fits = endings.iter().any(|ending| name.ends_with(ending));
            if fits && fs::symlink_metadata(&path).is_ok_and(|file| file.is_file() && file.len() <= LARGEST_INPUT) {
                contents.insert(fs::read(&path).unwrap());
            }
        }
    }
    assert!(!contents.is_empty(), "no files of {archives:?} end with {endings:?}");
    let step = contents.len().div_ceil(MOST_INPUTS);
    contents.into_iter().step_by(step).collect()
}

/// These texts as a corpus.
pub fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Defines the test that changes the inputs of targets at random: `rounds` for all of them together, see
/// [`mutation_rounds`].
#[macro_export]
macro_rules! mutation_test {
    ($targets:expr, $rounds:expr) => {
        #[test]
        fn mutated_input_is_parsed_or_refused() {
            let path = concat!(module_path!(), "::mutated_input_is_parsed_or_refused");
            $crate::fuzz::run_in_bounded_process(path, $targets, $rounds);
        }
    };
}

/// Runs the test of this path again in a process with limited memory. The process also shows a stack overflow or an
/// abort as a failure of this test.
///
/// # Panics
/// When a property does not hold, or the process dies.
pub fn run_in_bounded_process(test_path: &str, targets: &[FuzzTarget], rounds: u64) {
    if std::env::var_os(BOUNDED).is_some() {
        return check_mutations(targets, rounds);
    }
    // Test names do not contain the name of the crate.
    let (_, test) = test_path.split_once("::").unwrap();
    let program = std::env::current_exe().unwrap();
    let limited = format!("ulimit -v {MOST_MEMORY_KIB} && ulimit -t {MOST_PROCESSOR_SECONDS} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limited]).arg(program).args(["--exact", test, "--nocapture"]);
    let output = command.env(BOUNDED, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{} (signal {:?}; an abort is a stack overflow or an allocation over {MOST_MEMORY_KIB} KiB, SIGXCPU or SIGKILL \
         over {MOST_PROCESSOR_SECONDS} s of processor time; `fuzz/run` finds the input)\n{text}",
        output.status,
        output.status.signal()
    );
    assert!(text.contains("test result: ok. 1 passed"), "no test {test}: {text}");
}

/// Checks the corpus of every target, then changed inputs, on all processors.
fn check_mutations(targets: &[FuzzTarget], rounds: u64) {
    let seed = mutation_seed();
    let corpora: Vec<Vec<Vec<u8>>> = targets.iter().map(|target| (target.corpus)()).collect();
    for (target, corpus) in targets.iter().zip(&corpora) {
        assert!(!corpus.is_empty(), "{} has no corpus", target.name);
        corpus.iter().for_each(|input| check(target, input, "of the corpus"));
    }
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get) as u64;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let corpora = &corpora;
            scope.spawn(move || {
                for round in mutation_rounds(rounds.div_ceil(threads)) {
                    let seed = seed.wrapping_add(round * threads + thread);
                    let (at, mut dice) = ((seed % targets.len() as u64) as usize, Dice(seed));
                    let input = mutated(&mut dice, &corpora[at], targets[at].words);
                    check(&targets[at], &input, &format!("of HOLDFAST_MUTATION_SEED={seed}"));
                }
            });
        }
    });
}

fn check(target: &FuzzTarget, input: &[u8], origin: &str) {
    let result = catch_unwind(AssertUnwindSafe(|| (target.check)(input)));
    assert!(result.is_ok(), "{}: input {origin}: \"{}\"", target.name, input.escape_ascii());
}

/// A changed input of a corpus.
pub fn mutated(dice: &mut Dice, corpus: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut bytes = corpus[dice.below(corpus.len())].clone();
    for _ in 0..=dice.below(4) {
        mutate(dice, &mut bytes, corpus, words);
    }
    bytes
}

fn mutate(dice: &mut Dice, bytes: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&str]) {
    let at = dice.below(bytes.len() + 1);
    let end = (at + dice.below(24)).min(bytes.len());
    match dice.below(11) {
        0 => bytes.truncate(at),
        1 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
        2 if at < bytes.len() => bytes[at] = dice.roll() as u8,
        3 => drop(bytes.drain(at..end)),
        4 => {
            let word = word(dice, words);
            bytes.splice(at..at, word.bytes());
        }
        5 => {
            let word = word(dice, words);
            bytes.splice(at..(at + word.len()).min(bytes.len()), word.bytes());
        }
        6 => {
            // A number as text.
            let digit = |byte: &u8| byte.is_ascii_digit();
            let start = bytes.iter().skip(at).position(digit).map_or(at, |skipped| at + skipped);
            let end = start + bytes.iter().skip(start).take_while(|byte| digit(byte)).count();
            let word = WORDS[dice.below(WORDS.len())];
            bytes.splice(start..end, word.bytes());
        }
        7 => {
            // A number in binary.
            let numbers = [0, 1, u64::MAX, 1 << 31, 1 << 32, 1 << 63, 0x7fff_ffff, 0xffff_ffff, dice.roll()];
            let number = numbers[dice.below(numbers.len())];
            let width = [2, 4, 8][dice.below(3_usize)];
            let number =
                if dice.percent(50) { number.to_le_bytes() } else { (number << (64 - 8 * width)).to_be_bytes() };
            bytes.splice(at..(at + width).min(bytes.len()), number[..width].iter().copied());
        }
        8 => {
            let other = &corpus[dice.below(corpus.len())];
            let from = dice.below(other.len() + 1);
            bytes.splice(at.., other[from..].iter().copied());
        }
        9 => {
            let copy = bytes[at..end].to_vec();
            bytes.splice(at..at, copy);
        }
        // Deep nesting and long lists.
        _ if dice.percent(10) => {
            let piece = if dice.percent(50) { word(dice, words).as_bytes() } else { &bytes[at..end] };
            let many = piece.repeat(1 + dice.below(2_000_usize));
            bytes.splice(at..at, many);
        }
        _ => {}
    }
}

fn word<'a>(dice: &mut Dice, words: &[&'a str]) -> &'a str {
    let at = dice.below(words.len() + WORDS.len());
    words.get(at).copied().unwrap_or_else(|| WORDS[(at - words.len()).min(WORDS.len() - 1)])
}

/// Keys of SCR's hash files, and bytes that mean something in their packed form.
pub const SCR_KEYS: &[&str] = &[
    "CKPT",
    "RANK",
    "RANKS",
    "FILE",
    "FILES",
    "EXPECT",
    "CKPTDESC",
    "PARTNER",
    "LOCATION",
    "PFS",
    "SIZE",
    "CRC",
    "TYPE",
    "FULL",
    "COMPLETE",
    "VERSION",
    "DIR",
    "FAILED",
    "FETCHED",
    "FLUSHED",
    "GROUP",
    "CHUNK",
    "CURRENT",
    "CHANGE",
    "NODES",
    "CheckpointsLeft",
    "ExitAfter",
    "ExitBefore",
    "HaltSeconds",
    "ExitReason",
    "DESTINATION",
    "WRITTEN",
    "BW",
    "PERCENT",
    "COMMAND",
    "STATE",
    "FLAG",
    "\0\0\0\0\0",
    "\0\0\0\u{1}",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn target(check: fn(&[u8])) -> FuzzTarget {
        FuzzTarget { name: "test", corpus: || texts(&["size=12;name=a", "size=7"]), words: &["size"], check }
    }

    #[test]
    fn changes_of_inputs_depend_on_the_seed_only() {
        let corpus = texts(&["size=12;name=a", "size=7"]);
        let inputs = |seed: u64| -> BTreeSet<Vec<u8>> {
            (0..200).map(|round| mutated(&mut Dice(seed + round), &corpus, &["size"])).collect()
        };
        let (first, again) = (inputs(1), inputs(1));
        assert_eq!(first, again);
        assert!(first.len() > 150, "{}", first.len());
    }

    #[test]
    fn a_property_that_does_not_hold_names_target_input_and_seed() {
        let failing = [target(|bytes| assert!(!bytes.ends_with(b"7") || bytes == b"size=7"))];
        let failure = catch_unwind(|| check_mutations(&failing, 5_000)).unwrap_err();
        // The panic of a scoped thread is reported by the scope.
        assert!(failure.downcast_ref::<&str>().is_some_and(|text| text.contains("scoped thread panicked")));
        let corpus = [target(|bytes| assert!(bytes != b"size=7"))];
        let failure = catch_unwind(|| check_mutations(&corpus, 0)).unwrap_err();
        assert_eq!(failure.downcast_ref::<String>().unwrap(), "test: input of the corpus: \"size=7\"");
    }
}
