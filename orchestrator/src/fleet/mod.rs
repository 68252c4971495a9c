//! The agents of a job: their life cycle, the requests to them, and the detection of lost agents.
//!
//! * [`supervisor`]: starts, adopts, polls, fences and ends agents; reports what happens as typed events;
//! * [`client`]: one request to one agent, TLS with the job's certificate pinned, always with a time limit; requests
//!   to many agents, a bounded number at a time (`fan_out`); `answer`, what is made of the body of an answer;
//! * [`poll`]: one task for each node that always has a poll under way, so that a broken connection is detected at
//!   once; its `channel`, which carries other requests meanwhile; `poll_thread`, on which all of them run; [`answers`],
//!   what they report;
//! * [`running_time`]: the time in which the polling thread verifiably ran: silence is measured in it;
//! * [`roster`]: which agents are up now, for tasks that send requests to them (the drain);
//! * `fence`: ends the ranks and the agent of a node that was given up and becomes reachable again.

mod answer;
pub mod answers;
mod channel;
pub mod client;
pub mod clock;
mod error;
mod fan_out;
mod fence;
pub mod poll;
mod poll_thread;
pub mod roster;
pub mod running_time;
pub mod supervisor;

pub use answers::{PollReport, PollReports, UnchangedAnswer};
pub use client::AgentClient;
pub use clock::Clock;
pub use error::{FleetError, RequestError};
pub use fan_out::fan_out;
pub use poll::{PollTarget, Poller};
pub use roster::Roster;
pub use supervisor::{AgentRecord, AgentSupervisor, FleetEvent, FleetSettings, to_each};
