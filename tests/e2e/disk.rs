//! A file system on a loop device, which `fsfreeze` makes hang: whatever writes to it waits. This requires root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::harness::ignore;

use crate::world::World;

/// Size of a file system.
const BYTES: u64 = 64 << 20;
const REQUIRED: &str = "mounting a file system requires root and a loop device";

/// A file system. It is thawed and unmounted at the end of the test.
pub struct Disk {
    image: PathBuf,
    mounted: Option<PathBuf>,
    frozen: bool,
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

fn is_permitted() -> bool {
    rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists()
}

impl Disk {
    /// A new file system, not mounted yet. Without the permission to mount it, the test is ignored.
    pub fn new(world: &World) -> Self {
        let image = world.path("disk");
        fs::File::create(&image).unwrap().set_len(BYTES).unwrap();
        if !is_permitted() || !succeeds("mkfs.ext4", &["-q", "-F", &image.to_string_lossy()]) {
            ignore(REQUIRED);
        }
        Disk { image, mounted: None, frozen: false }
    }

    /// Mounts it on a directory that does not exist yet. Without the permission, the test is ignored.
    pub fn mount(&mut self, place: PathBuf) {
        fs::create_dir(&place).unwrap();
        self.mount_on(place);
    }

    fn mount_on(&mut self, place: PathBuf) {
        if !succeeds("mount", &["-o", "loop", &self.image.to_string_lossy(), &place.to_string_lossy()]) {
            ignore(REQUIRED);
        }
        self.mounted = Some(place);
    }

    /// Mounts it over a directory, of whose content it gets a copy first: a process that uses the directory notices
    /// nothing, unless it has a file open there.
    pub fn mount_over(&mut self, place: PathBuf) {
        let meanwhile = self.image.with_extension("copy");
        self.mount(meanwhile.clone());
        let (from, to) = (place.join("."), meanwhile.to_string_lossy());
        assert!(succeeds("cp", &["--archive", &from.to_string_lossy(), &to]) && succeeds("umount", &[&to]));
        self.mount_on(place);
    }

    /// A new file system on a directory.
    pub fn mounted(world: &World, place: PathBuf) -> Self {
        let mut disk = Disk::new(world);
        disk.mount(place);
        disk
    }

    /// The block device of its mount.
    pub fn device(&self) -> String {
        let place = self.mounted.as_ref().unwrap();
        let found = Command::new("findmnt").args(["--noheadings", "--output", "SOURCE"]).arg(place).output().unwrap();
        String::from_utf8(found.stdout).unwrap().trim().to_owned()
    }

    fn fsfreeze(&self, option: &str) -> bool {
        self.mounted.as_ref().is_some_and(|place| succeeds("fsfreeze", &[option, &place.to_string_lossy()]))
    }

    pub fn freeze(&mut self) {
        self.frozen = self.fsfreeze("-f");
        assert!(self.frozen, "the file system cannot be frozen");
    }

    pub fn thaw(&mut self) {
        if std::mem::take(&mut self.frozen) {
            assert!(self.fsfreeze("-u"));
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.frozen {
            self.fsfreeze("-u");
        }
        if let Some(place) = &self.mounted {
            succeeds("umount", &["-l", &place.to_string_lossy()]);
        }
    }
}
