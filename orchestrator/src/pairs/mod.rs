//! Main and replica: the orchestrator's half. Within a node, the agent decides which copy of a pair is awake; here it
//! is decided which agents are started again, when the job ends, and, for pairs on two nodes, which node has the lease.
//!
//! * [`placement`]: the nodes of pairs and jobs, and the plan of each node, from the spec;
//! * [`machine`]: the decisions: events in, actions out, without I/O and clock;
//! * [`overview`]: the state of all pairs, from the reports of their nodes;
//! * [`takeover`]: what of a spec may change when another orchestrator takes the job over.
//!
//! The driver is `job::replicated`.

pub mod machine;
pub mod overview;
pub mod placement;
pub mod takeover;

pub use machine::{Action, AgentsConfig, Event, Machine, Outcome, PairsEnd, RebootRule};
pub use overview::{Overview, PairOverview};
pub use placement::{Placement, PlacementError};
