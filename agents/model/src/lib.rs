//! The types that all parts of Holdfast share: what a rank, a dataset, a redundancy descriptor, an inventory or a
//! failure is, once for the files, the messages, the agents, the client and the orchestrator.
//!
//! * [`ids`]: ranks, nodes, dataset ids, generations;
//! * [`descriptor`]: redundancy schemes by name, descriptors as requested and as one rank stores them;
//! * [`dataset`]: what the application declares about a dataset; [`output_path`]: where a file of an output belongs;
//! * [`level`]: what protects a checkpoint of variables;
//! * [`container`]: containers on the prefix directory, which several nodes write;
//! * [`interval`]: how far apart checkpoints are best;
//! * [`inventory`]: what a node holds, and where datasets are;
//! * [`pair`]: main and replica: what a job asks for a pair, the state of its copies, what happens to them;
//! * [`placement`]: which rank runs on which node;
//! * [`policy`]: what a job asks for its checkpoints;
//! * [`restart`]: where the files of a restart came from;
//! * [`rank_end`]: how a rank's process ended;
//! * [`halt`]: halt conditions;
//! * [`kernel_message`]: what messages of a node's kernel explain;
//! * [`progress`]: long work under way;
//! * [`time`]: points in time;
//! * [`vocabulary`](mod@vocabulary): declarations of events;
//! * [`failure`]: the error that crosses the network.
//!
//! Plain data with serde: no I/O, no clock. SCR's hash files are read and written by the core crate.

#![forbid(unsafe_code)]

pub mod container;
pub mod dataset;
pub mod descriptor;
pub mod failure;
pub mod halt;
pub mod ids;
pub mod interval;
pub mod inventory;
pub mod kernel_message;
pub mod level;
pub mod output_path;
pub mod pair;
pub mod placement;
pub mod policy;
pub mod progress;
pub mod rank_end;
pub mod restart;
pub mod time;
pub mod vocabulary;

pub use container::{
    ContainerKind, ContainerPlaces, ContainerPolicy, ContainerRequest, PackedFile, PackedRank, RankPlace,
};
pub use dataset::{Dataset, Unplaced};
pub use descriptor::{Descriptor, NumberName, RankDescriptor, Scheme, SchemeNumbers};
pub use failure::{Failure, FailureKind, Subject};
pub use halt::{HaltChange, HaltCondition, HaltState};
pub use ids::{CheckpointId, Generation, NodeName, Rank};
pub use inventory::{HeldFile, Holding, Inventory, Location, Locations, Protection};
pub use level::Level;
pub use output_path::{OutputPath, OutputPathError};
pub use pair::{Grant, LeaseStatus, MirroredCheckpoint, PairConfig, PairStatus, Revocation, Side, Term};
pub use placement::{Placement, RunNode};
pub use policy::{
    AsyncRedundancy, CrcOnCopy, CrcPolicy, DataPlane, FlushMode, FlushPolicy, LevelPolicy, NeedPolicy, RestartPolicy,
    RestartRanks, SnapshotIntervals, VariablesLayout, VariablesPolicy,
};
pub use progress::{Progress, Task};
pub use rank_end::RankEnd;
pub use restart::RestartSource;
pub use time::Timestamp;
