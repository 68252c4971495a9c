//! Polls the resource manager in the background: down nodes, and the end of the allocation; and asks it whether the
//! allocation exists.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::background::{Background, TaskResult};
use super::settings;
use crate::allocation::Allocation;
use crate::events::{DownReason, LogEvent};
use crate::relaunch::Event;

const POLL_EVERY: Duration = Duration::from_millis(100);
/// The time between two questions whether the allocation exists: a controller that was restarted has read its state.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(3);

/// Polls until the result is dropped. Each down node is reported once, the end of the allocation when it changes. A
/// manager that does not answer delays only this task.
pub(super) fn start(allocation: Arc<dyn Allocation>, background: Background) -> JoinSet<()> {
    let mut poll = JoinSet::new();
    poll.spawn(async move {
        let (mut reported, mut known_end, mut denied) = (BTreeSet::new(), None, false);
        loop {
            let manager = Arc::clone(&allocation);
            let poll = move || (manager.down_nodes(), manager.end().map(settings::epoch), manager.denial());
            let Ok((down, end, denial)) = tokio::task::spawn_blocking(poll).await else { return };
            for (node, state) in down {
                if reported.insert(node.clone()) {
                    background.event(Event::NodeDown { node, reason: DownReason::ResourceManager { state } });
                }
            }
            if known_end != Some(end) {
                known_end = Some(end);
                background.send(TaskResult::AllocationEnd(end));
            }
            let before = std::mem::replace(&mut denied, denial.is_some());
            if let Some(reason) = denial.filter(|_| !before) {
                background.log(LogEvent::AllocationDenied { reason });
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    });
    poll
}

/// Asks whether the allocation exists, and again some seconds later if not. Ends as [`Event::AllocationChecked`].
pub(super) fn check(allocation: Arc<dyn Allocation>, background: Background) {
    tokio::spawn(async move {
        let mut denial = allocation.ask_denial().await;
        if denial.is_some() {
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
            denial = allocation.ask_denial().await;
        }
        background.event(Event::AllocationChecked { denial });
    });
}
