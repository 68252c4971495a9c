//! An installation: install, check, drain, remove. One test, because each step depends on the one before.

use holdfast_testkit::fixtures;
use serde_json::json;

use crate::machines::Machines;

/// The fixture: a killed run with LLNL's library, one rank on each of four nodes, one XOR set.
const LEFT_BY_A_RUN: &str = "a3-same-path-and-restart/1-killed/tree";
const BASE: &str = "/tmp/scr-fixture/local";

#[test]
fn nodes_are_installed_checked_drained_and_cleared_and_the_second_time_nothing_changes() {
    let machines = Machines::get();
    let before = machines.files(0);
    let site = json!({
        "holdfast_parameters": {"SCR_CACHE_SIZE": 3},
        "holdfast_check_user": "user1",
        "holdfast_slurm": true,
    });

    installs(&machines, &site, &before);
    checks(&machines, &site);
    drains(&machines);
    removes(&machines, &site, &before);
}

fn installs(machines: &Machines, site: &serde_json::Value, before: &str) {
    let announced = machines.play_with("install.yaml", site, &["--check"]).well();
    assert!(announced.changed > 0, "{}", announced.output);
    assert_eq!(machines.files(0), before, "with --check nothing is written");

    // The library of another installation is not overwritten.
    machines.on(2, "echo theirs >/usr/local/lib/libscr.so");
    let refused = machines.play("install.yaml", site);
    assert!(!refused.success && refused.output.contains("another SCR library?"), "{}", refused.output);
    assert_eq!(machines.on(2, "cat /usr/local/lib/libscr.so"), "theirs\n");
    machines.on(2, "rm /usr/local/lib/libscr.so");

    assert!(machines.play("install.yaml", site).well().changed > 0);
    machines.play("install.yaml", site).changes_nothing();
    let explained =
        machines.on(0, "cd /tmp && echo 'run: {nodes: 1, command: [\"true\"]}' | holdfast check --explain /dev/stdin");
    let keep = explained.lines().find(|line| line.starts_with("checkpoint.cache[0].keep")).unwrap();
    assert!(keep.contains(" 3 "), "{keep}");
    // A user builds and runs a program: the library is found by name, and reports that there is no agent.
    machines.on(
        0,
        "printf '#include <scr.h>\\n#include <stdio.h>\\nint main(void) { puts(SCR_Get_version()); return \
    0; }\\n' >/tmp/program.c",
    );
    let version = machines.on(0, "gcc -Wall -o /tmp/program /tmp/program.c -lscr && /tmp/program");
    assert!(!version.trim().is_empty());
}

fn checks(machines: &Machines, site: &serde_json::Value) {
    machines.play("check.yaml", site).changes_nothing();
    let mut strict = site.clone();
    strict["holdfast_check_free_bytes"] = json!(1_u64 << 60);
    let refused = machines.play("check.yaml", &strict);
    assert!(!refused.success && refused.output.contains("cannot be used by user1"), "{}", refused.output);
    // A value of the wrong type.
    strict["holdfast_check_free_bytes"] = json!("plenty");
    let refused = machines.play("check.yaml", &strict);
    let wrong_type = "argument 'holdfast_check_free_bytes' is of type";
    assert!(!refused.success && refused.output.contains(wrong_type), "{}", refused.output);
    // One node whose site configuration was changed by hand, and the mode of a header.
    machines.on(1, "echo SCR_CACHE_SIZE=7 >/etc/holdfast/scr.conf && chmod 600 /usr/local/include/scr.h");
    let refused = machines.play("check.yaml", site);
    assert!(!refused.success && refused.output.contains("scr.conf is not that of node0"), "{}", refused.output);
    // The configuration, the header, and then the loader's cache.
    assert_eq!(machines.play("install.yaml", site).well().changed, 3);
    assert_eq!(machines.on(1, "stat -c %a /usr/local/include/scr.h"), "644\n");
}

fn drains(machines: &Machines) {
    for node in 0..3 {
        let left = fixtures("scr").join(LEFT_BY_A_RUN).join(format!("node{node}"));
        machines.on(node, &format!("mkdir -p {BASE}"));
        machines.copy_to(node, &left.join("."), BASE);
        machines.on(node, "chown -R user1: /tmp/scr-fixture");
    }
    // Members of the group may exchange what is in the directory of a project: the nodes' directories are collected
    // above it. `/pfs` belongs to user1.
    machines.on(0, "install -d -o user1 -g games -m 2775 /pfs/job");
    // At the path that an earlier release used.
    let planted = "/pfs/job/.holdfast-staging-1145655";
    machines.on(0, &format!("install -d -o nobody -m 777 {planted}/nodes && echo theirs >{planted}/job.yaml"));
    let job = json!({
        "holdfast_drain_nodes": "~node[0-3]",
        "holdfast_drain_job_id": "1145655",
        "holdfast_drain_user": "user1",
        "holdfast_drain_prefix": "/pfs/job",
        "holdfast_drain_control_base": BASE,
        "holdfast_drain_caches": [{"base": BASE}],
    });
    let announced = machines.play_with("drain.yaml", &job, &["--check"]).well();
    assert!(announced.output.contains("checkpoint 3 is in the caches"), "{}", announced.output);
    assert!(!machines.holds(0, "test -e /pfs/job/index.scr"));
    drains_nothing_of_another_user(machines, &job);
    // The user may not write to some of the directories.
    machines.on(0, &format!("chmod -R u-w {BASE}/user1/scr.1145655"));
    // node3 does not answer: its files are rebuilt from the others.
    let drained = machines.play("drain.yaml", &job).well();
    assert_eq!(drained.changed, 1, "{}", drained.output);
    let listed = machines.on(0, "holdfast index list --json --prefix /pfs/job");
    let index: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let newest = &index["checkpoints"][0];
    assert!(newest["complete"] == true && newest["current"] == true && newest["id"] == 3, "{listed}");
    assert_eq!(machines.on(0, &format!("find {planted}")).lines().count(), 3, "the planted directory was used");
    assert!(!machines.holds(0, "ls -d /pfs/.holdfast-staging*"));
    assert!(machines.holds(0, &format!("test -e {BASE}/user1/scr.1145655/flush.scrinfo")));
    machines.play("drain.yaml", &job).changes_nothing();
}

/// Whatever fails, nothing stays where the nodes' directories were collected.
fn drains_nothing_of_another_user(machines: &Machines, job: &serde_json::Value) {
    let refuses = |job: &serde_json::Value, parts: [&str; 2]| {
        let refused = machines.play("drain.yaml", job);
        assert!(!refused.success, "{}", refused.output);
        assert!(parts.iter().all(|part| refused.output.contains(part)), "{}", refused.output);
        assert!(!machines.holds(0, "ls -d /pfs/.holdfast-staging*"));
        assert!(!machines.holds(0, "test -e /pfs/job/index.scr"));
    };
    // Where others may exchange it.
    let mut elsewhere = job.clone();
    elsewhere["holdfast_drain_staging_base"] = json!("/pfs/job");
    refuses(&elsewhere, ["other users can exchange directories there", "set holdfast_drain_staging_base"]);
    // The drain fails, after the directories were collected.
    machines.on(0, "install -d -o nobody -m 755 /pfs/job/.holdfast");
    refuses(job, ["/pfs/job/.holdfast belongs to user id", "choose another directory"]);
    machines.on(0, "rmdir /pfs/job/.holdfast");
    // The directory of a node is that of another user, or a link to it.
    for node in 0..3 {
        machines.on(node, &format!("chown nobody {BASE}/user1"));
    }
    refuses(job, ["user1 does not belong to user1, or is a link", "nothing is collected from this node"]);
    for node in 0..3 {
        machines.on(node, &format!("chown user1 {BASE}/user1"));
    }
}

fn removes(machines: &Machines, site: &serde_json::Value, before: &str) {
    // Other files in the directory are kept.
    machines.on(1, "echo notes >/etc/holdfast/notes");
    let announced = machines.play_with("remove.yaml", site, &["--check"]).well();
    assert!(announced.changed > 0 && machines.holds(0, "test -e /usr/local/bin/holdfast"), "{}", announced.output);
    assert!(machines.play("remove.yaml", site).well().changed > 0);
    machines.play("remove.yaml", site).changes_nothing();
    assert_eq!(machines.files(0), before);
    assert_eq!(machines.on(1, "ls /etc/holdfast"), "notes\n");
}
