//! Lines about long operations of the agents, where no bars show them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use holdfast_model::{CheckpointId, NodeName, Progress, Task};
use indicatif::HumanBytes;

/// An operation is long after this time; the second line follows after twice as long, and so on.
const LONG: Duration = Duration::from_secs(10);

/// The operations under way, on all nodes together.
#[derive(Debug, Default)]
pub(super) struct LongWork {
    nodes: BTreeMap<NodeName, Vec<Progress>>,
    tasks: BTreeMap<(Task, CheckpointId), Shown>,
}

#[derive(Debug)]
struct Shown {
    /// When the next line is due, and the time from that to the one after it.
    next: (Instant, Duration),
    /// The nodes that work on it.
    nodes: usize,
}

impl LongWork {
    /// Replaces what a node does; returns the lines that are due.
    pub(super) fn update(&mut self, now: Instant, node: &NodeName, work: &[Progress]) -> Vec<String> {
        let before = match work {
            [] => self.nodes.remove(node),
            work => self.nodes.insert(node.clone(), work.to_vec()),
        };
        for item in work {
            let new = || Shown { next: (now + LONG, 2 * LONG), nodes: 0 };
            self.tasks.entry((item.task, item.checkpoint)).or_insert_with(new).nodes += 1;
        }
        for item in before.into_iter().flatten() {
            let key = (item.task, item.checkpoint);
            if let Some(shown) = self.tasks.get_mut(&key) {
                shown.nodes -= 1;
                if shown.nodes == 0 {
                    self.tasks.remove(&key);
                }
            }
        }
        let nodes = &self.nodes;
        let due = self.tasks.iter_mut().filter(|(_, shown)| now >= shown.next.0);
        due.map(|(&(task, checkpoint), shown)| {
            let (_, pause) = shown.next;
            shown.next = (now + pause, 2 * pause);
            let all = nodes.values().flatten().filter(|item| (item.task, item.checkpoint) == (task, checkpoint));
            let (done, total) = all.fold((0_u64, 0_u64), |(done, total), item| {
                (done.saturating_add(item.done), total.saturating_add(item.total))
            });
            let (done, total) = (HumanBytes(done), HumanBytes(total));
            format!("{task} of checkpoint {checkpoint}: {done} of {total} on {} nodes", shown.nodes)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch(done: u64) -> Progress {
        Progress { task: Task::Fetch, checkpoint: CheckpointId(4), done: done << 20, total: 100 << 20 }
    }

    #[test]
    fn shows_long_work_of_all_nodes_at_intervals_that_double() {
        let (mut work, begun) = (LongWork::default(), Instant::now());
        let mut lines = Vec::new();
        for second in 0..80_u64 {
            let now = begun + Duration::from_secs(second);
            for node in ["n0", "n1"] {
                let due = work.update(now, &node.into(), &[fetch(second)]);
                lines.extend(due.into_iter().map(|line| (second, line)));
            }
        }
        assert_eq!(lines.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [10, 30, 70]);
        assert_eq!(lines[1].1, "fetch of checkpoint 4: 59.00 MiB of 200.00 MiB on 2 nodes");
    }

    #[test]
    fn work_that_ended_begins_anew() {
        let (mut work, begun) = (LongWork::default(), Instant::now());
        for second in 0..60 {
            let done = if second % 9 == 8 { vec![] } else { vec![fetch(second)] };
            assert!(work.update(begun + Duration::from_secs(second), &"n0".into(), &done).is_empty());
        }
        assert_eq!(work.update(begun, &"n0".into(), &[]), Vec::<String>::new());
        assert!(work.tasks.is_empty() && work.nodes.is_empty());
    }
}
