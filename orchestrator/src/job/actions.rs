//! What the machine wants done.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{Generation, HaltState, NodeName, Placement, Rank};
use holdfast_wire::agent::{KillRequest, PeersUpdate};
use holdfast_wire::run::RunPlan;

use super::inputs::TaskResult;
use super::running_step::RunningStep;
use super::{Driver, settings, site, state};
use crate::drain::{self, DrainOrder, DrainReport};
use crate::fleet::fan_out;
use crate::launch::{LaunchError, LaunchRequest, step};
use crate::relaunch::{Action, Event};

/// The word of the halt files is waited for so long; a launch should not wait for a slow node.
const HALT_WITHIN: Duration = Duration::from_secs(2);

impl Driver {
    /// Does one thing, or begins it.
    pub(super) async fn perform(&mut self, action: Action) {
        match action {
            Action::StartAgent { node } => self.start_agent(node),
            Action::AskHalt => self.ask_halt(),
            Action::Prepare { generation, placement, to } => self.prepare(generation, &placement, &to),
            Action::Launch { generation, placement } => self.launch(generation, &placement),
            Action::FollowStep { generation, placement } => self.follow_step(generation, &placement),
            Action::PollNow { to } => {
                for agent in to.iter().filter_map(|node| self.agents.get(node)) {
                    agent.poller.poll_now();
                }
            }
            Action::SaveStacks { generation, ranks } => self.save_stacks(generation, ranks),
            Action::KillRanks { generation, to, reason } => self.kill_ranks(generation, &to, reason),
            Action::CancelStep { generation } => self.cancel_step(generation),
            Action::UpdatePeers { generation, addresses, down, to } => {
                self.update_peers(PeersUpdate { generation, addresses, down }, &to);
            }
            Action::FenceNode { node, address } => self.fence_node(&node, address),
            Action::Record(event) => self.emit(event),
            Action::Drain { down, .. } => self.drain(down),
            Action::StopAgents { to } => self.stop_agents(&to).await,
            Action::Finish(outcome) => self.outcome = Some(outcome),
        }
    }

    /// Health tests run at the same time: both are asked before every launch.
    fn ask_halt(&mut self) {
        let agents = self.reachable(self.agents.keys());
        let client = self.context.client.clone();
        let set = settings::halt_conditions(&self.context.spec).filter(|_| !self.context.state.halt_set);
        let test = self.context.spec.health.command.clone();
        let (nodes, context) = (agents.iter().map(|agent| agent.0.clone()).collect(), self.command_context());
        let results = self.results.clone();
        tokio::spawn(async move {
            let tests = async {
                match &test {
                    Some(command) => site::health(command, nodes, &context).await,
                    None => Vec::new(),
                }
            };
            let is_first = set.is_some();
            let asked = fan_out(agents, move |(_, _, address)| {
                let (client, set) = (client.clone(), set.clone());
                let question = async move {
                    match set {
                        Some(change) => client.set_halt(address, &change).await,
                        None => client.halt(address).await,
                    }
                };
                async move { tokio::time::timeout(HALT_WITHIN, question).await }
            });
            let (faults, answers) = tokio::join!(tests, asked);
            if is_first {
                let _ = results.send(TaskResult::HaltSet);
            }
            for (node, reason) in faults {
                let fault = format!("the site's test failed: {reason}");
                let _ = results.send(TaskResult::Event(Event::HealthFault { node, fault }));
            }
            let met = answers.into_iter().flatten().flatten().find_map(|state: HaltState| state.met);
            let _ = results.send(TaskResult::Event(Event::HaltAnswered { met }));
        });
    }

    fn prepare(&mut self, generation: Generation, placement: &Placement, to: &[NodeName]) {
        if self.context.state.generation != generation {
            self.context.state.generation = generation;
            self.context.state.sockets.clear();
        }
        let agents = self.reachable(to);
        let (client, results) = (self.context.client.clone(), self.results.clone());
        let plan = RunPlan {
            generation,
            nodes: placement.nodes.clone(),
            leader: placement.leader.clone(),
            settings: self.context.settings.clone(),
        };
        let plan = Arc::new(plan);
        tokio::spawn(fan_out(agents, move |(node, start, address)| {
            let (client, results, plan) = (client.clone(), results.clone(), Arc::clone(&plan));
            async move {
                let settings = settings::for_node(&plan.settings, &node);
                let plan =
                    if settings == plan.settings { plan } else { Arc::new(RunPlan { settings, ..(*plan).clone() }) };
                let result = match client.run(address, plan).await {
                    Ok(accepted) => TaskResult::Prepared { node, generation, socket: accepted.socket },
                    Err(error) if error.is_refusal() => {
                        TaskResult::Event(Event::RunRefused { node, generation, reason: error.to_string() })
                    }
                    Err(error) => TaskResult::Unanswered { node, start, reason: error.seen() },
                };
                let _ = results.send(result);
            }
        }));
    }

    fn launch(&mut self, generation: Generation, placement: &Placement) {
        let launched = tokio::task::block_in_place(|| self.launch_now(generation, placement));
        match launched {
            Ok(running) => {
                self.running = Some(running);
                if self.first_launch.is_none() {
                    let now = self.context.clock.now();
                    self.first_launch = Some(now);
                    self.context.state.first_launch_ms = u64::try_from(now.as_millis()).ok();
                }
            }
            Err(error) => {
                let event = Event::LaunchFailed { generation, reason: error.to_string() };
                let _ = self.results.send(TaskResult::Event(event));
            }
        }
    }

    fn launch_now(&self, generation: Generation, placement: &Placement) -> Result<RunningStep, LaunchError> {
        let context = &self.context;
        let directory = state::generation_directory(&context.prefix, generation);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(|source| LaunchError::File { action: "make", path: directory.clone(), source })?;
        let way = |node: &NodeName| Some((node.clone(), context.allocation.remote_shell(node)?));
        let reach = placement.used().filter_map(|node| way(&node.name)).collect();
        let plan = context.launcher.plan(LaunchRequest {
            job_id: context.allocation.job_id(),
            generation,
            placement,
            sockets: &context.state.sockets,
            reach: &reach,
            run: &context.step.run,
            program: &context.program,
            working_directory: &context.working_directory,
            directory: &directory,
        })?;
        plan.write(&directory)?;
        let program = std::env::current_exe().map_err(LaunchError::Supervisor)?;
        let child = step::spawn(&program, &directory)?;
        self.follow(generation, placement, &directory, Some(child))
    }

    fn follow(
        &self,
        generation: Generation,
        placement: &Placement,
        directory: &Path,
        child: Option<std::process::Child>,
    ) -> Result<RunningStep, LaunchError> {
        let ranks: Vec<Rank> = placement.used().flat_map(|node| node.ranks.iter().copied()).collect();
        let job_id = self.context.allocation.job_id();
        RunningStep::follow(generation, job_id, directory, ranks, child, self.steps.clone())
            .map_err(LaunchError::Supervisor)
    }

    fn follow_step(&mut self, generation: Generation, placement: &Placement) {
        let directory = state::generation_directory(&self.context.prefix, generation);
        let begun = crate::launch::StepPlan::events_in(&directory).is_file();
        let followed = if begun {
            self.follow(generation, placement, &directory, None).map_err(|error| error.to_string())
        } else {
            Err("it was never started".to_owned())
        };
        match followed {
            Ok(running) => self.running = Some(running),
            Err(reason) => drop(self.results.send(TaskResult::Event(Event::StepLost { generation, reason }))),
        }
    }

    fn kill_ranks(&mut self, generation: Generation, to: &[NodeName], reason: String) {
        let agents = self.reachable(to);
        let (client, results) = (self.context.client.clone(), self.results.clone());
        let request = Arc::new(KillRequest { generation, reason });
        tokio::spawn(fan_out(agents, move |(node, start, address)| {
            let (client, results, request) = (client.clone(), results.clone(), Arc::clone(&request));
            async move {
                let result = match client.kill(address, &request).await {
                    Ok(_) => TaskResult::Event(Event::RanksKilled { node, generation }),
                    Err(error) => TaskResult::Unanswered { node, start, reason: error.seen() },
                };
                let _ = results.send(result);
            }
        }));
    }

    fn cancel_step(&mut self, generation: Generation) {
        if let Some(step) = self.running.as_ref().filter(|step| step.generation == generation && !step.has_ended()) {
            tokio::task::spawn_blocking(step.canceller());
        }
    }

    /// An agent that does not learn it finds out by itself: its connection is refused, and the machine tells it again.
    fn update_peers(&mut self, update: PeersUpdate, to: &[NodeName]) {
        let agents = self.reachable(to);
        let (client, results) = (self.context.client.clone(), self.results.clone());
        let update = Arc::new(update);
        tokio::spawn(fan_out(agents, move |(node, start, address)| {
            let (client, results, update) = (client.clone(), results.clone(), Arc::clone(&update));
            async move {
                if let Err(error) = client.peers(address, &update).await {
                    if error.is_refusal() {
                        tracing::info!(%node, %error, "an agent does not take new addresses");
                    } else {
                        let _ = results.send(TaskResult::Unanswered { node, start, reason: error.seen() });
                    }
                }
            }
        }));
    }

    fn drain(&mut self, down: Vec<NodeName>) {
        let order = DrainOrder {
            client: self.context.client.clone(),
            roster: self.roster.clone(),
            down,
            prefix: self.context.prefix.clone(),
            job_id: self.context.allocation.job_id().to_owned(),
            crc: self.context.step.checkpoint.crc.on_flush,
            buffer_bytes: settings::COPY_BYTES,
            wanted: None,
            events: self.entries.clone(),
        };
        let (after, context) = (self.context.spec.after.clone(), self.command_context());
        let (nodes, results): (Vec<_>, _) = (self.agents.keys().cloned().collect(), self.results.clone());
        self.drain = Some(tokio::spawn(async move {
            let events = order.events.clone();
            // A command that fails must not cost the checkpoint; it is told as an event.
            let _ = site::run_all(&after, &nodes, &context, |entry| drop(events.send(entry))).await;
            let report = drain::drain(&order).await.unwrap_or_else(|error| DrainReport::failed(&error));
            let _ = results.send(TaskResult::Drained(Box::new(report)));
        }));
    }

    pub(super) fn command_context(&self) -> site::CommandContext {
        site::CommandContext {
            job_id: self.context.allocation.job_id().to_owned(),
            prefix: self.context.prefix.clone(),
            directory: self.context.working_directory.clone(),
            allocation: Arc::clone(&self.context.allocation),
        }
    }
}
