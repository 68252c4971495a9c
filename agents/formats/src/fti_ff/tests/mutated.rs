//! No input causes a panic, a hang or unbounded allocation: files of the fixtures are changed at random.
//!
//! The seed makes a failure reproducible. `mutation_rounds` of the test kit documents how to run it longer.

use super::*;
use crate::fti_ff::FtiFf;
use crate::fti_ff::layout::{FileMeta, Layout, checksum_field};
use crate::{Destination, Format, Options, recognise};
use holdfast_testkit::{Dice, fast_directory, mutation_rounds, mutation_seed};
use md5::{Digest, Md5};

/// Numbers at which arithmetic on sizes goes wrong.
const NUMBERS: [u64; 12] = [
    0,
    1,
    u64::MAX,
    i64::MAX as u64,
    i64::MIN as u64,
    u32::MAX as u64,
    i32::MAX as u64,
    1 << 31,
    1 << 40,
    u64::MAX - 11,
    96,
    108,
];

fn mutate(bytes: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.below(4) {
        let size = bytes.len();
        // Metadata is at the start or at the end; most changes belong there.
        let at = match dice.below(4) {
            0 => dice.below(size),
            1 => size.saturating_sub(1 + dice.below(400)),
            _ => dice.below(size.min(400)),
        };
        match dice.below(7) {
            0 if size > 0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes.truncate(at),
            2 => bytes.extend((0..dice.below(200)).map(|n| n as u8)),
            3 if size > 0 => {
                let end = (at + dice.below(300)).min(size);
                bytes.drain(at..end);
            }
            4 if size > 0 => {
                let copy = bytes[at..(at + dice.below(300)).min(size)].to_vec();
                let to = dice.below(size);
                bytes.splice(to..to, copy);
            }
            _ => {
                let number = NUMBERS[dice.below(NUMBERS.len())].to_le_bytes();
                let width = if dice.below(2) == 0 { 4 } else { 8 };
                for (to, from) in bytes.iter_mut().skip(at).zip(number.iter().take(width)) {
                    *to = *from;
                }
            }
        }
    }
}

/// Corrects the hashes, so that the code after their check is reached.
fn rehash(bytes: &mut [u8], layout: Layout) {
    let (size, length) = (bytes.len(), layout.meta_bytes());
    let Some(last) = size.checked_sub(length) else { return };
    let start = if layout.is_data_first() { last } else { 0 };
    if layout == Layout::A {
        let checksum = checksum_field(&Md5::digest(&bytes[length..]).into());
        bytes[..33].copy_from_slice(&checksum);
    }
    let hash = FileMeta::parse(layout, &bytes[start..start + length]).unwrap().computed_hash();
    bytes[start + 33..start + 49].copy_from_slice(&hash);
}

#[test]
fn changed_files_cause_no_panic_hang_or_unbounded_output() {
    let corpus: Vec<Vec<u8>> = files_below(&fixtures("fti"))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "fti"))
        .map(|path| fs::read(path).unwrap())
        .filter(|bytes| bytes.len() < 20_000)
        .step_by(5)
        .collect();
    assert!(corpus.len() > 100);
    let directory = fast_directory();
    let path = directory.path().join("Ckpt7-Rank2.fti");
    let to = Destination::new(&directory.path().join("out"), true).unwrap();
    let layouts = [Layout::A, Layout::B, Layout::C, Layout::D, Layout::E, Layout::F];
    let mut dice = Dice(mutation_seed());
    let (mut rounds, mut intact, mut longest) = (0_u64, 0_u64, 0);
    for round in mutation_rounds(4000) {
        rounds = round + 1;
        let mut bytes = corpus[dice.below(corpus.len())].clone();
        let original = bytes.clone();
        mutate(&mut bytes, &mut dice);
        if dice.below(2) == 0 {
            rehash(&mut bytes, layouts[dice.below(layouts.len())]);
        }
        fs::write(&path, &bytes).unwrap();
        let recognised = recognise(&path).unwrap();
        assert!(recognised.format.is_some(), "round {round}");
        let check = FtiFf.verify(&path, &Options::default(), &mut |_, _| {}).unwrap();
        assert!(check.checked_bytes <= bytes.len() as u64, "round {round}");
        intact += u64::from(check.is_intact() && bytes != original);
        if let Ok(described) = FtiFf.describe(&path) {
            longest = longest.max(described.to_string().len());
        }
        if round % 8 == 0 {
            let options = Options { recover: round % 16 == 0, ..Options::default() };
            if let Ok(extracted) = FtiFf.extract(&path, &to, &options, &mut |_, _| {}) {
                assert!(extracted.bytes <= bytes.len() as u64, "round {round}");
            }
        }
    }
    // Changes of bytes that no hash covers (unused space, padding, the id) are not detected; most changes are.
    assert!(intact * 4 < rounds, "{intact} of {rounds}");
    assert!(longest < 1 << 20, "{longest}");
}
