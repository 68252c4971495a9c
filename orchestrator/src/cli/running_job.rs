//! Requests to the agents of a running job, with the addresses in the job's state.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_core::owned::OwnedDirectory;
use holdfast_model::pair::{PairCommand, Side};
use holdfast_model::{CheckpointId, HaltChange, HaltState, NodeName};
use holdfast_wire::agent::{CheckpointRequest, Health, PollRequest, RequestedCheckpoint};
use holdfast_wire::pairs::{CommandRequest, PairsSync};

use super::failure::Failure;
use super::job::{self, StepSelection};
use super::output::Style;
use crate::exit;
use crate::fleet::{AgentClient, RequestError};
use crate::job::state::{JobState, Stage, StateError};
use crate::job::state_file::JobLock;
use crate::pairs::Overview;
use crate::spec::Environment;

/// Time limit for the answer of an agent; agents that do not answer are left out.
const WITHIN: Duration = Duration::from_secs(2);
/// As `WITHIN`, when no agent has answered although the orchestrator runs: the nodes are busy.
const OF_BUSY_NODES: Duration = Duration::from_secs(10);

/// A job with a client for its agents.
pub(super) struct RunningJob {
    pub(super) prefix: PathBuf,
    pub(super) state: JobState,
    /// True if its orchestrator runs.
    pub(super) has_orchestrator: bool,
    /// `<prefix>/.holdfast`.
    pub(super) directory: OwnedDirectory,
    /// `None` without key and token: the job has ended, or belongs to another user.
    client: Option<AgentClient>,
}

/// How a step of a job is.
pub(super) struct StepStatus {
    pub(super) name: String,
    /// `None` if it was never begun.
    pub(super) state: Option<JobState>,
    /// It is the one that is shown as a whole.
    pub(super) is_shown: bool,
}

impl StepStatus {
    pub(super) fn stage(&self) -> Option<&Stage> {
        self.state.as_ref().map(|state| &state.stage)
    }
}

impl RunningJob {
    /// The job that the arguments select.
    pub(super) fn of(selection: &StepSelection, output: Style) -> Result<Self, Failure> {
        RunningJob::in_environment(selection, &selection.job.environment(output)?)
    }

    /// As [`of`](Self::of), all steps that run side by side, each with its name.
    pub(super) fn each_of(selection: &StepSelection, output: Style) -> Result<Vec<(Option<String>, Self)>, Failure> {
        RunningJob::each_in(selection, &selection.job.environment(output)?)
    }

    /// As [`each_of`](Self::each_of), in an environment that was read before.
    pub(super) fn each_in(
        selection: &StepSelection,
        environment: &Environment,
    ) -> Result<Vec<(Option<String>, Self)>, Failure> {
        let found = job::prefixes_with_state(selection, environment, JobState::read)?.into_iter();
        let jobs = found.map(|(name, prefix)| {
            let job = RunningJob::in_prefix(prefix, name.as_deref())?;
            Ok((name, job))
        });
        let jobs = jobs.collect::<Result<Vec<_>, Failure>>()?;
        // Others hold nodes, but have ended.
        let runs = |(_, job): &(Option<String>, Self)| job.state.stage == Stage::Running;
        let any = jobs.iter().any(runs);
        Ok(jobs.into_iter().filter(|job| !any || runs(job)).collect())
    }

    /// As [`of`](Self::of), in an environment that was read before.
    pub(super) fn in_environment(selection: &StepSelection, environment: &Environment) -> Result<Self, Failure> {
        // Refuses a state that is not ours.
        let prefix = job::prefix_with_state(selection, environment, JobState::read)?;
        RunningJob::in_prefix(prefix, selection.step.as_deref())
    }

    /// As [`of`](Self::of), with the states of the steps of a job of several; also the job of another user who
    /// permitted a group of this user to see its status.
    pub(super) fn to_show(
        selection: &StepSelection,
        environment: &Environment,
    ) -> Result<(Self, Vec<StepStatus>), Failure> {
        let read = |prefix: &Path| Ok(JobState::read_to_show(prefix)?.map(|(state, _)| state));
        let prefix = job::prefix_with_state(selection, environment, read)?;
        let mut job = RunningJob::in_prefix(prefix, selection.step.as_deref())?;
        let of_job = selection.job.prefix(environment)?;
        if selection.step.is_none() {
            // Also between two steps.
            job.has_orchestrator |= JobLock::is_held(&of_job);
        }
        let steps = job::steps(&selection.job, environment, &of_job)?.into_iter().map(|(name, prefix)| {
            let (state, is_shown) = (read(&prefix)?, prefix == job.prefix);
            Ok(StepStatus { name, state, is_shown })
        });
        let steps = steps.collect::<Result<_, StateError>>()?;
        Ok((job, steps))
    }

    /// The job of a prefix directory, or its step with this name.
    pub(super) fn in_prefix(prefix: PathBuf, step: Option<&str>) -> Result<Self, Failure> {
        let found = JobState::read_to_show(&prefix)?;
        let Some((state, directory)) = found else {
            let failure = |message: String| Failure::new(exit::UNAVAILABLE, message).at(prefix.display());
            return Err(match JobState::end_by_other_version(&prefix)? {
                Some(end) => {
                    failure(format!("the job here was run by another version of Holdfast, and has ended: {end}"))
                        .remedy("`holdfast run` begins a new job from its checkpoints")
                }
                None if let Some(step) = step => failure(format!("step `{step}` has not begun"))
                    .remedy("`holdfast status` lists the steps that have"),
                None => failure("no job has been run in this prefix directory".to_owned())
                    .remedy("give the job's spec, or its prefix directory with `--prefix`"),
            });
        };
        let client = state.trust.as_ref().map(|trust| AgentClient::of_user(trust, state.requests_at_once)).transpose();
        let client = client.map_err(|error| Failure::of(exit::INTERNAL, &error))?;
        Ok(RunningJob { has_orchestrator: JobLock::is_held(&prefix), prefix, state, directory, client })
    }

    /// The failure if no agent answers.
    pub(super) fn not_running(&self) -> Failure {
        let (reason, remedy) = match (&self.state.stage, &self.state.pairs) {
            (Stage::Finished { exit_code: exit::FINISHED, .. }, _) => {
                ("it is finished".to_owned(), "to run it again: `holdfast run --again`")
            }
            (Stage::Finished { exit_code, .. }, _) => {
                (format!("it has ended with exit code {exit_code}"), "to start it: `holdfast run`")
            }
            // Checkpoints of pairs are in the memory of the nodes only, and there is nothing to drain.
            (_, Some(_)) => ("none of its agents answers".to_owned(), "to start it: `holdfast run`"),
            (_, None) => (
                "none of its agents answers".to_owned(),
                "to start it: `holdfast run`; to save its checkpoints: `holdfast drain`",
            ),
        };
        Failure::new(exit::UNAVAILABLE, format!("job {} is not running: {reason}", self.state.agents.job_id))
            .at(self.prefix.display())
            .remedy(remedy)
    }

    /// Refuses what a job with pairs of main and replica does not have.
    pub(super) fn refuse_with_pairs(&self, message: &str, remedy: &str) -> Result<(), Failure> {
        match self.state.pairs {
            Some(_) => Err(Failure::new(exit::UNAVAILABLE, message).at(self.prefix.display()).remedy(remedy)),
            None => Ok(()),
        }
    }

    /// Reads or changes the halt conditions on all agents, because each node has a halt file and the generation
    /// determines which one is used.
    pub(super) async fn halt(&self, change: Option<HaltChange>) -> Result<HaltState, Failure> {
        let answers = self.ask_agents(move |client, address| {
            let change = change.clone();
            async move {
                match change {
                    Some(change) => client.set_halt(address, &change).await,
                    None => client.halt(address).await,
                }
            }
        });
        // The first one that is not empty: the file of a node that joined late may be empty.
        let answers = answers.await?;
        let is_empty = |state: &&HaltState| **state == HaltState::default();
        Ok(answers.iter().find(|state| !is_empty(state)).or(answers.last()).cloned().unwrap_or_default())
    }

    /// Requests a checkpoint of all agents, because the generation determines which one leads; see
    /// [`CheckpointRequest`]. `None` if none of them leads a run now.
    pub(super) async fn request_checkpoint(
        &self,
        after: Option<CheckpointId>,
    ) -> Result<Option<RequestedCheckpoint>, Failure> {
        let answers = self.ask_agents(move |client, address| async move {
            client.request_checkpoint(address, &CheckpointRequest { after }).await
        });
        let replies = answers.await?;
        Ok(replies.into_iter().find_map(|reply| reply.requested))
    }

    /// Sends a request to each agent; returns the answers, of which there is at least one.
    async fn ask_agents<R, F>(&self, ask: impl Fn(AgentClient, SocketAddr) -> F) -> Result<Vec<R>, Failure>
    where
        F: Future<Output = Result<R, RequestError>>,
    {
        let (mut found, mut refused) = (Vec::new(), None);
        for (_, answer) in self.answers(|client, address, _| ask(client, address)).await {
            match answer {
                Ok(reply) => found.push(reply),
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            _ if !found.is_empty() => Ok(found),
            Some(error) => Err(Failure::of(exit::UNAVAILABLE, &error)),
            None => Err(self.not_running()),
        }
    }

    /// The answers and refusals of the agents that answer within the time that `ask` gets.
    async fn answers<R, F>(
        &self,
        ask: impl Fn(AgentClient, SocketAddr, Duration) -> F,
    ) -> Vec<(NodeName, Result<R, RequestError>)>
    where
        F: Future<Output = Result<R, RequestError>>,
    {
        let Some(client) = &self.client else { return Vec::new() };
        let limits = [Some(WITHIN), self.has_orchestrator.then_some(OF_BUSY_NODES)];
        for limit in limits.into_iter().flatten() {
            let answers = client.each(&self.state.running, |(node, record)| {
                let answer = tokio::time::timeout(limit, ask(client.clone(), record.address, limit));
                async move {
                    let answer = answer.await.ok()?;
                    let is_answer = answer.as_ref().map_or_else(RequestError::is_refusal, |_| true);
                    is_answer.then(|| (node.clone(), answer))
                }
            });
            let answers: Vec<_> = answers.await.into_iter().flatten().collect();
            if !answers.is_empty() {
                return answers;
            }
        }
        Vec::new()
    }

    /// As [`answers`](Self::answers), without refusals.
    async fn known<R, F>(&self, ask: impl Fn(AgentClient, SocketAddr, Duration) -> F) -> BTreeMap<NodeName, R>
    where
        F: Future<Output = Result<R, RequestError>>,
    {
        self.answers(ask).await.into_iter().filter_map(|(node, answer)| Some((node, answer.ok()?))).collect()
    }

    /// The health of every agent that answers.
    pub(super) async fn health(&self) -> BTreeMap<NodeName, Health> {
        let answers = self.known(|client, address, within| async move {
            client.poll(address, &PollRequest::HEALTH_ONLY, within).await.map(|reply| reply.health)
        });
        answers.await
    }

    /// The state of all pairs, from the agents that answer.
    pub(super) async fn pairs(&self) -> Overview {
        let Some(pairs) = &self.state.pairs else { return Overview::default() };
        let epoch = pairs.epoch;
        let reports = self.known(|client, address, within| async move {
            let request = PairsSync { epoch, ..PairsSync::default() };
            client.pairs_sync(address, &request, within).await.map(|report| (report.pairs, report.jobs))
        });
        Overview::new(&pairs.places, &pairs.progress.finished, &reports.await)
    }

    /// The directories in which programs of users find their copies, of the agents that answer.
    pub(super) async fn clients(&self) -> BTreeMap<NodeName, PathBuf> {
        let epoch = self.state.pairs.as_ref().map_or(0, |pairs| pairs.epoch);
        let answers = self.known(|client, address, within| async move {
            let request = PairsSync { epoch, ..PairsSync::default() };
            client.pairs_sync(address, &request, within).await.map(|report| report.clients)
        });
        answers.await
    }

    /// Sends a request for each of these pairs to the agents of their nodes. `done` are those that were obeyed.
    pub(super) async fn command_pairs(
        &self,
        chosen: &[u32],
        command: PairCommand,
        done: &mut Vec<u32>,
    ) -> Result<(), Failure> {
        let (Some(pairs), Some(client)) = (&self.state.pairs, &self.client) else { return Err(self.not_running()) };
        let side = match command {
            PairCommand::FailOver | PairCommand::FailBack => Side::Main,
            PairCommand::Restart(side) => side,
        };
        for pair in chosen {
            let place = pairs.places.get(*pair as usize).ok_or_else(|| self.not_running())?;
            let record = self.state.running.get(place.node(side)).ok_or_else(|| self.not_running())?;
            let request = CommandRequest { epoch: pairs.epoch, pair: *pair, command };
            client.pair_command(record.address, &request).await.map_err(|error| {
                Failure::of(exit::UNAVAILABLE, &error)
                    .at(&place.name)
                    .remedy("`holdfast pairs list` shows the states of its copies")
            })?;
            done.push(*pair);
        }
        Ok(())
    }
}
