//! A copy of a pair, for the benchmark `pairs`: waits for its turn, and beats until its agent ends it. With
//! `HOLDFAST_BENCH_CHECKPOINT`, it also stores a checkpoint of so many bytes each 10 ms.

use std::thread::sleep;
use std::time::{Duration, Instant};

use holdfast_pairs_client::{Place, init_wait};

use crate::Result;

/// The bytes of a checkpoint.
pub const CHECKPOINT: &str = "HOLDFAST_BENCH_CHECKPOINT";
/// The time between two checkpoints.
pub const BETWEEN: Duration = Duration::from_millis(10);

pub fn play() -> Result<()> {
    let Some(copy) = init_wait(Place::from_environment()?)? else { return Ok(()) };
    let bytes = std::env::var(CHECKPOINT).ok().map(|text| text.parse()).transpose()?.map(|bytes| vec![7_u8; bytes]);
    let mut next = Instant::now();
    while !copy.stop_requested() {
        if let Some(bytes) = &bytes {
            copy.update_checkpoint(1, bytes)?;
        }
        next = (next + BETWEEN).max(Instant::now());
        sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}
