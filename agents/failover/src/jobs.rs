//! Which non-critical jobs of a node are suspended, while replicas of other nodes' mains are awake there.

use std::collections::BTreeMap;

/// What is to be done with a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobChange {
    /// For the replica of this pair.
    Suspend {
        job: String,
        pair: u32,
    },
    Resume {
        job: String,
    },
}

#[derive(Clone, Debug)]
struct Job {
    name: String,
    order: u32,
    suspended: bool,
}

/// The jobs of a node, in the order in which they are suspended.
#[derive(Clone, Debug, Default)]
pub struct JobQueue {
    jobs: Vec<Job>,
    /// The jobs that each awake replica has suspended; `None`: all.
    needs: BTreeMap<u32, Option<Vec<String>>>,
}

impl JobQueue {
    /// Jobs by name and order.
    pub fn new(jobs: impl IntoIterator<Item = (String, u32)>) -> JobQueue {
        let mut jobs: Vec<Job> = jobs.into_iter().map(|(name, order)| Job { name, order, suspended: false }).collect();
        jobs.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
        JobQueue { jobs, needs: BTreeMap::new() }
    }

    /// The replica of this pair is awake: suspends the jobs that it names, those with a smaller order first.
    pub fn need(&mut self, pair: u32, suspends: Option<&[String]>) -> Vec<JobChange> {
        self.needs.insert(pair, suspends.map(<[String]>::to_vec));
        self.change()
    }

    /// The replica of this pair is no longer awake: resumes, in reverse order, the jobs that no other replica needs
    /// suspended.
    pub fn release(&mut self, pair: u32) -> Vec<JobChange> {
        self.needs.remove(&pair);
        self.change()
    }

    /// The job has a new process, which runs.
    pub fn started(&mut self, name: &str) -> Vec<JobChange> {
        for job in &mut self.jobs {
            job.suspended &= job.name != name;
        }
        self.change()
    }

    pub fn is_suspended(&self, name: &str) -> bool {
        self.jobs.iter().any(|job| job.name == name && job.suspended)
    }

    fn change(&mut self) -> Vec<JobChange> {
        let (mut suspend, mut resume) = (Vec::new(), Vec::new());
        for job in &mut self.jobs {
            let wanted = |needs: &Option<Vec<String>>| needs.as_ref().is_none_or(|names| names.contains(&job.name));
            let pair = self.needs.iter().find(|(_, needs)| wanted(needs)).map(|(pair, _)| *pair);
            match (pair, job.suspended) {
                (Some(pair), false) => suspend.push(JobChange::Suspend { job: job.name.clone(), pair }),
                (None, true) => resume.push(JobChange::Resume { job: job.name.clone() }),
                _ => {}
            }
            job.suspended = pair.is_some();
        }
        resume.reverse();
        suspend.append(&mut resume);
        suspend
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> JobQueue {
        JobQueue::new([("app3".to_owned(), 3), ("app1".to_owned(), 1), ("app2".to_owned(), 2)])
    }

    fn names(changes: &[JobChange]) -> Vec<String> {
        let name = |change: &JobChange| match change {
            JobChange::Suspend { job, .. } => format!("-{job}"),
            JobChange::Resume { job } => format!("+{job}"),
        };
        changes.iter().map(name).collect()
    }

    #[test]
    fn jobs_are_resumed_in_the_reverse_order() {
        let mut queue = queue();
        assert_eq!(names(&queue.need(0, None)), ["-app1", "-app2", "-app3"]);
        assert_eq!(names(&queue.release(0)), ["+app3", "+app2", "+app1"]);
    }

    #[test]
    fn a_job_is_suspended_until_no_replica_needs_it() {
        let mut queue = queue();
        let named = ["app2".to_owned(), "app3".to_owned()];
        assert_eq!(names(&queue.need(5, Some(&named))), ["-app2", "-app3"]);
        assert_eq!(names(&queue.need(6, Some(&named[..1]))), [""; 0]);
        assert_eq!(names(&queue.release(5)), ["+app3"]);
        assert!(queue.is_suspended("app2"));
        assert_eq!(names(&queue.release(6)), ["+app2"]);
        assert_eq!(names(&queue.release(6)), [""; 0]);
    }

    #[test]
    fn a_job_started_while_a_replica_is_awake_is_suspended() {
        let mut queue = queue();
        queue.need(0, None);
        assert_eq!(names(&queue.started("app2")), ["-app2"]);
        queue.release(0);
        assert_eq!(names(&queue.started("app2")), [""; 0]);
    }
}
