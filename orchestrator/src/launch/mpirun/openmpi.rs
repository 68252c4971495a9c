//! Open MPI's mpirun, version 4 (ORTE) and 5 (PRRTE).
//!
//! The host file has one line a rank, in the order of ranks, and `seq` maps by it: other nodes are not used. Resource
//! managers are disabled, because they would add their hosts to those of the file.

use std::collections::BTreeMap;

use holdfast_model::{NodeName, Rank};

use super::dialect::Dialect;
use super::start::Start;

/// Disables the resource managers.
const NO_MANAGER: &str = "^slurm,tm,lsf,gridengine";
/// Prefixes of variables that mpirun passes on itself, or that must not be passed on.
const ITS_OWN: [&str; 5] = ["OMPI_", "PMIX_", "PMI_", "PRTE_", "PRRTE_"];

/// One line a rank.
pub(super) fn host_file(homes: &BTreeMap<Rank, NodeName>) -> String {
    homes.values().map(|node| format!("{node}\n")).collect()
}

/// The options before the program.
pub(super) fn options(dialect: Dialect, start: &Start<'_>) -> Vec<String> {
    let mut words = vec!["-np".to_owned(), start.homes.len().to_string()];
    let mut add = |more: &[&str]| words.extend(more.iter().map(|option| (*option).to_owned()));
    add(&["--hostfile", start.host_file, "--map-by", "seq"]);
    // Daemons in the foreground, so that their Slurm step or ssh session lasts as long as they do.
    add(&["--leave-session-attached"]);
    let (tags, setting, shell): (&[&str], _, _) = match dialect {
        Dialect::Prrte => (&["--output", "tag"], "--prtemca", "ssh"),
        _ => (&["--tag-output"], "--mca", "rsh"),
    };
    add(tags);
    add(&[setting, "plm", shell]);
    add(&[setting, &format!("plm_{shell}_agent"), start.shell]);
    add(&[setting, &format!("plm_{shell}_no_tree_spawn"), "1"]);
    add(&[setting, "ras", NO_MANAGER]);
    words.extend(passing_on(start.variables.iter().map(String::as_str)));
    words
}

/// The options that pass variables on to the ranks. Only names, because the command line can be read by every user of
/// the machine.
pub(super) fn passing_on<'a>(names: impl Iterator<Item = &'a str>) -> impl Iterator<Item = String> {
    let passed_on = names.filter(|name| !ITS_OWN.iter().any(|own| name.starts_with(own)));
    passed_on.flat_map(|name| ["-x".to_owned(), name.to_owned()])
}

/// Default settings. Binding is disabled: with one line a rank, mpirun would bind all ranks of a node to its first
/// processor.
pub(super) fn variables(dialect: Dialect) -> &'static [(&'static str, &'static str)] {
    match dialect {
        Dialect::Prrte => &[("PRTE_MCA_hwloc_default_binding_policy", "none")],
        _ => &[("OMPI_MCA_hwloc_base_binding_policy", "none")],
    }
}

/// Assignments for the daemon of a virtual node, whose machine and host name are those of other daemons. What has only
/// the host name in its name (the session directory, the memory that the ranks of a node share) is in this directory.
/// The ranks of all virtual nodes reach each other over the loopback interface; over all interfaces of a machine that
/// has several, they may wait for ever. They let each other run while they wait, as there may be more than processors.
/// Version 5 groups the ranks of a host for its collective operations, and waits for ever if one host name stands for
/// several nodes (measured with 5.0.11).
pub(super) fn on_virtual_node(directory: &str) -> impl Iterator<Item = String> {
    let variables = [
        ("OMPI_MCA_orte_tmpdir_base", directory),
        ("PRTE_MCA_prte_tmpdir_base", directory),
        ("OMPI_MCA_btl_vader_backing_directory", directory),
        ("OMPI_MCA_btl_sm_backing_directory", directory),
        ("OMPI_MCA_btl_tcp_if_include", "lo"),
        ("OMPI_MCA_mpi_yield_when_idle", "1"),
        ("OMPI_MCA_coll_han_priority", "0"),
    ];
    variables.into_iter().map(|(name, value)| format!("{name}={value}"))
}

/// `[1,3]<stdout>:text` (4) or `[1,3]<stdout>: text` (5; others of PRRTE `[prterun-n1-77@1,3]<stdout>: text`): the rank
/// and the text.
pub(super) fn labelled(dialect: Dialect, line: &[u8]) -> Option<(Rank, &[u8])> {
    let inside = line.strip_prefix(b"[")?;
    let end = inside.iter().position(|byte| *byte == b']')?;
    let (job, rest) = (&inside[..end], &inside[end + 1..]);
    let comma = job.iter().rposition(|byte| *byte == b',')?;
    let rank = Rank(std::str::from_utf8(&job[comma + 1..]).ok()?.parse().ok()?);
    let of_stream = rest.strip_prefix(b"<std")?;
    let text = of_stream.strip_prefix(b"out>:").or_else(|| of_stream.strip_prefix(b"err>:"))?;
    // PRRTE adds a blank.
    let blank: &[u8] = if dialect == Dialect::Prrte { b" " } else { b"" };
    Some((rank, text.strip_prefix(blank).unwrap_or(text)))
}

/// The label before a line's text. Version 4 repeats it with every write of a rank, also within a line.
pub(super) fn label<'a>(line: &'a [u8], text: &[u8]) -> &'a [u8] {
    &line[..line.len() - text.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start<'a>(homes: &'a BTreeMap<Rank, NodeName>, variables: &'a [String]) -> Start<'a> {
        Start { homes, host_file: "/g/hosts", shell: "/g/shell", variables }
    }

    fn homes() -> BTreeMap<Rank, NodeName> {
        let nodes = ["n5", "n2", "n5", "n6"];
        (0..).zip(nodes).map(|(rank, node)| (Rank(rank), node.into())).collect()
    }

    #[test]
    fn the_host_file_has_one_line_a_rank() {
        assert_eq!(host_file(&homes()), "n5\nn2\nn5\nn6\n");
    }

    #[test]
    fn daemons_are_started_by_our_remote_shell_only() {
        for (dialect, mca, kind) in [(Dialect::OpenMpi, "--mca", "rsh"), (Dialect::Prrte, "--prtemca", "ssh")] {
            let words = options(dialect, &start(&homes(), &[]));
            let has = |expected: &[&str]| words.windows(expected.len()).any(|window| window == expected);
            assert!(has(&["-np", "4"]) && has(&["--map-by", "seq"]) && has(&["--hostfile", "/g/hosts"]), "{words:?}");
            assert!(has(&[mca, "plm", kind]) && has(&[mca, "ras", NO_MANAGER]), "{words:?}");
            assert!(has(&[mca, &format!("plm_{kind}_agent"), "/g/shell"]), "{words:?}");
            assert!(has(&[mca, &format!("plm_{kind}_no_tree_spawn"), "1"]), "{words:?}");
        }
    }

    #[test]
    fn variables_are_passed_on_by_name_except_those_of_mpirun() {
        let names = ["HOLDFAST_JOB", "TOKEN", "OMPI_MCA_btl", "PMIX_MCA_x"].map(str::to_owned);
        let words = options(Dialect::OpenMpi, &start(&homes(), &names));
        let passed: Vec<&str> = words.windows(2).filter(|pair| pair[0] == "-x").map(|pair| pair[1].as_str()).collect();
        assert_eq!(passed, ["HOLDFAST_JOB", "TOKEN"]);
    }

    #[test]
    fn labels_of_both_versions_name_the_rank() {
        type Labelled<'a> = Option<(Rank, &'a [u8])>;
        let table: [(Dialect, &[u8], Labelled<'_>); 10] = [
            (Dialect::OpenMpi, b"[1,3]<stdout>:one: two", Some((Rank(3), b"one: two"))),
            (Dialect::OpenMpi, b"[1,12]<stderr>:", Some((Rank(12), b""))),
            (Dialect::OpenMpi, b"[1,0]<stdout>: indented", Some((Rank(0), b" indented"))),
            // Recorded with Open MPI 5.0.11.
            (Dialect::Prrte, b"[1,0]<stdout>: part rest 0", Some((Rank(0), b"part rest 0"))),
            (Dialect::Prrte, b"[1,0]<stdout>:   indented", Some((Rank(0), b"  indented"))),
            (Dialect::Prrte, b"[1,1]<stderr>: ", Some((Rank(1), b""))),
            (Dialect::Prrte, b"[prterun-n1-77@1,3]<stdout>: text", Some((Rank(3), b"text"))),
            (Dialect::OpenMpi, b"[ctl:06198] plm:rsh: Warning", None),
            (Dialect::Prrte, b"--------", None),
            (Dialect::Prrte, b"[1,x]<stdout>:text", None),
        ];
        for (dialect, line, expected) in table {
            assert_eq!(labelled(dialect, line), expected, "{dialect:?} {}", String::from_utf8_lossy(line));
        }
    }
}
