//! Adds 1 to each number of its state in every step, and stores the state every 10 ms.

use std::thread::sleep;
use std::time::Duration;

use holdfast_pairs_client::{PairsError, Place, init_wait};

const STEPS: i64 = 300;

fn main() -> Result<(), PairsError> {
    let Some(copy) = init_wait(Place::from_environment()?)? else {
        return Ok(()); // told to end before it was this copy's turn
    };
    let (mut state, mut step) = (vec![0_u64; 50_000], 0);
    if let Some((checkpoint, bytes)) = copy.newest_checkpoint()? {
        step = checkpoint.tag;
        state = bytes.as_chunks().0.iter().map(|number| u64::from_ne_bytes(*number)).collect();
    }
    println!("from step {step}");
    while step < STEPS && !copy.stop_requested() {
        state.iter_mut().for_each(|number| *number += 1);
        step += 1;
        let bytes: Vec<u8> = state.iter().flat_map(|number| number.to_ne_bytes()).collect();
        copy.update_checkpoint(step, &bytes)?;
        sleep(Duration::from_millis(10));
    }
    if step == STEPS {
        println!("sum {}", state.iter().sum::<u64>());
        copy.job_end(); // the work is done: a copy that was told to end before must not say so
    }
    Ok(())
}
