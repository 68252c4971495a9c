//! A copy of a pair, for the benchmark `pairs`: waits for its turn, and beats until it is told to end.

use std::thread::sleep;
use std::time::Duration;

use holdfast_pairs_client::{Place, init_wait};

use crate::Result;

pub fn play() -> Result<()> {
    if let Some(copy) = init_wait(Place::from_environment()?)? {
        while !copy.stop_requested() {
            sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}
