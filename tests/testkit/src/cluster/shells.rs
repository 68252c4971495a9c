//! Shells in the containers that stay: to start a process in a container through the engine takes a tenth of a second
//! and several processes, more than most commands.

use std::collections::BTreeMap;
use std::io::{self, Read, Write as _};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Reads a mark, a directory, a command and its input, each of which ends with a zero byte, and runs the command in a
/// shell of its own. Prints the mark behind its output, on standard output with the exit code.
const LOOP: &str = r#"while IFS= read -r -d "" mark && IFS= read -r -d "" directory &&
    IFS= read -r -d "" command && IFS= read -r -d "" input; do
    printf %s "$input" | (cd "$directory" && exec bash -c "$command")
    printf "%s %d\0" "$mark" "$?"
    printf "%s 0\0" "$mark" >&2
done"#;
/// What separates output from exit code.
const MARK: &str = "\u{1}end of the command\u{1}";
/// The exit code of a command whose container was killed.
const KILLED: i32 = 137;

/// The shells that run no command, by container and user.
#[derive(Debug, Default)]
pub struct Shells {
    idle: Mutex<BTreeMap<(String, String), Vec<Shell>>>,
}

#[derive(Debug)]
struct Shell {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    errors: ChildStderr,
}

/// What a command printed, standard error behind standard output, and its exit code; `None` if its shell ended.
type Answer = (String, Option<i32>);

impl Shells {
    fn idle(&self) -> MutexGuard<'_, BTreeMap<(String, String), Vec<Shell>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a command as a user of a container.
    pub fn run(&self, container: &str, user: &str, directory: &str, command: &str, input: &str) -> (String, i32) {
        let key = (container.to_owned(), user.to_owned());
        let words = [MARK, directory, command, input];
        let kept = self.idle().get_mut(&key).and_then(Vec::pop);
        if let Some(mut shell) = kept {
            match shell.run(words) {
                (text, Some(code)) => {
                    self.idle().entry(key).or_default().push(shell);
                    return (text, code);
                }
                // It ended with its container before it read the command.
                (text, None) if text.is_empty() => {}
                (text, None) => return (text, KILLED),
            }
        }
        let mut shell = Shell::start(container, user);
        let (text, code) = shell.run(words);
        if code.is_some() {
            self.idle().entry(key).or_default().push(shell);
        }
        (text, code.unwrap_or(KILLED))
    }

    /// Ends the shells of a container whose state changes.
    pub fn end(&self, container: &str) {
        self.idle().retain(|(of, _), _| of != container);
    }
}

impl Shell {
    fn start(container: &str, user: &str) -> Self {
        let mut child = Command::new("docker")
            .args(["exec", "-i", "--user", user, container, "bash", "-c", LOOP])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Shell { child, input: input.unwrap(), output: output.unwrap(), errors: errors.unwrap() }
    }

    fn run(&mut self, words: [&str; 4]) -> Answer {
        let request: String = words.iter().flat_map(|word| [word, "\0"]).collect();
        let Shell { input, output, errors, .. } = self;
        thread::scope(|scope| {
            // Both are read while the command is written: none of them may wait for another.
            let output = scope.spawn(move || read(output));
            let errors = scope.spawn(move || read(errors));
            let written = input.write_all(request.as_bytes()).and_then(|()| input.flush());
            let (mut text, code) = output.join().unwrap();
            text.push_str(&errors.join().unwrap().0);
            (text, code.filter(|_| written.is_ok()))
        })
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads to the mark, and the exit code behind it; to the end if there is none.
fn read(from: &mut impl Read) -> Answer {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    let begin = loop {
        match from.read(&mut piece) {
            Ok(0) => break None,
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break None,
        }
        if bytes.ends_with(b"\0")
            && let Some(at) = bytes.windows(MARK.len()).rposition(|window| window == MARK.as_bytes())
        {
            break Some(at);
        }
    };
    let code = begin.and_then(|at| {
        let code = String::from_utf8_lossy(&bytes[at + MARK.len()..]).trim_matches(['\0', ' ']).parse().ok();
        bytes.truncate(at);
        code
    });
    (String::from_utf8_lossy(&bytes).into_owned(), code)
}
