//! Launchers: the processes of a generation and their supervision.
//!
//! A launcher is one folder and one line in the [`registry`]. It plans a generation ([`Launcher`], in the
//! orchestrator), and supervises its plan ([`Supervision`](step::Supervision), in `holdfast step PLAN`, which survives
//! the orchestrator).
//! The plan on disk names its launcher. The orchestrator, or its successor, follows the events of the supervisor
//! ([`follow`]) and shows the output of the ranks ([`output`]).
//!
//! | folder, file | subject |
//! |---|---|
//! | [`local`] | every rank is a child of the supervisor |
//! | [`srun`] | all ranks are one Slurm step |
//! | [`flux`] | all ranks are one job of the Flux instance |
//! | [`mpirun`] | all ranks are started by one mpirun of Open MPI or MPICH |
//! | [`ssh`] | the ranks of a node are started over an ssh connection |
//! | [`torchrun`] | any of these but mpirun, with the variables of torchrun |
//! | `command` | shared by `srun`, `flux` and `mpirun`: a command that starts all ranks |
//! | `ranks` | shared by `local` and `ssh`: ranks that are children of this process |
//! | [`launcher`] | what a launcher is |
//! | `obstacle` | what kept a launch from starting ranks |
//! | [`plan`] | the two files between the orchestrator and the supervisor |
//! | [`supervisor`], `lock` | the supervisor; the lock that it holds |
//! | [`step`] | what the supervisor hands to the supervision of a launcher |
//! | [`output`], [`labels`] | the output of the ranks; the ranks' labels in a file of all |
//! | `growing_file` | a file that another process appends to |
//!
//! Agents do not start ranks, unlike copies of pairs. An agent that is lost takes the exit statuses of its children
//! with it; a pair does not need them, but the end of a generation is classified by them. So every node would need a
//! supervisor beside its agent, with its own plan, events and lock, while `srun` and `mpirun` need the one here anyway:
//! there would be two ways to launch, to follow, to take over and to cancel. And the output of ranks on other nodes
//! would need a stream of its own, because a shared file system shows it late.
//!
//! The files of a generation are in `<prefix>/.holdfast/generations/<g>/`: `plan.json`, `steps.jsonl`, and for each
//! rank `rank_<r>.out` and `rank_<r>.err`; or `ranks.out` and `ranks.err` if one command starts all ranks.

mod command;
mod error;
#[cfg(test)]
mod fixtures;
pub mod flux;
pub mod follow;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod growing_file;
pub mod labels;
pub mod launcher;
pub mod local;
mod lock;
pub mod mpi;
pub mod mpirun;
mod named_files;
mod obstacle;
pub mod output;
pub mod plan;
mod ranks;
pub mod registry;
pub(crate) mod script;
pub mod srun;
pub mod ssh;
pub mod step;
pub mod supervisor;
pub mod torchrun;

pub use error::LaunchError;
pub use labels::LineLabels;
pub use launcher::{LaunchRequest, Launcher, LauncherContext, LauncherEntry, PlainLaunch, SCR_ENABLE};
pub use lock::is_supervised;
pub use obstacle::Obstacle;
pub use plan::{StepEvent, StepPlan};
