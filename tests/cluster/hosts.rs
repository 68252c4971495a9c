//! `manager: ssh`: the same machines without Slurm, and the causes that make a host unusable.

use holdfast_testkit::cluster::{Cluster, Job, NODES, assert_contains, until};

use crate::nodes::goes_on_with_fewer_nodes;

/// The usual job on hosts: four ranks; the other hosts are spares. `ssh`: further keys of `allocation.ssh`.
pub fn spec(hosts: &str, ssh: &str, more: &str) -> String {
    format!(
        "job: heat\nprefix: ./heat-run\n\
         allocation: {{manager: ssh, hosts: {hosts}, ssh: {{known_hosts: known_hosts, {ssh}}}}}\n\
         run:\n  nodes: 4\n  ranks_per_node: 1\n  launcher: ssh\n  \
         command: [holdfast, example, heat, --checkpoint-every, \"10\", --steps, \"120\"]\n{more}\n"
    )
}

pub const ALL: &str = "['n[1-6]']";

pub fn start<'a>(cluster: &'a Cluster, name: &str, spec: &str, work: &str) -> Job<'a> {
    let known = cluster.known_hosts("ed25519");
    cluster.without_slurm(name, &[("job.yaml", spec), ("known_hosts", &known)], work)
}

/// The usual job on all six hosts.
fn heat<'a>(cluster: &'a Cluster, name: &str) -> Job<'a> {
    start(cluster, name, &spec(ALL, "", ""), "holdfast run job.yaml")
}

/// The output of a `holdfast run` that refuses to start; checks that nothing is left on the hosts.
fn refusal(cluster: &Cluster, name: &str, spec: &str, known: &str) -> String {
    let files = [("job.yaml", spec), ("known_hosts", known)];
    let (output, code) = cluster.as_user(name, &files, "holdfast run job.yaml");
    assert_eq!(code, 69, "{output}");
    assert!(output.contains("nothing was started"), "{output}");
    no_agents(cluster);
    output
}

fn no_agents(cluster: &Cluster) {
    for node in NODES {
        until("the agents' end", || !cluster.on(node, "ps -eo args").contains("holdfast agent"));
    }
}

#[test(crate::cluster)]
fn job_on_hosts_succeeds_and_leaves_nothing_behind(cluster: &Cluster) {
    let job = heat(cluster, "ssh-well");
    let output = job.finish_well();
    assert!(output.contains("2 spare"), "{output}");
    job.assert_nothing_left_on(&NODES);
    let log = job.run("cat heat-run/.holdfast/agents/n6.log");
    assert!(log.contains("ready"), "the agents' logs are with the other logs: {log}");
}

#[test(crate::cluster)]
fn spare_replaces_lost_host_with_rebuilt_checkpoint(cluster: &Cluster) {
    let job = heat(cluster, "ssh-killed");
    job.wait_for("checkpoint 3 protected");
    cluster.docker("kill", "n3");
    let output = job.finish_well();
    assert_contains(&output, &["node failure: n3", "rebuilt: rank", "moved: rank 2\n"]);
}

#[test(crate::cluster)]
fn run_goes_on_with_fewer_hosts_and_more_ranks_on_one(cluster: &Cluster) {
    let spec = spec("['n[1-4]']", "", "relaunch: {min_nodes: 3}");
    let job = start(cluster, "ssh-fewer", &spec, "holdfast run job.yaml");
    goes_on_with_fewer_nodes(cluster, &job);
}

#[test(crate::cluster)]
fn frozen_host_is_replaced_and_its_processes_end_when_it_resumes(cluster: &Cluster) {
    let job = heat(cluster, "ssh-paused");
    job.wait_for("checkpoint 3 protected");
    cluster.docker("pause", "n2");
    job.wait_for("generation 2 launched");
    cluster.docker("unpause", "n2");
    until("the end of what still ran there", || {
        let processes = cluster.on("n2", "ps -eo args");
        !processes.contains("holdfast example") && !processes.contains("holdfast agent")
    });
    let output = job.finish_well();
    assert!(output.contains("n2 is down"), "{output}");
}

#[test(crate::cluster)]
fn killed_agent_is_restarted_over_ssh_and_ranks_continue(cluster: &Cluster) {
    let job = heat(cluster, "ssh-agent-killed");
    job.wait_for("checkpoint 3 protected");
    cluster.on("n3", "pkill -9 -f '[h]oldfast agent'");
    job.wait_for("n3: agent lost");
    let output = job.finish_well();
    assert!(!output.contains("is down") && !output.contains("generation 2"), "{output}");
}

#[test(crate::cluster)]
fn next_orchestrator_takes_over_on_hosts(cluster: &Cluster) {
    let work = "holdfast run job.yaml; echo \"first ended with $?\"; holdfast run job.yaml";
    let job = start(cluster, "ssh-took-over", &spec(ALL, "", ""), work);
    job.wait_for("checkpoint 3 protected");
    cluster.on("ctl", "pkill -9 -f '^holdfast run'");
    job.wait_for("first ended with 137");
    let output = job.finish_well();
    assert!(!output.contains("generation 2"), "the generation is taken over, not relaunched:\n{output}");
    no_agents(cluster);
}

#[test(crate::cluster)]
fn signal_of_orchestrator_runs_handlers_of_ranks_on_hosts(cluster: &Cluster) {
    let script = "trap 'echo state >saved-$HOLDFAST_RANK; exit 0' TERM; touch ready-$HOLDFAST_RANK; \
                  while :; do sleep 0.1; done";
    let spec = format!(
        "job: script\nprefix: ./heat-run\nhalt: {{grace: 60s}}\n\
         allocation: {{hosts: ['n[1-4]'], ssh: {{known_hosts: known_hosts}}}}\n\
         run: {{launcher: ssh, ranks: 4, command: [sh, -c, {script:?}]}}\n"
    );
    let job = start(cluster, "ssh-sigterm", &spec, "holdfast run job.yaml");
    until("the handlers", || job.run("ls").matches("ready-").count() == 4);
    cluster.on("ctl", "pkill -TERM -f '^holdfast run'");
    let output = job.finish_with(75);
    assert!(output.contains("SIGTERM to the ranks") && output.contains("halted by SIGTERM"), "{output}");
    assert_eq!(job.run("cat saved-0 saved-1 saved-2 saved-3").matches("state").count(), 4, "{output}");
    assert!(job.events().iter().all(|event| event["event"] != "rank_failed"), "{output}");
    no_agents(cluster);
}

#[test(crate::cluster)]
fn second_run_on_hosts_restarts_from_kept_caches_after_signal(cluster: &Cluster) {
    let slow = spec(ALL, "", "")
        .replace("command: [holdfast,", "command: [sh, -c, 'exec \"$@\" --step-delay $(cat delay)', sh, holdfast,");
    let known = cluster.known_hosts("ed25519");
    let files = [("job.yaml", &*slow), ("known_hosts", &*known), ("delay", "200ms")];
    let work = "holdfast run job.yaml; echo \"first ended with $?\"; echo 0 >delay; holdfast run job.yaml";
    let job = cluster.without_slurm("ssh-kept", &files, work);
    job.wait_for("checkpoint 2 protected");
    cluster.on("ctl", "pkill -TERM -f '^holdfast run'");
    job.wait_for("first ended with 75");
    let output = job.finish_well();
    assert!(output.contains("continues after generation 1 with the caches"), "{output}");
    let restarted: Vec<_> = job.events().into_iter().filter(|event| event["event"] == "restarted").collect();
    assert_eq!(restarted.last().map(|event| &event["source"]), Some(&serde_json::json!("cache")), "{output}");
    job.assert_nothing_left_on(&NODES);
}

#[test(crate::cluster)]
fn reports_exit_code_and_signal_of_ranks_on_hosts(cluster: &Cluster) {
    // The other rank does not end by itself: its end could be reported first.
    let command = "[ $HOLDFAST_GENERATION = 1 ] || exit 0; [ $HOLDFAST_RANK != 1 ] || kill -SEGV $$; exec sleep 600";
    let spec = format!(
        "job: signal\nprefix: ./signal-run\n\
         allocation: {{hosts: [n1, n2], ssh: {{known_hosts: known_hosts}}}}\n\
         run: {{launcher: ssh, ranks: 2, command: [sh, -c, '{command}']}}\n"
    );
    let job = start(cluster, "ssh-segfault", &spec, "holdfast run job.yaml");
    let output = job.finish_with(0);
    assert!(output.contains("rank 1 ended with signal 11") && output.contains("generation 2 launched"), "{output}");
    assert!(!output.contains("is down"), "no host is excluded:\n{output}");
    drop(job);
    // Rank 1 fails when rank 0 has printed: what is printed before a generation is stopped is not lost.
    let command = "echo I am $HOLDFAST_RANK on $(hostname); [ $HOLDFAST_RANK = 1 ] || touch printed; \
                   until [ -e printed ]; do sleep 0.1; done; exit $HOLDFAST_RANK";
    let spec = format!(
        "job: code\nprefix: ./code-run\nrelaunch: {{attempts: 0}}\n\
         allocation: {{hosts: [n1, n2], ssh: {{known_hosts: known_hosts}}}}\n\
         run: {{launcher: ssh, ranks: 2, command: [sh, -c, '{command}']}}\n"
    );
    let job = start(cluster, "ssh-code", &spec, "holdfast --verbose run job.yaml");
    let (output, _) = job.finish();
    for line in ["[0] I am 0 on n1", "[1] I am 1 on n2", "rank 1 ended with exit code 1"] {
        assert!(output.contains(line), "{line}:\n{output}");
    }
}

#[test(crate::cluster)]
fn excludes_unusable_hosts_with_reasons_and_runs_on_others(cluster: &Cluster) {
    cluster.docker("pause", "n6");
    let address = cluster.on("n1", "hostname -i").split_whitespace().next().unwrap().to_owned();
    let hosts = format!("[n1, n2, n3, n4, 'n5:2223', n6, root@ctl, no-such-host, {address}]");
    let spec = spec(&hosts, "connect_timeout: 2s", "");
    let job = start(cluster, "ssh-some", &spec, "holdfast run job.yaml");
    let output = job.finish_well();
    let reasons = [
        ("n5", "n5 refuses connections on port 2223"),
        ("n6", "n6 did not answer on port 22 within 2 s"),
        ("ctl", "ctl denied access to root; it accepts publickey"),
        ("no-such-host", "the name no-such-host cannot be resolved"),
        (&address, "is not known: SHA256:"),
    ];
    for (host, reason) in reasons {
        let reported = |line: &str| line.contains(&format!("{host} is down")) && line.contains(reason);
        assert!(output.lines().any(reported), "{host}: {reason}\n{output}");
    }
    assert!(output.contains("generation 1 on n1 n2 n3 n4, 0 spare"), "{output}");
}

#[test(crate::cluster)]
fn shows_unknown_host_key_and_starts_nothing(cluster: &Cluster) {
    let output = refusal(cluster, "ssh-unknown", &spec(ALL, "", ""), "# empty\n");
    let fingerprint = cluster.on("ctl", "ssh-keygen -l -f /etc/ssh/ssh_host_ed25519_key.pub");
    let fingerprint = fingerprint.split_whitespace().nth(1).unwrap();
    assert!(output.contains("the host key of n1 is not known") && output.contains(fingerprint), "{output}");
    assert!(output.contains("ssh-keyscan n1 >>/pfs/ssh-unknown/known_hosts"), "{output}");
}

#[test(crate::cluster)]
fn changed_host_key_is_an_error_with_known_hosts_line(cluster: &Cluster) {
    let other = cluster.on("ctl", "cat /home/user1/.ssh/id_ed25519.pub");
    let known = format!("# the hosts\nn1,n2,n3,n4,n5,n6 {other}");
    let output = refusal(cluster, "ssh-changed", &spec(ALL, "", ""), &known);
    assert!(output.contains("THE HOST KEY OF n1 HAS CHANGED"), "{output}");
    assert_contains(&output, &["/pfs/ssh-changed/known_hosts:2", "ssh-keygen -f /pfs/ssh-changed/known_hosts -R 'n1'"]);
}

#[test(crate::cluster)]
fn accepts_host_known_by_rsa_key_or_hashed_name(cluster: &Cluster) {
    let known = cluster.known_hosts("rsa");
    let files = [("job.yaml", &*spec(ALL, "", "")), ("known_hosts", &*known)];
    let work = "ssh-keygen -q -H -f known_hosts && grep -q '^|1|' known_hosts && holdfast run job.yaml";
    cluster.without_slurm("ssh-rsa", &files, work).finish_well();
}

#[test(crate::cluster)]
fn key_with_passphrase_works_through_ssh_agent(cluster: &Cluster) {
    let known = cluster.known_hosts("ed25519");
    let files = [("job.yaml", &*spec(ALL, "identity: key", "")), ("known_hosts", &*known)];
    let keys = "cp ~/.ssh/id_ed25519 key && cp ~/.ssh/id_ed25519.pub key.pub && ssh-keygen -q -p -f key -N secret";
    let (output, code) = cluster.as_user("ssh-phrase", &files, &format!("{keys} && holdfast run job.yaml"));
    assert_eq!(code, 69, "{output}");
    assert!(output.contains("/pfs/ssh-phrase/key: has a passphrase; load it into ssh-agent"), "{output}");
    let askpass = "printf '#!/bin/sh\\necho secret\\n' >askpass && chmod +x askpass && \
                   eval $(ssh-agent) >/dev/null && SSH_ASKPASS=./askpass SSH_ASKPASS_REQUIRE=force ssh-add key \
                   2>/dev/null";
    let work = format!("{keys} && {askpass} && holdfast run job.yaml; code=$?; ssh-agent -k >/dev/null; (exit $code)");
    cluster.without_slurm("ssh-phrase", &files, &work).finish_well();
}

#[test(crate::cluster)]
fn reports_host_without_program_or_with_other_version(cluster: &Cluster) {
    let known = cluster.known_hosts("ed25519");
    let output = refusal(cluster, "ssh-missing", &spec(ALL, "program: /opt/none/holdfast", ""), &known);
    assert!(output.contains("n1 has no program /opt/none/holdfast that can be run"), "{output}");
    let old = "#!/bin/sh\n[ \"$1\" = --version ] && echo holdfast 0.0.9 && exit\necho unknown command >&2; exit 64\n";
    let spec = spec(ALL, "program: /pfs/ssh-old/holdfast", "");
    let files = [("job.yaml", &*spec), ("known_hosts", &*known), ("holdfast", old)];
    let (output, code) =
        cluster.as_user("ssh-old", &files, "chmod +x holdfast; /opt/holdfast/bin/holdfast run job.yaml");
    assert_eq!(code, 69, "{output}");
    assert!(output.contains("n1 has Holdfast 0.0.9 at /pfs/ssh-old/holdfast, and this is"), "{output}");
}

#[test(crate::cluster)]
fn rejects_prefix_that_differs_on_hosts(cluster: &Cluster) {
    let known = cluster.known_hosts("ed25519");
    cluster.on("n1", "install -d -o user1 -g user1 /tmp/own-run");
    let spec = spec(ALL, "", "").replace("./heat-run", "/tmp/own-run");
    let output = refusal(cluster, "ssh-unshared", &spec, &known);
    cluster.on("n1", "rm -rf /tmp/own-run");
    cluster.on("ctl", "rm -rf /tmp/own-run");
    assert!(output.contains("/tmp/own-run on n1 differs from this machine (a different directory"), "{output}");
    assert!(output.contains("/tmp/own-run on n2 differs from this machine (does not exist"), "{output}");
}

#[test(crate::cluster)]
fn site_commands_run_on_hosts_and_failed_health_test_excludes_host(cluster: &Cluster) {
    let more = "before:\n  - {command: [sh, -c, 'echo \"$HOLDFAST_NODE is $(hostname)\" >>$HOLDFAST_PREFIX/been'], \
    on: all}\n\
                health: {command: [sh, -c, 'test $(hostname) != n2']}\n";
    let job = start(cluster, "ssh-site", &spec(ALL, "", more), "holdfast run job.yaml");
    let output = job.finish_well();
    let mut been: Vec<String> = job.run("cat heat-run/been").lines().map(str::to_owned).collect();
    been.sort();
    // On healthy hosts only.
    let healthy = NODES.iter().filter(|node| **node != "n2");
    assert_eq!(been, healthy.map(|node| format!("{node} is {node}")).collect::<Vec<_>>());
    assert!(output.contains("n2 is down"), "{output}");
}
