//! The playbooks as an Ansible collection, without a checkout.

use serde_json::json;

use crate::machines::{Machines, root};

#[test]
fn collection_installs_a_release_and_removes_it() {
    let machines = Machines::get();
    let galaxy = std::fs::read_to_string(root().join("playbooks/galaxy.yml")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(galaxy.lines().any(|line| line == format!("version: {version}")), "{galaxy}");
    let playbooks = root().join("playbooks");
    machines.galaxy(&["collection", "build", playbooks.to_str().unwrap()]);
    let archive = format!("holdfast-site-{version}.tar.gz");
    machines.galaxy(&["collection", "install", &archive, "-p", "collections"]);

    let before = machines.files(0);
    let site = json!({"holdfast_archive": machines.release(), "holdfast_check_user": "user1"});
    assert!(machines.play("holdfast.site.install", &site).well().changed > 0);
    machines.play("holdfast.site.install", &site).changes_nothing();
    assert!(machines.on(1, "holdfast --version").contains(version));
    machines.play("holdfast.site.check", &site).changes_nothing();
    let refused = machines.play("holdfast.site.drain", &site);
    assert!(!refused.success && refused.output.contains("set holdfast_drain_job_id"), "{}", refused.output);
    // The same files as from the build.
    let files = machines.on(0, "cat /etc/holdfast/installed.json");
    assert!(files.contains("/usr/local/lib/libscr.so.100") && files.contains("/usr/local/lib/libscrf.a"), "{files}");
    assert!(machines.play("holdfast.site.remove", &site).well().changed > 0);
    assert_eq!(machines.files(0), before);
}
