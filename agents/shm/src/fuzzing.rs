//! The registry as a target of mutation tests and fuzzing: its header, and what a stray or hostile process may write to
//! the words and checkpoints of a pair while they are mapped.

// A property that does not hold is reported by panicking.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use holdfast_testkit::fuzz::FuzzTarget;
use tempfile::NamedTempFile;

use crate::layout::{FIXED_BYTES, Geometry, Layout, UNIT};
use crate::{Registry, Seat, ShmError, Side, SlotState};

pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "registry_header", corpus: headers, words: &["HFPAIRS\0"], check: header },
    FuzzTarget { name: "registry_words", corpus: || vec![used_area()], words: &[], check: words },
];

const PAGE: usize = 4096;
const CAPACITY: u64 = 100;
const RING: u32 = 3;
/// The first page of the area, and the entries of the ring.
const INPUT: usize = PAGE + RING as usize * 128;

fn layout() -> Layout {
    Layout { pairs: 1, checkpoint_bytes: vec![CAPACITY], ring: RING }
}

fn headers() -> Vec<Vec<u8>> {
    let layouts = [layout(), Layout { pairs: 3, checkpoint_bytes: vec![400_000, 0, 1 << 36], ring: 10 }];
    layouts.iter().map(|layout| Geometry::of(layout, 7).unwrap().header()).collect()
}

fn header(bytes: &[u8]) {
    let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else { return };
    // As if the file had the size that its header names.
    let file_bytes = fixed.get(16..).and_then(|rest| rest.first_chunk()).map_or(0, |size| u64::from_ne_bytes(*size));
    let geometry = Geometry::read(fixed, file_bytes, |table| {
        bytes.get(FIXED_BYTES..FIXED_BYTES + table).map(<[u8]>::to_vec).ok_or_else(|| "it ends".to_owned())
    });
    let Ok(geometry) = geometry else { return };
    let mut offset = UNIT;
    for area in &geometry.areas {
        assert!(area.offset >= offset && area.offset + area.bytes <= file_bytes, "{area:?} of {file_bytes}");
        assert!(area.data + area.stride * u64::from(area.ring) <= area.bytes && area.capacity <= area.stride);
        offset = area.offset + area.bytes;
    }
}

/// The area of a pair whose copies have been at work.
fn used_area() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("registry");
    let registry = Registry::create(&path, &layout(), "job").unwrap();
    for (side, incarnation) in [(Side::Main, 3), (Side::Replica, 5)] {
        registry.expect(0, side, incarnation);
        let seat = Seat::take(&path, 0, side, incarnation).unwrap();
        registry.wake(0, side, incarnation);
        seat.wait().unwrap();
        for step in 0..2 {
            seat.update_checkpoint(step, &[step as u8; CAPACITY as usize]).unwrap();
        }
    }
    let file = fs::read(&path).unwrap();
    let [area, data] = [UNIT as usize, 2 * UNIT as usize];
    [&file[area..area + PAGE], &file[data..data + INPUT - PAGE]].concat()
}

fn words(input: &[u8]) {
    let input = &input[..input.len().min(INPUT)];
    let geometry = Geometry::of(&layout(), 7).unwrap();
    let (page, data) = input.split_at(input.len().min(PAGE));
    let memory = Path::new("/dev/shm");
    let file = if memory.is_dir() { NamedTempFile::new_in(memory) } else { NamedTempFile::new() }.unwrap();
    file.as_file().set_len(geometry.file_bytes).unwrap();
    for (bytes, offset) in [(geometry.header().as_slice(), 0), (page, UNIT), (data, 2 * UNIT)] {
        file.as_file().write_all_at(bytes, offset).unwrap();
    }
    let path = file.path();
    let registry = Registry::open(path).unwrap();
    let mut bytes = Vec::new();
    for side in Side::BOTH {
        let slot = registry.copy(0, side);
        let is_registered = matches!(slot.state, SlotState::Asleep | SlotState::Awake | SlotState::Finished);
        assert_eq!(is_registered, slot.pid > 1, "{slot:?}");
        assert!(i32::try_from(slot.pid).is_ok(), "{slot:?}");
        assert!(registry.beats(0, side) < 1 << 40);
        registry.held_until(0, side);
    }
    registry.registrations();
    assert!(registry.newest(0).is_none_or(|newest| newest.bytes <= CAPACITY));
    let read = registry.read_newest(0, &mut bytes).unwrap();
    assert!(bytes.len() as u64 <= CAPACITY && (read.is_some() || bytes.is_empty()));
    registry.checkpoint_counter(0);

    // A copy that the words do not allow is refused; one that they allow does not sleep when its file is gone.
    let incarnation = registry.copy(0, Side::Main).incarnation;
    let older = Seat::take(path, 0, Side::Main, incarnation);
    if let Ok(older) = &older {
        registry.hold_until(0, Side::Main, None);
        older.stop_requested();
    }
    // A copy that is started now can do its work, whatever is there.
    registry.expect(0, Side::Replica, 9);
    let seat = Seat::take(path, 0, Side::Replica, 9).unwrap();
    assert_eq!(registry.copy(0, Side::Replica).state, SlotState::Asleep);
    file.close().unwrap();
    if let Ok(older) = older {
        match older.wait() {
            Ok(_) | Err(ShmError::DamagedWord(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    registry.wake(0, Side::Replica, 9);
    seat.wait().unwrap();
    assert_eq!(registry.beats(0, Side::Replica), 1);
    match seat.update_checkpoint(11, b"new") {
        Ok(sequence) => {
            let newest = registry.read_newest(0, &mut bytes).unwrap().unwrap();
            assert_eq!((newest.sequence, newest.tag, bytes.as_slice()), (sequence, 11, b"new".as_slice()));
        }
        Err(ShmError::NoNextSequence(0)) => {}
        Err(error) => panic!("{error}"),
    }
    registry.expect(0, Side::Main, 0);
    registry.expect(0, Side::Replica, 0);
    registry.put_mirrored(0, 7, 1, b"mirrored").unwrap();
    assert_eq!(registry.newest(0).unwrap().sequence, 7);
}

#[cfg(test)]
mod tests {
    holdfast_testkit::mutation_test!(super::TARGETS, 10_000);

    #[test]
    fn mutated_bytes_are_errors_one_by_one() {
        let area = super::used_area();
        super::words(&area);
        for at in 0..area.len() {
            for change in [1, 0x80, 0xff] {
                let mut changed = area.clone();
                changed[at] ^= change;
                super::words(&changed);
            }
        }
    }
}
