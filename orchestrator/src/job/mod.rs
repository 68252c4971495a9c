//! The driver of a job: passes events to the relaunch machine and performs its actions.
//!
//! | file | subject |
//! |---|---|
//! | `shell` | what every job has: lock, signals, agents, the next allocation |
//! | [`driver`] | a job of steps: nodes and agents; its steps, one after the other |
//! | `hand_over` | the transition from one step to the next |
//! | `side_by_side` | steps that run side by side |
//! | `lending`, `node_pool` | which of these steps has which nodes |
//! | [`start`], `release` | the start of a job: nodes, state and prefix directory; the release of its nodes |
//! | `dry_run` | what a run would start where |
//! | [`restart_choice`] | the checkpoint that a run restarts from, and whether the job fits it |
//! | `schedule`, `earlier_steps` | which step runs next; what earlier runs left of each |
//! | [`step_names`] | the names of the steps, for commands that are given only the prefix directory |
//! | `error` | why a job cannot begin |
//! | `preflight` | the checks before anything is started |
//! | `plain` | the application without Holdfast's agents and loop |
//! | `step_setup`, `step` | the driver of one step, and its loop |
//! | `inbox` | the inputs of the loop: all that are ready are handled together |
//! | `background` | the channel from background tasks to the loop |
//! | `actions` | performs the actions of the machine |
//! | `inputs` | turns reports of agents, ranks and the drain into events of the machine |
//! | `ending` | ends the ranks, and after the last step the agents |
//! | `ranks`, [`running_step`] | the ranks of a generation: launched, followed, cancelled |
//! | `drain_task` | the drain at the end of a step |
//! | `fault_schedule`, `fault_injection` | which faults of the spec are due; their injection by the agents |
//! | `free_space` | the free space that nodes must have before the first launch |
//! | `stacks` | the stacks of ranks that hang |
//! | `reporter`, `report` | event log and screen; the report at the end |
//! | `metrics`, `notify`, `traces` | what else gets the events; `post`: requests to its addresses |
//! | [`state`] | the state of a job |
//! | [`state_file`], [`journal`] | `job.json`, the lock, and the journal beside it, written by a thread of its own |
//! | `record` | hands changes of the state to that thread |
//! | `claim` | which orchestrator is the newest one of the job |
//! | `progress` | sources of progress besides the checkpoints |
//! | `requeue` | submits the next allocation |
//! | `prefix_wait` | waiting for the prefix directory at the end: bounded, and shown |
//! | [`excluded_nodes`] | the nodes that the user excludes, before and while the job runs |
//! | `manager_poll` | polls the resource manager for down nodes and the end of the allocation |
//! | [`settings`] | the settings of the loop and of the agents, from the spec |
//! | [`site`], `command_record` | commands of the user and the site; those that succeeded in this allocation |
//! | `signals` | the signals that end a job |
//! | `replicated` | a job with pairs of main and replica: its nodes, its loop, its end |
//! | [`standalone`], `standalone_error`, `drain_agents` | `holdfast drain`, and the agents that it starts |
//!
//! Nothing here blocks the loop: requests are tasks with time limits whose results come back through a channel, and
//! work that uses a file system or waits for a command runs on other threads.

mod actions;
mod background;
mod claim;
mod command_record;
mod drain_agents;
mod drain_task;
pub mod driver;
mod dry_run;
mod earlier_steps;
mod ending;
mod error;
pub mod excluded_nodes;
pub mod failure_domains;
mod fault_injection;
mod fault_schedule;
mod free_space;
mod hand_over;
mod inbox;
mod inputs;
mod interpose;
pub mod journal;
mod lending;
mod manager_poll;
mod metrics;
mod node_pool;
mod notify;
mod plain;
mod post;
mod prefix_wait;
mod preflight;
mod progress;
mod ranks;
mod record;
mod release;
pub mod replicated;
mod report;
mod reporter;
mod request_file;
pub mod requeue;
pub mod restart_choice;
pub mod running_step;
mod schedule;
mod secret_file;
pub mod settings;
mod settings_in_force;
mod shell;
mod side_by_side;
mod signals;
pub mod site;
mod stacks;
pub mod standalone;
mod standalone_error;
pub mod start;
pub mod state;
pub mod state_file;
mod step;
pub mod step_names;
mod step_setup;
mod traces;

pub use driver::{run, run_on};
pub use dry_run::{Plan, plan};
pub use error::{PreflightError, RunError};
pub use plain::{keys_without_effect, run_plain};
pub use preflight::{MissingProgram, Prepared, has_virtual_nodes, machines_with_faults, missing_program};
pub use restart_choice::{RestartChoice, RunChoices};
pub use shell::RunOptions;
