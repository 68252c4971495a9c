//! The environment variables of an allocation (`sbatch`, `salloc`), read once.

use holdfast_core::hostlist;
use holdfast_model::NodeName;

use super::error::SlurmError;
use crate::allocation::error::AllocationError;

/// The variables of an allocation: current and older names.
pub(super) const JOB: [&str; 2] = ["SLURM_JOB_ID", "SLURM_JOBID"];
pub(super) const NODES: [&str; 2] = ["SLURM_JOB_NODELIST", "SLURM_NODELIST"];
pub(super) const COUNTS: [&str; 2] = ["SLURM_JOB_NUM_NODES", "SLURM_NNODES"];
/// The node of a batch script, or of a task; the shell of `salloc` may run outside the allocation.
pub(super) const OWN_NODE: &str = "SLURMD_NODENAME";
/// In tasks: the address of the machine on which `srun` runs.
pub(super) const LAUNCHER_ADDRESS: &str = "SLURM_LAUNCH_NODE_IPADDR";
/// A job that was requeued has the same id as before.
const RESTARTS: &str = "SLURM_RESTART_COUNT";

/// Variables by which the options of a batch script become defaults of every `srun` in it, and those by which a command
/// takes itself for a task of another step. Our steps set all options themselves.
pub(crate) const REMOVED: [&str; 24] = [
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_SOCKET",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_TASKS_PER_NODE",
    "SLURM_NNODES",
    "SLURM_JOB_NUM_NODES",
    "SLURM_DISTRIBUTION",
    "SLURM_HOSTFILE",
    "SLURM_EXCLUSIVE",
    "SLURM_NO_KILL",
    "SLURM_KILL_BAD_EXIT",
    "SLURM_WAIT",
    "SLURM_LABELIO",
    "SLURM_UNBUFFEREDIO",
    "SLURM_STDINMODE",
    "SLURM_STDOUTMODE",
    "SLURM_STDERRMODE",
    "SLURM_MULTI_PROG",
    "SLURM_EXPORT_ENV",
];

/// The id of the job whose allocation this is, if any.
pub fn job_of_environment(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    first_of(&JOB, &variable)
}

/// How often the job of this allocation was requeued: the variable is not set before the first time.
pub fn restarts_of_environment(variable: impl Fn(&str) -> Option<String>) -> u32 {
    variable(RESTARTS).and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// An allocation as described by its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(super) job_id: String,
    pub(crate) nodes: Vec<NodeName>,
    pub(super) own_node: Option<NodeName>,
}

impl Environment {
    /// # Errors
    /// [`SlurmError::Outside`], [`AllocationError::Nodes`].
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, AllocationError> {
        let outside = |missing| SlurmError::Outside { missing };
        let job_id = job_of_environment(&variable).ok_or(outside(JOB[0]))?;
        let list = first_of(&NODES, &variable).ok_or(outside(NODES[0]))?;
        let nodes = hostlist::expand(&list)?;
        let own_node = first_of(&[OWN_NODE], &variable).map(NodeName::new).filter(|own| nodes.contains(own));
        Ok(Environment { job_id, nodes, own_node })
    }
}

fn first_of(names: &[&str], variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment, AllocationError> {
        Environment::read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn reads_job_nodes_and_own_node_of_a_batch_script() {
        let batch = [("SLURM_JOB_ID", "17"), ("SLURM_JOB_NODELIST", "n[1-2,4]"), ("SLURMD_NODENAME", "n1")];
        let environment = read(&batch).unwrap();
        assert_eq!(environment.job_id, "17");
        assert_eq!(environment.nodes, ["n1", "n2", "n4"].map(NodeName::from));
        assert_eq!(environment.own_node, Some("n1".into()));
    }

    #[test]
    fn the_shell_of_salloc_may_run_outside_the_allocation() {
        let shell = [("SLURM_JOBID", "17"), ("SLURM_NODELIST", "n1"), ("SLURMD_NODENAME", "login3")];
        assert_eq!(read(&shell).unwrap().own_node, None);
    }

    #[test]
    fn outside_an_allocation_the_error_explains_how_to_get_one() {
        let message = read(&[("SLURM_JOB_ID", "")]).unwrap_err().to_string();
        assert!(message.contains("SLURM_JOB_ID") && message.contains("sbatch"), "{message}");
        let bad = read(&[("SLURM_JOB_ID", "1"), ("SLURM_JOB_NODELIST", "n[1")]).unwrap_err();
        assert!(matches!(bad, AllocationError::Nodes(_)));
    }
}
