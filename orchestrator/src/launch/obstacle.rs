//! What kept a launch from starting ranks.

use std::error::Error;
use std::io;

use holdfast_core::durable;
use serde::{Deserialize, Serialize};

use crate::allocation::registry as managers;
use crate::spec::RequeueFacts;

/// Whether another launch may succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// The program, its files, the options or this machine: another launch would fail in the same way.
    #[default]
    Job,
    /// The resource manager, or a node, refused to start the ranks, or there were too few processes, descriptors or too
    /// little memory: another launch may succeed.
    Manager,
    /// The resource manager answers that the allocation does not exist.
    UnknownAllocation,
}

impl Obstacle {
    /// The obstacle that a refusal of the resource manager describes.
    pub(super) fn of_refusal(message: &str) -> Self {
        let denies = |requeue: &RequeueFacts| (requeue.is_unknown_job)(message);
        let is_unknown = managers::managers().filter_map(|entry| entry.facts.requeue.as_ref()).any(denies);
        if is_unknown { Obstacle::UnknownAllocation } else { Obstacle::Manager }
    }

    /// The obstacle that this error, or one of its causes, is.
    pub(crate) fn of_error(error: &(dyn Error + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if error.downcast_ref::<io::Error>().is_some_and(is_temporary) {
                return Obstacle::Manager;
            }
            cause = error.source();
        }
        Obstacle::Job
    }
}

/// True if no process could be started, for lack of processes, descriptors or memory.
fn is_temporary(error: &io::Error) -> bool {
    // The kernel's answer at the limit of processes.
    error.kind() == io::ErrorKind::WouldBlock || durable::is_exhaustion(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_processes_is_no_obstacle_of_the_job() {
        let refused = |errno: rustix::io::Errno| Obstacle::of_error(&io::Error::from(errno));
        assert_eq!(refused(rustix::io::Errno::AGAIN), Obstacle::Manager);
        assert_eq!(refused(rustix::io::Errno::NOENT), Obstacle::Job);
    }

    #[test]
    fn an_unknown_job_is_another_obstacle_than_a_refused_step() {
        let table = [
            ("Unable to confirm allocation for job 4: Invalid job id specified", Obstacle::UnknownAllocation),
            ("Unable to create step for job 4: Requested nodes are busy", Obstacle::Manager),
        ];
        for (message, expected) in table {
            assert_eq!(Obstacle::of_refusal(message), expected, "{message}");
        }
    }
}
