//! A file system that all machines of the cluster share and that can be made to hang, as a parallel file system does.
//!
//! It is on a loop device of this machine, which each container mounts in its own mount namespace: they all have the
//! one file system of the kernel, and `fsfreeze` stops every process that writes to it. This requires root on the
//! machine of the Docker engine.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::{Cluster, MACHINES};
use crate::harness::ignore;

const BYTES: u64 = 256 << 20;
const REQUIRED: &str = "a file system that can be frozen requires root, a loop device and nsenter";
/// The device in the containers while it is mounted.
const DEVICE: &str = "/tmp/holdfast-disk";

/// A file system that is mounted on all machines. Dropping it thaws and unmounts it.
#[derive(Debug)]
pub struct SharedDisk<'a> {
    cluster: &'a Cluster,
    /// With the image, and the mount on this machine, which is frozen.
    directory: TempDir,
    device: String,
    place: &'static str,
    is_frozen: bool,
}

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Cluster {
    /// A new file system of user1, mounted on a new directory of all machines. Without the permissions, the test is
    /// ignored.
    pub fn shared_disk(&self, place: &'static str) -> SharedDisk<'_> {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(BYTES).unwrap();
        let image = image.to_string_lossy().into_owned();
        let made = run("mkfs.ext4", &["-q", "-F", &image]).and_then(|_| run("losetup", &["--find", "--show", &image]));
        let Some(device) = made else { ignore(REQUIRED) };
        let disk = SharedDisk { cluster: self, directory, device, place, is_frozen: false };
        disk.mount();
        disk
    }
}

impl SharedDisk<'_> {
    fn mount(&self) {
        let own = self.own_mount();
        std::fs::create_dir(&own).unwrap();
        let numbers = run("stat", &["--format", "%Hr %Lr", &self.device]);
        let mounted = numbers.filter(|_| run("mount", &[&self.device, &own]).is_some());
        let Some(numbers) = mounted else { ignore(REQUIRED) };
        for machine in MACHINES {
            let place = self.place;
            let mount = format!("mkdir -p {place} && mknod {DEVICE} b {numbers} && mount -t ext4 {DEVICE} {place}");
            if self.inside(machine, &mount).is_none() {
                ignore(REQUIRED);
            }
        }
        self.cluster.on("ctl", &format!("chown user1: {}", self.place));
    }

    fn own_mount(&self) -> String {
        self.directory.path().join("mount").to_string_lossy().into_owned()
    }

    /// Runs a shell command in the mount namespace of a machine, with the permissions of this process.
    fn inside(&self, machine: &str, command: &str) -> Option<String> {
        let container = self.cluster.containers.container(machine);
        let pid = run("docker", &["inspect", "--format", "{{.State.Pid}}", &container])?;
        // A process namespace of its own, as in .ci/clean, does not have the processes of the containers.
        let processes = std::env::var("HOLDFAST_ENGINE_PROC").unwrap_or_else(|_| "/proc".to_owned());
        run("nsenter", &[&format!("--mount={processes}/{pid}/ns/mnt"), "sh", "-c", command])
    }

    /// From now on, what writes to it waits.
    pub fn freeze(&mut self) {
        assert!(run("fsfreeze", &["--freeze", &self.own_mount()]).is_some(), "the file system cannot be frozen");
        self.is_frozen = true;
    }

    pub fn thaw(&mut self) {
        if std::mem::take(&mut self.is_frozen) {
            assert!(run("fsfreeze", &["--unfreeze", &self.own_mount()]).is_some());
        }
    }
}

impl Drop for SharedDisk<'_> {
    fn drop(&mut self) {
        if self.is_frozen {
            run("fsfreeze", &["--unfreeze", &self.own_mount()]);
        }
        for machine in MACHINES {
            self.inside(machine, &format!("umount --lazy {place}; rm -f {DEVICE}; rmdir {place}", place = self.place));
        }
        if Path::new(&self.own_mount()).exists() {
            run("umount", &["--lazy", &self.own_mount()]);
        }
        run("losetup", &["--detach", &self.device]);
    }
}
