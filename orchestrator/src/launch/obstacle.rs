//! What kept a launch from starting ranks.

use serde::{Deserialize, Serialize};

use crate::allocation::slurm::refusal;

/// Whether another launch may succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// The program, its files, the options or this machine: another launch would fail in the same way.
    #[default]
    Job,
    /// The resource manager, or a node, refused to start the ranks: another launch may succeed.
    Manager,
    /// The resource manager answers that the allocation does not exist.
    UnknownAllocation,
}

impl Obstacle {
    /// The obstacle that a refusal of the resource manager describes.
    pub(super) fn of_refusal(message: &str) -> Self {
        if refusal::is_unknown_job(message) { Obstacle::UnknownAllocation } else { Obstacle::Manager }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
