//! Checkpoints that are written over earlier ones.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use super::value;
use crate::fti_ff::checkpoint::Checkpoint;
use crate::fti_ff::differential::{CheckpointFile, Image, UNIT, VariableSource, Written, file_size};
use crate::fti_ff::layout::Layout;
use crate::fti_ff::verify;

struct Memory(Vec<(i32, Vec<u8>)>);

impl VariableSource for Memory {
    fn variables(&self) -> Vec<(i32, u64)> {
        self.0.iter().map(|(id, bytes)| (*id, bytes.len() as u64)).collect()
    }

    fn read(&self, id: i32, read: &mut dyn FnMut(&[u8])) {
        self.0.iter().filter(|(known, _)| *known == id).for_each(|(_, bytes)| read(bytes));
    }
}

fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 % 251) as u8 ^ seed).collect()
}

fn save(
    path: &Path,
    layout: Layout,
    memory: &Memory,
    held: Option<&Image>,
    previous: Option<&Image>,
) -> (Image, Written) {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    let (checkpoint, timestamp) = (3, 77);
    let (held, previous) = (held.cloned().map(Arc::new), previous.cloned().map(Arc::new));
    let size = file_size(layout, previous.as_deref(), &memory.variables()).unwrap();
    let into = CheckpointFile { file: &file, path, layout, checkpoint, timestamp, partner_size: None, held, previous };
    let written = into.write(memory).unwrap();
    assert_eq!(size, file.metadata().unwrap().len());
    check(path, memory);
    written
}

/// The file is intact, FTI's reader accepts it, and it contains the variables.
fn check(path: &Path, memory: &Memory) {
    let check = verify::verify(path, &mut |_, _| {}).unwrap();
    assert!(check.is_intact() && check.notes.is_empty(), "{check:?}");
    let file = Checkpoint::open(path).unwrap();
    let stored: BTreeMap<i32, Vec<u8>> =
        file.variables().iter().map(|variable| (variable.id, value(&file, variable))).collect();
    assert!(stored == memory.0.iter().cloned().collect(), "the variables differ");
}

fn with_file(work: impl Fn(Layout, &Path, &Path)) {
    for layout in [Layout::A, Layout::F] {
        let directory = tempfile::tempdir().unwrap();
        work(layout, &directory.path().join("Ckpt3-Rank0.fti"), &directory.path().join("Ckpt3-Rank1.fti"));
    }
}

#[test]
fn only_what_changed_is_written_and_hashed() {
    with_file(|layout, path, _| {
        let mut memory = Memory(vec![(1, pattern(1, 40 * UNIT + 100)), (7, pattern(2, 10)), (2, Vec::new())]);
        let (first, full) = save(path, layout, &memory, None, None);
        assert!(full.bytes >= full.variables, "{full:?}");
        memory.0[0].1[20 * UNIT] ^= 1;
        let (_, written) = save(path, layout, &memory, Some(&first), Some(&first));
        assert!(written.bytes < 2 * UNIT as u64, "{written:?}");
        let container = if layout == Layout::A { 40 * UNIT as u64 + 100 } else { UNIT as u64 };
        assert_eq!(written.hashed, container);
    });
}

#[test]
fn variables_are_added_in_any_order_and_the_file_is_a_checkpoint_only_when_it_is_finished() {
    with_file(|layout, path, other| {
        let memory = Memory(vec![(1, pattern(1, 3 * UNIT)), (7, Vec::new()), (2, pattern(9, UNIT + 3))]);
        save(other, layout, &memory, None, None);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
        let (checkpoint, timestamp, partner_size, held, previous) = (3, 77, None, None, None);
        let into = CheckpointFile { file: &file, path, layout, checkpoint, timestamp, partner_size, held, previous };
        let mut open = into.begin(&memory.variables()).unwrap();
        let is_intact = || verify::verify(path, &mut |_, _| {}).is_ok_and(|check| check.is_intact());
        for (id, bytes) in memory.0.iter().rev() {
            assert!(!is_intact());
            open.add(*id, bytes).unwrap();
        }
        assert!(!is_intact());
        open.finish().unwrap();
        check(path, &memory);
        assert!(std::fs::read(path).unwrap() == std::fs::read(other).unwrap(), "as if written at once");
    });
}

#[test]
fn a_file_of_an_older_checkpoint_gets_the_changes_of_both() {
    with_file(|layout, path, other| {
        let mut memory = Memory(vec![(1, pattern(1, 30 * UNIT)), (2, pattern(9, 3 * UNIT))]);
        let (first, _) = save(path, layout, &memory, None, None);
        memory.0[0].1[UNIT] ^= 1;
        let (second, _) = save(other, layout, &memory, None, Some(&first));
        memory.0[0].1[5 * UNIT] ^= 1;
        let (_, written) = save(path, layout, &memory, Some(&first), Some(&second));
        assert!((2 * UNIT as u64..3 * UNIT as u64).contains(&written.bytes), "{written:?}");
        if layout == Layout::F {
            assert_eq!(written.hashed, UNIT as u64, "the other hash is known from the second checkpoint");
        }
    });
}

#[test]
fn variables_grow_shrink_appear_and_end() {
    with_file(|layout, path, other| {
        let mut memory = Memory(vec![(1, pattern(1, 3 * UNIT)), (2, pattern(2, 2 * UNIT + 5))]);
        let (mut held, _) = save(path, layout, &memory, None, None);
        let (mut previous, _) = save(other, layout, &memory, None, Some(&held));
        let changes: [fn(&mut Memory); 7] = [
            |memory| memory.0[1].1.extend(pattern(3, UNIT + 1)),
            |memory| memory.0[1].1.truncate(UNIT / 2),
            |memory| memory.0.push((5, pattern(5, 100))),
            |memory| memory.0[0].1.clear(),
            |memory| memory.0[0].1 = pattern(4, 7 * UNIT),
            |memory| drop(memory.0.remove(0)),
            |memory| memory.0.swap(0, 1),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            change(&mut memory);
            // The two files are used in turn, as when older checkpoints are evicted.
            let into = if number % 2 == 0 { path } else { other };
            let (image, _) = save(into, layout, &memory, Some(&held), Some(&previous));
            (held, previous) = (previous, image);
        }
    });
}

#[test]
fn unused_bytes_of_containers_are_zero() {
    with_file(|layout, path, other| {
        let mut memory = Memory(vec![(1, vec![0xaa; 2 * UNIT]), (2, vec![0xbb; UNIT])]);
        let (first, _) = save(path, layout, &memory, None, None);
        memory.0[0].1.truncate(10);
        let (second, _) = save(other, layout, &memory, None, Some(&first));
        let (_, _) = save(path, layout, &memory, Some(&first), Some(&second));
        // Apart from the time stamps, both are what FTI writes.
        let content = std::fs::read(path).unwrap();
        assert_eq!(content.iter().filter(|byte| **byte == 0xaa).count() / 20, 0, "old data are overwritten");
        assert_eq!(content, std::fs::read(other).unwrap());
    });
}

#[test]
fn content_that_was_read_is_not_written_again() {
    with_file(|layout, path, other| {
        let memory = Memory(vec![(1, pattern(1, 9 * UNIT)), (2, pattern(2, 5))]);
        save(path, layout, &memory, None, None);
        std::fs::copy(path, other).unwrap();
        let file = Checkpoint::open(other).unwrap();
        let mut image = Image::of_file(file.meta.layout, file.blocks());
        assert_eq!(image.sizes(), [(1, 9 * UNIT as u64), (2, 5)]);
        memory.0.iter().for_each(|(id, bytes)| image.learn(*id, bytes));
        let (_, written) = save(other, layout, &memory, Some(&image), Some(&image));
        assert_eq!(written.hashed, 0);
        assert!(written.bytes < UNIT as u64, "{written:?}");
    });
}

#[test]
fn an_empty_file_is_written_if_the_content_is_of_another_layout() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("Ckpt3-Rank0.fti");
    let memory = Memory(vec![(1, pattern(1, 9 * UNIT))]);
    let (image, _) = save(&path, Layout::A, &memory, None, None);
    let (_, written) = save(&path, Layout::F, &memory, Some(&image), Some(&image));
    assert!(written.bytes > 9 * UNIT as u64 && File::open(&path).is_ok());
}

/// The bytes of block heads, variable entries and file metadata.
fn metadata(file: &Checkpoint) -> std::ops::Range<usize> {
    file.meta.data_size.unwrap() as usize..file.input.size as usize
}

#[test]
fn each_wrong_bit_in_the_metadata_of_a_chunked_file_is_found_before_variables_are_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("Ckpt3-Rank0.fti");
    let memory = Memory(vec![(1, pattern(1, UNIT + 3)), (7, pattern(2, 10)), (2, pattern(3, 5))]);
    save(&path, Layout::F, &memory, None, None);
    let intact = std::fs::read(&path).unwrap();
    assert!(verify::verify_own(&path, &mut |_, _| {}).unwrap().is_intact());
    let places = metadata(&Checkpoint::open(&path).unwrap());
    for (place, bit) in places.clone().flat_map(|place| (0..8).map(move |bit| (place, bit))) {
        let mut bytes = intact.clone();
        bytes[place] ^= 1 << bit;
        std::fs::write(&path, &bytes).unwrap();
        let check = verify::verify_own(&path, &mut |_, _| {}).unwrap();
        let last = place + 1 == places.end;
        assert!(!check.is_intact() || last, "bit {bit} of byte {} is wrong", place - places.start);
    }
}

#[test]
fn a_container_that_lost_its_content_is_damage_also_in_files_without_a_crc() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("Ckpt3-Rank0.fti");
    save(&path, Layout::F, &Memory(vec![(1, pattern(1, 10)), (2, pattern(2, 5))]), None, None);
    let mut bytes = std::fs::read(&path).unwrap();
    // Without the mark in the last byte, as an earlier version wrote it.
    *bytes.last_mut().unwrap() = 0;
    let last_entry = bytes.len() - Layout::F.meta_bytes() - Layout::F.entry_bytes();
    std::fs::write(&path, &bytes).unwrap();
    assert!(verify::verify_own(&path, &mut |_, _| {}).unwrap().is_intact());
    bytes[last_entry + 8] = 0;
    std::fs::write(&path, &bytes).unwrap();
    let check = verify::verify(&path, &mut |_, _| {}).unwrap();
    assert!(check.is_intact() && check.notes[0].kind == verify::REFUSED_BY_FTI, "{check:?}");
    assert!(!verify::verify_own(&path, &mut |_, _| {}).unwrap().is_intact());
}
