//! An agent process in a directory of its own, and what it uses: memory, descriptors, threads, files.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_wire::agent::{POLL, PollReply, PollRequest};
use holdfast_wire::run::{AgentReady, TrustMaterial};
use holdfast_wire::trust;
use tempfile::TempDir;

use crate::client;
use crate::examples;

/// What takes longer than this hangs.
const DEADLINE: Duration = Duration::from_secs(120);

pub struct AgentProcess {
    process: Child,
    pub address: SocketAddr,
    pub trust: TrustMaterial,
    home: TempDir,
}

impl AgentProcess {
    pub fn start() -> AgentProcess {
        let home = tempfile::Builder::new().prefix("hostile").tempdir().unwrap();
        for directory in ["root", "prefix/.holdfast", "outside/work"] {
            fs::create_dir_all(home.path().join(directory)).unwrap();
        }
        fs::write(home.path().join("outside/precious"), "must stay as it is").unwrap();
        let trust = trust::generate().unwrap();
        let start = examples::start(&home.path().join("root"), &home.path().join("prefix"), trust.clone());
        let mut process = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .arg("agent")
            // Relative paths must not lead anywhere.
            .current_dir(home.path().join("outside/work"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(home.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        writeln!(process.stdin.take().unwrap(), "{}", serde_json::to_string(&start).unwrap()).unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: AgentReady = serde_json::from_str(&line).unwrap();
        AgentProcess { process, address: ready.address, trust, home }
    }

    pub fn prefix(&self) -> PathBuf {
        self.home.path().join("prefix")
    }

    pub fn outside(&self) -> PathBuf {
        self.home.path().join("outside")
    }

    /// The job's directory on the node: control and cache directory.
    pub fn own(&self) -> PathBuf {
        self.home.path().join("root/tmp/u").join(format!("scr.{}", examples::JOB))
    }

    pub fn socket(&self) -> PathBuf {
        self.own().join("agent.sock")
    }

    /// The answer to a poll; the agent lives.
    #[track_caller]
    pub fn poll(&self) -> PollReply {
        let body = serde_json::to_vec(&PollRequest::HEALTH_ONLY).unwrap();
        let (status, body) = client::request(self, Some(&self.trust), "POST", POLL, &body).unwrap();
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.process.id()))
    }

    fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_matches(|other: char| !other.is_ascii_digit()).parse().unwrap()
    }

    /// Resident memory at present, bytes.
    pub fn memory(&self) -> u64 {
        self.status("VmRSS:") * 1024
    }

    /// The most resident memory since the start, or since the last [`AgentProcess::forget_peak`], bytes.
    pub fn peak_memory(&self) -> u64 {
        self.status("VmHWM:") * 1024
    }

    pub fn forget_peak(&self) {
        fs::write(self.proc("clear_refs"), "5").unwrap();
    }

    pub fn descriptors(&self) -> usize {
        fs::read_dir(self.proc("fd")).unwrap().count()
    }

    pub fn threads(&self) -> u64 {
        self.status("Threads:")
    }

    /// Waits until something holds.
    #[track_caller]
    pub fn wait<T>(&self, what: &str, mut check: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = check() {
                return found;
            }
            assert!(begun.elapsed() < DEADLINE, "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Everything that is not the agent's: all files of this test but those in the job's own directory and below the
    /// prefix directory, with what identifies their content.
    pub fn foreign_files(&self) -> BTreeMap<PathBuf, (u64, u64, i64, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let own = [self.own(), self.prefix(), self.home.path().join("log")];
        let mut directories = vec![self.home.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).unwrap().flatten() {
                let path = entry.path();
                if own.contains(&path) {
                    continue;
                }
                let metadata = path.symlink_metadata().unwrap();
                if metadata.is_dir() {
                    found.insert(path.clone(), (metadata.ino(), u64::from(metadata.mode()), 0, Vec::new()));
                    directories.push(path);
                } else {
                    let content = fs::read(&path).unwrap_or_default();
                    found.insert(path, (metadata.ino(), u64::from(metadata.mode()), metadata.mtime_nsec(), content));
                }
            }
        }
        found
    }

    /// The end of its log, for failures.
    pub fn log(&self) -> String {
        let log = fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// A panic in a task of the agent does not end it, and shows in its log only.
    #[track_caller]
    pub fn assert_no_panic(&self, round: &str) {
        let log = fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
        if let Some(at) = log.find("panicked at") {
            panic!("{round}: the agent {}", &log[at..(at + 600).min(log.len())]);
        }
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- the agent's log\n{}", self.log());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A directory below the prefix directory as orders name it.
pub fn checkpoint_directory(prefix: &Path) -> PathBuf {
    prefix.join("scr.3")
}
