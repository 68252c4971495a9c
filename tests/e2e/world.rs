//! The directory of a test: programs run in it with a clean environment and its own temporary directory, so that all
//! files and processes that a job leaves are found; at the end of the test all of them are ended.

use std::borrow::BorrowMut;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use holdfast::events::reader::Reader;
use holdfast::job::state::JobState;
use holdfast_testkit::documents;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// Time limit of every wait. A job of these tests takes a second or two on an idle machine.
const DEADLINE: Duration = Duration::from_secs(120);
/// The polling interval of waits.
const LOOK: Duration = Duration::from_millis(5);
/// The user of all jobs here.
pub const USER: &str = "u";

/// The user and group id of another user: `nobody`.
pub const OTHER_USER: u32 = 65534;

/// A test's own directory. At its end it checks that the test has left no process and no temporary file.
pub struct World {
    home: TempDir,
    /// Whether its end checks that nothing is left.
    checked: bool,
    /// Programs that were started, in order, for the report of a failed test.
    started: RefCell<Vec<String>>,
}

/// A program that runs.
pub struct Running<'a> {
    world: &'a World,
    child: Child,
    number: usize,
    words: Vec<String>,
}

/// A program that ended.
#[derive(Debug)]
pub struct Ran {
    /// The arguments of Holdfast.
    words: Vec<String>,
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

/// True for the event since which a checkpoint has the protection of its scheme.
pub fn is_secured(event: &Value) -> bool {
    match event["event"].as_str() {
        Some("checkpoint_complete") => event["protected"] == false,
        Some("checkpoint_protected") => true,
        _ => false,
    }
}

impl World {
    /// A short path, because it contains sockets; in memory if possible, because a hundred concurrent jobs that
    /// synchronise every file would wait mostly for the disk.
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let home = tempfile::Builder::new().prefix("hf").tempdir_in(base).unwrap();
        fs::create_dir(home.path().join("tmp")).unwrap();
        World { home, checked: true, started: RefCell::default() }
    }

    /// Without the check at its end.
    pub fn unchecked() -> Self {
        let mut world = Self::new();
        world.checked = false;
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The temporary directory of jobs.
    pub fn temporary(&self) -> PathBuf {
        self.path("tmp")
    }

    /// The prefix directory of this test's job.
    pub fn prefix(&self) -> PathBuf {
        self.path("pfs")
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// A program in this world.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("USER", USER)
            .env("HOME", self.home.path())
            .env("TMPDIR", self.temporary())
            .env("TZ", "UTC")
            .current_dir(self.home.path());
        command
    }

    /// Lets other users enter this world: only then can they read what is readable in it.
    pub fn open_to_others(&self) {
        fs::set_permissions(self.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A program as another user, who is a member of this group and of no other one. Needs root.
    pub fn as_other_user(&self, group: u32, program: &str) -> Command {
        let mut command = self.command("setpriv");
        command.arg(format!("--reuid={OTHER_USER}")).arg(format!("--regid={group}")).args(["--clear-groups", program]);
        command
    }

    /// Holdfast as another user.
    pub fn holdfast_as<S: AsRef<OsStr>>(&self, group: u32, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.as_other_user(group, env!("CARGO_BIN_EXE_holdfast"));
        command.args(arguments);
        command
    }

    /// Holdfast with these arguments, in this world.
    pub fn holdfast<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_holdfast"));
        command.args(arguments);
        command
    }

    /// Starts a program whose output is kept.
    pub fn start(&self, command: impl BorrowMut<Command>) -> Running<'_> {
        let number = self.started.borrow().len();
        let file = |kind: &str| File::create(self.path(&format!("{kind}.{number}"))).unwrap();
        self.start_to(command, file("out"), file("err"))
    }

    /// Starts a program with this standard output and standard error.
    pub fn start_to(
        &self,
        mut command: impl BorrowMut<Command>,
        out: impl Into<Stdio>,
        err: impl Into<Stdio>,
    ) -> Running<'_> {
        let command = command.borrow_mut();
        let mut started = self.started.borrow_mut();
        let number = started.len();
        started.push(format!("{command:?}"));
        let words = documents::words_of(command);
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap();
        Running { world: self, child, number, words }
    }

    /// Runs a program to its end.
    pub fn run(&self, command: impl BorrowMut<Command>) -> Ran {
        self.start(command).end()
    }

    /// Starts the job of this spec.
    pub fn start_spec(&self, spec: &str) -> Running<'_> {
        self.start(self.holdfast(["run".as_ref(), self.write("job.yaml", spec).as_os_str()]))
    }

    /// Runs the job of this spec to its end.
    pub fn run_spec(&self, spec: &str) -> Ran {
        self.start_spec(spec).end()
    }

    /// The event log so far, without a last line that is still being written.
    pub fn events(&self) -> Vec<Value> {
        self.events_of(&self.prefix())
    }

    /// The event log of another prefix directory.
    pub fn events_of(&self, prefix: &Path) -> Vec<Value> {
        let own = prefix.join(".holdfast");
        // Holdfast can read each line.
        if let Some(reader) = Reader::open(&own).unwrap() {
            reader.for_each(|record| drop(record.unwrap()));
        }
        let text = fs::read_to_string(own.join("events.jsonl")).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        whole.lines().map(parse).collect()
    }

    /// Events of a kind.
    pub fn all(&self, name: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["event"] == name).collect()
    }

    /// The only event of a kind.
    #[track_caller]
    pub fn the(&self, name: &str) -> Value {
        let mut all = self.all(name);
        assert_eq!(all.len(), 1, "expected one event {name}, found {all:#?}");
        all.remove(0)
    }

    /// Checks that no agent was lost, no node went down, and there was one launch.
    #[track_caller]
    pub fn assert_nothing_lost(&self) {
        for name in ["agent_lost", "node_down"] {
            assert_eq!(self.all(name), [] as [Value; 0]);
        }
        assert_eq!(self.all("generation_launched").len(), 1);
    }

    /// Checks the checkpoint of the last restart, and where it was read from.
    #[track_caller]
    pub fn assert_restarted(&self, checkpoint: u64, source: &str) {
        let last = self.all("restarted").pop().unwrap();
        assert_eq!((&last["checkpoint"], &last["source"]), (&json!(checkpoint), &json!(source)), "{last}");
    }

    /// Waits until the condition holds.
    #[track_caller]
    pub fn wait<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(begun.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}");
            std::thread::sleep(LOOK);
        }
    }

    /// Processes of this world with their command lines: agents, supervisors, ranks, and their children.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let own = self.home.path().to_string_lossy().into_owned();
        let belongs = |directory: &Path| {
            ["environ", "cmdline"].into_iter().any(|file| {
                let text = fs::read(directory.join(file)).unwrap_or_default();
                String::from_utf8_lossy(&text).contains(&own)
            })
        };
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if belongs(&entry.path()) {
                let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
            }
        }
        found
    }

    /// Checks that no process runs and no temporary file is left, but the nodes that the state names as kept.
    #[track_caller]
    pub fn assert_nothing_is_left(&self) {
        assert_eq!(self.processes(), [], "processes are left");
        let kept = self.kept_workspace();
        let left = fs::read_dir(self.temporary()).unwrap().flatten().map(|entry| entry.path());
        let left: Vec<_> = left.filter(|path| Some(path) != kept.as_ref()).collect();
        assert!(left.is_empty(), "temporary files are left: {left:?}");
    }

    /// The directory of the virtual nodes that stay for another run, if there is one.
    pub fn kept_workspace(&self) -> Option<PathBuf> {
        let state = JobState::read(&self.prefix()).ok().flatten()?;
        let state = serde_json::to_value(&state).unwrap();
        let kept = state["stage"]["stage"] == "kept";
        kept.then(|| state["allocation"]["details"]["workspace"].as_str().unwrap().into())
    }

    /// Kills processes of this world that `chosen` picks by their command lines.
    pub fn kill(&self, chosen: impl Fn(&str) -> bool) -> usize {
        let chosen: Vec<_> = self.processes().into_iter().filter(|(_, line)| chosen(line)).collect();
        chosen.iter().for_each(|(pid, _)| signal(*pid, Signal::KILL));
        chosen.len()
    }

    /// The content of `.holdfast/job.json` and its journal.
    pub fn state(&self) -> Value {
        state_of(&self.prefix())
    }

    /// Waits until the state on disk has this checkpoint, and what followed from the last restart: an orchestrator that
    /// takes over or drains then begins with that.
    pub fn sees_recorded(&self, checkpoint: u64) {
        self.wait("the state on disk", || {
            let state = self.state();
            let superseding = &state["snapshot"]["head"]["superseding"];
            let is_over = superseding.as_object().is_none_or(Map::is_empty);
            (is_over && state["explanation"]["newest"].as_u64() >= Some(checkpoint)).then_some(())
        });
    }

    /// The content of `.holdfast/job.secret`: key and token of the running job.
    pub fn secret(&self) -> Value {
        serde_json::from_slice(&fs::read(self.prefix().join(".holdfast/job.secret")).unwrap()).unwrap()
    }

    /// The process of a node's agent.
    pub fn agent_pid(&self, node: &str) -> u32 {
        self.state()["running"][node]["pid"].as_u64().unwrap_or_else(|| panic!("no agent of {node}")) as u32
    }

    /// The root directory of a virtual node.
    pub fn node_root(&self, node: &str) -> PathBuf {
        Path::new(self.state()["allocation"]["details"]["roots"].as_str().unwrap()).join(node)
    }

    /// A virtual node is lost, with its ranks and files.
    pub fn lose_node(&self, node: &str) {
        let (root, agent) = (self.node_root(node), self.agent_pid(node));
        // The directory first: an agent that was started again before would make another one.
        fs::rename(&root, self.path("lost")).unwrap();
        signal(agent, Signal::KILL);
        self.kill(|line| line.contains(&*root.to_string_lossy()));
    }

    /// Removes all files of virtual nodes that are up.
    pub fn empty_nodes(&self, nodes: &[&str]) {
        for directory in nodes.iter().flat_map(|node| fs::read_dir(self.node_root(node)).unwrap().flatten()) {
            fs::remove_dir_all(directory.path()).unwrap();
        }
    }

    fn story(&self) -> String {
        let mut story = String::new();
        let mut print_section = |title: String, path: &Path| {
            if let Ok(text) = fs::read_to_string(path)
                && !text.is_empty()
            {
                story.push_str(&format!("---- {title}\n{text}"));
            }
        };
        for (number, command) in self.started.borrow().iter().enumerate() {
            print_section(format!("{command}: output"), &self.path(&format!("out.{number}")));
            print_section(format!("{command}: errors"), &self.path(&format!("err.{number}")));
        }
        let own = self.prefix().join(".holdfast");
        print_section("events".to_owned(), &own.join("events.jsonl"));
        for file in fs::read_dir(own.join("agents")).into_iter().flatten().flatten() {
            print_section(format!("agent {}", file.file_name().display()), &file.path());
        }
        for generation in fs::read_dir(own.join("generations")).into_iter().flatten().flatten() {
            for file in fs::read_dir(generation.path()).into_iter().flatten().flatten() {
                let name = file.file_name().to_string_lossy().into_owned();
                if [".out", ".err", ".log"].iter().any(|end| name.ends_with(end)) {
                    print_section(format!("generation {}: {name}", generation.file_name().display()), &file.path());
                }
            }
        }
        for (pid, line) in self.processes() {
            story.push_str(&format!("---- still runs: {pid} {line}\n"));
        }
        story
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        let check = || {
            if self.checked && !failed {
                self.assert_nothing_is_left()
            }
        };
        let checked = catch_unwind(AssertUnwindSafe(check));
        if failed || checked.is_err() {
            eprintln!("{}", self.story());
        }
        // Again, because a process may have started another in the meantime.
        let begun = Instant::now();
        while self.kill(|_| true) > 0 && begun.elapsed() < DEADLINE {
            std::thread::sleep(LOOK);
        }
        if let Err(panic) = checked {
            resume_unwind(panic);
        }
    }
}

impl Running<'_> {
    /// Waits for an event.
    #[track_caller]
    pub fn sees(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            // In this order, so that the last event before the end is not missed.
            let ended = self.child.try_wait().unwrap();
            if let Some(found) = self.world.events().into_iter().find(|event| wanted(event)) {
                return found;
            }
            assert!(ended.is_none(), "ended ({}) before {what}", ended.unwrap());
            assert!(begun.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}");
            std::thread::sleep(LOOK);
        }
    }

    /// Waits for the first event of this name.
    #[track_caller]
    pub fn sees_event(&mut self, name: &str) -> Value {
        self.sees(name, |event| event["event"] == name)
    }

    /// Waits for the first event of this name that has this value in a field.
    #[track_caller]
    pub fn sees_where(&mut self, name: &str, field: &str, value: impl Into<Value>) -> Value {
        let value = value.into();
        let wanted = |event: &Value| event["event"] == name && event[field] == value;
        self.sees(&format!("{name} with {field}: {value}"), wanted)
    }

    /// Waits until the agent of a node has been started again.
    #[track_caller]
    pub fn sees_agent_again(&mut self, node: &str) {
        let is_back =
            |event: &Value| event["event"] == "agent_ready" && event["node"] == node && event["again"] == true;
        self.sees("the agent that was started again", is_back);
    }

    /// Waits until a checkpoint is complete, and protected if its scheme protects it.
    #[track_caller]
    pub fn sees_checkpoint(&mut self, id: u64) {
        let secured = |event: &Value| event["checkpoint"] == id && is_secured(event);
        self.sees(&format!("checkpoint {id}"), secured);
    }

    /// Waits for the first checkpoint; returns its event.
    #[track_caller]
    pub fn sees_first_checkpoint(&mut self) -> Value {
        self.sees("a checkpoint", is_secured)
    }

    pub fn signal(&self, signal_: Signal) {
        signal(self.child.id(), signal_);
    }

    /// True until it has ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(mut self) -> Ran {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < DEADLINE, "it does not end");
            std::thread::sleep(LOOK);
        };
        // None if the output was redirected.
        let read =
            |kind: &str| fs::read_to_string(self.world.path(&format!("{kind}.{}", self.number))).unwrap_or_default();
        Ran { words: self.words, status, out: read("out"), err: read("err") }
    }

    /// Waits for its end with this exit code.
    #[track_caller]
    pub fn ends_with(self, code: u8) -> Ran {
        self.end().with_code(code)
    }

    /// Ends it with SIGTERM: the job is not finished.
    #[track_caller]
    pub fn terminated(self) -> Ran {
        self.signal(Signal::TERM);
        self.ends_with(75)
    }

    /// Kills it, and waits for its end.
    #[track_caller]
    pub fn killed(self) {
        self.signal(Signal::KILL);
        self.end();
    }
}

impl Ran {
    #[track_caller]
    pub fn with_code(self, code: u8) -> Self {
        assert_eq!(self.status.code(), Some(code.into()), "{} {}", self.out, self.err);
        self
    }

    /// The one document on standard output, which is as the schema of the command describes it.
    #[track_caller]
    pub fn json(&self) -> Value {
        documents::document(Path::new(env!("CARGO_BIN_EXE_holdfast")), &self.words, &self.out)
    }

    /// Standard output and standard error together contain all of these.
    #[track_caller]
    pub fn prints(&self, parts: &[&str]) {
        let both = format!("{}{}", self.out, self.err);
        for part in parts {
            assert!(both.contains(part), "{part:?} is not in:\n{both}");
        }
    }
}

/// Sends a signal to a process if it exists.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// The state of the job of a prefix directory, with its journal applied.
pub fn state_of(prefix: &Path) -> Value {
    let state = JobState::read(prefix).unwrap().unwrap();
    let mut value = serde_json::to_value(&state).unwrap();
    value["explanation"] = serde_json::to_value(state.explain()).unwrap();
    value
}
