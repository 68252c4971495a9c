//! How much of the ranks' output has been written, so that what is missing at the end can be reported.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::launch::output;

/// The output of a generation. Bytes are those of its files, with line ends and without labels.
#[derive(Debug, Default)]
pub(super) struct OutputAccount {
    directory: PathBuf,
    /// Handed over to be written.
    handed_over: AtomicU64,
    written: AtomicU64,
    /// Not to be shown: messages of launchers, and output that an earlier orchestrator has shown.
    hidden: AtomicU64,
    /// All of it was handed over.
    complete: AtomicBool,
}

/// The accounts of all generations.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    all: Mutex<Vec<Arc<OutputAccount>>>,
}

/// Output of ranks that is only in their files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputNotShown {
    pub bytes: u64,
    /// There is more, because files cannot be read.
    pub more: bool,
    /// The directories of the files.
    pub directories: Vec<PathBuf>,
}

impl OutputAccount {
    pub(super) fn hand_over(&self, bytes: u64) {
        self.handed_over.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn hide(&self, bytes: u64) {
        self.hidden.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn complete(&self) {
        self.complete.store(true, Ordering::Relaxed);
    }

    /// The bytes that are not written, and whether there are more. Reads the file system if not everything was handed
    /// over.
    fn missing(&self) -> (u64, bool) {
        let [handed_over, written, hidden] =
            [&self.handed_over, &self.written, &self.hidden].map(|count| count.load(Ordering::Relaxed));
        let (total, more) = match self.complete.load(Ordering::Relaxed) {
            true => (handed_over, false),
            false => match output::bytes_in(&self.directory) {
                Ok(bytes) => (bytes.saturating_sub(hidden), false),
                Err(_) => (handed_over, true),
            },
        };
        (total.saturating_sub(written), more)
    }

    fn is_written(&self) -> bool {
        let [handed_over, written] = [&self.handed_over, &self.written].map(|count| count.load(Ordering::Relaxed));
        self.complete.load(Ordering::Relaxed) && written >= handed_over
    }
}

impl Accounts {
    pub(super) fn open(&self, directory: &Path) -> Arc<OutputAccount> {
        let account = Arc::new(OutputAccount { directory: directory.to_owned(), ..OutputAccount::default() });
        self.all.lock().push(Arc::clone(&account));
        account
    }

    /// What is missing without a look at the files; `None` if everything is written.
    pub(super) fn known_missing(&self) -> Option<OutputNotShown> {
        self.sum(|account| {
            let [handed_over, written] =
                [&account.handed_over, &account.written].map(|count| count.load(Ordering::Relaxed));
            (handed_over.saturating_sub(written), !account.complete.load(Ordering::Relaxed))
        })
    }

    /// What is missing. Reads the file system.
    pub(super) fn missing(&self) -> Option<OutputNotShown> {
        self.sum(OutputAccount::missing)
    }

    fn sum(&self, missing: impl Fn(&OutputAccount) -> (u64, bool)) -> Option<OutputNotShown> {
        let open: Vec<_> = self.all.lock().iter().filter(|account| !account.is_written()).cloned().collect();
        let mut sum = OutputNotShown::default();
        for account in open {
            let (bytes, more) = missing(&account);
            if bytes > 0 || more {
                sum.bytes += bytes;
                sum.more |= more;
                sum.directories.push(account.directory.clone());
            }
        }
        (!sum.directories.is_empty()).then_some(sum)
    }
}

impl OutputNotShown {
    pub fn sentence(&self) -> String {
        let directories: Vec<String> = self.directories.iter().map(|place| place.display().to_string()).collect();
        let OutputNotShown { bytes, more, .. } = self;
        let least = if *more { "at least " } else { "" };
        format!("{least}{bytes} bytes of the ranks' output are not shown; all of it is in {}", directories.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_is_only_in_the_files() {
        let base = tempfile::tempdir().unwrap();
        let accounts = Accounts::default();
        let account = accounts.open(base.path());
        std::fs::write(base.path().join("rank_0.out"), [b'x'; 100]).unwrap();
        std::fs::write(base.path().join("rank_0.err"), [b'x'; 10]).unwrap();
        std::fs::write(base.path().join("step.log"), [b'x'; 1000]).unwrap();
        account.hide(20);
        account.hand_over(50);
        account.written(30);
        let missing = accounts.missing().unwrap();
        assert_eq!((missing.bytes, missing.more), (60, false));
        let known = accounts.known_missing().unwrap();
        assert_eq!((known.bytes, known.more), (20, true));
        assert!(known.sentence().starts_with("at least 20 bytes"), "{}", known.sentence());
        account.hand_over(40);
        account.complete();
        assert_eq!(accounts.missing().unwrap().bytes, 60);
        account.written(60);
        assert_eq!(accounts.missing(), None);
        assert_eq!(accounts.known_missing(), None);
    }
}
