//! The YAML job spec: types, defaults, and diagnostics with line and column.
//!
//! [`JobSpec::load`] reads a file; [`JobSpec::from_command`] makes the spec of `holdfast run -- ./app args`. The result
//! is complete and consistent: every default is filled in, and values are checked against each other, so that no other
//! module has to check them again. [`Settings`] records the origin of each value. `configs/reference.yaml` lists all
//! keys.
//!
//! * `load`: a spec from a file; `job`: the complete spec;
//! * `document`: YAML events to nodes with positions, bounded;
//! * `keys`: how a section declares its keys; `value_kinds`: the kinds of single values;
//! * `reading`: nodes to settings, section by section; the declarations of each section are a file of their own;
//! * [`reference`](mod@reference): every key with its default and documentation, from the declarations;
//! * [`Environment`]: environment variables and SCR's parameters, which override the spec or its defaults;
//! * `parameters`: the table of SCR's parameters, from the declarations of the keys;
//! * `registered`: what resource managers and launchers declare about themselves; `manager_keys`, `manager_settings`:
//!   keys that a manager declares in its own folder; `registry`: all that a spec may name;
//! * `step_order`: the order of the steps, from `needs`;
//! * `checkpoint_source`: what checkpoint sources declare about themselves;
//! * `validation`: checks across sections; `applies`: keys that have no effect with this manager, launcher or source;
//! * `without_choice`: keys with a single value; `former_names`: keys that had another name;
//! * `other_names`: what other programs call a key; `not_a_spec`, `shell_syntax`: a program in place of a spec, words
//!   for a shell;
//! * `diagnostics`: mistakes as the user sees them;
//! * [`quantity`]: durations, sizes, points in time.

mod allocation;
mod applies;
mod checkpoint;
mod checkpoint_source;
mod diagnostics;
mod document;
mod each;
mod environment;
mod failure_domain;
mod faults;
mod former_names;
pub mod frequency;
mod job;
mod jubatus;
pub mod keys;
pub mod library_parameters;
mod load;
mod manager_keys;
mod manager_settings;
mod node_reference;
mod not_a_spec;
mod notify;
mod other_names;
mod overrides;
mod pairs;
mod parameters;
pub mod quantity;
pub mod reading;
pub mod reference;
mod registered;
mod registry;
pub mod resolved;
mod run;
pub mod schema;
mod settings;
mod shell_syntax;
mod step_order;
mod supervision;
mod validation;
pub mod value_kinds;
mod warnings;
mod without_choice;

pub use allocation::{Allocation, virtual_node};
pub use checkpoint::{Cache, Checkpoint, ControlDirectory, Redundancy};
pub use checkpoint_source::{CheckpointSource, FROM_PREFIX, RESTART_RANKS, StepCheck};
pub use diagnostics::{Diagnostic, Diagnostics, Position, nearest};
pub use document::MAX_BYTES;
pub use failure_domain::{DomainKind, FailureDomains};
pub use faults::{FaultAction, FaultMoment, InjectedFault};
pub use frequency::{Frequency, SHARE};
pub use jubatus::{Jubatus, JubatusServer};
pub use manager_keys::ManagerKeys;
pub use manager_settings::ManagerSettings;
pub use node_reference::NodeReference;
pub use notify::{Notification, NotifiedEvent, Recipient};
pub use pairs::{ALL_PAIRS, CLIENT_COMMAND, PlacedJob, PlacedPair, Reboot, Replicated, Replication, StartedBy};
pub use registered::{
    AdaptedCommand, Chosen, FrequencyFacts, KeyFacts, LauncherFacts, ManagerFacts, ManagerVariables, NodeCount,
    PlannedEntry, Registered, RequeueFacts, RerunFacts, SourceFacts, Suits, nodes_in_file,
};
pub use registry::Registry;
pub use run::RunSpec;
pub use settings::{NOT_SET, Origin, Setting, Settings};
pub use supervision::{
    CommandNodes, ExitAction, ExitCodeRule, Halt, Health, Metrics, Progress, Relaunch, Requeue, SiteCommand, Submission,
};

pub use parameters::declared as declared_parameters;

pub use environment::{Environment, EnvironmentError, SYSTEM_FILE};
pub use job::{GivenIdentity, GroupAccess, JobSpec, KeepCache, Step};
