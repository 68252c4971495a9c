//! The supervisor on a resource manager that starts no agent and records the calls.

use futures_util::future::BoxFuture;
use holdfast_wire::run::AgentReady;
use holdfast_wire::trust;
use parking_lot::Mutex;

use super::*;
use crate::allocation::{AgentSettings, AgentStartError, AllocationIdentity, AllocationRecord};
use crate::fleet::roster::RosterChange;

/// Refuses every start and records the calls.
struct Refusing {
    calls: Mutex<Vec<String>>,
    identity: AllocationIdentity,
}

impl Refusing {
    fn note(&self, call: String) {
        self.calls.lock().push(call);
    }
}

impl Allocation for Refusing {
    fn manager(&self) -> &'static str {
        "refusing"
    }

    fn identity(&self) -> &AllocationIdentity {
        &self.identity
    }

    fn record(&self) -> AllocationRecord {
        unreachable!("nothing takes over in these tests")
    }

    fn starts_at_once(&self) -> usize {
        4
    }

    fn start_agent<'a>(
        &'a self,
        node: &'a NodeName,
        _template: &'a AgentTemplate,
    ) -> BoxFuture<'a, Result<AgentReady, AgentStartError>> {
        self.note(format!("start {node}"));
        Box::pin(async move { Err(AgentStartError::Unknown { node: node.clone() }) })
    }

    fn adopt_agent(&self, node: &NodeName, pid: u32) {
        self.note(format!("adopt {node} {pid}"));
    }

    fn kill_agent(&self, node: &NodeName) {
        self.note(format!("kill {node}"));
    }

    fn terminate_agents(&self, agents: &[(NodeName, u32)], _patience: Duration) {
        let agents: Vec<String> = agents.iter().map(|(node, pid)| format!("{node} {pid}")).collect();
        self.note(format!("terminate {}", agents.join(", ")));
    }
}

fn supervisor() -> (Arc<Refusing>, AgentSupervisor) {
    let trust = trust::generate().unwrap();
    let client = AgentClient::new(&trust, 8).unwrap();
    let template = AgentTemplate { settings: AgentSettings::of_test_job(), trust, drains_only: false };
    let settings = FleetSettings {
        template,
        poll_interval: Duration::from_millis(50),
        poll_patience: Duration::from_millis(50),
        allocation_end: None,
        clock: Clock::since(0),
    };
    let identity =
        AllocationIdentity { job_id: "17".to_owned(), token: None, user: "user1".to_owned(), nodes: Vec::new() };
    let allocation = Arc::new(Refusing { calls: Mutex::default(), identity });
    let supervisor = AgentSupervisor::new(Arc::clone(&allocation) as Arc<dyn Allocation>, client, settings);
    (allocation, supervisor)
}

/// The next event that is no report of the running time.
async fn next(agents: &mut AgentSupervisor) -> FleetEvent {
    loop {
        match agents.next().await {
            FleetEvent::PollsRan { .. } => {}
            event => return event,
        }
    }
}

/// An agent that does not run any more: its port was just closed.
fn dead_agent() -> AgentRecord {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    AgentRecord { address: listener.local_addr().unwrap(), pid: 4242, pulse: None, seen: (7, 3) }
}

#[tokio::test]
async fn a_start_that_fails_is_reported_with_its_reason() {
    let (_, mut agents) = supervisor();
    agents.start("n1".into());
    let FleetEvent::StartFailed { node, reason, .. } = next(&mut agents).await else { panic!("no agent was started") };
    assert_eq!(node, "n1".into());
    assert!(reason.contains("n1"), "{reason}");
    assert!(agents.records().is_empty());
}

#[tokio::test]
async fn an_adopted_agent_that_does_not_answer_is_lost_and_stays_recorded_until_it_is_terminated() {
    let (allocation, mut agents) = supervisor();
    let record = dead_agent();
    agents.adopt(&BTreeMap::from([("n1".into(), record)])).await;
    assert!(matches!(next(&mut agents).await, FleetEvent::Lost { node, .. } if node == "n1".into()));
    assert_eq!(agents.records(), BTreeMap::from([("n1".into(), record)]), "its process may still run");
    assert!(agents.roster().agents().is_empty());
    agents.end_all(false).await;
    assert_eq!(*allocation.calls.lock(), ["adopt n1 4242", "terminate n1 4242"]);
    assert!(agents.records().is_empty());
}

#[tokio::test]
async fn reports_about_an_earlier_agent_of_the_node_are_ignored() {
    let (_, mut agents) = supervisor();
    agents.adopt(&BTreeMap::from([("n1".into(), dead_agent())])).await;
    agents.start("n1".into());
    assert!(
        matches!(next(&mut agents).await, FleetEvent::StartFailed { .. }),
        "the loss of the earlier agent is ignored"
    );
}

#[tokio::test]
async fn the_agent_of_a_fenced_node_is_killed_and_not_waited_for() {
    let (allocation, mut agents) = supervisor();
    let record = dead_agent();
    agents.adopt(&BTreeMap::from([("n1".into(), record)])).await;
    let (_, mut changes) = agents.roster().follow();
    agents.fence(&"n1".into(), Some(record.address));
    assert!(agents.records().is_empty());
    assert_eq!(changes.try_recv(), Ok(RosterChange::Down { node: "n1".into() }), "the drain does not wait for it");
    agents.start("n2".into());
    assert!(matches!(next(&mut agents).await, FleetEvent::StartFailed { node, .. } if node == "n2".into()));
    while !allocation.calls.lock().contains(&"kill n1".to_owned()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_request_without_answer_is_a_loss_and_no_result() {
    let (_, mut agents) = supervisor();
    let node = NodeName::from("n1");
    let record = dead_agent();
    agents.register(&node, record);
    agents.request(
        [&node],
        |client, _, address| async move { client.halt(address).await },
        |node, answer| panic!("{node} answered {answer:?}"),
    );
    assert!(matches!(next(&mut agents).await, FleetEvent::Lost { node, .. } if node == "n1".into()));
}

#[test]
fn clock_skew_has_a_sign_and_latency_is_no_skew() {
    assert_eq!(clock_skew(100_000, 100_900), None);
    assert_eq!(clock_skew(100_000, 137_000), Some(-37_000));
    assert_eq!(clock_skew(137_000, 100_000), Some(37_000));
}
