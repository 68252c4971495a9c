//! The role of a rank that saves one variable through the variables API, on command.

use std::io::BufRead as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use holdfast_client::variables::{Level, Variables};

use crate::Result;
use crate::rank::answer;

/// Changes are made at so many places.
const PLACES: usize = 10;

pub fn play() -> Result<()> {
    let bytes: usize = std::env::args().nth(1).ok_or("no size")?.parse()?;
    let mut joined: Option<(Variables, Arc<Mutex<Vec<u64>>>)> = None;
    let (mut checkpoint, mut seed) = (0, 1_u64);
    answer(0.0)?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let seconds = match (line.split_once(' ').unwrap_or((&line, "")), &mut joined) {
            (("init", _), None) => {
                let begun = Instant::now();
                let mut variables = Variables::init()?;
                let seconds = begun.elapsed().as_secs_f64();
                let data = variables.share(1, "data", vec![0_u64; bytes / 8]);
                joined = Some((variables, data));
                seconds
            }
            (("change", permille), Some((_, data))) => {
                let mut data = data.lock().unwrap_or_else(PoisonError::into_inner);
                change(&mut data, permille.parse()?, &mut seed);
                0.0
            }
            (("checkpoint", _), Some((variables, _))) => {
                checkpoint += 1;
                let begun = Instant::now();
                let completed = variables.checkpoint(checkpoint, Level::Local)?;
                if !completed.kept {
                    return Err(format!("checkpoint {checkpoint} was not kept: {:?}", variables.write_error()).into());
                }
                begun.elapsed().as_secs_f64()
            }
            (("written", _), Some((variables, _))) => variables.written().bytes as f64 / bytes as f64,
            _ => return Err(format!("a rank does not know what to do: {line:?}").into()),
        };
        answer(seconds)?;
    }
    Ok(())
}

/// Changes this part of the data, in pieces that begin anywhere.
fn change(data: &mut [u64], permille: usize, seed: &mut u64) {
    let part = data.len() / PLACES;
    for place in data.chunks_mut(part.max(1)) {
        let changed = place.len() * permille / 1000;
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let first = (*seed >> 33) as usize % (place.len() - changed + 1);
        for value in place.iter_mut().skip(first).take(changed) {
            *seed ^= *seed << 13;
            *seed ^= *seed >> 7;
            *seed ^= *seed << 17;
            *value = *seed;
        }
    }
}
