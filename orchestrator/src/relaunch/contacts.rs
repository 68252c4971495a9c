//! When the agents answered last, and how long each may be silent.
//!
//! Silence is measured in *running time*: the time in which this process verifiably ran and polled, as the poller
//! reports it ([`Event::PollsRan`](super::Event::PollsRan)). While the process is stopped, or does not get a processor,
//! running time stands still, so that a stall of the orchestrator is no silence of its agents. After a stall silence is
//! counted from its end: every agent is asked again before it is judged.
//!
//! The accepted silence adapts to the delay of answers, estimated as TCP estimates its retransmission timeout
//! (RFC 6298): of this agent, and of all agents. `down_after` is the lower bound.

use std::collections::BTreeMap;
use std::time::Duration;

use super::config::Config;
use crate::allocation::AgentPresence;

/// A difference between the clock and the running time that counts as a stall, at least.
const SHORTEST_STALL: Duration = Duration::from_millis(500);
/// The adaptive limit is not extended beyond this.
const LONGEST_LIMIT: Duration = Duration::from_secs(60);
/// The factor by which more patience is shown while most agents are silent.
const PATIENCE_WITH_MOST: u32 = 4;
/// The weight of an observation is one part in this many: for one agent, and for all agents together.
const AGENT_WEIGHT: u32 = 8;
const FLEET_WEIGHT: u32 = 64;

/// The smoothed mean of a delay and its mean deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DelayEstimate {
    mean: Duration,
    deviation: Duration,
}

impl DelayEstimate {
    fn observe(&mut self, delay: Duration, weight: u32) {
        let smooth = |old: Duration, new: Duration| old - old / weight + new / weight;
        self.deviation = smooth(self.deviation, delay.abs_diff(self.mean));
        self.mean = smooth(self.mean, delay);
    }

    /// A longer delay is improbable.
    fn bound(&self) -> Duration {
        self.mean + 4 * self.deviation
    }
}

/// An agent that has been silent for longer than is accepted, and is not given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Suspicion {
    /// The last request to check whether its process exists, in running time; `None` before the first.
    pub asked: Option<Duration>,
    /// The result of the last check.
    pub presence: Option<AgentPresence>,
    /// It is in the event log.
    pub logged: bool,
}

/// The interval at which a suspected agent is checked.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// So many checks are begun in that time at most. Each opens a connection, and takes more time than hundreds of polls:
/// if thousands of answers are late, checking all of these agents would delay them further.
const CHECKS: u32 = 128;

/// The contacts to all agents. All times are running time, except where the text says `now`.
#[derive(Clone, Debug, Default)]
pub(super) struct Contacts {
    ran: Duration,
    /// `now` and the running time at the last report of the poller.
    reported: Option<(Duration, Duration)>,
    /// The end of the last stall; silence is counted from here.
    counted_from: Duration,
    /// `now` at the end of the last stall: the delays of answers to earlier polls are not those of the agents.
    stall_end: Duration,
    last: Vec<Duration>,
    delays: Vec<DelayEstimate>,
    all: DelayEstimate,
    /// Delays since the last report, by the position of the node. Only the next report shows whether there was a stall.
    unconfirmed: Vec<(u32, Duration)>,
    pub suspects: BTreeMap<u32, Suspicion>,
    /// When the present interval of checks began, and how many were begun in it.
    checks: (Duration, u32),
    /// Suspected agents that were not checked yet, as of the last [`Contacts::begin_checks`].
    unchecked: bool,
    /// The silence of most agents is in the event log.
    pub most_logged: bool,
}

impl Contacts {
    pub fn new(nodes: usize) -> Self {
        Contacts {
            last: vec![Duration::ZERO; nodes],
            delays: vec![DelayEstimate::default(); nodes],
            ..Contacts::default()
        }
    }

    /// Running time begins with `now`; a stall can follow at once.
    pub fn begin(&mut self, now: Duration) {
        self.reported = Some((now, now));
        self.ran = now;
        self.counted_from = now;
    }

    /// The running time.
    pub fn time(&self) -> Duration {
        self.ran
    }

    /// The running time at an agent's last answer.
    pub fn last(&self, position: u32) -> Duration {
        self.last[position as usize]
    }

    /// Records a report of the running time. Returns the length of a stall that ended before it.
    pub fn advance(&mut self, now: Duration, ran: Duration, config: &Config) -> Option<Duration> {
        let (before, before_ran) = self.reported.replace((now, ran)).unwrap_or((now, ran));
        self.ran = self.ran.max(ran);
        let missing = now.saturating_sub(before).saturating_sub(ran.saturating_sub(before_ran));
        let delays = std::mem::take(&mut self.unconfirmed);
        if missing < SHORTEST_STALL.max(config.down_after / 2) {
            for (position, delay) in delays {
                self.delays[position as usize].observe(delay, AGENT_WEIGHT);
                self.all.observe(delay, FLEET_WEIGHT);
            }
            return None;
        }
        self.counted_from = self.ran;
        self.stall_end = now;
        Some(missing)
    }

    /// An agent has answered. Returns the suspicion that this ends. If the silence of most agents ends with it, that of
    /// the others counts from now: they are about to answer too.
    pub fn answered(&mut self, position: u32) -> Option<Suspicion> {
        self.last[position as usize] = self.ran;
        let suspicion = self.suspects.remove(&position);
        if suspicion.is_some() && self.most_logged {
            self.counted_from = self.ran;
        }
        suspicion
    }

    /// Records the delay of an answer that was received at `now` to a poll that was sent at `sent`.
    pub fn observe(&mut self, position: u32, now: Duration, sent: Duration, config: &Config) {
        if sent >= self.stall_end {
            // The agent may delay its answer by the poll interval.
            self.unconfirmed.push((position, now.saturating_sub(sent).saturating_sub(config.poll)));
        }
    }

    /// Before suspected agents are checked, those that were not checked yet first.
    pub fn begin_checks(&mut self) {
        self.unchecked = self.suspects.values().any(|suspicion| suspicion.asked.is_none());
        if self.ran.saturating_sub(self.checks.0) >= CHECK_EVERY {
            self.checks = (self.ran, 0);
        }
    }

    /// Suspects an agent that is silent; true if it was not suspected before.
    pub fn suspect(&mut self, position: u32, config: &Config) -> bool {
        if self.suspects.contains_key(&position) || self.silence(position) < self.limit(position, config) {
            return false;
        }
        self.suspects.insert(position, Suspicion { asked: None, presence: None, logged: false });
        true
    }

    /// True if an agent is suspected and is to be checked now, which counts as done.
    pub fn check_is_due(&mut self, position: u32) -> bool {
        let Some(suspicion) = self.suspects.get_mut(&position) else { return false };
        let is_old = |asked| !self.unchecked && self.ran.saturating_sub(asked) >= CHECK_EVERY;
        let due = suspicion.asked.is_none_or(is_old) && self.checks.1 < CHECKS;
        if due {
            suspicion.asked = Some(self.ran);
            self.checks.1 += 1;
        }
        due
    }

    /// The agent of a node is not up any more, or is another process now.
    pub fn forget(&mut self, position: u32) {
        self.suspects.remove(&position);
        self.delays[position as usize] = DelayEstimate::default();
    }

    /// For how long an agent has been silent.
    pub fn silence(&self, position: u32) -> Duration {
        self.ran.saturating_sub(self.last[position as usize].max(self.counted_from))
    }

    /// The longest accepted silence of an agent; after it the agent is suspected.
    pub fn limit(&self, position: u32, config: &Config) -> Duration {
        let delay = self.delays[position as usize].bound().max(self.all.bound());
        config.down_after.max((config.poll + 2 * delay).min(LONGEST_LIMIT))
    }

    /// Most of the agents that are up are silent: this process, its machine or its network is the likely cause.
    pub fn most_are_silent(&self, up: u32) -> bool {
        self.suspects.len() >= 2 && self.suspects.len() * 2 > up as usize
    }

    /// Answers of other agents are late, too: an agent that is restarted now would be late as well.
    pub fn answers_are_late(&self, up: u32, config: &Config) -> bool {
        let answering = (up as usize).saturating_sub(self.suspects.len());
        self.suspects.len() * 4 > up as usize || (answering > 0 && self.all.bound() > config.down_after)
    }

    /// Why a suspected agent is given up now; `None` while it is not.
    pub fn given_up(&self, position: u32, up: u32, config: &Config) -> Option<String> {
        let presence = &self.suspects.get(&position)?.presence;
        let silence = self.silence(position);
        let most = self.most_are_silent(up);
        let while_alive = config.replace_after.max(2 * self.limit(position, config));
        let (limit, found) = match presence {
            Some(AgentPresence::Ended) => (Duration::ZERO, "its process has ended"),
            Some(AgentPresence::NoAnswer) if most => (while_alive, "its machine does not answer"),
            Some(AgentPresence::NoAnswer) => (Duration::ZERO, "its machine does not answer"),
            Some(AgentPresence::Stopped) if config.replaces_stopped && !most => {
                (2 * self.limit(position, config), "its process does not run, as other agents find too")
            }
            Some(AgentPresence::Present | AgentPresence::Stopped) | None => {
                (if most { PATIENCE_WITH_MOST * while_alive } else { while_alive }, "its process exists")
            }
        };
        // The silence is that since the last stall, if there was one: an agent that has ended is given up all the same.
        (silence >= limit).then(|| format!("no answer for {} ms, and {found}", silence.as_millis()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn config() -> Config {
        Config::new(Vec::new(), 0, 1)
    }

    /// Contacts to some agents at one second, all of which answer then.
    fn contacts(nodes: u32) -> Contacts {
        let mut contacts = Contacts::new(nodes as usize);
        contacts.begin(ms(1000));
        contacts.advance(ms(1000), ms(1000), &config());
        for position in 0..nodes {
            contacts.answered(position);
        }
        contacts
    }

    fn suspect(contacts: &mut Contacts, position: u32, presence: Option<AgentPresence>) {
        contacts.suspects.insert(position, Suspicion { asked: Some(ms(0)), presence, logged: true });
    }

    #[test]
    fn a_stall_is_no_silence_and_silence_is_counted_from_its_end() {
        let mut contacts = contacts(1);
        assert_eq!(contacts.advance(ms(1600), ms(1600), &config()), None);
        assert_eq!(contacts.silence(0), ms(600));
        assert_eq!(contacts.advance(ms(21_600), ms(1700), &config()), Some(ms(19_900)));
        assert_eq!(contacts.silence(0), ms(0));
        assert_eq!(contacts.advance(ms(21_800), ms(1900), &config()), None);
        assert_eq!(contacts.silence(0), ms(200));
    }

    #[test]
    fn time_in_which_the_poller_got_no_processor_counts_in_part() {
        let mut contacts = contacts(1);
        for step in 1..=10 {
            assert_eq!(contacts.advance(ms(1000 + 200 * step), ms(1000 + 100 * step), &config()), None);
        }
        assert_eq!(contacts.silence(0), ms(1000));
    }

    #[test]
    fn the_limit_follows_the_delay_of_answers_and_is_never_below_down_after() {
        let mut contacts = contacts(2);
        let prompt = contacts.limit(0, &config());
        assert_eq!(prompt, config().down_after);
        for _ in 0..20 {
            contacts.observe(0, ms(3250), ms(1000), &config());
        }
        contacts.advance(ms(1050), ms(1050), &config());
        let late = contacts.limit(0, &config());
        assert!(late > ms(4000), "{late:?}");
        assert!(contacts.limit(1, &config()) > prompt, "answers of another agent are late");
        for _ in 0..400 {
            contacts.observe(0, ms(1250), ms(1000), &config());
        }
        contacts.advance(ms(1100), ms(1100), &config());
        assert_eq!(contacts.limit(0, &config()), config().down_after);
    }

    #[test]
    fn an_answer_to_a_poll_from_before_a_stall_is_no_delay() {
        let mut contacts = contacts(1);
        // Answers arrive before the stall is reported, and after it.
        contacts.observe(0, ms(61_000), ms(1000), &config());
        contacts.advance(ms(61_000), ms(1050), &config());
        contacts.observe(0, ms(61_010), ms(1000), &config());
        contacts.advance(ms(61_050), ms(1100), &config());
        assert_eq!(contacts.limit(0, &config()), config().down_after);
    }

    #[test]
    fn a_stall_before_the_first_report_is_no_delay_and_no_silence() {
        let mut contacts = Contacts::new(1);
        contacts.begin(ms(1000));
        contacts.observe(0, ms(21_000), ms(1050), &config());
        assert_eq!(contacts.advance(ms(21_000), ms(1100), &config()), Some(ms(19_900)));
        contacts.observe(0, ms(21_010), ms(1050), &config());
        contacts.advance(ms(21_100), ms(1200), &config());
        assert_eq!(contacts.limit(0, &config()), config().down_after);
        assert_eq!(contacts.silence(0), ms(100));
    }

    #[test]
    fn an_agent_whose_process_exists_is_given_up_after_the_longer_limit() {
        let mut contacts = contacts(4);
        contacts.advance(ms(2500), ms(2500), &config());
        for (presence, given_up) in [
            (None, false),
            (Some(AgentPresence::Present), false),
            (Some(AgentPresence::Stopped), true),
            (Some(AgentPresence::NoAnswer), true),
            (Some(AgentPresence::Ended), true),
        ] {
            suspect(&mut contacts, 0, presence.clone());
            assert_eq!(contacts.given_up(0, 4, &config()).is_some(), given_up, "{presence:?}");
        }
        suspect(&mut contacts, 0, Some(AgentPresence::Present));
        contacts.advance(ms(11_000), ms(11_000), &config());
        assert!(contacts.given_up(0, 4, &config()).is_some());
    }

    #[test]
    fn of_many_silent_agents_some_are_checked_at_a_time_and_each_once_before_any_is_checked_again() {
        let nodes = 3 * CHECKS;
        let mut contacts = contacts(nodes);
        let mut checked = Vec::new();
        for half_second in 0..8 {
            let now = ms(1000) + config().down_after + half_second * CHECK_EVERY;
            contacts.advance(now, now, &config());
            // As often as the running time is reported.
            let before = checked.len();
            for _ in 0..5 {
                contacts.begin_checks();
                for position in 0..nodes {
                    contacts.suspect(position, &config());
                    checked.extend(contacts.check_is_due(position).then_some(position));
                }
            }
            assert_eq!(checked.len() - before, CHECKS as usize);
        }
        assert_eq!(contacts.suspects.len(), nodes as usize, "all of them are suspected");
        assert_eq!(checked[..nodes as usize], (0..nodes).collect::<Vec<_>>());
        assert_eq!(checked[nodes as usize..][..CHECKS as usize], (0..CHECKS).collect::<Vec<_>>());
    }

    #[test]
    fn an_agent_that_has_stopped_is_given_up_early_unless_most_are_silent_or_a_time_was_written() {
        let mut contacts = contacts(4);
        suspect(&mut contacts, 0, Some(AgentPresence::Stopped));
        contacts.advance(ms(2400), ms(2400), &config());
        assert_eq!(contacts.given_up(0, 4, &config()), None, "twice `down_after` at least");
        contacts.advance(ms(2500), ms(2500), &config());
        assert!(contacts.given_up(0, 4, &config()).is_some());
        assert_eq!(contacts.given_up(0, 4, &Config { replaces_stopped: false, ..config() }), None);
        for position in 1..3 {
            suspect(&mut contacts, position, Some(AgentPresence::Stopped));
        }
        assert_eq!(contacts.given_up(0, 4, &config()), None, "the cause is probably here");
    }

    #[test]
    fn when_the_silence_of_most_agents_ends_the_others_are_asked_again_before_they_are_judged() {
        let mut contacts = contacts(4);
        for position in 0..3 {
            suspect(&mut contacts, position, Some(AgentPresence::Present));
        }
        contacts.most_logged = true;
        contacts.advance(ms(16_000), ms(16_000), &config());
        contacts.answered(0);
        contacts.answered(1);
        assert!(!contacts.most_are_silent(4));
        assert_eq!(contacts.given_up(2, 4, &config()), None);
        contacts.advance(ms(27_000), ms(27_000), &config());
        assert!(contacts.given_up(2, 4, &config()).is_some());
    }

    #[test]
    fn while_most_agents_are_silent_only_those_that_have_ended_are_given_up_early() {
        let mut contacts = contacts(4);
        contacts.advance(ms(11_500), ms(11_500), &config());
        for position in 0..3 {
            suspect(&mut contacts, position, Some(AgentPresence::Present));
        }
        assert!(contacts.most_are_silent(4) && !contacts.most_are_silent(6));
        assert_eq!(contacts.given_up(0, 4, &config()), None);
        suspect(&mut contacts, 0, Some(AgentPresence::Ended));
        assert!(contacts.given_up(0, 4, &config()).is_some());
        contacts.advance(ms(45_000), ms(45_000), &config());
        assert!(contacts.given_up(1, 4, &config()).is_some());
    }
}
