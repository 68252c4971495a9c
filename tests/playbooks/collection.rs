//! The playbooks as an Ansible collection, without a checkout.

use std::fs;
use std::process::Command;

use holdfast_testkit::pages;
use serde_json::json;

use crate::machines::{Machines, checked, root, text};

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

#[test]
fn the_page_for_a_site_installs_checks_and_removes_a_release() {
    let machines = Machines::get();
    let version = env!("CARGO_PKG_VERSION");
    // What `.ci/dist` makes, where the page expects it.
    checked(Command::new(root().join("packaging/collection")).arg(machines.path("")));
    let release = machines.release();
    let name = format!("holdfast-{version}-x86_64");
    fs::rename(release, machines.path("unpacked").join(&name)).unwrap();
    let archive = machines.path(&format!("{name}.tar.xz"));
    checked(Command::new("tar").arg("-cf").arg(archive).arg("-C").arg(machines.path("unpacked")).arg(&name));

    let before = machines.files(0);
    let page = fs::read_to_string(root().join("docs/tutorials/site.md")).unwrap();
    // The inventory of the page has other machines.
    let write = |file: &str, content: &str| {
        if file != "inventory.yaml" {
            fs::write(machines.path(file), content).unwrap();
        }
    };
    let shell = |commands: &str| {
        let mut bash = machines.ansible("bash");
        bash.args(["-euo", "pipefail", "-c", commands]).current_dir(machines.path("")).env("VERSION", version);
        let ran = bash.output().unwrap();
        assert!(ran.status.success(), "{commands}\n{}", text(&ran));
        if commands.contains("site.check") {
            let settings = machines.on(1, "cat /etc/holdfast/scr.conf");
            assert!(settings.contains("SCR_CACHE_BASE=/dev/shm"), "{settings}");
        }
        text(&ran)
    };
    pages::carry_out(&page, write, shell);
    assert_eq!(machines.files(0), before);
}
