//! What `Seat::update_checkpoint` costs beside a plain copy of the same bytes to a ring of the same size in shared
//! memory, measured by turns: `cargo bench -p holdfast-shm`.

// A benchmark reports by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_shm::{Layout, Registry, Seat, Side, Woken};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use tempfile::TempDir;

const BYTES: usize = 400_000;
const RING: usize = 10;
const ROUNDS: usize = 400;

/// A ring of plain memory, mapped as the registry is.
struct Plain {
    base: *mut u8,
    next: usize,
}

impl Plain {
    fn new(directory: &Path, name: &str) -> Plain {
        let file = File::create_new(directory.join(name)).unwrap();
        file.set_len((RING * BYTES) as u64).unwrap();
        let file = File::options().read(true).write(true).open(directory.join(name)).unwrap();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of a file of this length.
        let base = unsafe { mmap(std::ptr::null_mut(), RING * BYTES, protection, MapFlags::SHARED, &file, 0) };
        Plain { base: base.unwrap().cast(), next: 0 }
    }

    fn copy(&mut self, bytes: &[u8]) {
        self.next = (self.next + 1) % RING;
        // SAFETY: entry `next` of the mapping has `BYTES` bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(self.next * BYTES), BYTES) };
        black_box(self.base);
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`.
        unsafe { munmap(self.base.cast(), RING * BYTES) }.unwrap();
    }
}

fn main() {
    let memory = Path::new("/dev/shm");
    let directory = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap();
    for pairs in [1, 10] {
        let path = directory.path().join(format!("registry{pairs}"));
        let layout = Layout { pairs, checkpoint_bytes: vec![BYTES as u64; pairs as usize], ring: RING as u32 };
        let registry = Registry::create(&path, &layout, "bench").unwrap();
        let seats: Vec<Seat> = (0..pairs)
            .map(|pair| {
                registry.expect(pair, Side::Main, 1);
                registry.wake(pair, Side::Main, 1);
                let seat = Seat::take(&path, pair, Side::Main, 1).unwrap();
                assert_eq!(seat.wait().unwrap(), Woken::Awake);
                seat
            })
            .collect();
        let mut plain: Vec<Plain> =
            (0..pairs).map(|pair| Plain::new(directory.path(), &format!("plain{pairs}-{pair}"))).collect();
        let mut states: Vec<Vec<u8>> = (0..pairs).map(|pair| vec![pair as u8; BYTES]).collect();
        let (mut copies, mut updates) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            for pair in 0..pairs as usize {
                // A program has just computed its state.
                states[pair].iter_mut().for_each(|byte| *byte = byte.wrapping_add(round as u8));
                let state = &states[pair];
                let mut copy = |copies: &mut Vec<Duration>| {
                    let begun = Instant::now();
                    plain[pair].copy(state);
                    copies.push(begun.elapsed());
                };
                if round % 2 == 0 {
                    copy(&mut copies);
                }
                let begun = Instant::now();
                seats[pair].update_checkpoint(round as i64, state).unwrap();
                updates.push(begun.elapsed());
                if round % 2 == 1 {
                    copy(&mut copies);
                }
            }
        }
        let (copy, update) = (figures("copy", pairs, copies), figures("update_checkpoint", pairs, updates));
        println!("{pairs:>2} pairs: update_checkpoint takes {:.2} times a copy (medians)", update / copy);
    }
}

fn figures(what: &str, pairs: u32, mut times: Vec<Duration>) -> f64 {
    // The first round of each ring causes page faults in the plain one.
    times.drain(..2 * RING * pairs as usize);
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6;
    let speed = BYTES as f64 / at(50) / 1e3;
    println!("{pairs:>2} pairs: {what:<18} p50 {:6.1} µs  p99 {:6.1} µs  {speed:5.1} GB/s", at(50), at(99));
    at(50)
}
