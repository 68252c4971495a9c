//! `holdfast top`, on a terminal of `script` (util-linux).

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use crate::job::Job;
use crate::world::{Running, World};

/// The size of the terminal.
const ROWS: usize = 40;
const COLUMNS: usize = 150;

/// `holdfast top` on a terminal of its own.
pub struct Top<'a> {
    world: &'a World,
    running: Running<'a>,
    keys: fs::File,
}

impl<'a> Top<'a> {
    /// Watches the job in the prefix directory of the world. `command` is a shell.
    pub fn start(world: &'a World, mut shell: Command) -> Self {
        if Command::new("script").arg("--version").output().is_err() {
            holdfast_testkit::harness::ignore("script (util-linux), which provides a terminal");
        }
        // Another user may write to it.
        fs::set_permissions(world.write("screen", ""), fs::Permissions::from_mode(0o666)).unwrap();
        let program = env!("CARGO_BIN_EXE_holdfast");
        let top =
            format!("stty rows {ROWS} cols {COLUMNS}; exec '{program}' top --prefix '{}'", world.prefix().display());
        let (screen, keys) = (world.path("screen"), world.path("keys"));
        if !keys.exists() {
            assert!(Command::new("mkfifo").args(["-m", "666"]).arg(&keys).status().unwrap().success());
        }
        shell.args(["-c", "exec script -qefc \"$1\" \"$2\" <\"$3\"", "sh", &top]).args([&screen, &keys]);
        shell.env("TERM", "xterm");
        let running = world.start_to(shell, Stdio::null(), Stdio::null());
        Top { world, running, keys: fs::File::options().write(true).open(keys).unwrap() }
    }

    /// What the terminal got so far.
    fn written(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.world.path("screen")).unwrap_or_default()).into_owned()
    }

    /// Waits until a line of the terminal has this text.
    pub fn shows(&self, text: &str) {
        let is_shown = || rows(&self.written()).iter().any(|row| row.contains(text));
        self.world.wait(text, || is_shown().then_some(()));
    }

    pub fn press(&mut self, key: &str) {
        self.keys.write_all(key.as_bytes()).unwrap();
    }

    /// Presses a key, waits for its question, and confirms it.
    fn requests(&mut self, key: &str, question: &str, answer: &str) {
        self.press(key);
        self.shows(question);
        self.press(answer);
    }

    /// Quits. The terminal has its former screen, and what it does with keys, again.
    pub fn quits(mut self) {
        self.press("q");
        let (world, running) = (self.world, self.running);
        running.ends_with(0);
        let screen = String::from_utf8_lossy(&fs::read(world.path("screen")).unwrap()).into_owned();
        let (entered, left) = (screen.find("\u{1b}[?1049h").unwrap(), screen.rfind("\u{1b}[?1049l").unwrap());
        assert!(entered < left && screen[left..].len() < 200, "{screen:?}");
    }
}

/// The lines of the terminal after what was written to it: text, and movements of the cursor.
fn rows(written: &str) -> Vec<String> {
    let mut rows = vec![vec![' '; COLUMNS]; ROWS];
    let (mut row, mut column) = (0, 0);
    // What `script` writes first is not on the screen.
    let mut rest = written.split_once('\n').map_or("", |(_, rest)| rest).chars();
    while let Some(letter) = rest.next() {
        match letter {
            '\u{1b}' => {
                // `[`, numbers, and a letter that ends it.
                let mut sequence = Vec::new();
                while sequence.last().is_none_or(|last: &char| !last.is_ascii_alphabetic()) {
                    match rest.next() {
                        Some('[') => {}
                        Some(next) => sequence.push(next),
                        None => return Vec::new(),
                    }
                }
                let (numbers, kind) = sequence.split_at(sequence.len().saturating_sub(1));
                let numbers: String = numbers.iter().collect();
                match kind {
                    ['H'] => {
                        let place = numbers.split_once(';').unwrap_or(("1", "1"));
                        (row, column) = (place.0.parse::<usize>().unwrap() - 1, place.1.parse::<usize>().unwrap() - 1);
                    }
                    ['J'] => rows = vec![vec![' '; COLUMNS]; ROWS],
                    _ => {}
                }
            }
            '\r' | '\n' => {}
            letter => {
                if let Some(cell) = rows.get_mut(row).and_then(|row| row.get_mut(column)) {
                    *cell = letter;
                }
                column += 1;
            }
        }
    }
    rows.into_iter().map(|row| row.into_iter().collect()).collect()
}

/// A job that asks in each step whether a checkpoint is due, and computes until it is halted.
fn endless(world: &World) -> Running<'_> {
    let mut job = Job::new(world, 1).checkpoint("need: {seconds: 1000000}").heat("--step-delay 5ms").grace("60s");
    job.steps = 1_000_000_000;
    let yaml = job.yaml().replace("\"--checkpoint-every\", \"5\"", "\"--need\"");
    let mut running = world.start_spec(&yaml);
    running.sees_event("restarted");
    running
}

#[test(unchecked)]
fn a_job_is_watched_and_requests_are_sent_after_they_were_confirmed(world: &World) {
    let job = endless(world);
    let mut top = Top::start(world, world.command("sh"));
    top.shows("running, generation 1");
    top.shows("none yet");
    top.shows("1 spare");

    // Another key than the answer changes nothing.
    top.requests("h", "stop the job at its next checkpoint? y/n", "n");
    top.shows("nothing was changed");
    top.requests("c", "save a checkpoint now? y/n", "y");
    world.wait("checkpoint 1", || (world.all("checkpoint_protected").len() == 1).then_some(()));
    top.shows("protected");

    // The last node in the allocation's order is the spare.
    top.press("\u{1b}[F");
    let spare = world.state()["allocation"]["nodes"].as_array().unwrap().last().unwrap().as_str().unwrap().to_owned();
    top.requests("x", &format!("give {spare} no ranks? y/n"), "y");
    top.shows(&format!("{spare} excluded"));
    let excluded = |world: &World| {
        let nodes = world.run(world.holdfast(["nodes", "list", "--json", "--prefix", prefix(world)])).json();
        nodes["nodes"].as_array().unwrap().iter().filter(|node| node["state"] == "excluded").count()
    };
    assert_eq!(excluded(world), 1);
    top.shows(&format!("1 excluded ({spare})"));
    top.requests("i", &format!("use {spare} again? y/n"), "y");
    top.shows(&format!("{spare} included"));
    assert_eq!(excluded(world), 0);

    top.requests("h", "stop the job at its next checkpoint? y/n", "y");
    top.shows("the job stops at its next checkpoint");
    assert!(world.run(world.holdfast(["halt", "list", "--prefix", prefix(world)])).out.contains("USER_REQUEST"));
    // Nothing else makes the program save one.
    top.requests("c", "save a checkpoint now? y/n", "y");
    job.ends_with(75);
    top.shows("ended with exit code 75");
    top.press("c");
    top.shows("the job has ended: nothing can be requested");
    top.quits();
    world.assert_nothing_is_left();
}

fn prefix(world: &World) -> &'static str {
    // Tests end before the process does.
    Box::leak(world.prefix().to_string_lossy().into_owned().into_boxed_str())
}

#[test(unchecked)]
fn colours_are_used_unless_no_color_is_set_and_signals_leave_the_terminal_as_it_was(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let running = job.reaches(4);
    world.wait("protected", || (!world.all("checkpoint_protected").is_empty()).then_some(()));
    for no_color in ["", "1"] {
        let mut shell = world.command("sh");
        shell.env("NO_COLOR", no_color);
        let top = Top::start(world, shell);
        top.shows("4, protected");
        assert_eq!(top.written().contains("\u{1b}[38;5;2m4, protected"), no_color.is_empty(), "{:?}", top.written());
        let pid = world.processes().into_iter().find(|(_, line)| line.contains("holdfast top")).unwrap().0;
        crate::world::signal(pid, rustix::process::Signal::TERM);
        top.running.ends_with(0);
        let screen = String::from_utf8_lossy(&fs::read(world.path("screen")).unwrap()).into_owned();
        assert!(screen.contains("\u{1b}[?1049l"), "{screen:?}");
    }
    job.goes_on_to_its_end(running);
}

#[test(unchecked)]
fn lines_of_the_internal_log_are_written_after_the_screen(world: &World) {
    Job::new(world, 0).run(0);
    let mut shell = world.command("sh");
    shell.env("HOLDFAST_LOG", "wrong,info");
    let mut top = Top::start(world, shell);
    top.shows("finished");
    top.press("q");
    top.running.ends_with(0);
    let screen = String::from_utf8_lossy(&fs::read(world.path("screen")).unwrap()).into_owned();
    let (left, line) = (screen.rfind("\u{1b}[?1049l").unwrap(), screen.find("HOLDFAST_LOG has no effect").unwrap());
    assert!(left < line, "{screen:?}");
    world.assert_nothing_is_left();
}

#[test(unchecked)]
fn without_a_terminal_or_a_job_the_remedy_is_named(world: &World) {
    let ran = world.run(world.holdfast(["top", "--prefix", prefix(world)])).with_code(64);
    ran.prints(&["needs a terminal", "`holdfast status --watch`"]);
    let ran = world.run(world.holdfast(["top", "--json", "--prefix", prefix(world)])).with_code(64);
    ran.prints(&["`holdfast status --json`"]);
}
