//! Saves the stacks of ranks that seem to hang in files beside their output.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_core::state_files;
use holdfast_model::{Generation, NodeName, Rank};
use holdfast_wire::agent::StackRequest;

use super::background::Background;
use crate::events::LogEvent;
use crate::fleet::AgentSupervisor;
use crate::relaunch::Event;

/// The largest text of one rank that is kept; agents send less.
const LARGEST_STACK: usize = 1 << 20;
/// Ranks whose stacks are saved, at most.
const SAVED: usize = 256;

/// Saves the stacks in the background: `<directory>/rank_<rank>.stack`. Ends as [`Event::StacksSaved`], always.
pub(super) fn save(
    agents: &AgentSupervisor,
    directory: PathBuf,
    generation: Generation,
    ranks: BTreeMap<NodeName, Vec<Rank>>,
    background: Background,
) {
    let addresses = agents.roster().agents();
    let mut left = SAVED;
    let requests = ranks.into_iter().filter_map(|(node, mut ranks)| {
        let address = *addresses.get(&node)?;
        ranks.truncate(left);
        left -= ranks.len();
        (!ranks.is_empty()).then_some((node, address, StackRequest { generation, ranks }))
    });
    let requests: Vec<_> = requests.collect();
    let client = agents.client().clone();
    tokio::spawn(async move {
        let (client, directory) = (&client, &directory);
        let failures = client.each(requests, |(node, address, request)| async move {
            let stacks = match client.stack(address, &request).await {
                Ok(reply) => reply.stacks,
                Err(error) => return Some(format!("{node}: {error}")),
            };
            let stacks = stacks.into_iter().filter(|(rank, _)| request.ranks.contains(rank)).collect();
            let directory = directory.clone();
            let written = tokio::task::spawn_blocking(move || write(&directory, stacks)).await;
            written.unwrap_or_else(|error| Some(error.to_string()))
        });
        for reason in failures.await.into_iter().flatten() {
            background.log(LogEvent::StacksNotSaved { generation, reason });
        }
        background.event(Event::StacksSaved { generation });
    });
}

/// Returns the first error, if there is one.
fn write(directory: &Path, stacks: BTreeMap<Rank, String>) -> Option<String> {
    let mut failure = None;
    for (rank, stack) in stacks {
        let bytes = &stack.as_bytes()[..stack.len().min(LARGEST_STACK)];
        if let Err(error) = state_files::replace(&directory.join(format!("rank_{rank}.stack")), bytes) {
            failure.get_or_insert_with(|| error.to_string());
        }
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_saved_beside_the_output_and_their_size_is_limited() {
        let directory = tempfile::tempdir().unwrap();
        let stacks = BTreeMap::from([(Rank(2), "main".to_owned()), (Rank(10), "x".repeat(LARGEST_STACK + 1))]);
        assert_eq!(write(directory.path(), stacks.clone()), None);
        assert_eq!(std::fs::read_to_string(directory.path().join("rank_2.stack")).unwrap(), "main");
        assert_eq!(std::fs::metadata(directory.path().join("rank_10.stack")).unwrap().len(), LARGEST_STACK as u64);
        assert!(write(&directory.path().join("missing"), stacks).unwrap().contains("rank_"));
    }
}
