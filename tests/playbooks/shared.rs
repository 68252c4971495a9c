//! An installation on a file system that all nodes mount: made once, used by all.

use serde_json::json;

use crate::machines::Machines;

const PREFIX: &str = "/sw/holdfast";

#[test]
fn one_node_installs_for_all_on_a_shared_file_system() {
    let machines = Machines::get();
    // As often at sites: a link on every node.
    for node in 0..3 {
        machines.on(node, "ln -s /pfs/sw /sw");
    }
    machines.on(0, "mkdir /pfs/sw");
    let before: Vec<String> = (0..3).map(|node| machines.files(node)).collect();
    let site = json!({
        "holdfast_shared": true,
        "holdfast_install_prefix": PREFIX,
        "holdfast_slurm": true,
        "holdfast_parameters": {"SCR_CACHE_SIZE": 3},
        "holdfast_check_user": "user1",
    });

    assert!(machines.play_with("install.yaml", &site, &["--check"]).well().changed > 0);
    assert!(!machines.holds(0, &format!("test -e {PREFIX}")), "with --check nothing is written");
    let installed = machines.play("install.yaml", &site).well();
    assert!(installed.changed > 0, "{}", installed.output);
    for node in ["node1", "node2"] {
        let recap = installed.output.lines().rev().find(|line| line.starts_with(node)).unwrap();
        assert!(recap.contains("changed=0 "), "{recap}");
    }
    machines.play("install.yaml", &site).changes_nothing();
    for (node, before) in before.iter().enumerate() {
        assert_eq!(machines.files(node), *before, "nothing is written to the nodes");
    }

    let spec = "echo 'run: {nodes: 1, command: [\"true\"]}'";
    let explained = machines.on(2, &format!("cd / && {spec} | {PREFIX}/bin/holdfast check --explain /dev/stdin"));
    let keep = explained.lines().find(|line| line.starts_with("checkpoint.cache[0].keep")).unwrap();
    assert!(keep.contains(" 3 "), "{keep}");
    machines.on(2, &format!("{PREFIX}/share/holdfast/slurm/check-node.sh"));
    let module = machines.on(1, &format!("cat {PREFIX}/share/holdfast/modules/holdfast"));
    assert!(module.contains(&format!("prepend-path PATH {PREFIX}/bin\n")), "{module}");

    checks(&machines, &site);
    removes(&machines, &site);
}

fn checks(machines: &Machines, site: &serde_json::Value) {
    machines.play("check.yaml", site).changes_nothing();
    // A node that does not mount it.
    machines.on(1, "rm /sw");
    let refused = machines.play("check.yaml", site);
    assert!(!refused.success && refused.output.contains("No such file"), "{}", refused.output);
    machines.on(1, "ln -s /pfs/sw /sw");
    // One with a configuration of its own.
    machines.on(1, "mkdir /etc/holdfast && echo SCR_CACHE_SIZE=7 >/etc/holdfast/scr.conf");
    let refused = machines.play("check.yaml", site);
    assert!(!refused.success && refused.output.contains("scr.conf is not that of node0"), "{}", refused.output);
    machines.on(1, "rm -r /etc/holdfast");
}

fn removes(machines: &Machines, site: &serde_json::Value) {
    machines.on(2, "cp /bin/sleep /tmp/holdfast && { /tmp/holdfast 600 >/dev/null 2>&1 & }");
    let refused = machines.play("remove.yaml", site);
    assert!(!refused.success && refused.output.contains("Holdfast runs on node2"), "{}", refused.output);
    machines.on(2, "pkill -x holdfast; while pgrep -x holdfast; do sleep 0.1; done");
    assert!(machines.play("remove.yaml", site).well().changed > 0);
    machines.play("remove.yaml", site).changes_nothing();
    assert_eq!(machines.on(0, "ls -A /pfs/sw"), "");
}
