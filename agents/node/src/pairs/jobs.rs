//! The non-critical jobs of a node: started, started again when they fail, suspended while a replica needs their
//! processors, ended.

use std::time::Duration;

use holdfast_failover::{JobChange, JobQueue};
use holdfast_model::RankEnd;
use holdfast_model::pair::{JobConfig, JobRunState, JobStatus, PairChange};
use holdfast_process::ObservedProcess;
use rustix::process::Signal;

use super::freezer::{self, Freezer};
use super::state::JobState;
use holdfast_failover::BackOff;

/// Whether the process of a job runs, is suspended, or has ended.
#[derive(Debug)]
enum Phase {
    /// It is started at this time.
    Due(Duration),
    Starting,
    Runs {
        since: Duration,
    },
    Finished,
    GivenUp,
    /// All jobs were ended.
    Ended,
}

#[derive(Debug)]
struct Job {
    config: JobConfig,
    phase: Phase,
    process: Option<ObservedProcess>,
    back_off: BackOff,
}

/// What follows from an event.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Positions of jobs to start.
    pub start: Vec<usize>,
    /// What to report, by the name of the job.
    pub reports: Vec<(String, PairChange)>,
}

#[derive(Debug)]
pub(super) struct Jobs {
    jobs: Vec<Job>,
    queue: JobQueue,
    /// When jobs that were told to end are killed.
    kill_at: Option<Duration>,
}

impl Jobs {
    /// The jobs of a plan; those that an earlier agent has started go on.
    pub fn new(
        configs: &[JobConfig],
        mut kept: impl FnMut(&str) -> JobState,
        now: Duration,
    ) -> (Jobs, Vec<usize>, Effects) {
        let queue = JobQueue::new(configs.iter().map(|config| (config.name.clone(), config.order)));
        let mut jobs = Jobs { jobs: Vec::new(), queue, kill_at: None };
        let (mut adopted, mut effects) = (Vec::new(), Effects::default());
        for (at, config) in configs.iter().enumerate() {
            let JobState { process, back_off, finished, given_up } = kept(&config.name);
            let found = process.and_then(ObservedProcess::open);
            let phase = match (&found, finished, given_up) {
                (Some(process), ..) => {
                    adopted.push(at);
                    effects.reports.push((config.name.clone(), PairChange::JobAdopted { pid: process.id.pid }));
                    Phase::Runs { since: now }
                }
                (None, true, _) => Phase::Finished,
                (None, false, true) => Phase::GivenUp,
                (None, false, false) => Phase::Due(now),
            };
            jobs.jobs.push(Job { config: config.clone(), phase, process: found, back_off });
        }
        (jobs, adopted, effects)
    }

    /// Resumes the jobs that the agent before has suspended, and for which no replica is awake now.
    pub fn resume_adopted(&self) {
        for job in self.jobs.iter().filter(|job| !self.queue.is_suspended(&job.config.name)) {
            job.process.iter().for_each(freezer::resume);
        }
    }

    /// Changes commands and restarts from the next start on. The jobs are the same, in the same order.
    pub fn configure(&mut self, configs: &[JobConfig]) {
        for (job, config) in self.jobs.iter_mut().zip(configs) {
            job.config = config.clone();
        }
    }

    pub fn process(&self, at: usize) -> Option<&ObservedProcess> {
        self.jobs.get(at)?.process.as_ref()
    }

    pub fn config(&self, at: usize) -> Option<&JobConfig> {
        Some(&self.jobs.get(at)?.config)
    }

    pub fn next_deadline(&self) -> Option<Duration> {
        let due = self.jobs.iter().filter_map(|job| match job.phase {
            Phase::Due(at) => Some(at),
            _ => None,
        });
        due.chain(self.kill_at).min()
    }

    /// Applies the deadlines that have passed.
    pub fn tick(&mut self, now: Duration) -> Effects {
        let mut effects = Effects::default();
        for (at, job) in self.jobs.iter_mut().enumerate() {
            if matches!(job.phase, Phase::Due(due) if due <= now) {
                job.phase = Phase::Starting;
                effects.start.push(at);
            }
        }
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill_at = None;
            self.jobs.iter().filter_map(|job| job.process.as_ref()).for_each(|process| process.signal(Signal::KILL));
        }
        effects
    }

    pub fn started(
        &mut self,
        at: usize,
        process: Result<ObservedProcess, String>,
        now: Duration,
        pair_name: impl Fn(u32) -> String,
    ) -> Effects {
        let mut effects = Effects::default();
        let Some(job) = self.jobs.get_mut(at) else { return effects };
        match process {
            Ok(process) => {
                let name = job.config.name.clone();
                effects.reports.push((name.clone(), PairChange::JobStarted { pid: process.id.pid }));
                if matches!(job.phase, Phase::Ended) {
                    process.signal(Signal::KILL);
                } else {
                    job.phase = Phase::Runs { since: now };
                }
                job.process = Some(process);
                let changes = self.queue.started(&name);
                self.perform(changes, pair_name, &mut effects);
            }
            Err(reason) => {
                tracing::warn!(job = job.config.name, reason, "job_not_started");
                fail(job, now, now, RankEnd::Unknown, &mut effects);
            }
        }
        effects
    }

    /// The job's process has ended.
    pub fn exited(&mut self, at: usize, now: Duration) -> Effects {
        let mut effects = Effects::default();
        let Some(job) = self.jobs.get_mut(at) else { return effects };
        let Some(process) = job.process.take() else { return effects };
        // A process that has been waited for has no control group.
        let freezer = Freezer::of(&process);
        let end = process.reap();
        freezer.into_iter().for_each(Freezer::remove);
        match (&job.phase, end) {
            (Phase::Runs { .. }, RankEnd::SUCCESS) => {
                job.phase = Phase::Finished;
                effects.reports.push((job.config.name.clone(), PairChange::JobFinished));
            }
            (Phase::Runs { since }, end) => {
                let since = *since;
                fail(job, since, now, end, &mut effects);
            }
            _ => {}
        }
        effects
    }

    /// The replica of a pair is awake, and needs the processors of these jobs.
    pub fn suspend(&mut self, pair: u32, suspends: Option<&[String]>, name: impl Fn(u32) -> String) -> Effects {
        let mut effects = Effects::default();
        let changes = self.queue.need(pair, suspends);
        self.perform(changes, name, &mut effects);
        effects
    }

    /// The replica of a pair is no longer awake.
    pub fn resume(&mut self, pair: u32, name: impl Fn(u32) -> String) -> Effects {
        let mut effects = Effects::default();
        let changes = self.queue.release(pair);
        self.perform(changes, name, &mut effects);
        effects
    }

    fn perform(&mut self, changes: Vec<JobChange>, pair_name: impl Fn(u32) -> String, effects: &mut Effects) {
        for change in changes {
            let (JobChange::Suspend { job: name, .. } | JobChange::Resume { job: name }) = &change;
            let process = self.jobs.iter().find(|job| job.config.name == *name).and_then(|job| job.process.as_ref());
            let Some(process) = process else { continue };
            effects.reports.push(match change {
                JobChange::Suspend { job, pair } => {
                    let freezer = freezer::suspend(process);
                    (job, PairChange::JobSuspended { pair: pair_name(pair), freezer })
                }
                JobChange::Resume { job } => {
                    freezer::resume(process);
                    (job, PairChange::JobResumed)
                }
            });
        }
    }

    /// Ends all jobs: SIGTERM, after the grace SIGKILL.
    pub fn end(&mut self, now: Duration, grace: Duration) {
        for job in &mut self.jobs {
            if !matches!(job.phase, Phase::Finished | Phase::GivenUp) {
                job.phase = Phase::Ended;
            }
            if let Some(process) = &job.process {
                process.signal(Signal::TERM);
                freezer::resume(process);
            }
        }
        // An end that was requested before is not delayed by another request.
        self.kill_at = Some(self.kill_at.map_or(now + grace, |at| at.min(now + grace)));
    }

    /// No process of a job exists.
    pub fn are_gone(&self) -> bool {
        self.jobs.iter().all(|job| job.process.is_none() && !matches!(job.phase, Phase::Starting))
    }

    pub fn states(&self) -> impl Iterator<Item = (String, JobState)> {
        self.jobs.iter().map(|job| {
            let state = JobState {
                process: job.process.as_ref().map(|process| process.id),
                back_off: job.back_off,
                finished: matches!(job.phase, Phase::Finished),
                given_up: matches!(job.phase, Phase::GivenUp),
            };
            (job.config.name.clone(), state)
        })
    }

    pub fn statuses(&self) -> Vec<JobStatus> {
        let status = |job: &Job| JobStatus {
            name: job.config.name.clone(),
            state: match job.phase {
                Phase::Runs { .. } if self.queue.is_suspended(&job.config.name) => JobRunState::Suspended,
                Phase::Runs { .. } => JobRunState::Running,
                Phase::Finished => JobRunState::Finished,
                Phase::GivenUp => JobRunState::GivenUp,
                // It has not obeyed the request to end yet.
                Phase::Ended if job.process.is_some() => JobRunState::Running,
                Phase::Due(_) | Phase::Starting | Phase::Ended => JobRunState::Absent,
            },
            pid: job.process.as_ref().map(|process| process.id.pid),
            failures: job.back_off.failures,
        };
        self.jobs.iter().map(status).collect()
    }
}

fn fail(job: &mut Job, since: Duration, now: Duration, end: RankEnd, effects: &mut Effects) {
    let name = || job.config.name.clone();
    effects.reports.push((name(), PairChange::JobFailed { end }));
    job.phase = match job.back_off.failed(&job.config.restart, now.saturating_sub(since)) {
        Some(pause) => Phase::Due(now + pause),
        None => {
            effects.reports.push((name(), PairChange::JobGivenUp { failures: job.back_off.failures }));
            Phase::GivenUp
        }
    };
}
