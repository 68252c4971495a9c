//! The writer produces FTI's bytes and the document's table, and rejects what violates the format.

use std::collections::BTreeSet;

use super::*;
use crate::fti_ff::FtiFf;
use crate::fti_ff::blocks::Block;
use crate::fti_ff::checkpoint::Checkpoint;
use crate::fti_ff::containers::{self, ContainerError};
use crate::fti_ff::writer::{self, Stamp};
use crate::{Format, Options};
use holdfast_testkit::{Dice, fast_directory};

/// Rewrites a real checkpoint from the blocks of the previous one, with the original's padding and time.
fn rewritten(before: &[Block], file: &Expected, directory: &Path) -> (Vec<Block>, Vec<u8>) {
    let original = Checkpoint::open(&file.path).unwrap();
    let values = file.variables();
    let order: Vec<(i32, u64)> =
        protect_order(original.blocks()).into_iter().map(|id| (id, values[&id].len() as u64)).collect();
    let mut blocks = containers::next(before, &order).unwrap();
    for (mine, theirs) in blocks.iter_mut().zip(original.blocks()) {
        for (mine, theirs) in mine.entries.iter_mut().zip(&theirs.entries) {
            mine.padding = theirs.padding;
        }
    }
    let size = |number: i64| u64::try_from(number).ok();
    let meta = &original.meta;
    let (largest_size, partner_size) = (size(meta.largest_size), size(meta.partner_size));
    let stamp = Stamp { timestamp: meta.timestamp, largest_size, partner_size };
    let path = directory.join("Ckpt.fti");
    let blocks = writer::write(&path, blocks, stamp, |writer| {
        // From several threads, in pieces of odd size, the last bytes first.
        std::thread::scope(|scope| {
            let threads: Vec<_> = values
                .iter()
                .map(|(id, bytes)| {
                    scope.spawn(move || {
                        let mut pieces: Vec<_> = bytes.chunks(777).enumerate().collect();
                        pieces.reverse();
                        pieces.into_iter().try_for_each(|(n, piece)| writer.write(*id, n as u64 * 777, piece))
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })
    })
    .unwrap();
    (blocks, fs::read(path).unwrap())
}

#[test]
fn writes_checkpoint_series_of_fixtures_byte_for_byte() {
    let directory = fast_directory();
    let trees = ["seven-l1", "seven-l1-small", "seven-l2", "seven-l3", "seven-l4", "grow", "ids"];
    let mut written = 0;
    for (tree, json) in trees
        .map(|tree| fixtures("fti").join("v1.1").join(tree))
        .iter()
        .map(|tree| (tree, serde_json::from_slice::<Value>(&fs::read(tree.join("expected.json")).unwrap()).unwrap()))
    {
        let mut files: Vec<_> = files_of(tree, &json).into_iter().filter(|file| file.role() == "rank file").collect();
        files.sort_by_key(|file| (file.json["owner_rank"].as_u64(), file.json["fb"]["timestamp"].as_i64()));
        let (mut rank, mut before) = (None, Vec::new());
        for file in &files {
            if rank != file.json["owner_rank"].as_u64() {
                (rank, before) = (file.json["owner_rank"].as_u64(), Vec::new());
            }
            let (blocks, bytes) = rewritten(&before, file, directory.path());
            let original = fs::read(&file.path).unwrap();
            assert!(bytes == original, "{}", file.path.display());
            before = blocks;
            written += 1;
        }
    }
    assert!(written > 100, "{written}");
}

/// The document's seven checkpoints: ids, and sizes as numbers of 4-byte integers.
const SEVEN: [&[(i32, u64)]; 7] = [
    &[(1, 1), (2, 2), (3, 3)],
    &[(1, 1), (2, 2), (3, 3), (4, 4)],
    &[(1, 1), (2, 6), (3, 7), (4, 4)],
    &[(1, 1), (2, 6), (3, 7), (4, 4), (5, 5)],
    &[(1, 1), (2, 5), (3, 6), (4, 4), (5, 5)],
    &[(1, 1), (2, 8), (3, 9), (4, 4), (5, 5)],
    &[],
];

#[test]
fn seven_checkpoints_of_fti_document_give_its_table_at_full_size() {
    let list: Value =
        serde_json::from_slice(&fs::read(fixtures("fti").join("seed-fullsize/metadata.json")).unwrap()).unwrap();
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 7);
    let directory = fast_directory();
    let all = std::env::var_os("HOLDFAST_LONG_TESTS").is_some();
    let mut before = Vec::new();
    for (number, (expected, sizes)) in list.iter().zip(SEVEN).enumerate() {
        let wanted = expected["blocks"].as_array().unwrap();
        // The sizes of the last checkpoint are those of its table.
        let mut sums: BTreeMap<i32, u64> = BTreeMap::new();
        for entry in wanted.iter().flat_map(|block| block["vars"].as_array().unwrap()) {
            *sums.entry(entry["id"].as_i64().unwrap() as i32).or_default() += entry["chunksize"].as_u64().unwrap();
        }
        let sizes: Vec<(i32, u64)> = match sizes {
            [] => sums.into_iter().collect(),
            sizes => sizes.iter().map(|(id, millions)| (*id, millions * 4_000_000)).collect(),
        };
        let blocks = containers::next(&before, &sizes).unwrap();
        assert_eq!(blocks.len(), wanted.len(), "checkpoint {}", number + 1);
        assert_eq!(containers::end(&blocks), expected["size"].as_u64());
        for (block, wanted) in blocks.iter().zip(wanted) {
            assert_eq!(Some(block.dbsize), wanted["dbsize"].as_i64());
            let vars = wanted["vars"].as_array().unwrap();
            assert_eq!(block.entries.len(), vars.len());
            for (entry, wanted) in block.entries.iter().zip(vars) {
                let numbers = [
                    ("id", entry.id.into()),
                    ("idx", entry.idx.unwrap().into()),
                    ("containerid", entry.containerid.into()),
                    ("hascontent", entry.hascontent.into()),
                    ("dptr", entry.dptr),
                    ("fptr", entry.fptr),
                    ("chunksize", entry.chunksize),
                    ("containersize", entry.containersize),
                ];
                for (key, number) in numbers {
                    assert_eq!(Some(number), wanted[key].as_i64(), "{key} in checkpoint {}", number + 1);
                }
            }
        }
        before = blocks;
        if number == 0 || all {
            let path = directory.path().join("Ckpt.fti");
            before = writer::write(&path, before, Stamp::at(1), |writer| {
                let epoch = number as u32 + 1;
                sizes.iter().try_for_each(|(id, size)| {
                    writer.write(*id, 0, &content(*id, 0, &[(epoch, 0, usize::try_from(*size).unwrap())]))
                })
            })
            .unwrap();
            let described = serde_json::to_value(FtiFf.describe(&path).unwrap()).unwrap();
            assert_eq!(described["checksum"], expected["md5_of_VB_with_zeroed_padding"]);
        }
    }
}

#[test]
fn rejects_variables_that_the_format_cannot_store() {
    let first = containers::next(&[], &[(1, 8), (2, 0)]).unwrap();
    assert_eq!(containers::next(&first, &[(1, 8)]), Err(ContainerError::Missing { id: 2 }));
    assert_eq!(containers::next(&first, &[(1, 8), (2, 0), (1, 3)]), Err(ContainerError::Twice { id: 1 }));
    let swapped = containers::next(&first, &[(2, 0), (1, 8)]);
    assert_eq!(swapped, Err(ContainerError::Order { id: 1, before: 0, now: 1 }));
    assert_eq!(containers::next(&first, &[(1, u64::MAX), (2, 0)]), Err(ContainerError::TooLarge));
    assert_eq!(containers::next(&first, &[(1, i64::MAX as u64), (2, 0)]), Err(ContainerError::TooLarge));
    let directory = fast_directory();
    let path = directory.path().join("Ckpt1-Rank0.fti");
    fs::write(&path, "the one before").unwrap();
    let beyond = writer::write(&path, first, Stamp::at(1), |writer| writer.write(1, 4, b"12345"));
    assert!(beyond.unwrap_err().to_string().contains("Ckpt1-Rank0.fti"));
    assert_eq!(fs::read(&path).unwrap(), b"the one before");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn variables_of_random_sizes_are_read_back_as_written() {
    let directory = fast_directory();
    let path = directory.path().join("Ckpt1-Rank0.fti");
    let mut dice = Dice(7);
    let mut before = Vec::new();
    for step in 1..40_u32 {
        let sizes: Vec<(i32, u64)> = (0..=step.min(5) as i32).map(|id| (id, dice.below(4) * dice.below(50))).collect();
        let value = |id: i32, size: u64| content(id, 0, &[(step, 0, usize::try_from(size).unwrap())]);
        before = writer::write(&path, containers::next(&before, &sizes).unwrap(), Stamp::at(1), |writer| {
            sizes.iter().try_for_each(|(id, size)| writer.write(*id, 0, &value(*id, *size)))
        })
        .unwrap();
        let check = FtiFf.verify(&path, &Options::default(), &mut |_, _| {}).unwrap();
        assert!(check.is_intact(), "{check:?}");
        let checkpoint = Checkpoint::open(&path).unwrap();
        assert_eq!(checkpoint.blocks(), before);
        for (variable, (id, size)) in checkpoint.variables().iter().zip(&sizes) {
            assert!((variable.id, super::value(&checkpoint, variable)) == (*id, value(*id, *size)));
        }
    }
}

/// The ids in protect order, from the blocks of a checkpoint. A restarted run must keep this order.
fn protect_order(blocks: &[Block]) -> Vec<i32> {
    let entries = blocks.iter().flat_map(|block| &block.entries);
    let by_place: BTreeSet<(Option<i32>, i32)> = entries.map(|entry| (entry.idx, entry.id)).collect();
    by_place.into_iter().map(|(_, id)| id).collect()
}
