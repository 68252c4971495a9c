//! Missing requirements are reported before anything is started: on this machine and on the nodes.

use holdfast_testkit::cluster::{Cluster, assert_contains, heat, heat_of};

const NODES: [&str; 6] = ["n1", "n2", "n3", "n4", "n5", "n6"];
/// A directory that is local to each machine, unlike `/opt/holdfast`.
const OWN_PLACE: &str = "/var/tmp/own";

/// Installs the program in the local directory of each node, and another program on some nodes.
fn install_own(cluster: &Cluster, others: &[(&str, &str)]) {
    for node in NODES {
        let other = others.iter().find(|(other, _)| *other == node);
        let put = match other {
            Some((_, script)) => format!("printf '%s' '#!/bin/sh\n{script}\n' >{OWN_PLACE}/holdfast"),
            None => format!("cp /opt/holdfast/bin/holdfast {OWN_PLACE}/holdfast"),
        };
        let message = cluster
            .on(node, &format!("rm -rf {OWN_PLACE} && mkdir {OWN_PLACE} && {put} && chmod 755 {OWN_PLACE}/holdfast"));
        assert_eq!(message, "", "on {node}");
    }
}

/// Of both, Holdfast would treat a part as the entire job.
#[test(crate::cluster)]
fn rejects_heterogeneous_jobs_and_job_arrays(cluster: &Cluster) {
    for (name, options, parts) in [
        ("hetjob", "--nodes=4 --time=10 : --nodes=1", ["heterogeneous: SLURM_HET_SIZE is set", "without `:`"]),
        ("array", "--nodes=4 --time=10 --array=3", ["job array: SLURM_ARRAY_JOB_ID is set", "a job for each element"]),
    ] {
        let job = cluster.submit(name, &heat(""), options, "holdfast run job.yaml");
        let output = job.finish_with(78);
        assert_contains(&output, &parts);
        assert!(!job.run("ls -a").contains("heat-run"), "{name}");
    }
}

#[test(crate::cluster)]
fn rejects_agent_of_other_version_and_warns_of_wrong_clock(cluster: &Cluster) {
    let real = "/opt/holdfast/bin/holdfast \"$@\"";
    // The requests to n2's agent and the replies of n3's have the version of another release; n4's clock is an hour
    // slow.
    let to_newer = format!("sed -u \"s/^{{\\\"version\\\":[0-9]*/{{\\\"version\\\":99/\" | {real}");
    let from_newer = format!("{real} | sed -u \"s/^{{\\\"version\\\":[0-9]*/{{\\\"version\\\":98/\"");
    let slow_clock =
        format!("{real} | sed -u \"s/\\\"clock_ms\\\":[0-9]*/\\\"clock_ms\\\":$(( ($(date +%s) - 3600) * 1000 ))/\"");
    install_own(cluster, &[("n2", &to_newer), ("n3", &from_newer), ("n4", &slow_clock)]);
    let work = format!("{OWN_PLACE}/holdfast run job.yaml");
    let job = cluster.submit("versions", &heat(""), "--nodes=6 --time=10", &work);
    let output = job.finish_well();
    assert_contains(
        &output,
        &[
            "n2 is down: its agent could not be started",
            "the orchestrator uses protocol version 99",
            "the agent of node n3 has protocol version 98, and this version",
            "install",
            "generation 1 on n1 n4 n5 n6, 0 spares",
        ],
    );
    let clock = |seconds: u32| output.contains(&format!("n4: clock {seconds} s behind the orchestrator"));
    assert!(clock(3600) || clock(3601), "{output}");
}

#[test(crate::cluster)]
fn directory_unusable_on_one_node_excludes_that_node(cluster: &Cluster) {
    cluster.on("n2", "chmod 755 /small");
    let job = cluster.heat("unwritable", "checkpoint: {cache: [{base: /small, keep: 1}]}");
    let output = job.finish_well();
    cluster.on("n2", "chmod 1777 /small");
    assert_contains(&output, &["n2 is down: a health test failed: /small", "generation 1 on n1 n3 n4 n5"]);
}

#[test(crate::cluster)]
fn directory_unusable_on_all_nodes_is_not_retryable(cluster: &Cluster) {
    let spec = heat("checkpoint: {cache: [{base: /proc/cache, keep: 1}]}");
    let job = cluster.submit("nowhere", &spec, "--nodes=4 --time=10", "holdfast run job.yaml");
    let output = job.finish_with(69);
    assert!(output.contains("no generation could start") && output.contains("/proc/cache"), "{output}");
    assert!(!output.contains("launched"), "{output}");
}

#[test(crate::cluster)]
fn rejects_prefix_directory_not_shared_by_nodes(cluster: &Cluster) {
    cluster.on("n1", "rm -rf /var/tmp/heat-run");
    let spec = heat("").replace("prefix: ./heat-run", "prefix: /var/tmp/heat-run");
    let job = cluster.submit("not-shared", &spec, "--nodes=4 --time=10", "holdfast run job.yaml");
    let output = job.finish_with(69);
    assert!(
        output.contains("/var/tmp/heat-run/.holdfast does not exist on this node")
            && output.contains("all nodes share"),
        "{output}"
    );
    assert!(!output.contains("launched"), "{output}");
}

#[test(crate::cluster)]
fn reports_missing_commands_libraries_and_directories_before_agents_start(cluster: &Cluster) {
    let needs_a_library = heat_of(&[], "").replace("command: [holdfast,", "command: [./needs-a-library,");
    let no_prefix = heat("").replace("prefix: ./heat-run", "prefix: /proc/heat-run");
    let work = format!(
        "echo 'int f(void) {{ return 0; }}' >f.c; echo 'int f(void); int main(void) {{ return f(); }}' >m.c
gcc -shared -fPIC -o libmissing.so f.c && gcc -o needs-a-library m.c -L. -lmissing && rm libmissing.so
cat >library.yaml <<'END'\n{needs_a_library}\nEND
cat >prefix.yaml <<'END'\n{no_prefix}\nEND
mkdir old; printf '#!/bin/sh\\necho slurm 20.02.7\\n' >old/srun; chmod +x old/srun
PATH=/opt/holdfast/bin holdfast run job.yaml; echo \"without Slurm: $?\"
PATH=$PWD/old:$PATH holdfast run job.yaml; echo \"old Slurm: $?\"
holdfast run library.yaml; echo \"without library: $?\"
holdfast run prefix.yaml; echo \"without prefix: $?\""
    );
    let job = cluster.submit("preflight", &heat(""), "--nodes=4 --time=10", &work);
    let (output, _) = job.finish();
    for message in [
        "srun is not in PATH",
        "without Slurm: 69",
        "this is Slurm slurm 20.02.7",
        "old Slurm: 69",
        "needs libmissing.so, which cannot be found",
        "without library: 69",
        "the prefix directory cannot be used",
        "without prefix: 69",
    ] {
        assert!(output.contains(message), "{message}:\n{output}");
    }
    assert!(!output.contains("generation"), "{output}");
    assert!(!job.run("ls -a").contains("heat-run"));
}
