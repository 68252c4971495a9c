//! Polls the resource manager in the background: down nodes, and the end of the allocation.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::background::{Background, TaskResult};
use super::settings;
use crate::allocation::Allocation;
use crate::events::DownReason;
use crate::relaunch::Event;

const POLL_EVERY: Duration = Duration::from_millis(100);

/// Polls until the result is dropped. Each down node is reported once, the end of the allocation when it changes. A
/// manager that does not answer delays only this task.
pub(super) fn start(allocation: Arc<dyn Allocation>, background: Background) -> JoinSet<()> {
    let mut poll = JoinSet::new();
    poll.spawn(async move {
        let (mut reported, mut known_end) = (BTreeSet::new(), None);
        loop {
            let manager = Arc::clone(&allocation);
            let poll = move || (manager.down_nodes(), manager.end().map(settings::epoch));
            let Ok((down, end)) = tokio::task::spawn_blocking(poll).await else { return };
            for (node, state) in down {
                if reported.insert(node.clone()) {
                    background.event(Event::NodeDown { node, reason: DownReason::ResourceManager { state } });
                }
            }
            if known_end != Some(end) {
                known_end = Some(end);
                background.send(TaskResult::AllocationEnd(end));
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    });
    poll
}
