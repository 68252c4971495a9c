//! A node-local file system hangs: its node is faulty when that has lasted for `health.disk_timeout`, and not before.

use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use crate::disk::Disk;
use crate::job::Job;
use crate::world::{Running, World};

/// A job of four ranks and a spare, held after checkpoint 4. The cache of node1 is on a file system of its own.
struct DiskOfNode<'a> {
    job: Job<'a>,
    disk: Disk,
    running: Running<'a>,
}

impl<'a> DiskOfNode<'a> {
    fn start(world: &'a World, disk_timeout: &str) -> Self {
        let mut disk = Disk::new(world);
        // When `before:` runs, the agents are up and have made their directories, and no rank has written to them.
        let mounted = world.path("mounted");
        let wait = format!("until [ -e {} ]; do sleep 0.01; done", mounted.display());
        let job = Job::new(world, 1)
            .holding_after(4)
            .checkpoint("cache: [{base: /ssd}]")
            .health(&format!("disk_timeout: {disk_timeout}"))
            .top(&format!("before: [{{command: [sh, -c, {wait:?}]}}]"));
        let mut running = job.start();
        let is_command = |line: &str| line.contains(&wait);
        world.wait("`before:`", || world.processes().iter().any(|(_, line)| is_command(line)).then_some(()));
        disk.mount_over(world.node_root("node1").join("ssd"));
        fs::write(mounted, "").unwrap();
        running.sees_checkpoint(4);
        DiskOfNode { job, disk, running }
    }
}

#[test(unchecked)]
fn node_is_down_when_its_disk_has_hung_for_the_limit(world: &World) {
    let DiskOfNode { job, mut disk, mut running } = DiskOfNode::start(world, "1s");
    disk.freeze();
    let down = running.sees_event("node_down");
    assert_eq!((&down["node"], &down["why"]), (&"node1".into(), &"health".into()), "{down}");
    let fault = down["fault"].as_str().unwrap();
    assert!(fault.starts_with("/ssd/u/scr."), "{fault}");
    assert!(fault.contains("its file system has not responded for 1."), "{fault}");
    assert!(fault.ends_with("(health.disk_timeout)"), "{fault}");
    running.sees_where("generation_launched", "generation", 2);
    disk.thaw();
    job.finishes(running);
    assert_eq!(world.all("node_down").len(), 1);
}

/// Reads from a block device, until it is dropped.
struct DeviceReader(Child);

impl DeviceReader {
    fn start(device: &str) -> Self {
        let read = format!("while dd if={device} of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null; do :; done");
        DeviceReader(Command::new("sh").args(["-c", &read]).spawn().unwrap())
    }
}

impl Drop for DeviceReader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The disk hangs for four seconds, and no node is lost. If it is busy, its device completes other work meanwhile.
fn assert_hang_loses_no_node(disk_timeout: &str, is_busy: bool) {
    let world = World::unchecked();
    let DiskOfNode { job, mut disk, running } = DiskOfNode::start(&world, disk_timeout);
    let reader = is_busy.then(|| DeviceReader::start(&disk.device()));
    disk.freeze();
    // Longer than the limit with which `node_is_down_when_its_disk_has_hung_for_the_limit` loses the node.
    std::thread::sleep(Duration::from_secs(4));
    disk.thaw();
    drop(reader);
    job.finishes(running);
    world.assert_nothing_lost();
}

#[test]
fn disk_that_hangs_for_less_than_the_limit_loses_no_node() {
    assert_hang_loses_no_node("60s", false);
}

#[test]
fn disk_whose_device_completes_other_work_is_busy_for_ten_times_the_limit() {
    assert_hang_loses_no_node("1s", true);
}
