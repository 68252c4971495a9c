//! The heartbeats of the copies: when they are read, and which copies are excused for missing some.

use std::time::Duration;

use holdfast_failover::Event;
use holdfast_model::Side;
use holdfast_shm::SlotState;
use holdfast_shm::schedule::{BEAT_THREAD, early_look, next_look};
use rustix::time::{ClockId, Itimerspec, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_settime};

use super::super::process::copy_threads;
use super::{CopyRun, Watcher};

/// How often registrations are looked for while a copy is awaited, if the heartbeats are slower.
const REGISTRATION: Duration = Duration::from_millis(5);
/// For so long, a copy is excused that would beat if it had a processor.
const EXCUSED: Duration = Duration::from_secs(1);
/// For so long, a copy is excused whose thread sleeps until its next heartbeat: its timer is late, as when a hypervisor
/// has stopped one processor of the machine.
const LATE: Duration = Duration::from_millis(50);

/// A copy that has missed its heartbeats, as it was found afterwards.
struct SilentCopy {
    /// Since it was excused first without a heartbeat in between.
    silent: Duration,
    /// Since it was woken.
    awake: Option<Duration>,
    /// It has noticed that it was woken.
    noticed: bool,
    /// Names and states of its threads.
    threads: Vec<(String, u8)>,
    /// It has a heartbeat after all: read after the states of its threads.
    has_beaten: bool,
}

impl SilentCopy {
    /// True if a thread of the library beats, at multiples of the period.
    fn has_own_thread(&self) -> bool {
        self.threads.iter().any(|(name, _)| name.as_bytes() == BEAT_THREAD.to_bytes())
    }

    /// True if the copy has no heartbeats only because it has no processor: its thread that beats is ready to run or
    /// waits for its timer, or it was just woken and has not come that far. For a limited time: otherwise it would
    /// never be replaced.
    fn is_excused(&self) -> bool {
        let is_stopped = |state: u8| matches!(state, b'T' | b't' | b'Z' | b'X');
        if self.has_beaten {
            return true;
        }
        if self.silent >= EXCUSED || self.threads.iter().all(|(_, state)| is_stopped(*state)) {
            return false;
        }
        match self.threads.iter().find(|(name, _)| name.as_bytes() == BEAT_THREAD.to_bytes()) {
            Some((_, b'S')) => self.silent < LATE || !self.noticed,
            Some((_, state)) => *state == b'R' || !self.noticed,
            // It has no such thread yet, or beats by itself.
            None => self.awake.is_some_and(|awake| awake < EXCUSED),
        }
    }
}

impl Watcher {
    /// Reads the heartbeats of all copies that are watched, and reports those that missed too many.
    pub(super) fn beats(&mut self, now: Duration) {
        self.resumed(now);
        let registry = &self.registry;
        let missed = self.watch.observe(now, |pair, side| registry.beats(pair, side));
        for missed in missed {
            let (Some(at), side) = (self.positions.get(&missed.pair).copied(), missed.side) else { continue };
            let slot = self.registry.copy(missed.pair, side);
            let incarnation = missed.incarnation;
            if slot.incarnation == incarnation && slot.state == SlotState::Finished {
                if let Some(pair) = self.pairs.get_mut(at) {
                    pair.runs[side.index()].finishing = true;
                }
                self.feed(at, now, Event::Finishing { side, incarnation });
                continue;
            }
            let Some(run) = self.pairs.get_mut(at).map(|pair| &mut pair.runs[side.index()]) else { continue };
            let since = match run.excused {
                Some((of, since)) if of == missed.beats => since,
                _ => now,
            };
            run.excused = Some((missed.beats, since));
            let threads = copy_threads(&slot, run.process.as_ref());
            let silent = SilentCopy {
                silent: now.saturating_sub(since),
                awake: run.woken.map(|woken| now.saturating_sub(woken)),
                noticed: slot.state == SlotState::Awake,
                threads,
                has_beaten: self.registry.beats(missed.pair, side) != missed.beats,
            };
            if missed.early && !silent.has_own_thread() {
                self.watch.wait(missed.pair, side);
            } else if silent.is_excused() {
                self.watch.excuse(missed.pair, side);
            } else {
                self.feed(at, now, Event::BeatsMissed { side, incarnation, misses: missed.misses });
            }
        }
        let suspected = self.watch.suspected();
        self.set_early_timer(suspected.map(|period| early_look(period, now)));
    }

    fn set_early_timer(&mut self, at: Option<Duration>) {
        if at == self.early_look {
            return;
        }
        let it_value = at.and_then(|at| Timespec::try_from(at).ok()).unwrap_or_default();
        let spec = Itimerspec { it_interval: Timespec::default(), it_value };
        match timerfd_settime(&self.early_timer, TimerfdTimerFlags::ABSTIME, &spec) {
            Ok(_) => self.early_look = at,
            Err(error) => tracing::error!(%error, "pairs_timer_not_set"),
        }
    }

    /// Copies that have more work, after they said that it was done; their heartbeats are not read meanwhile.
    fn resumed(&mut self, now: Duration) {
        for at in 0..self.pairs.len() {
            for side in Side::BOTH {
                let Some(pair) = self.pairs.get_mut(at) else { continue };
                let run = &mut pair.runs[side.index()];
                if !run.finishing {
                    continue;
                }
                let slot = self.registry.copy(pair.index, side);
                let incarnation = run.incarnation;
                if slot.incarnation == incarnation && slot.state == SlotState::Awake {
                    run.finishing = false;
                    self.feed(at, now, Event::Resumed { side, incarnation });
                }
            }
        }
    }

    /// The timer runs while there are heartbeats to read, or while a copy is to register, or to end after its work: it
    /// may have more work after all.
    pub(super) fn set_timer(&mut self) {
        let awaited = |run: &CopyRun| {
            let exists = run.process.is_some();
            exists && run.finishing || !run.registered && (run.starting || exists)
        };
        let starting = || self.pairs.iter().any(|pair| pair.runs.iter().any(awaited));
        let wanted = match self.watch.is_empty() {
            false => Some(self.period.min(if starting() { REGISTRATION } else { self.period })),
            true => starting().then_some(REGISTRATION),
        };
        if wanted == self.timed {
            return;
        }
        // Copies beat at multiples of their period: their beats are read half a period later, when they are there.
        let interval = wanted.unwrap_or_default();
        let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
        let first = wanted.map_or(Duration::ZERO, |interval| next_look(interval, now));
        let spec = |duration| Timespec::try_from(duration).unwrap_or_default();
        let spec = Itimerspec { it_interval: spec(interval), it_value: spec(first) };
        match timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec) {
            Ok(_) => self.timed = wanted,
            Err(error) => tracing::error!(%error, "pairs_timer_not_set"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent(state: u8, silent: u64) -> SilentCopy {
        SilentCopy {
            silent: Duration::from_millis(silent),
            awake: Some(Duration::from_secs(60)),
            noticed: true,
            threads: vec![("work".to_owned(), b'S'), ("holdfast-beat".to_owned(), state)],
            has_beaten: false,
        }
    }

    #[test]
    fn copy_is_excused_while_it_waits_for_a_processor_or_its_timer() {
        assert_eq!([0, 60, 999, 1000].map(|ms| silent(b'R', ms).is_excused()), [true, true, true, false]);
        assert_eq!([0, 49, 50].map(|ms| silent(b'S', ms).is_excused()), [true, true, false]);
        assert_eq!([b'D', b'T'].map(|state| silent(state, 0).is_excused()), [false, false]);
        // Its thread had a processor at last, and sleeps until the next heartbeat, when it is looked at.
        assert!(SilentCopy { has_beaten: true, ..silent(b'S', 60) }.is_excused());
    }

    #[test]
    fn copy_without_a_thread_that_beats_is_excused_just_after_it_was_woken_only() {
        let of = |seconds| SilentCopy {
            threads: vec![("work".to_owned(), b'R')],
            awake: Some(Duration::from_secs(seconds)),
            ..silent(b'R', 0)
        };
        assert_eq!([0, 1].map(|seconds| of(seconds).is_excused()), [true, false]);
    }
}
