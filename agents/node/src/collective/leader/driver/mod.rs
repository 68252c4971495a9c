//! The driver of the leader's machine in the agent: links as channels, file work on blocking threads, the timer.

mod state_files;
mod work;

pub(crate) use state_files::SavedState;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chrono::Local;
use holdfast_model::{CheckpointId, Failure, NodeName};
use holdfast_wire::agent::RequestedCheckpoint;
use holdfast_wire::peer::{ToLeader, ToMember};
use holdfast_wire::run::RunPlan;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::action::{LeaderAction, LeaderWork};
use super::event::LeaderEvent;
use super::layout::LayoutError;
use super::machine::{LeaderMachine, LeaderStart};
use crate::agent::Agent;
use crate::collective::error::CallError;
use crate::sources::CheckpointSource;

#[cfg(feature = "simulation")]
pub(crate) use work::{Containers, perform as perform_work};

/// The input of a run's leader.
#[derive(Debug)]
pub struct Leader {
    inputs: mpsc::UnboundedSender<Input>,
    links: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Driver {
    machine: LeaderMachine,
    plan: Arc<RunPlan>,
    inputs: mpsc::UnboundedReceiver<Input>,
    results: mpsc::UnboundedSender<Input>,
    /// Counts the file work that is under way.
    work: TaskTracker,
}

#[cfg(feature = "simulation")]
impl Driver {
    pub(crate) fn into_machine(self) -> LeaderMachine {
        self.machine
    }
}

#[derive(Debug)]
enum Input {
    LinkUp {
        node: NodeName,
        link: u64,
        to_member: mpsc::UnboundedSender<ToMember>,
    },
    Event(LeaderEvent),
    /// `None`: a checkpoint that has not begun yet.
    CheckpointRequest {
        after: Option<CheckpointId>,
        answer: oneshot::Sender<RequestedCheckpoint>,
    },
}

impl Leader {
    /// Sets up the leader of a run with what an earlier one has [saved](SavedState).
    pub(crate) fn open(
        agent: &Agent,
        plan: Arc<RunPlan>,
        saved: SavedState,
        source: &CheckpointSource,
        work: TaskTracker,
    ) -> Result<(Leader, Driver), LayoutError> {
        let descriptors = (0u32..).zip(&plan.settings.descriptors);
        let machine = LeaderMachine::new(LeaderStart {
            plan: plan.clone(),
            directories: descriptors
                .map(|(index, requested)| agent.paths.index_node_path(&requested.base, index))
                .collect(),
            instance: agent.instance,
            memory: saved.memory,
            flushes: saved.flushes,
            policy: source.policy(),
        })?;
        let (sender, inputs) = mpsc::unbounded_channel();
        let driver = Driver { machine, plan, inputs, results: sender.clone(), work };
        Ok((Leader { inputs: sender, links: AtomicU64::new(1) }, driver))
    }

    /// A member can be reached; returns the link's number, to end it with.
    pub(crate) fn link_up(&self, node: &NodeName, to_member: mpsc::UnboundedSender<ToMember>) -> u64 {
        let link = self.links.fetch_add(1, Ordering::Relaxed);
        self.put(Input::LinkUp { node: node.clone(), link, to_member });
        link
    }

    /// A member's link broke.
    pub(crate) fn link_down(&self, node: &NodeName, link: u64) {
        self.put(Input::Event(LeaderEvent::LinkDown { node: node.clone(), link }));
    }

    pub(crate) fn receive(&self, node: &NodeName, message: ToLeader) {
        self.put(Input::Event(LeaderEvent::Received { node: node.clone(), message }));
    }

    pub(crate) fn node_down(&self, node: &NodeName) {
        self.put(Input::Event(LeaderEvent::NodeDown { node: node.clone() }));
    }

    pub(crate) fn halt_changed(&self) {
        self.put(Input::Event(LeaderEvent::HaltChanged));
    }

    /// Requests a checkpoint with a larger id, or one that has not begun yet; returns what has become of it. `None`
    /// after the end of the run.
    pub(crate) async fn request_checkpoint(&self, after: Option<CheckpointId>) -> Option<RequestedCheckpoint> {
        let (answer, answered) = oneshot::channel();
        self.put(Input::CheckpointRequest { after, answer });
        answered.await.ok()
    }

    fn put(&self, input: Input) {
        // Fails only after the end of the run.
        let _ = self.inputs.send(input);
    }
}

/// Drives the leader until the task is aborted at the end of the run.
pub(crate) async fn drive(agent: Arc<Agent>, driver: Driver) {
    let Driver { mut machine, plan, mut inputs, results, work } = driver;
    let mut performer = Performer::new(WorkContext { agent, plan, results, work, containers: Arc::default() });
    let begun = Instant::now();
    loop {
        let input = match machine.deadline() {
            Some(deadline) => timeout_at(begun + deadline, inputs.recv()).await,
            None => Ok(inputs.recv().await),
        };
        let event = match input {
            Ok(Some(Input::LinkUp { node, link, to_member })) => {
                performer.links.insert(node.clone(), Link { number: link, to_member });
                LeaderEvent::LinkUp { node, link }
            }
            Ok(Some(Input::Event(event))) => event,
            Ok(Some(Input::CheckpointRequest { after, answer })) => {
                let after = after.unwrap_or_else(|| machine.new_request());
                // An answer that nobody waits for any more is dropped.
                let _ = answer.send(RequestedCheckpoint { after, state: machine.state_of_request(after) });
                LeaderEvent::CheckpointRequested { after }
            }
            Ok(None) => return,
            Err(_) => LeaderEvent::Tick,
        };
        if let LeaderEvent::LinkDown { node, link } = &event
            && performer.links.get(node).is_some_and(|known| known.number == *link)
        {
            performer.links.remove(node);
        }
        for action in machine.handle(begun.elapsed(), event) {
            performer.perform(action);
        }
    }
}

/// A member's newest link.
struct Link {
    number: u64,
    to_member: mpsc::UnboundedSender<ToMember>,
}

/// Performs the machine's actions; never waits.
struct Performer {
    context: WorkContext,
    links: BTreeMap<NodeName, Link>,
    /// State files, written in order: an older one must not replace a newer one.
    saves: mpsc::UnboundedSender<(u64, LeaderWork)>,
}

/// What file work needs.
#[derive(Clone)]
struct WorkContext {
    agent: Arc<Agent>,
    plan: Arc<RunPlan>,
    results: mpsc::UnboundedSender<Input>,
    work: TaskTracker,
    containers: Arc<work::Containers>,
}

impl Performer {
    fn new(context: WorkContext) -> Self {
        let (saves, mut queue) = mpsc::unbounded_channel();
        tokio::spawn({
            let context = context.clone();
            async move {
                while let Some((id, work)) = queue.recv().await {
                    let counted = context.work.token();
                    finish(context.clone(), id, work, counted).await;
                }
            }
        });
        Performer { context, links: BTreeMap::new(), saves }
    }

    fn perform(&self, action: LeaderAction) {
        match action {
            LeaderAction::Send { node, message } => self.send(&node, message),
            LeaderAction::Answer { nodes, seq, outcome } => {
                for node in &nodes {
                    self.send(node, ToMember::Results { seq, outcome: (*outcome).clone() });
                }
            }
            LeaderAction::Emit(event) => self.context.agent.events.add(event),
            LeaderAction::Perform { id, work } if work.is_save() => {
                // The task that receives them runs as long as this exists.
                let _ = self.saves.send((id, work));
            }
            LeaderAction::Perform { id, work } => {
                let counted = self.context.work.token();
                tokio::spawn(finish(self.context.clone(), id, work, counted));
            }
        }
    }

    fn send(&self, node: &NodeName, message: ToMember) {
        if let Some(link) = self.links.get(node) {
            // The reader of a link reports when it breaks; the member then repeats its calls.
            let _ = link.to_member.send(message);
        }
    }
}

/// Performs file work on a blocking thread, and passes the result to the machine.
async fn finish(context: WorkContext, id: u64, work: LeaderWork, counted: TaskTrackerToken) {
    let WorkContext { agent, plan, results, containers, .. } = context;
    let name = work.name();
    let own = work.is_local().then(|| agent.start.node.clone());
    let done = tokio::task::spawn_blocking(move || {
        let result = work::perform(&agent, &plan, &containers, work, Local::now().naive_local());
        drop(counted);
        result
    });
    let done = done.await;
    let result = done.map_err(CallError::from).flatten().map_err(|error| {
        let failure = Failure::from(error);
        own.iter().fold(failure, Failure::on_node)
    });
    if let Err(failure) = &result {
        tracing::warn!(work = name, error = %failure, "leader_work_failed");
    }
    // Fails only after the end of the run.
    let _ = results.send(Input::Event(LeaderEvent::WorkFinished { id, result }));
}

#[cfg(test)]
mod tests {
    use holdfast_model::{CheckpointId, Descriptor, Generation, Rank, RunNode, Scheme};
    use holdfast_wire::plan::RunRequest;
    use holdfast_wire::rank::{Call, Reply};

    use crate::agent::fixtures::fixture_agent;
    use crate::collective::{Collectives, adopt, begin_run};
    use crate::fixtures::{base, fixture_request};

    /// A run of one rank on one node.
    fn alone() -> RunRequest {
        let mut request = fixture_request(Generation(2), "node1", &[0]);
        request.shared.leader = "node1".into();
        request.shared.settings.descriptors = vec![Descriptor::new(0, Scheme::new("LOCAL"), base("node1"))];
        // What the library left there is of a run of two ranks.
        request.shared.settings.restart.distribute = false;
        request.nodes = Some(vec![RunNode {
            name: "node1".into(),
            address: request.shared.leader_address,
            failure_domain: "node1".to_owned(),
            ranks: vec![Rank(0)],
        }]);
        request
    }

    async fn call(collectives: &Collectives, seq: u64, call: Call) -> Reply {
        collectives.participation().unwrap().call(Rank(0), seq, call).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_restarted_agent_that_leads_repeats_the_last_answer() {
        let (_root, agent) = fixture_agent("node1", "1145655");
        let collectives = Collectives::new(agent.clone());
        begin_run(&collectives, alone()).await.unwrap();
        let Reply::Restart(restart) = call(&collectives, 1, Call::Init).await else { panic!("not a restart") };
        assert_eq!(restart.checkpoint, None);
        let Reply::Started { checkpoint, .. } = call(&collectives, 2, Call::Start).await else { panic!("not started") };
        assert_eq!(checkpoint, CheckpointId(1));
        let completed = Reply::Completed { checkpoint, kept: true, halt: None };
        assert_eq!(call(&collectives, 3, Call::Complete { valid: true }).await, completed);
        collectives.participation().unwrap().end();
        let events = agent.events.since(0).len();

        let next = Collectives::new(agent.clone());
        assert_eq!(adopt(&next).await, Some(Generation(2)));
        assert_eq!(call(&next, 3, Call::Complete { valid: true }).await, completed);
        assert_eq!(agent.events.since(0).len(), events, "nothing is carried out again");
        assert_eq!(call(&next, 4, Call::ShouldExit).await, Reply::Flag(false));
    }
}
