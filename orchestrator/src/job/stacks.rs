//! Where the ranks of a run that seems to hang are in their code: asked for, and put beside their output.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use holdfast_core::durable;
use holdfast_model::{Generation, NodeName, Rank};
use holdfast_wire::agent::StackRequest;

use super::inputs::TaskResult;
use super::{Driver, state};
use crate::events::LogEvent;
use crate::fleet::fan_out;
use crate::relaunch::Event;

/// The largest text of one rank that is kept; agents send less.
const LARGEST_STACK: usize = 1 << 20;
/// What so many ranks do says enough of what thousands do.
const SAVED: usize = 256;

impl Driver {
    /// Saves the stacks in the background: `<generation's directory>/rank_<rank>.stack`.
    pub(super) fn save_stacks(&mut self, generation: Generation, ranks: BTreeMap<NodeName, Vec<Rank>>) {
        let mut left = SAVED;
        let asked = self.reachable(ranks.keys()).into_iter().filter_map(|(node, _, address)| {
            let mut ranks = ranks.get(&node)?.clone();
            ranks.truncate(left);
            left -= ranks.len();
            (!ranks.is_empty()).then_some((node, address, StackRequest { generation, ranks }))
        });
        let asked: Vec<_> = asked.collect();
        let (client, results, entries) = (self.context.client.clone(), self.results.clone(), self.entries.clone());
        let directory = Arc::new(state::generation_directory(&self.context.prefix, generation));
        tokio::spawn(async move {
            let trouble = fan_out(asked, move |(node, address, request)| {
                let (client, directory) = (client.clone(), Arc::clone(&directory));
                async move {
                    let stacks = match client.stack(address, &request).await {
                        Ok(reply) => reply.stacks,
                        Err(error) => return Some(format!("{node}: {error}")),
                    };
                    let wanted = move |rank: &Rank| request.ranks.contains(rank);
                    let stacks = stacks.into_iter().filter(|(rank, _)| wanted(rank)).collect();
                    let write = move || write(&directory, stacks);
                    tokio::task::spawn_blocking(write).await.unwrap_or_else(|error| Some(error.to_string()))
                }
            });
            for trouble in trouble.await.into_iter().flatten() {
                let _ = entries.send(LogEvent::StacksNotSaved { generation, reason: trouble });
            }
            let _ = results.send(TaskResult::Event(Event::StacksSaved { generation }));
        });
    }
}

/// Returns what went wrong first, if anything.
fn write(directory: &Path, stacks: BTreeMap<Rank, String>) -> Option<String> {
    let mut failure = None;
    for (rank, stack) in stacks {
        let bytes = &stack.as_bytes()[..stack.len().min(LARGEST_STACK)];
        if let Err(error) = durable::replace(&directory.join(format!("rank_{rank}.stack")), bytes) {
            failure.get_or_insert_with(|| error.to_string());
        }
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_lie_beside_the_output_and_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let stacks = BTreeMap::from([(Rank(2), "main".to_owned()), (Rank(10), "x".repeat(LARGEST_STACK + 1))]);
        assert_eq!(write(directory.path(), stacks.clone()), None);
        assert_eq!(std::fs::read_to_string(directory.path().join("rank_2.stack")).unwrap(), "main");
        assert_eq!(std::fs::metadata(directory.path().join("rank_10.stack")).unwrap().len(), LARGEST_STACK as u64);
        assert!(write(&directory.path().join("missing"), stacks).unwrap().contains("rank_"));
    }
}
