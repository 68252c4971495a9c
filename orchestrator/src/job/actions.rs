//! Performs the actions of the relaunch machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::interval::FailureRate;
use holdfast_model::{CheckpointId, Generation, HaltState, NodeName, Placement};
use holdfast_wire::agent::{ForgetRequest, HaltRequest, KillReply, KillRequest, PeersUpdate, TerminateRequest};
use holdfast_wire::plan::PlanParts;

use super::background::TaskResult;
use super::drain_task::AfterCommands;
use super::free_space::{self, HALT_WITHIN};
use super::running_step::RunningStep;
use super::step::StepDriver;
use super::{manager_poll, settings, site, stacks};
use crate::drain::{DrainOrder, prefix_steps};
use crate::events::{CommandKey, LogEvent, StopReason};
use crate::fleet::clock::issue_number;
use crate::fleet::{RequestError, to_each};
use crate::relaunch::{Action, BeforeFailure, Event};

/// The pause before that.
const HALT_PAUSE: Duration = Duration::from_millis(250);

impl StepDriver<'_> {
    /// Performs an action, or begins it.
    pub(super) fn perform(&mut self, action: Action) {
        tracing::debug!(?action, "action");
        match action {
            Action::StartAgent { node } => {
                self.reporter.clear_progress(&node);
                self.agents.start(node);
            }
            Action::AskHalt { except } => self.ask_halt(&except),
            Action::RunBefore { on } => self.run_before(on),
            Action::CancelBefore => {
                if let Some(before) = self.before.take() {
                    before.cancel();
                }
            }
            Action::Prepare { generation, placement, to } => self.prepare(generation, &placement, &to),
            Action::Launch { generation, placement } => self.launch(generation, &placement),
            Action::FollowStep { generation, placement } => {
                self.ranks.follow(generation, &placement, self.background.clone());
            }
            Action::PollNow { to } => self.agents.poll_now(&to),
            Action::CheckAgent { node } => self.agents.check(&node),
            Action::SaveStacks { generation, ranks } => {
                let directory = super::state::generation_directory(&self.settings.prefix, generation);
                stacks::save(self.agents, directory, generation, ranks, self.background.clone());
            }
            Action::RequestHalt { generation, to, reason } => self.request_halt(HaltRequest { generation, reason }, to),
            Action::TerminateRanks { generation, to, reason } => self.terminate_ranks(generation, &to, reason),
            Action::KillRanks { generation, to, reason } => self.kill_ranks(generation, &to, reason),
            Action::CancelStep { generation } => self.ranks.cancel(generation),
            Action::CheckProgress { generation } => self.check_progress(generation),
            Action::BorrowNodes { wanted, waits } => {
                if let Some(nodes) = &self.nodes {
                    nodes.borrow(wanted, waits, self.background.clone());
                }
            }
            Action::CheckAllocation => manager_poll::check(Arc::clone(&self.allocation), self.background.clone()),
            Action::UpdatePeers { generation, addresses, down, to } => {
                self.update_peers(PeersUpdate { generation, issued: issue_number(), addresses, down }, &to);
            }
            Action::FenceNode { node, address } => {
                self.reporter.clear_progress(&node);
                if let Some(before) = &self.before {
                    before.cancel_on(&node);
                }
                self.agents.fence(&node, address);
                self.record.agent_changed(&node);
            }
            Action::Record(event) => self.reporter.emit(event),
            Action::Supersede { from } => self.supersede(from),
            Action::Drain { stop, healthy, starting, down, continues } => {
                self.start_drain(&stop, [healthy, starting].concat(), down, continues)
            }
            // The agents belong to the job: they are ended after the loop, unless the next step uses them.
            Action::StopAgents { .. } => self.drain.abort(),
            Action::Finish(outcome) => self.outcome = Some(outcome),
        }
    }

    /// Reads the halt conditions, and runs the health tests meanwhile: both precede every launch.
    fn ask_halt(&mut self, except: &[NodeName]) {
        let agents = self.agents.roster().agents();
        let client = self.agents.client().clone();
        let set = settings::halt_conditions(self.spec).filter(|_| !self.record.state.halt_set);
        let (test, test_timeout) = (self.health_test(), self.spec.health.test_timeout);
        let template = self.machine.is_before_first_launch().then(|| self.record.state.template()).and_then(Result::ok);
        let background = self.background.clone();
        let except: BTreeSet<&NodeName> = except.iter().collect();
        let mut asked = agents.clone();
        // Conditions of the spec are set on all.
        if set.is_none() {
            asked.retain(|node, _| !except.contains(node));
        }
        tokio::spawn(async move {
            let nodes = agents.keys().cloned().collect();
            let tests = async {
                match &test {
                    Some((command, context)) => site::health(command, nodes, test_timeout, context).await,
                    None => Vec::new(),
                }
            };
            let (client, set) = (&client, &set);
            let free_space = async {
                match &template {
                    Some(template) => free_space::faults(client, agents.clone(), template).await,
                    None => Vec::new(),
                }
            };
            let answers = client.each(asked, |(node, address)| async move {
                let request = async {
                    match set {
                        Some(change) => client.set_halt(address, change).await,
                        None => client.halt(address).await,
                    }
                };
                let answer = tokio::time::timeout(HALT_WITHIN, request).await;
                (node, answer.ok().and_then(Result::ok))
            });
            let (faults, lacking, answers) = tokio::join!(tests, free_space, answers);
            let silent: Vec<NodeName> =
                answers.iter().filter(|(_, answer)| answer.is_none()).map(|(node, _)| node.clone()).collect();
            if set.is_some() && silent.is_empty() {
                background.send(TaskResult::HaltSet);
            }
            for (node, fault) in lacking {
                background.event(Event::HealthFault { node, fault });
            }
            for (node, reason) in faults {
                let fault = format!("health.command: {reason}");
                background.event(Event::HealthFault { node, fault });
            }
            let met = answers.into_iter().filter_map(|(_, answer)| answer).find_map(|state: HaltState| state.met);
            if !silent.is_empty() && met.is_none() {
                tokio::time::sleep(HALT_PAUSE).await;
            }
            background.event(Event::HaltAnswered { met, silent });
        });
    }

    /// Runs the commands of `before:`. Ends as `BeforeEnded`.
    fn run_before(&mut self, nodes: Vec<NodeName>) {
        let background = self.background.clone();
        let commands = match self.site_commands(CommandKey::Before, nodes) {
            Ok(commands) => commands,
            Err(error) => {
                let failure = BeforeFailure { nodes: Vec::new(), reason: error.to_string() };
                return background.event(Event::BeforeEnded { failure: Some(failure) });
            }
        };
        self.before = Some(commands.cancellation.clone());
        tokio::spawn(async move {
            let ended = commands.run(|event| background.log(event)).await;
            let failure = ended.err().map(|failed| BeforeFailure { reason: failed.to_string(), nodes: failed.nodes });
            background.event(Event::BeforeEnded { failure });
        });
    }

    fn prepare(&mut self, generation: Generation, placement: &Arc<Placement>, to: &[NodeName]) {
        if self.sockets.0 != generation {
            self.sockets = (generation, BTreeMap::new());
            // As of the launch: an agent that is restarted later gets the same plan.
            self.settings.newest = self.machine.newest();
            self.choose_interval(generation);
        }
        let background = self.background.clone();
        let plan = match PlanParts::new(generation, issue_number(), Arc::clone(placement), &self.settings) {
            Ok(plan) => plan,
            Err(error) => {
                let refused =
                    |node: &NodeName| Event::RunRefused { node: node.clone(), generation, reason: error.to_string() };
                return to.iter().for_each(|node| background.event(refused(node)));
            }
        };
        self.agents.request(
            to,
            move |client, node, address| {
                let request = plan.request_to(&node);
                async move { client.run(address, request?).await }
            },
            move |node, answer: Result<_, RequestError>| match answer {
                Ok(accepted) => background.send(TaskResult::Prepared { node, generation, socket: accepted.socket }),
                Err(refusal) => background.event(Event::RunRefused { node, generation, reason: refusal.to_string() }),
            },
        );
    }

    /// With `every: auto`, the agents get the mean time between failures: the interval follows from it and from what a
    /// checkpoint costs.
    fn choose_interval(&mut self, generation: Generation) {
        let auto = self.step.is_auto();
        let rate = self.reporter.costs.failure_rate(self.spec.health.mtbf);
        self.settings.mtbf = rate.filter(|_| auto).map(|rate| rate.mtbf);
        if let Some(FailureRate { mtbf, given }) = rate.filter(|rate| auto || rate.given) {
            let mtbf_ms = u64::try_from(mtbf.as_millis()).unwrap_or(u64::MAX);
            self.reporter.log(&LogEvent::FailuresExpected { generation, mtbf_ms, given, auto });
        }
    }

    fn launch(&mut self, generation: Generation, placement: &Arc<Placement>) {
        // An agent that is restarted gets ranks only with the next generation.
        let sockets = std::mem::take(&mut self.sockets.1);
        self.ranks.launch(generation, placement, sockets, self.background.clone());
    }

    fn check_progress(&self, generation: Generation) {
        let (sources, background) = (self.progress.clone(), self.background.clone());
        tokio::spawn(async move {
            let found = sources.check(generation).await;
            background.event(Event::ProgressChecked { generation, found });
        });
    }

    /// The ranks of a generation were launched, or are followed.
    pub(super) fn launched(&mut self, running: RunningStep) {
        let now = u64::try_from(self.clock.now().as_millis()).unwrap_or(u64::MAX);
        let known = self.record.state.first_launch_ms.unwrap_or(now);
        self.record.state.first_launch_ms = Some(self.faults.lock().launched(known));
        self.watch_output(running.generation);
        self.ranks.launched(running);
    }

    /// Has an agent that is up remove the state of the job's finished steps, and the halt conditions of earlier runs,
    /// before it gets other requests; then `ready` follows.
    pub(super) fn forget(&self, request: ForgetRequest, node: NodeName, address: SocketAddr, ready: Event) {
        let (client, background) = (self.agents.client().clone(), self.background.clone());
        tokio::spawn(async move {
            let event = match client.forget(address, &request).await {
                Ok(_) => ready,
                Err(error) if error.is_refusal() => Event::AgentUnfit { node, address, fault: error.to_string() },
                // It counts as not started, and is started again.
                Err(error) => Event::AgentStartFailed { node, reason: error.brief(), node_lost: false },
            };
            background.event(event);
        });
    }

    /// An agent that does not answer is lost, and gets the request again when it is up.
    fn request_halt(&mut self, request: HaltRequest, to: NodeName) {
        self.agents.request(
            &[to],
            to_each(request, |client, address, request| async move { client.request_halt(address, &request).await }),
            |node, answer| {
                if let Err(error) = answer {
                    tracing::warn!(%node, %error, "the ranks cannot be halted at their next checkpoint");
                }
            },
        );
    }

    fn terminate_ranks(&mut self, generation: Generation, to: &[NodeName], reason: String) {
        self.agents.request(
            to,
            to_each(TerminateRequest { generation, reason }, |client, address, request| async move {
                client.terminate(address, &request).await
            }),
            |node, answer| {
                if let Err(error) = answer {
                    tracing::warn!(%node, %error, "SIGTERM could not be sent to the ranks of a node");
                }
            },
        );
    }

    fn kill_ranks(&mut self, generation: Generation, to: &[NodeName], reason: String) {
        let background = self.background.clone();
        let request = KillRequest { generation, reason };
        self.agents.begin_request(
            to,
            move |client, address| client.begin_kill(address, &request),
            |client, _, address, begun| async move { client.killed(address, begun?).await },
            move |node, answer| match answer {
                Ok(KillReply { may_halt, .. }) => background.event(Event::RanksKilled { node, generation, may_halt }),
                // An agent that refuses counts as lost.
                Err(error) => background.event(Event::AgentLost { node, reason: error.to_string() }),
            },
        );
    }

    /// An agent that does not answer is lost, and gets the then present addresses when it is up again.
    fn update_peers(&mut self, update: PeersUpdate, to: &[NodeName]) {
        self.agents.request(
            to,
            to_each(update, |client, address, request| async move { client.peers(address, &request).await }),
            |node, answer| {
                if let Err(error) = answer {
                    tracing::info!(%node, %error, "an agent did not accept new addresses");
                }
            },
        );
    }

    /// Ends as `Superseded`.
    fn supersede(&self, from: Option<CheckpointId>) {
        let (prefix, job_id) = (self.settings.prefix.clone(), self.allocation.job_id().to_owned());
        let background = self.background.clone();
        tokio::spawn(async move {
            let recorded = tokio::task::spawn_blocking(move || prefix_steps::supersede(prefix, &job_id, from)).await;
            let failure = match recorded {
                Ok(recorded) => recorded.err().map(|error| error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            background.event(Event::Superseded { from, failure });
        });
    }

    /// Starts the drain. The agents of the nodes that are not `down` are up, or are waited for: an orchestrator that
    /// has taken over does not know yet whether they are.
    fn start_drain(&mut self, stop: &StopReason, mut others: Vec<NodeName>, down: Vec<NodeName>, continues: bool) {
        let up = self.agents.roster().agents();
        others.retain(|node| !up.contains_key(node));
        let order = DrainOrder {
            client: self.agents.client().clone(),
            roster: self.agents.roster().clone(),
            lost: others,
            down,
            prefix: self.settings.prefix.clone(),
            job_id: self.allocation.job_id().to_owned(),
            generation: self.machine.generation(),
            continues,
            copies: settings::copies(&self.step.checkpoint),
            requested: None,
            events: self.background.events.clone(),
        };
        // `after:` is run once, at the end of the job.
        let follows = self.follows;
        let goes_on = match stop {
            StopReason::Finished => follows.finished,
            stop => follows.failed && !stop.ends_job(),
        };
        let after = self.site_commands(CommandKey::After, self.nodes_up());
        let after = after.inspect_err(|error| tracing::warn!(%error, "the commands of `after` cannot be run")).ok();
        let after = match after {
            Some(after) if goes_on => AfterCommands::IfDrainEndsJob { after, goes_on_after_failure: follows.failed },
            Some(after) => AfterCommands::Now(after),
            None => AfterCommands::None,
        };
        self.drain.start(order, after, self.background.clone());
    }
}
