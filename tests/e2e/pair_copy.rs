//! A program of pairs that records when it is awake: this test binary itself, started as a copy.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use holdfast_pairs_client::{Place, init_wait};
use holdfast_testkit::awake;

/// The directory of the files in which copies record their steps. A file `finish` there ends the pair.
pub const RECORDS: &str = "PAIRS_TEST_RECORDS";
const BETWEEN_STEPS: Duration = Duration::from_millis(10);

/// Runs as a copy of a pair, and ends the process, if the environment has [`RECORDS`].
pub fn program_if_copy() {
    let Some(directory) = std::env::var_os(RECORDS).map(PathBuf::from) else { return };
    let side = Place::from_environment().unwrap().side;
    let Some(copy) = init_wait(Place::from_environment().unwrap()).unwrap() else { std::process::exit(0) };
    let mut record = File::create_new(directory.join(awake::file_name(&side.to_string()))).unwrap();
    let mut step = copy.newest_checkpoint().unwrap().map_or(0, |(checkpoint, _)| checkpoint.tag);
    while !copy.stop_requested() {
        step += 1;
        // With one call: a copy that is killed leaves whole lines.
        record.write_all(awake::line(step).as_bytes()).unwrap();
        if copy.update_checkpoint(step, &step.to_ne_bytes()).is_err() {
            // The lease has ended.
            std::process::exit(1);
        }
        if directory.join("finish").exists() {
            copy.job_end();
            break;
        }
        sleep(BETWEEN_STEPS);
    }
    std::process::exit(0);
}
