//! Failures that the kernel of a node explains. Its log is a file of the test, in a mount namespace.

use std::fs::OpenOptions;
use std::io::Write as _;

use rustix::process::{Signal, geteuid};

use crate::job::Job;
use crate::world::{World, signal};

const MESSAGE: &str = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.";

#[test]
fn a_message_of_the_kernel_is_named_as_the_reason_of_an_end(world: &World) {
    if !geteuid().is_root() {
        holdfast_testkit::harness::ignore("the log of the kernel is replaced by a mount, which needs root");
    }
    let log = world.write("kmsg", "4,1,10,-;NVRM: Xid (PCI:0000:3b:00): 13, before the job\n");
    let job = Job::new(world, 1).holding_after(4);
    let mut command = world.command("unshare");
    command.args(["--mount", "sh", "-c", "mount --bind \"$1\" /dev/kmsg && shift && exec \"$@\"", "sh"]).arg(&log);
    let mut running = world.start(command.arg(env!("CARGO_BIN_EXE_holdfast")).arg("run").arg(job.spec()));
    running.sees_checkpoint(4);
    let victim = running.sees_where("rank_connected", "rank", 2);
    let mut kernel = OpenOptions::new().append(true).open(&log).unwrap();
    write!(kernel, "6,2,11,-;usb 1-1: new device\n4,3,12,-;{MESSAGE}\n SUBSYSTEM=pci\n").unwrap();
    signal(u32::try_from(victim["pid"].as_u64().unwrap()).unwrap(), Signal::KILL);
    job.goes_on_to_its_end(running);

    let mut seen = world.all("kernel_reported");
    assert!(seen.iter().all(|event| event["message"] == MESSAGE), "{seen:#?}");
    seen.retain(|event| event["rank"] == 2);
    assert_eq!((seen.len(), &seen[0]["node"]), (1, &"node2".into()), "{seen:#?}");
    let explained = world.the("failure_explained");
    let cause = format!("rank 2 on node2 ended with SIGKILL (its kernel reported: {MESSAGE})");
    assert_eq!(explained["cause"], cause, "{explained:#}");
    job.command(&["report"], 0).prints(&[&cause, "the GPU does not answer any more: exclude the node"]);
    job.assert_result();
}
