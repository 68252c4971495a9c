//! Ranks that the system kills for lack of memory, in a memory control group with a limit.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;

use crate::job::Job;
use crate::world::World;

/// Where control groups of memory are made, in their first version.
const GROUPS: &str = "/sys/fs/cgroup/memory";

/// A control group, without a limit at first.
struct Group(PathBuf);

impl Group {
    fn new(world: &World) -> Self {
        if !geteuid().is_root() || !Path::new(GROUPS).join("memory.oom_control").exists() {
            holdfast_testkit::harness::ignore(
                "memory control groups (version 1) need root, and a system that has them",
            );
        }
        let name = world.path("").file_name().map(|name| name.to_string_lossy().into_owned()).unwrap();
        let group = Path::new(GROUPS).join(format!("holdfast-{name}"));
        fs::create_dir(&group).unwrap();
        Group(group)
    }

    fn usage(&self) -> u64 {
        fs::read_to_string(self.0.join("memory.usage_in_bytes")).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Processes leave it a moment after they have ended.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Runs a shell in the group: `$1` and what follows.
fn in_group(world: &World, group: &Group, script: &str) -> std::process::Command {
    let mut shell = world.command("sh");
    shell.args(["-c", &format!("echo $$ > \"$0\"; {script}")]).arg(group.0.join("cgroup.procs"));
    shell
}

#[test]
fn a_rank_that_the_system_killed_for_lack_of_memory_is_named_with_this_reason(world: &World) {
    let group = Group::new(world);
    let job = Job::new(world, 1).holding_after(4);
    // None of the job's processes is chosen: the relaunch may begin before the limit is lifted.
    let mut command = in_group(world, &group, "echo -1000 > /proc/self/oom_score_adj; exec \"$1\" run \"$2\"");
    command.arg(env!("CARGO_BIN_EXE_holdfast")).arg(job.spec());
    let mut running = world.start(command);
    running.sees_checkpoint(4);
    let victim = running.sees_where("rank_connected", "rank", 2);
    let of_victim = |file: &str| PathBuf::from(format!("/proc/{}/{file}", victim["pid"]));

    // The system chooses the rank first, and then the program that wants the memory.
    fs::write(of_victim("oom_score_adj"), "1000").unwrap();
    fs::write(group.0.join("memory.limit_in_bytes"), (group.usage() + (128 << 20)).to_string()).unwrap();
    let greedy =
        in_group(world, &group, "echo 200 > /proc/self/oom_score_adj; exec dd if=/dev/zero of=/dev/null bs=1G count=1");
    world.run(greedy);
    fs::write(group.0.join("memory.limit_in_bytes"), "-1").unwrap();

    job.goes_on_to_its_end(running);
    // The others are of nodes whose ranks ended afterwards, in the same group.
    let seen = world.all("memory_exhausted").remove(0);
    assert_eq!((&seen["rank"], &seen["of_group"]), (&2.into(), &true.into()), "{seen}");
    // The program that wants more than the limit is killed too, soon after the rank.
    assert!([1.into(), 2.into()].contains(&seen["killed"]), "{seen}");
    let explained = world.the("failure_explained");
    let line = explained["line"].as_str().unwrap();
    assert!(line.contains("rank 2 on node2 ended with SIGKILL for lack of memory; "), "{line}");
    job.command(&["report"], 0)
        .prints(&["ended with SIGKILL for lack of memory", "ask for more memory, or place fewer ranks on a node"]);
    job.assert_result();
}
