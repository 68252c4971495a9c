//! Another member of the project exchanges directories of a prefix with links to a private directory of the user, again
//! and again, while commands of the user work on them: nothing in the private directory is ever touched.
//!
//! `HOLDFAST_TEST_EXCHANGES` sets the number of rounds (50).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdfast_core::prefix::{dataset, index, summary};
use holdfast_core::store::{DirectoryName, PosixDataset, PosixStore};
use holdfast_model::{CheckpointId, Dataset, OutputPath};
use holdfast_testkit::files_below;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::geteuid;

use crate::job::Job;
use crate::pfs;
use crate::world::{OTHER_USER, World};

pub fn rounds() -> u64 {
    std::env::var("HOLDFAST_TEST_EXCHANGES").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(50)
}

/// What can be seen of a tree: size and digest of the content, mode, owner and times of each file.
pub type Seen = BTreeMap<PathBuf, [i64; 6]>;

pub fn seen(directory: &Path) -> Seen {
    let describe = |path: PathBuf| {
        let found = fs::symlink_metadata(&path).unwrap();
        let digest = crc32fast::hash(&fs::read(&path).unwrap());
        let facts = [digest, found.mode(), found.uid()].map(i64::from);
        let [digest, mode, owner] = facts;
        (path, [found.len().cast_signed(), digest, mode, owner, found.mtime_nsec(), found.ctime_nsec()])
    };
    files_below(directory).into_iter().map(describe).collect()
}

/// Ends an attacker, also if a check fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Exchanges a directory of the prefix with a link, until it is told to stop.
fn exchange(prefix: &Path, name: &str, ended: &AtomicBool, exchanged: &AtomicU64) {
    while !ended.load(Ordering::Relaxed) {
        let (one, other) = (prefix.join(name), prefix.join(LINK));
        // Between rounds, and while a command has taken it away, it is missing.
        if renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).is_ok() {
            exchanged.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The name that the attacker uses for the link.
const LINK: &str = "of-the-attacker";

/// Copies a tree; links stay links.
pub fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy_tree(&path, &to),
            kind if kind.is_symlink() => symlink(fs::read_link(&path).unwrap(), &to).unwrap(),
            kind if kind.is_file() => drop(fs::copy(&path, &to).unwrap()),
            _ => {}
        }
    }
}

/// Gives everything below a path to a user.
fn give(user: Option<u32>, path: PathBuf) {
    if user.is_some() {
        lchown(&path, user, user).unwrap();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        let below = kind.is_dir().then(|| fs::read_dir(&path).unwrap());
        below.into_iter().flatten().for_each(|entry| give(user, entry.unwrap().path()));
    }
}

/// A prefix with a dataset, and a private directory of the user with files of the same names.
struct Prepared {
    world: World,
    /// The user whose commands are attacked, if it is not the one of this process.
    user: Option<u32>,
    pristine: PathBuf,
    private: PathBuf,
    before: Seen,
}

/// The name of the dataset that is worked on.
const NAME: &str = "scr.2026-11-20_10:00:00.17.900";

impl Prepared {
    /// For root, and for another user if this process is root's.
    fn each(test: impl Fn(&Prepared)) {
        test(&Prepared::new(None));
        if geteuid().is_root() {
            test(&Prepared::new(Some(OTHER_USER)));
        }
    }

    fn new(user: Option<u32>) -> Self {
        let world = World::unchecked();
        Job::new(&world, 0).flush("{every: 1}").run(0);
        let dataset = pfs::directory_of(&world.prefix(), 8).unwrap();
        let (pristine, private) = (world.path("pristine"), world.path("private"));
        copy_tree(&dataset, &pristine);
        copy_tree(&dataset, &private);
        fs::create_dir(private.join("below")).unwrap();
        fs::write(private.join("below/run.sh"), "of the user").unwrap();
        for path in files_below(&private) {
            fs::write(&path, "of the user").unwrap();
        }
        fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
        world.open_to_others();
        give(user, world.path("."));
        let before = seen(&private);
        Prepared { world, user, pristine, private, before }
    }

    fn command(&self, words: &[&str]) -> Command {
        match self.user {
            Some(user) => self.world.holdfast_as(user, words),
            None => self.world.holdfast(words),
        }
    }

    /// Runs the commands in each round, on what `prepare` makes, while the directory `exchanged` and a link to `to` are
    /// exchanged.
    fn attack(&self, exchanged: &str, to: &Path, prepare: impl Fn(), commands: &[&[&str]]) {
        let prefix = self.world.prefix();
        let (mut done, mut failed, count) = (0, 0, AtomicU64::new(0));
        // As root, and again as another user.
        for round in 0..rounds().div_ceil(2) {
            for name in [exchanged, NAME, LINK] {
                let path = prefix.join(name);
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            }
            // What is prepared is written by this process.
            give(self.user.map(|_| 0), prefix.clone());
            prepare();
            give(self.user, prefix.clone());
            symlink(to, prefix.join(LINK)).unwrap();
            let ended = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let _ends = Ends(&ended);
                scope.spawn(|| exchange(&prefix, exchanged, &ended, &count));
                for words in commands {
                    let mut command = self.command(words);
                    let ran = command.arg("--prefix").arg(&prefix).output().unwrap();
                    *(if ran.status.success() { &mut done } else { &mut failed }) += 1;
                    let printed = String::from_utf8_lossy(&ran.stderr);
                    assert!(!printed.contains("panicked"), "{printed}");
                    assert_eq!(seen(&self.private), self.before, "round {round}: {words:?}: {printed}");
                }
            });
            assert!(self.private.is_dir(), "round {round}");
        }
        let count = count.into_inner();
        println!("{count} exchanges; {done} commands succeeded, {failed} were refused");
        assert!(count > 0, "nothing was exchanged");
    }
}

#[test]
fn a_dataset_that_is_exchanged_with_a_link_is_scanned_rebuilt_copied_and_deleted_nowhere_else() {
    Prepared::each(|prepared| {
        let directory = prepared.world.prefix().join(NAME);
        let prepare = || {
            copy_tree(&prepared.pristine, &directory);
            let lost =
                pfs::names(&directory).into_iter().find(|name| name.starts_with("rank_0") && !name.ends_with(".scr"));
            fs::remove_file(directory.join(lost.unwrap())).unwrap();
            // Left by a process that was killed.
            fs::write(directory.join(".hf-1-1-1-1.tmp"), "").unwrap();
        };
        let commands: [&[&str]; 5] = [
            &["index", "add", "--rescan", NAME],
            &["index", "add", "--copy", NAME],
            &["index", "prune", "--yes", "--incomplete"],
            &["index", "current", NAME],
            &["index", "delete", "--yes", NAME],
        ];
        prepared.attack(NAME, &prepared.private, prepare, &commands);
    });
}

const PLACE_AND_DELETE: [&[&str]; 3] =
    [&["index", "place", "--replace", NAME], &["index", "place", NAME], &["index", "delete", "--yes", NAME]];

impl Prepared {
    /// Makes a complete output whose files belong below `out/below`.
    fn prepare_output(&self) {
        let prefix = self.world.prefix();
        let directory = prefix.join(NAME);
        copy_tree(&self.pristine, &directory);
        let here = PosixDataset::at(&directory).unwrap();
        let mut listed = summary::read(&here).unwrap();
        for file in listed.by_rank.values_mut().flat_map(|rank| &mut rank.files) {
            file.output_path = Some(OutputPath::parse(&format!("out/below/{}", file.name)).unwrap());
        }
        summary::write(&here, &listed).unwrap();
        let output = Dataset { output: true, ..Dataset::default() };
        dataset::write(&output, "17", &here).unwrap();
        let store = PosixStore::open(&prefix).unwrap();
        let name = DirectoryName::new(NAME).unwrap();
        let flushed = chrono::NaiveDate::from_ymd_opt(2026, 11, 20).unwrap().and_hms_opt(10, 0, 0).unwrap();
        let entered = index::update(&store, |index| {
            index.add(CheckpointId(8), &name, flushed);
            index.set_complete(&name, true);
        });
        entered.unwrap();
    }
}

#[test]
fn the_directory_of_an_output_that_is_exchanged_with_a_link_gets_no_file_elsewhere() {
    Prepared::each(|prepared| {
        let prepare = || {
            prepared.prepare_output();
            fs::create_dir_all(prepared.world.prefix().join("out/below")).unwrap();
        };
        prepared.attack("out", &prepared.private, prepare, &PLACE_AND_DELETE);
    });
}

#[test]
fn a_link_of_the_user_that_another_one_has_renamed_is_not_followed() {
    Prepared::each(|prepared| {
        let prefix = prepared.world.prefix();
        let prepare = || {
            prepared.prepare_output();
            // The user's own link to the current checkpoint; what it leads to is another link.
            let led_to = fs::read_link(prefix.join("scr.current")).unwrap();
            fs::rename(prefix.join("scr.current"), prefix.join("out")).unwrap();
            fs::rename(prefix.join(&led_to), prefix.join("aside")).unwrap();
            symlink(&prepared.private, prefix.join(&led_to)).unwrap();
        };
        // What is prepared is written by this process.
        give(prepared.user.map(|_| 0), prefix.clone());
        prepare();
        give(prepared.user, prefix.clone());
        for words in PLACE_AND_DELETE {
            let ran = prepared.command(words).arg("--prefix").arg(&prefix).output().unwrap();
            let printed = String::from_utf8_lossy(&ran.stderr);
            // What was not placed is deleted in the dataset's directory.
            let is_refused = !ran.status.success() && printed.contains("link");
            assert!(is_refused || words[1] == "delete", "{words:?}: {printed}");
            assert_eq!(seen(&prepared.private), prepared.before, "{words:?}: {printed}");
        }
    });
}

#[test]
fn directories_that_are_exchanged_with_links_get_no_files_of_flushes_and_drains_elsewhere() {
    for round in 0..=rounds() / 25 {
        let world = World::unchecked();
        let private = world.path("private");
        fs::create_dir(&private).unwrap();
        for rank in 0..4 {
            fs::write(private.join(format!("rank_{rank}.ckpt")), "of the user").unwrap();
        }
        fs::write(private.join("summary.scr"), "of the user").unwrap();
        let (before, prefix) = (seen(&private), world.prefix());
        let job = Job::new(&world, 0);
        // In every other round only the drain writes to the prefix.
        let job = if round % 2 == 0 { job.flush("{every: 1}") } else { job };
        let (ended, exchanged) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let _ends = Ends(&ended);
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    for entry in fs::read_dir(&prefix).into_iter().flatten().flatten() {
                        let name = entry.file_name().to_string_lossy().into_owned();
                        if name.starts_with("scr.2") {
                            let link = prefix.join(format!("{LINK}.{name}"));
                            let _ = symlink(&private, &link);
                            if renameat_with(CWD, entry.path(), CWD, link, RenameFlags::EXCHANGE).is_ok() {
                                exchanged.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                }
            });
            let ran = job.command_line().output().unwrap();
            let printed = String::from_utf8_lossy(&ran.stderr);
            assert!(!printed.contains("panicked"), "{printed}");
            println!("{:?} after {} exchanges", ran.status.code(), exchanged.load(Ordering::Relaxed));
            // Whatever was not written is said.
            assert!(ran.status.success() || printed.contains("checkpoint") || printed.contains("dataset"), "{printed}");
        });
        assert!(exchanged.into_inner() > 0, "nothing was exchanged");
        assert_eq!(seen(&private), before, "round {round}");
    }
}
