//! The ranks of this node: each a process in a group of its own, its output handed on, its end told.
//!
//! When nobody listens any more, the ranks are killed: the run is over for whoever started it. (The node's agent would find
//! them too, by what stands in their environment.)

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdfast_model::Rank;
use rustix::process::{Pid, Signal, kill_process_group};

use super::{NodeCommand, NodeError, NodeRanks, RanksNews, message, when_nobody_listens};
use holdfast_model::RankEnd;

/// Handed on at once at most.
const PIECE_BYTES: usize = 32 << 10;
/// What a rank has started and that still holds its output is waited for so long after the rank's own end.
const LEFT_OVER: Duration = Duration::from_millis(500);
/// While ranks run, it is looked this often whether one has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Where everything is told: one message at a time.
type Out<W> = Arc<Mutex<W>>;

/// The process groups of ranks that have not been waited for: their numbers cannot belong to anybody else.
type Groups = Arc<Mutex<BTreeMap<Rank, Pid>>>;

/// Runs the ranks to their end.
///
/// # Errors
/// [`NodeError`].
pub fn run(input: &mut impl BufRead, output: impl Write + Send + 'static) -> Result<(), NodeError> {
    let NodeRanks { command, ranks } = message(input)?;
    let (out, groups) = (Arc::new(Mutex::new(output)), Groups::default());
    let listening = Arc::clone(&groups);
    when_nobody_listens(move || {
        kill_all(&listening);
        // Nobody would read what is still told.
        std::process::exit(0);
    })?;
    run_all(&command, ranks, &out, &groups).map_err(NodeError::io("tell of", "the ranks"))
}

fn run_all<W: Write + Send + 'static>(
    command: &NodeCommand,
    ranks: BTreeMap<Rank, BTreeMap<String, String>>,
    out: &Out<W>,
    groups: &Groups,
) -> io::Result<()> {
    tell(out, &RanksNews::Up, &[])?;
    let mut running = BTreeMap::new();
    for (rank, variables) in ranks {
        match start(command, &variables) {
            Ok(mut child) => {
                if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    lock(groups).insert(rank, group);
                }
                let readers = [
                    child.stdout.take().map(|stream| hand_on(stream, rank, false, out)),
                    child.stderr.take().map(|stream| hand_on(stream, rank, true, out)),
                ];
                running.insert(rank, (child, readers));
            }
            Err(error) => {
                kill_all(groups);
                let reason = format!("cannot start {}: {error}", command.words.first().map_or("", String::as_str));
                tell(out, &RanksNews::Refused { rank, reason }, &[])?;
                break;
            }
        }
    }
    while !running.is_empty() {
        let mut ended = Vec::new();
        for (rank, (child, _)) in &mut running {
            // Taking it off the system's table and out of ours is one step for whoever kills.
            let mut groups = lock(groups);
            if let Some(status) = child.try_wait()? {
                groups.remove(rank);
                ended.push((*rank, end_of(status)));
            }
        }
        for (rank, end) in &ended {
            if let Some((_, readers)) = running.remove(rank) {
                wait_for(readers.into_iter().flatten().collect());
            }
            tell(out, &RanksNews::Exited { rank: *rank, end: *end }, &[])?;
        }
        if ended.is_empty() {
            std::thread::sleep(LOOK_EVERY);
        }
    }
    tell(out, &RanksNews::Done, &[])
}

fn start(command: &NodeCommand, variables: &BTreeMap<String, String>) -> io::Result<Child> {
    let (program, arguments) = command.words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    Command::new(program)
        .args(arguments)
        .current_dir(&command.directory)
        .envs(&command.environment)
        .envs(variables)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
}

/// Hands on what a rank writes, on a thread of its own.
fn hand_on<W: Write + Send + 'static>(
    mut stream: impl Read + Send + 'static,
    rank: Rank,
    errors: bool,
    out: &Out<W>,
) -> JoinHandle<()> {
    let out = Arc::clone(out);
    std::thread::spawn(move || {
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(bytes) => {
                    if tell(&out, &RanksNews::Output { rank, errors, bytes }, &buffer[..bytes]).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    })
}

/// What a rank printed comes before its end; but a process that it left behind may hold its output for ever.
fn wait_for(readers: Vec<JoinHandle<()>>) {
    let begun = Instant::now();
    while readers.iter().any(|reader| !reader.is_finished()) && begun.elapsed() < LEFT_OVER {
        std::thread::sleep(LOOK_EVERY / 5);
    }
}

fn tell<W: Write>(out: &Out<W>, news: &RanksNews, bytes: &[u8]) -> io::Result<()> {
    let mut message = serde_json::to_vec(news)?;
    message.push(b'\n');
    message.extend_from_slice(bytes);
    let mut out = lock(out);
    out.write_all(&message)?;
    out.flush()
}

fn kill_all(groups: &Groups) {
    for group in lock(groups).values() {
        let _ = kill_process_group(*group, Signal::KILL);
    }
}

fn end_of(status: ExitStatus) -> RankEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => RankEnd::Code(code),
        (None, Some(signal)) => RankEnd::Signal(signal),
        (None, None) => RankEnd::Unknown,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::on_node::line;

    /// Every message of ranks that run this script, with the bytes that follow each.
    fn told(script: &str, ranks: u32) -> Vec<(RanksNews, Vec<u8>)> {
        let command = NodeCommand {
            words: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            directory: "/".into(),
            environment: BTreeMap::from([("JOB".to_owned(), "17".to_owned())]),
        };
        let variables = |rank: u32| BTreeMap::from([("RANK".to_owned(), rank.to_string())]);
        let ranks = (0..ranks).map(|rank| (Rank(rank), variables(rank))).collect();
        let out = Arc::new(Mutex::new(Vec::new()));
        run_all(&command, ranks, &out, &Groups::default()).unwrap();
        let bytes = lock(&out).clone();
        let mut rest = &bytes[..];
        let mut news = Vec::new();
        while !rest.is_empty() {
            let told: RanksNews = serde_json::from_slice(&line(&mut rest).unwrap()).unwrap();
            let mut follow = Vec::new();
            if let RanksNews::Output { bytes, .. } = told {
                follow = rest[..bytes].to_vec();
                rest = &rest[bytes..];
            }
            news.push((told, follow));
        }
        news
    }

    #[test]
    fn each_rank_s_output_is_handed_on_before_its_end_is_told() {
        let news = told("echo rank $RANK of $JOB; echo oops >&2; exit $RANK", 2);
        for rank in [0, 1] {
            let of = |wanted: bool| {
                let is_of = |news: &&(RanksNews, Vec<u8>)| matches!(&news.0, RanksNews::Output { rank: of, errors, .. } if of.0 == rank && *errors == wanted);
                news.iter().filter(is_of).flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<u8>>()
            };
            assert_eq!(of(false), format!("rank {rank} of 17\n").into_bytes());
            assert_eq!(of(true), b"oops\n");
            let end = RanksNews::Exited { rank: Rank(rank), end: RankEnd::Code(rank as i32) };
            let at = news.iter().position(|(news, _)| *news == end).unwrap();
            let last =
                news.iter().rposition(|(news, _)| matches!(news, RanksNews::Output { rank: of, .. } if of.0 == rank));
            assert!(last.unwrap() < at);
        }
        assert_eq!(news.last().unwrap().0, RanksNews::Done);
    }

    #[test]
    fn a_signal_is_told_as_one_and_what_a_rank_leaves_behind_keeps_nobody_waiting() {
        let mut news = told("sleep 600 & echo $!; kill -KILL $$", 1);
        assert_eq!(news.remove(0).0, RanksNews::Up);
        let child: i32 = String::from_utf8(news[0].1.clone()).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
        assert_eq!(news[1].0, RanksNews::Exited { rank: Rank(0), end: RankEnd::Signal(9) });
    }

    #[test]
    fn a_program_that_is_not_there_is_refused_once() {
        let command =
            NodeCommand { words: vec!["/no/such".to_owned()], directory: "/".into(), environment: BTreeMap::new() };
        let ranks = (0..3).map(|rank| (Rank(rank), BTreeMap::new())).collect();
        let out = Arc::new(Mutex::new(Vec::new()));
        run_all(&command, ranks, &out, &Groups::default()).unwrap();
        let text = String::from_utf8(lock(&out).clone()).unwrap();
        assert_eq!(text.matches("refused").count(), 1, "{text}");
        assert!(text.contains("/no/such"), "{text}");
    }
}
