//! The free space that nodes must have before the first launch in an allocation: the capacities of the spec. Later the
//! job's own checkpoints use the space, and only the size of the file systems counts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use holdfast_model::NodeName;
use holdfast_wire::agent::{DirectoryHealth, PollRequest};
use holdfast_wire::run::job_directory;

use crate::allocation::AgentTemplate;
use crate::fleet::AgentClient;

/// A node that does not report its halt conditions or its free space within this is asked again. Not a setting: an
/// answer needs no work, and a longer limit would delay the launch by as much without making an answer more likely.
pub(super) const HALT_WITHIN: Duration = Duration::from_secs(2);

/// The directories of a node, each with the bytes that must be free. A control directory that is a cache too needs the
/// larger number.
fn required(template: &AgentTemplate, node: &NodeName) -> BTreeMap<String, u64> {
    let start = template.for_node(node);
    let control = std::iter::once((start.control_base, start.control_bytes));
    let mut required: BTreeMap<String, u64> = BTreeMap::new();
    for (base, bytes) in control.chain(start.cache_bases) {
        if let Some(bytes) = bytes {
            let known = required.entry(job_directory(&base, &start.user, &start.job_id)).or_default();
            *known = bytes.max(*known);
        }
    }
    required
}

/// The first directory without enough free space.
fn lack(directories: &[DirectoryHealth], required: &BTreeMap<String, u64>) -> Option<String> {
    directories.iter().filter(|directory| directory.fault.is_none()).find_map(|directory| {
        let (bytes, available) = (*required.get(&directory.path)?, directory.available);
        (available < bytes).then(|| {
            let path = &directory.path;
            format!(
                "{path}: is on a file system with {available} bytes free, expected are {bytes} before a first launch"
            )
        })
    })
}

/// The nodes without enough free space, each with its fault. Agents that do not answer are left out.
pub(super) async fn faults(
    client: &AgentClient,
    agents: BTreeMap<NodeName, SocketAddr>,
    template: &AgentTemplate,
) -> Vec<(NodeName, String)> {
    let required: Vec<_> = agents
        .into_iter()
        .map(|(node, address)| (required(template, &node), node, address))
        .filter(|(required, ..)| !required.is_empty())
        .collect();
    let answers = client.each(required, |(required, node, address)| async move {
        let reply = client.poll(address, &PollRequest::HEALTH_ONLY, HALT_WITHIN).await.ok()?;
        Some((node, lack(&reply.health.directories, &required)?))
    });
    answers.await.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directory_with_a_required_size_can_lack_space() {
        let directory = |path: &str, available| DirectoryHealth {
            path: path.to_owned(),
            fault: None,
            full: None,
            total: 100,
            available,
        };
        let required = BTreeMap::from([("/ssd/u/scr.7".to_owned(), 60)]);
        let directories = |available| [directory("/tmp/u/scr.7", 1), directory("/ssd/u/scr.7", available)];
        assert_eq!(lack(&directories(60), &required), None);
        let fault = lack(&directories(59), &required).unwrap();
        assert!(fault.starts_with("/ssd/u/scr.7: ") && fault.contains("59 bytes free, expected are 60"), "{fault}");
    }
}
