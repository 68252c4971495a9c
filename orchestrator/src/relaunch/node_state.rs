//! The state of one node: whether its agent is up or being started, or the node is down; and what is due on it. All
//! times are running time (see `contacts`), except the time of a `Down`.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_model::Generation;
use serde::{Deserialize, Serialize};

use super::config::Config;
use super::exclusion::Exclusion;
use crate::events::{DownReason, TimedReason};

/// Attempts of the first start of an agent.
const MAX_FIRST_STARTS: u32 = 3;
/// The pause before an agent is restarted that was restarted a short time before; it is doubled each time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// After this long without a restart, the next one has no pause.
const PAUSE_FORGOTTEN: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeState {
    pub status: NodeStatus,
    /// How often its agent was restarted.
    pub restarts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_restart: Option<Restart>,
    /// The last address of its agent; none if it was never up.
    pub address: Option<SocketAddr>,
    /// The last answer of its agent, which is suspected because it does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Duration>,
    /// A test of the site failed, and the agent itself reported no fault.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed_test: bool,
    /// The user excluded the node: no ranks are placed on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded: Option<TimedReason<Exclusion>>,
    /// The user wanted its ranks moved at once, and too few other nodes were left.
    #[serde(default)]
    pub keeps_ranks: bool,
    /// It could not use its own directories in a restart, or failed a test of the site: no ranks are placed on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<TimedReason<Unfit>>,
}

/// A node that cannot write to its own directories, or read them, or failed a test of the site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Unfit {
    /// The generation that showed it.
    pub generation: Generation,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub(super) enum NodeStatus {
    Starting(Starting),
    Healthy,
    Down {
        #[serde(rename = "verdict")]
        cause: TimedReason<DownReason>,
    },
    /// The job has not lent the node to this step: another one may have it. This step starts no agent there, and fences
    /// none.
    NotLent,
}

/// A restart of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Restart {
    pub at: Duration,
    /// The pause before it.
    pub pause: Duration,
}

/// An agent that is being started and has not reported yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Starting {
    /// When the last start was requested.
    pub asked: Duration,
    /// Starts that failed.
    pub failures: u32,
    /// When to start it; none while it is being started.
    pub retry: Option<Duration>,
    /// Why the last start failed.
    pub failure: Option<String>,
    /// Set if it was up before.
    pub lost: Option<LostAgent>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LostAgent {
    /// When it answered last.
    #[serde(rename = "heard")]
    pub last_contact: Duration,
    pub reason: String,
    /// Its process ended or its connection broke: it is not only silent.
    #[serde(default)]
    pub ended: bool,
    /// Its process exists and does not run: its node is probably frozen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// When its restart was requested first.
    #[serde(default)]
    pub restarted: Option<Duration>,
}

/// What is due on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Start it again.
    Retry,
    /// The node is down.
    Down(DownReason),
}

impl Starting {
    pub fn first(now: Duration) -> Self {
        Starting { asked: now, failures: 0, retry: None, failure: None, lost: None }
    }

    /// A restart that is due at `due`.
    pub fn again(now: Duration, due: Duration, lost: LostAgent) -> Self {
        Starting { lost: Some(lost), retry: Some(due), ..Starting::first(now) }
    }

    /// It is started now.
    pub fn begin(&mut self, now: Duration) {
        (self.retry, self.asked) = (None, now);
        if let Some(lost) = &mut self.lost {
            lost.restarted.get_or_insert(now);
        }
    }

    /// When the wait for the agent ends. A first start has its own limit. A restart ends when the agent has been silent
    /// for `down_after`, but not before `restart_within`; three quarters of that where nothing can probably be started.
    fn limit(&self, config: &Config) -> Duration {
        let Some(lost) = &self.lost else { return self.asked.saturating_add(config.start_within) };
        let within = if lost.stopped { config.restart_within * 3 / 4 } else { config.restart_within };
        lost.last_contact.saturating_add(config.down_after).max(self.asked.saturating_add(within))
    }

    fn cause(&self, config: &Config) -> DownReason {
        match &self.lost {
            None => DownReason::AgentNotStarted {
                reason: self
                    .failure
                    .clone()
                    .unwrap_or_else(|| format!("it did not report within {:?}", config.start_within)),
            },
            Some(lost) => DownReason::AgentSilent {
                reason: lost.reason.clone(),
                restart: self
                    .failure
                    .clone()
                    .unwrap_or_else(|| format!("it did not report within {:?}", config.restart_within)),
            },
        }
    }

    /// A start failed: schedules another attempt, or returns why the node is given up.
    pub fn failed(&mut self, now: Duration, reason: String, node_lost: bool, config: &Config) -> Option<DownReason> {
        self.failures += 1;
        self.failure = Some(reason);
        let exhausted = match &self.lost {
            None => self.failures >= MAX_FIRST_STARTS,
            Some(lost) => {
                let since = lost.restarted.unwrap_or_default().max(lost.last_contact);
                now >= since.saturating_add(config.down_after)
            }
        };
        if node_lost || exhausted {
            return Some(self.cause(config));
        }
        let pause = match &self.lost {
            None => config.down_after,
            Some(_) => config.down_after / 4,
        };
        self.retry = Some(now.saturating_add(pause.max(Duration::from_millis(20))));
        None
    }
}

impl NodeState {
    pub fn new() -> Self {
        let status = NodeStatus::Starting(Starting::first(Duration::ZERO));
        NodeState {
            status,
            restarts: 0,
            last_restart: None,
            address: None,
            silent_since: None,
            failed_test: false,
            excluded: None,
            keeps_ranks: false,
            unfit: None,
        }
    }

    /// The node at the beginning of a step to which it is `lent`, or not.
    pub fn first(lent: bool) -> Self {
        NodeState { status: if lent { NodeState::new().status } else { NodeStatus::NotLent }, ..NodeState::new() }
    }

    /// The node at the beginning of the next step: its agent is started again, unless the node is down.
    pub fn in_next_step(&self) -> Self {
        match self.status {
            NodeStatus::Down { .. } | NodeStatus::NotLent => self.clone(),
            NodeStatus::Starting(_) | NodeStatus::Healthy => {
                NodeState { restarts: self.restarts, last_restart: self.last_restart, ..NodeState::new() }
            }
        }
    }

    /// The node at the beginning of another run in the same allocation: as in the next step, and restarts of its agent
    /// are counted from zero.
    pub fn in_next_run(&self) -> Self {
        match self.status {
            NodeStatus::Down { .. } | NodeStatus::NotLent => self.clone(),
            NodeStatus::Starting(_) | NodeStatus::Healthy => NodeState::new(),
        }
    }

    pub fn is_healthy(&self) -> bool {
        matches!(self.status, NodeStatus::Healthy)
    }

    pub fn is_starting(&self) -> bool {
        matches!(self.status, NodeStatus::Starting(_))
    }

    /// Down, or not lent to this step: it has no agent of this step.
    pub fn is_out(&self) -> bool {
        matches!(self.status, NodeStatus::Down { .. } | NodeStatus::NotLent)
    }

    pub fn is_down(&self) -> bool {
        matches!(self.status, NodeStatus::Down { .. })
    }

    pub fn is_not_lent(&self) -> bool {
        matches!(self.status, NodeStatus::NotLent)
    }

    /// The user excluded it, or it could not use its own directories in a restart.
    pub fn is_excluded(&self) -> bool {
        self.excluded.is_some() || self.unfit.is_some()
    }

    /// Healthy, and not excluded: it may get ranks.
    pub fn is_usable(&self) -> bool {
        self.is_healthy() && !self.is_excluded()
    }

    /// It has no agent because it was excluded before one was up.
    pub fn has_no_agent(&self) -> bool {
        matches!(&self.status, NodeStatus::Down { cause } if matches!(cause.reason, DownReason::Excluded { .. }))
    }

    /// Counts a restart of the agent that was lost now. Returns when it is due: at once, or after a pause if there was
    /// another restart a short time before.
    pub fn plan_restart(&mut self, now: Duration) -> Duration {
        let recent = self.last_restart.filter(|last| now.saturating_sub(last.at) < PAUSE_FORGOTTEN);
        let pause = recent.map_or(Duration::ZERO, |last| (2 * last.pause).clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
        let due = now.saturating_add(pause);
        self.restarts += 1;
        self.last_restart = Some(Restart { at: due, pause });
        due
    }

    /// What is due on this node now, if its agent is being started.
    pub fn due(&self, now: Duration, config: &Config) -> Option<Due> {
        let NodeStatus::Starting(starting) = &self.status else { return None };
        match starting.retry {
            Some(retry) => (retry <= now).then_some(Due::Retry),
            None => (starting.limit(config) <= now).then(|| Due::Down(starting.cause(config))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_that_follow_each_other_are_delayed_and_one_after_a_long_time_is_not() {
        let mut node = NodeState::new();
        let mut now = Duration::from_secs(100);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let due = node.plan_restart(now);
            pauses.push((due - now).as_millis());
            now = due + Duration::from_secs(1);
        }
        assert_eq!(pauses, [0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000]);
        assert_eq!(node.restarts, 9);
        now += PAUSE_FORGOTTEN;
        assert_eq!(node.plan_restart(now), now);
    }
}
