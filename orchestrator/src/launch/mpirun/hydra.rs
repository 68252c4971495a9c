//! Hydra, the mpiexec of MPICH and its relatives.
//!
//! Its machine file is read in order, and a host that is listed twice gets two daemons, so that any rank can be placed
//! on any node. Consecutive ranks on a node share a daemon, so that they can use shared memory.

use std::collections::BTreeMap;

use holdfast_model::{NodeName, Rank};

use super::start::Start;

/// Lines `node:ranks`, in the order of ranks.
pub(super) fn host_file(homes: &BTreeMap<Rank, NodeName>) -> String {
    let mut blocks: Vec<(&NodeName, usize)> = Vec::new();
    for node in homes.values() {
        match blocks.last_mut() {
            Some((last, ranks)) if *last == node => *ranks += 1,
            _ => blocks.push((node, 1)),
        }
    }
    blocks.iter().map(|(node, ranks)| format!("{node}:{ranks}\n")).collect()
}

/// The options before the program.
pub(super) fn options(start: &Start<'_>) -> Vec<String> {
    let words = [
        // No resource manager, because it would add its hosts.
        "-rmk",
        "user",
        "-launcher",
        "ssh",
        "-launcher-exec",
        start.shell,
        "-prepend-rank",
        // Sends variables over the connection of the daemons instead of a command line.
        "-genvall",
        "-f",
        start.host_file,
        "-n",
    ];
    let mut words: Vec<String> = words.map(str::to_owned).to_vec();
    words.push(start.homes.len().to_string());
    words
}

/// `[3] text`: the rank and the text.
pub(super) fn labelled(line: &[u8]) -> Option<(Rank, &[u8])> {
    let inside = line.strip_prefix(b"[")?;
    let end = inside.iter().position(|byte| *byte == b']')?;
    let rank = std::str::from_utf8(&inside[..end]).ok()?.parse().ok()?;
    let text = inside[end + 1..].strip_prefix(b" ")?;
    Some((Rank(rank), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn homes(nodes: &[&str]) -> BTreeMap<Rank, NodeName> {
        (0..).zip(nodes).map(|(rank, node)| (Rank(rank), (*node).into())).collect()
    }

    #[test]
    fn consecutive_ranks_on_a_node_share_a_line_and_order_is_kept() {
        assert_eq!(host_file(&homes(&["n5", "n5", "n2", "n2"])), "n5:2\nn2:2\n");
        assert_eq!(host_file(&homes(&["n5", "n2", "n5", "n6"])), "n5:1\nn2:1\nn5:1\nn6:1\n");
    }

    #[test]
    fn no_resource_manager_is_used_and_no_variables_are_on_the_command_line() {
        let homes = homes(&["n5", "n2"]);
        let variables = ["TOKEN".to_owned()];
        let words = options(&Start { homes: &homes, host_file: "/g/hosts", shell: "/g/shell", variables: &variables });
        let has = |expected: &[&str]| words.windows(expected.len()).any(|window| window == expected);
        assert!(
            has(&["-rmk", "user"]) && has(&["-launcher", "ssh"]) && has(&["-launcher-exec", "/g/shell"]),
            "{words:?}"
        );
        assert!(has(&["-f", "/g/hosts"]) && has(&["-n", "2"]), "{words:?}");
        assert!(!words.iter().any(|option| option.contains("TOKEN")), "{words:?}");
    }

    #[test]
    fn labels_name_the_rank_and_its_own_messages_have_none() {
        assert_eq!(labelled(b"[3] text"), Some((Rank(3), b"text".as_slice())));
        assert_eq!(labelled(b"[12] "), Some((Rank(12), b"".as_slice())));
        for line in ["[mpiexec@ctl] Exit codes", "[proxy:0:1@n2] main", "[3]", "text", "=   PID 90 RUNNING AT n2"] {
            assert_eq!(labelled(line.as_bytes()), None, "{line}");
        }
    }
}
