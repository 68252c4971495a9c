//! The calls of a copy.

use std::sync::Arc;

use holdfast_shm::{Checkpoint, Seat, Side, Woken};

use crate::error::PairsError;
use crate::heartbeat::Heartbeat;
use crate::place::Place;

/// This process as a copy of a pair. Dropping it ends the heartbeat: the agent then takes the copy for failed, unless
/// the process ends.
#[derive(Debug)]
pub struct PairCopy {
    /// Dropped first: its thread uses the seat.
    heartbeat: Option<Heartbeat>,
    seat: Arc<Seat>,
    place: Place,
}

/// Registers this process, sleeps until it is its turn, and starts the heartbeat. `None`: the copy was told to end
/// before it was woken; the program ends with exit code 0.
///
/// # Errors
/// The registry cannot be used, or there can be no thread for the heartbeat.
pub fn init_wait(place: Place) -> Result<Option<PairCopy>, PairsError> {
    let mut copy = PairCopy::register(place)?;
    if copy.wait()? == Woken::Stop {
        return Ok(None);
    }
    copy.start_heartbeat()?;
    Ok(Some(copy))
}

impl PairCopy {
    /// Registers this process, asleep.
    ///
    /// # Errors
    /// The registry cannot be used, or expects another incarnation.
    pub fn register(place: Place) -> Result<PairCopy, PairsError> {
        let seat = Arc::new(Seat::take(&place.registry, place.pair, place.side, place.incarnation)?);
        Ok(PairCopy { heartbeat: None, seat, place })
    }

    /// Sleeps until it is this copy's turn, or it must end.
    ///
    /// # Errors
    /// The registry is damaged, or there can be no thread that looks at the lease.
    pub fn wait(&mut self) -> Result<Woken, PairsError> {
        let woken = self.seat.wait()?;
        if woken == Woken::Awake && self.seat.has_lease() {
            self.start_thread(false)?;
        }
        Ok(woken)
    }

    fn start_thread(&mut self, beats: bool) -> Result<(), PairsError> {
        match &self.heartbeat {
            Some(heartbeat) if beats => heartbeat.beat_from_now(),
            Some(_) => {}
            None => {
                let started = Heartbeat::start(Arc::clone(&self.seat), self.place.period, beats);
                self.heartbeat = Some(started.map_err(PairsError::Thread)?);
            }
        }
        Ok(())
    }

    /// Starts the thread that beats each period. A program that calls [`Self::beat`] itself, so that it is also
    /// replaced when its work hangs, does without it.
    ///
    /// # Errors
    /// The system permits no further thread.
    pub fn start_heartbeat(&mut self) -> Result<(), PairsError> {
        self.start_thread(true)
    }

    /// A heartbeat. Of no use beside the thread. Ends this process if the agent has ended this copy.
    pub fn beat(&self) {
        self.seat.obey_fence();
        self.seat.beat();
    }

    /// The side of this copy.
    pub fn side(&self) -> Side {
        self.place.side
    }

    /// The number of the pair among those of its element of the spec, `{index}` there.
    pub fn index(&self) -> u32 {
        self.place.index
    }

    /// The largest checkpoint that the job permits, in bytes.
    pub fn most_checkpoint_bytes(&self) -> u64 {
        self.seat.most_checkpoint_bytes()
    }

    /// Stores a checkpoint, with a number of the program's, such as a step. Returns the number of the checkpoint.
    ///
    /// # Errors
    /// It is too large, this copy is not awake, or another one was started in its place.
    pub fn update_checkpoint(&self, tag: i64, bytes: &[u8]) -> Result<u64, PairsError> {
        Ok(self.seat.update_checkpoint(tag, bytes)?)
    }

    /// The newest checkpoint of the pair that is intact, whichever copy has stored it. `None`: there is none yet.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn newest_checkpoint(&self) -> Result<Option<(Checkpoint, Vec<u8>)>, PairsError> {
        let mut bytes = Vec::new();
        let newest = self.seat.newest_checkpoint(&mut bytes)?;
        Ok(newest.map(|checkpoint| (checkpoint, bytes)))
    }

    /// Whether the other copy takes over, so that this one must end. Ends it with SIGTERM, and a moment later with
    /// SIGKILL, if it does not end by itself.
    pub fn stop_requested(&self) -> bool {
        self.seat.stop_requested()
    }

    /// There is work: takes [`Self::job_end`] back.
    pub fn job_begin(&self) {
        self.seat.resume();
    }

    /// The work is done: when this process ends with exit code 0, the pair is finished.
    pub fn job_end(&self) {
        self.seat.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::thread;
    use std::time::{Duration, Instant};

    use holdfast_shm::{Layout, Registry, SlotState};
    use tempfile::TempDir;

    use super::*;

    fn registry(directory: &TempDir) -> Registry {
        let layout = Layout { pairs: 1, checkpoint_bytes: vec![100], ring: 10 };
        Registry::create(&directory.path().join("registry"), &layout, "job").unwrap()
    }

    fn place(directory: &Path, side: Side, incarnation: u64) -> Place {
        let period = Duration::from_millis(1);
        Place { registry: directory.join("registry"), pair: 0, index: 0, side, incarnation, period }
    }

    fn beats_beyond(registry: &Registry, side: Side, count: u64) -> bool {
        let begun = Instant::now();
        while registry.beats(0, side) <= count && begun.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(1));
        }
        registry.beats(0, side) > count
    }

    /// Handlers of the program's signals run in threads of the program.
    fn assert_heartbeat_runs_no_handlers() {
        let mut found = 0;
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            // Other tests' threads may end meanwhile.
            let Ok(status) = std::fs::read_to_string(task.unwrap().path().join("status")) else { continue };
            if status.starts_with("Name:\tholdfast-beat\n") {
                let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
                // All that can be blocked; bits 8 and 18 are SIGKILL and SIGSTOP, and the C library keeps two for
                // itself.
                let usual = u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff;
                assert_eq!(usual, 0x7fff_ffff & !(1 << 8) & !(1 << 18), "{mask}");
                found += 1;
            }
        }
        assert!(found > 0);
    }

    #[test]
    fn a_copy_beats_from_its_turn_until_it_is_dropped() {
        let directory = TempDir::new().unwrap();
        let registry = registry(&directory);
        registry.expect(0, Side::Main, 1);
        registry.wake(0, Side::Main, 1);
        let copy = init_wait(place(directory.path(), Side::Main, 1)).unwrap().unwrap();
        assert!(beats_beyond(&registry, Side::Main, 20));
        assert_heartbeat_runs_no_handlers();
        copy.job_end();
        assert_eq!(registry.copy(0, Side::Main).state, SlotState::Finished);
        copy.job_begin();
        assert_eq!(registry.copy(0, Side::Main).state, SlotState::Awake);
        assert_eq!(copy.update_checkpoint(5, b"five").unwrap(), 1);
        let (newest, bytes) = copy.newest_checkpoint().unwrap().unwrap();
        assert_eq!((newest.tag, bytes.as_slice()), (5, b"five".as_slice()));
        drop(copy);
        let last = registry.beats(0, Side::Main);
        thread::sleep(Duration::from_millis(20));
        assert_eq!(registry.beats(0, Side::Main), last);
    }

    #[test]
    fn a_copy_that_is_told_to_end_while_asleep_has_no_turn() {
        let directory = TempDir::new().unwrap();
        let registry = registry(&directory);
        registry.expect(0, Side::Replica, 4);
        let seen = registry.registrations();
        let place = place(directory.path(), Side::Replica, 4);
        let copy = thread::spawn(move || init_wait(place).unwrap().is_none());
        while registry.registrations() == seen {
            assert!(!copy.is_finished());
            thread::yield_now();
        }
        registry.request_stop(0, Side::Replica, 4);
        assert!(copy.join().unwrap());
        assert_eq!(registry.beats(0, Side::Replica), 0);
    }

    #[test]
    fn without_its_thread_a_copy_beats_when_the_program_does() {
        let directory = TempDir::new().unwrap();
        let registry = registry(&directory);
        registry.expect(0, Side::Main, 1);
        registry.wake(0, Side::Main, 1);
        let mut copy = PairCopy::register(place(directory.path(), Side::Main, 1)).unwrap();
        assert_eq!(copy.wait().unwrap(), Woken::Awake);
        thread::sleep(Duration::from_millis(10));
        assert_eq!(registry.beats(0, Side::Main), 1);
        copy.beat();
        assert_eq!(registry.beats(0, Side::Main), 2);
    }
}
