//! `holdfast example pair`: a copy of a pair that does what the demonstration of the Fault-tolerant Scheme does.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use holdfast_pairs_client::{PairCopy, PairsError, Place, Woken};

use super::failure::Failure;
use crate::exit;

/// Additions in a round.
const LAYERS: i64 = 3;
const ROUNDS: i64 = 3;
/// The time between two heartbeats of a copy that beats by itself.
const OWN_PERIOD: Duration = Duration::from_micros(500);

/// `holdfast example pair`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
It prints 1, 3, 6, then 7, 9, 12, then 13, 15, 18, each line by whichever copy is awake.

Examples:
  holdfast run configs/pairs.yaml           runs copies of it
  holdfast example pair main 0 1000         the command of a main")]
pub struct PairArgs {
    /// `main` or `replica`
    #[arg(value_name = "SIDE", value_parser = ["main", "replica"])]
    side: String,
    /// The number of the pair
    #[arg(value_name = "NUMBER")]
    number: u32,
    /// Milliseconds between two additions
    #[arg(value_name = "MILLISECONDS", default_value_t = 1000)]
    between_layers: u64,
    /// Milliseconds between two rounds [default: as between two additions]
    #[arg(value_name = "MILLISECONDS")]
    between_rounds: Option<u64>,
    /// Beat without a thread, and spin without a heartbeat while this file exists
    #[arg(long, value_name = "FILE")]
    hang_while: Option<PathBuf>,
}

pub(super) fn run(args: &PairArgs) -> Result<u8, Failure> {
    let failed = |error: PairsError| Failure::of(exit::UNAVAILABLE, &error);
    let place = Place::from_environment().map_err(failed)?;
    let told = (place.side.to_string(), place.index);
    if told != (args.side.clone(), args.number) {
        let message = format!("this process is the {} of pair {}, not what its command says", told.0, told.1);
        return Err(Failure::new(exit::USAGE, message).remedy("write `\"{side}\", \"{index}\"` in the spec's command"));
    }
    let mut copy = PairCopy::register(place).map_err(failed)?;
    match copy.wait().map_err(failed)? {
        Woken::Stop => return Ok(exit::FINISHED),
        Woken::Awake => {}
    }
    if args.hang_while.is_none() {
        copy.start_heartbeat().map_err(failed)?;
    }
    work(args, &copy).map_err(failed)?;
    Ok(exit::FINISHED)
}

fn work(args: &PairArgs, copy: &PairCopy) -> Result<(), PairsError> {
    let newest = copy.newest_checkpoint()?;
    let stored = newest.and_then(|(checkpoint, bytes)| Some((checkpoint.tag, *bytes.first_chunk::<8>()?)));
    let (mut done, mut x) = stored.map_or((0, 0), |(done, x)| (done, i64::from_ne_bytes(x)));
    while done < ROUNDS * LAYERS && !copy.stop_requested() {
        x += done % LAYERS + 1;
        done += 1;
        // A closed pipe does not end the work.
        let _ = writeln!(io::stdout(), "{x}");
        let _ = io::stdout().flush();
        copy.update_checkpoint(done, &x.to_ne_bytes())?;
        let between = match done % LAYERS {
            0 => args.between_rounds.unwrap_or(args.between_layers),
            _ => args.between_layers,
        };
        if done < ROUNDS * LAYERS {
            pause(args, copy, Duration::from_millis(between));
        }
    }
    if done == ROUNDS * LAYERS {
        copy.job_end();
    }
    Ok(())
}

/// Pauses until the time is over or the copy is to stop.
fn pause(args: &PairArgs, copy: &PairCopy, time: Duration) {
    let mut left = time;
    while !left.is_zero() && !copy.stop_requested() {
        let step = match &args.hang_while {
            Some(file) => {
                while file.exists() {
                    std::hint::spin_loop();
                }
                copy.beat();
                OWN_PERIOD
            }
            None => Duration::from_millis(5),
        };
        let step = step.min(left);
        sleep(step);
        left -= step;
    }
}
