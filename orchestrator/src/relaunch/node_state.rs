//! The state of one node: whether its agent is up or being started, or the node is down; and what is due on it.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::config::Config;
use crate::events::{DownReason, TimedReason};

/// Attempts of the first start of an agent.
const MAX_FIRST_STARTS: u32 = 3;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeState {
    pub status: NodeStatus,
    /// How often its agent was restarted.
    pub restarts: u32,
    /// The last address of its agent; none if it was never up.
    pub address: Option<SocketAddr>,
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
}

/// An agent that is being started and has not reported yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Starting {
    /// When the last start was requested.
    pub asked: Duration,
    /// Starts that failed.
    pub failures: u32,
    /// When to try again, after a failure.
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
}

/// What is due on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The agent has been silent for too long: restart it.
    Silent,
    /// Start it again after a failure.
    Retry,
    /// The node is down.
    Down(DownReason),
}

impl Starting {
    pub fn first(now: Duration) -> Self {
        Starting { asked: now, failures: 0, retry: None, failure: None, lost: None }
    }

    pub fn again(now: Duration, lost: LostAgent) -> Self {
        Starting { lost: Some(lost), ..Starting::first(now) }
    }

    /// When the wait for the agent ends. A first start has its own limit. A restart ends when the agent has been silent
    /// for `down_after`, but not before `restart_within`.
    fn limit(&self, config: &Config) -> Duration {
        match &self.lost {
            None => self.asked.saturating_add(config.start_within),
            Some(lost) => lost
                .last_contact
                .saturating_add(config.down_after)
                .max(self.asked.saturating_add(config.restart_within)),
        }
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
            Some(lost) => now >= lost.last_contact.saturating_add(config.down_after),
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
        NodeState { status: NodeStatus::Starting(Starting::first(Duration::ZERO)), restarts: 0, address: None }
    }

    /// The node at the beginning of the next step: its agent is started again, unless the node is down.
    pub fn in_next_step(&self) -> Self {
        match self.status {
            NodeStatus::Down { .. } => self.clone(),
            NodeStatus::Starting(_) | NodeStatus::Healthy => NodeState { restarts: self.restarts, ..NodeState::new() },
        }
    }

    pub fn is_healthy(&self) -> bool {
        matches!(self.status, NodeStatus::Healthy)
    }

    pub fn is_starting(&self) -> bool {
        matches!(self.status, NodeStatus::Starting(_))
    }

    pub fn is_down(&self) -> bool {
        matches!(self.status, NodeStatus::Down { .. })
    }

    /// When something is due on this node, whose agent answered last at `last_contact`.
    pub fn timer(&self, last_contact: Duration, config: &Config) -> Option<Duration> {
        match &self.status {
            NodeStatus::Down { .. } => None,
            NodeStatus::Healthy => Some(last_contact.saturating_add(config.down_after)),
            NodeStatus::Starting(starting) => Some(starting.retry.unwrap_or_else(|| starting.limit(config))),
        }
    }

    /// What is due on this node now.
    pub fn due(&self, now: Duration, last_contact: Duration, config: &Config) -> Option<Due> {
        if self.timer(last_contact, config)? > now {
            return None;
        }
        match &self.status {
            NodeStatus::Down { .. } => None,
            NodeStatus::Healthy => Some(Due::Silent),
            NodeStatus::Starting(starting) if starting.retry.is_some() => Some(Due::Retry),
            NodeStatus::Starting(starting) => Some(Due::Down(starting.cause(config))),
        }
    }
}
