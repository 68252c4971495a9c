//! Follows the pairs of one node: after each answer follows the next request, which the agent answers when something
//! changes, or after a time that is short enough to renew leases.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_model::NodeName;
use holdfast_wire::pairs::{PairsReport, PairsSync};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::fleet::{AgentClient, Clock};

/// After a failure, the agent is asked once more: this process itself may have been stopped meanwhile.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The requests to a node.
#[derive(Clone, Debug)]
pub(super) struct FollowedNode {
    pub(super) node: NodeName,
    pub(super) address: SocketAddr,
    /// How long the agent may delay an answer.
    pub(super) wait: Duration,
    /// An answer that takes this much longer does not come any more.
    pub(super) patience: Duration,
    pub(super) clock: Clock,
}

/// What the task reports.
#[derive(Debug)]
pub(super) enum FollowReport {
    Reported {
        node: NodeName,
        address: SocketAddr,
        report: PairsReport,
        /// When the request was sent.
        asked: Duration,
    },
    Lost {
        node: NodeName,
        address: SocketAddr,
        reason: String,
    },
    /// The agent obeys another orchestrator.
    Replaced,
}

/// The task; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Follower {
    task: JoinHandle<()>,
    request: watch::Sender<PairsSync>,
    pub(super) address: SocketAddr,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Follower {
    /// Starts the task with this request; its `seen` and `wait_ms` are filled in.
    pub(super) fn spawn(
        client: AgentClient,
        node: FollowedNode,
        request: PairsSync,
        reports: mpsc::UnboundedSender<FollowReport>,
    ) -> Self {
        let (sender, receiver) = watch::channel(request);
        let address = node.address;
        let task = tokio::spawn(follow(client, node, receiver, reports));
        Follower { task, request: sender, address }
    }

    /// The next request. One that is under way is replaced.
    pub(super) fn change(&self, change: impl FnOnce(&mut PairsSync)) {
        self.request.send_modify(change);
    }
}

async fn follow(
    client: AgentClient,
    node: FollowedNode,
    mut requests: watch::Receiver<PairsSync>,
    reports: mpsc::UnboundedSender<FollowReport>,
) {
    let FollowedNode { node, address, wait, patience, clock } = node;
    let mut seen = 0;
    let mut failed = false;
    loop {
        let mut request = requests.borrow_and_update().clone();
        request.seen = seen;
        // The second attempt is to be answered at once.
        let wait = if failed { Duration::ZERO } else { wait };
        request.wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let asked = clock.now();
        let answer = tokio::select! {
            biased;
            changed = requests.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            answer = client.pairs_sync(address, &request, patience) => answer,
        };
        match answer {
            Ok(report) => {
                failed = false;
                seen = report.version;
                let report = FollowReport::Reported { node: node.clone(), address, report, asked };
                // The next request has the leases that follow from this answer.
                if reports.send(report).is_err() || requests.changed().await.is_err() {
                    return;
                }
            }
            Err(error) if error.is_superseded() => {
                let _ = reports.send(FollowReport::Replaced);
                return;
            }
            Err(error) if !failed => {
                tracing::debug!(%node, %error, "no report about pairs");
                failed = true;
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            Err(error) => {
                let _ = reports.send(FollowReport::Lost { node, address, reason: error.brief() });
                return;
            }
        }
    }
}
