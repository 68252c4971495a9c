//! The environment of a PBS job: its variables, and the file of its nodes.

use std::path::Path;

use holdfast_model::NodeName;
use sha2::{Digest as _, Sha256};

use super::error::PbsError;

pub(super) const JOB: &str = "PBS_JOBID";
/// The path of a file with one line for each process of MPI that the job may have; a node has several.
pub(super) const NODE_FILE: &str = "PBS_NODEFILE";
/// Number of the node of this process, in the order of the file. 0 in the batch script.
const NODE_NUMBER: &str = "PBS_NODENUM";
/// Another value each time that the job is started. Processes of the job authenticate with it to PBS.
const COOKIE: &str = "PBS_JOBCOOKIE";
const USER: [&str; 2] = ["USER", "LOGNAME"];
/// A prefix of the digest of the cookie distinguishes the allocations of a job.
const DIGEST_BYTES: usize = 8;

/// The job of this process, if any.
pub(super) fn job_of_environment(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    variable(JOB).filter(|job| !job.is_empty())
}

/// A digest of the cookie: the cookie itself must not be written to files.
pub(super) fn allocation_of_environment(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let cookie = variable(COOKIE).filter(|cookie| !cookie.is_empty())?;
    let digest = Sha256::digest(cookie.as_bytes());
    Some(digest.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect())
}

/// The id of a job as part of a path. That of an element of an array has brackets: `17[4].server`.
pub(super) fn directory_name(job: &str) -> String {
    job.replace('[', ".").replace(']', "")
}

/// A job as described by its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    /// The id with which PBS's commands are called.
    pub(super) job: String,
    pub(super) user: String,
    /// Each node once, in the order of the file.
    pub(crate) nodes: Vec<NodeName>,
    pub(super) own_node: Option<NodeName>,
}

impl Environment {
    /// `nodes_in` reads the file of the nodes.
    ///
    /// # Errors
    /// [`PbsError::Outside`], [`PbsError::NodeFile`], [`PbsError::NoNodes`].
    pub(crate) fn read(
        variable: impl Fn(&str) -> Option<String>,
        nodes_in: impl Fn(&Path) -> std::io::Result<Vec<NodeName>>,
    ) -> Result<Self, PbsError> {
        let outside = |missing| PbsError::Outside { missing };
        let job = job_of_environment(&variable).ok_or(outside(JOB))?;
        let path = variable(NODE_FILE).filter(|path| !path.is_empty()).ok_or(outside(NODE_FILE))?;
        let nodes =
            nodes_in(Path::new(&path)).map_err(|source| PbsError::NodeFile { path: path.clone().into(), source })?;
        if nodes.is_empty() {
            return Err(PbsError::NoNodes { path: path.into() });
        }
        let user = USER.iter().find_map(|name| variable(name).filter(|user| !user.is_empty()));
        let user = user.unwrap_or_else(|| format!("uid{}", rustix::process::getuid().as_raw()));
        let number = variable(NODE_NUMBER).and_then(|number| number.parse::<usize>().ok());
        let own_node = number.and_then(|number| nodes.get(number)).cloned();
        Ok(Environment { job, user, nodes, own_node })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment, PbsError> {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Environment::read(variable, |path| match path.to_str() {
            Some("/aux/17") => Ok(["n1.site", "n2.site"].map(NodeName::from).to_vec()),
            Some("/aux/none") => Ok(Vec::new()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        })
    }

    #[test]
    fn reads_job_nodes_and_own_node_of_a_batch_script() {
        let batch = [(JOB, "17.head"), (NODE_FILE, "/aux/17"), (NODE_NUMBER, "0"), ("USER", "user1")];
        let environment = read(&batch).unwrap();
        assert_eq!((environment.job.as_str(), environment.user.as_str()), ("17.head", "user1"));
        assert_eq!(environment.nodes, ["n1.site", "n2.site"].map(NodeName::from));
        assert_eq!(environment.own_node, Some("n1.site".into()));
    }

    #[test]
    fn outside_a_job_the_error_explains_how_to_get_one_and_a_missing_file_is_named() {
        let message = |variables: &[(&str, &str)]| read(variables).unwrap_err().to_string();
        let outside = message(&[]);
        assert!(outside.contains("PBS_JOBID") && outside.contains("qsub"), "{outside}");
        assert!(message(&[(JOB, "17.head")]).contains("PBS_NODEFILE"));
        assert!(message(&[(JOB, "17.head"), (NODE_FILE, "/gone")]).contains("/gone"));
        assert!(message(&[(JOB, "17.head"), (NODE_FILE, "/aux/none")]).contains("lists no node"));
    }

    #[test]
    fn allocations_of_a_job_differ_and_the_cookie_cannot_be_read() {
        let of = |cookie: &str| allocation_of_environment(|_| Some(cookie.to_owned()));
        let (first, second) = (of("2093C600631608D1"), of("6DF1E2DB5502033A"));
        assert_ne!(first, second);
        assert_eq!(first.unwrap().len(), 2 * DIGEST_BYTES);
        assert_eq!(of(""), None);
        assert_eq!(directory_name("17[4].head"), "17.4.head");
    }
}
