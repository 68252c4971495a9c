//! The environment variables of an allocation (`flux batch`, `flux alloc`), read once.
//!
//! Flux starts an instance of its own for such a job, and the script in it: `FLUX_URI` leads to that instance, and
//! `FLUX_ENCLOSING_ID` is the job in the instance around it (flux-environment(7)).

use super::error::FluxError;

/// The job whose allocation this is.
pub(super) const JOB: &str = "FLUX_ENCLOSING_ID";
/// In tasks: the job of the task.
pub(super) const TASK_JOB: &str = "FLUX_JOB_ID";
/// The broker of this node.
const INSTANCE: &str = "FLUX_URI";
const USER: [&str; 2] = ["USER", "LOGNAME"];

/// The first character of job ids where the locale has it; elsewhere Flux writes `f`.
const ID_PREFIX: char = 'ƒ';

/// Variables by which a command takes itself for a task, or uses the name space of one.
pub(crate) const REMOVED: [&str; 12] = [
    TASK_JOB,
    "FLUX_JOB_ID_PATH",
    "FLUX_JOB_SIZE",
    "FLUX_JOB_NNODES",
    "FLUX_JOB_TMPDIR",
    "FLUX_JOB_CC",
    "FLUX_TASK_RANK",
    "FLUX_TASK_LOCAL_ID",
    "FLUX_KVS_NAMESPACE",
    "FLUX_PROXY_REMOTE",
    "PMI_FD",
    "PMI_RANK",
];

/// The id of the job whose allocation this is, if any: with `f` as its first letter, so that directories can be named
/// by it.
pub(super) fn job_of_environment(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    set(JOB, &variable).map(|id| plain_id(&id))
}

/// A job id in ASCII.
fn plain_id(id: &str) -> String {
    id.strip_prefix(ID_PREFIX).map_or_else(|| id.to_owned(), |rest| format!("f{rest}"))
}

/// An allocation as described by its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) job_id: String,
    pub(crate) user: String,
}

impl Environment {
    /// # Errors
    /// [`FluxError::Outside`], [`FluxError::Task`].
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, FluxError> {
        if let Some(job_id) = set(TASK_JOB, &variable) {
            return Err(FluxError::Task { job_id: plain_id(&job_id) });
        }
        let job_id = job_of_environment(&variable).ok_or(FluxError::Outside { missing: JOB })?;
        set(INSTANCE, &variable).ok_or(FluxError::Outside { missing: INSTANCE })?;
        let user = USER.iter().find_map(|name| set(name, &variable));
        let user = user.unwrap_or_else(|| format!("uid{}", rustix::process::getuid().as_raw()));
        Ok(Environment { job_id, user })
    }
}

fn set(name: &str, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    variable(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment, FluxError> {
        Environment::read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    /// The variables of a batch script under Flux 0.88.0, in the C locale and in one with UTF-8.
    #[test]
    fn reads_the_job_of_a_batch_script() {
        for id in ["f8UK76CX", "ƒ8UK76CX"] {
            let batch = [("FLUX_ENCLOSING_ID", id), ("FLUX_URI", "local:///tmp/flux-a1/local-0"), ("USER", "user1")];
            let expected = Environment { job_id: "f8UK76CX".to_owned(), user: "user1".to_owned() };
            assert_eq!(read(&batch).unwrap(), expected);
        }
    }

    #[test]
    fn refuses_what_is_no_allocation_with_the_way_to_one() {
        let outside = read(&[("FLUX_URI", "local:///run/flux/local")]).unwrap_err().to_string();
        assert!(outside.contains("FLUX_ENCLOSING_ID") && outside.contains("flux batch"), "{outside}");
        let cut_off = read(&[("FLUX_ENCLOSING_ID", "f8UK76CX")]).unwrap_err().to_string();
        assert!(cut_off.contains("FLUX_URI"), "{cut_off}");
        let task = [("FLUX_ENCLOSING_ID", "f8UK76CX"), ("FLUX_URI", "local:///l"), ("FLUX_JOB_ID", "ƒTH4GhV")];
        let task = read(&task).unwrap_err().to_string();
        assert!(task.contains("fTH4GhV") && task.contains("not with `flux run`"), "{task}");
    }
}
