//! One launcher command that starts all ranks (`srun`, `mpirun`), watched by the step supervisor.
//!
//! Its output goes to files, so that it never waits for a reader and outlives everybody who might read. What it says of
//! single ranks is read from its standard error while it runs; when it ends, the rest follows from its exit status.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_core::hostlist;
use holdfast_model::{NodeName, Rank};

use super::abort::Abort;
use super::labels::Labels;
use super::plan::{LauncherCommand, StepEvent, StepPlan};
use super::rank::RankNews;
use super::remote_shell;
use holdfast_model::RankEnd;

/// Read of the launcher's words at once at most.
const PIECE_BYTES: u64 = 64 << 10;
/// A line without end is not the launcher's.
const LONGEST_LINE: usize = 64 << 10;

/// A rank that a signal ends is told of late, when its memory has been written to a core file; the ranks that miss it end
/// with an error of their own long before. So those wait a little, and the first that is told is the one that began.
const HOLD_BACK: Duration = Duration::from_millis(400);

/// mpirun's own signal may reach a rank before it is known which one made mpirun send it. mpirun ends soon after, and its
/// end says more; should it not end, the wait does.
const HOLD_BACK_OF_ENDED: Duration = Duration::from_secs(3);

/// Kept of what an mpirun says itself, to tell why there is no run.
const OWN_WORDS: usize = 2 << 10;

/// What srun says itself is not labelled with a rank, but with this.
const OWN_WORD: &str = "srun: error: ";
/// So it begins when there is no step at all.
const NO_STEP: &str = "Unable to ";
/// srun says so before the ranks of a step that somebody has cancelled end: a user, or an MPI library for `MPI_Abort`.
const CANCELLED: &str = "srun: Job step aborted";

/// Starts the launcher; the child is waited for by number, not through the handle.
pub(super) fn start(plan: &StepPlan, launcher: &LauncherCommand, directory: &Path) -> io::Result<u32> {
    let open = |path| OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let mut command = Command::new(&launcher.program);
    for name in &launcher.without {
        command.env_remove(name);
    }
    let child = command
        .args(&launcher.options)
        .arg(&plan.program)
        .args(&plan.arguments)
        .current_dir(&plan.working_directory)
        .envs(&plan.environment)
        // What the orchestrator was given, if it was anything: the launcher hands it on.
        .stdin(Stdio::inherit())
        .stdout(open(StepPlan::all_output_in(directory))?)
        .stderr(open(StepPlan::all_errors_in(directory))?)
        .process_group(0)
        .spawn();
    let cannot =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot run {}: {error}", launcher.program.display()));
    Ok(child.map_err(cannot)?.id())
}

/// What the launcher has said of its ranks.
#[derive(Debug)]
pub(super) struct Watched {
    ranks: BTreeMap<Rank, NodeName>,
    labels: Labels,
    /// Ranks that are known to have begun. Of srun's, nobody says so.
    begun: BTreeSet<Rank>,
    abort: Abort,
    /// Slurm ends the step: how its ranks end says nothing of why.
    ending: bool,
    /// The launcher's own words, if it is an mpirun.
    own_words: String,
    told: BTreeSet<Rank>,
    /// Ranks that ended with an exit code, and since when they wait to be told.
    held: Vec<(Instant, Rank, RankEnd)>,
    /// Why the step could not be made, in the launcher's words.
    obstacle: Option<String>,
    /// Ends of ranks that were taken in and not handed out yet.
    untold: Vec<StepEvent>,
    errors: Option<File>,
    offset: u64,
    partial: Vec<u8>,
}

impl Watched {
    pub(super) fn new(launcher: &LauncherCommand) -> Self {
        Watched {
            ranks: launcher.ranks.clone(),
            labels: launcher.labels,
            begun: BTreeSet::new(),
            abort: Abort::default(),
            ending: false,
            own_words: String::new(),
            told: BTreeSet::new(),
            held: Vec::new(),
            obstacle: None,
            untold: Vec::new(),
            errors: None,
            offset: 0,
            partial: Vec::new(),
        }
    }

    /// Ends of ranks that the launcher has told since the last look.
    pub(super) fn look(&mut self, directory: &Path) -> Vec<StepEvent> {
        let mut events = Vec::new();
        self.take_in(directory, &mut events);
        self.release_due(&mut events);
        if self.labels != Labels::Srun && self.begun.len() < self.ranks.len() && self.obstacle.is_none() {
            self.look_for_broken_ways(directory, &mut events);
        }
        events
    }

    /// A daemon that did not come up: MPICH's mpiexec would wait for it for ever.
    fn look_for_broken_ways(&mut self, directory: &Path, events: &mut Vec<StepEvent>) {
        let silent = |node: &NodeName| {
            let begun = |rank: &Rank| self.begun.contains(rank);
            self.ranks.iter().find(|(rank, home)| *home == node && !begun(rank)).map(|(rank, _)| *rank)
        };
        let broken = remote_shell::broken(directory);
        let found = broken.into_iter().find_map(|(node, problem)| Some((silent(&node)?, node, problem)));
        if let Some((rank, node, problem)) = found {
            let own = if self.own_words.is_empty() { String::new() } else { format!(": {}", self.own_words) };
            self.refuse(rank, format!("mpirun's daemon on node {node} did not come up: {problem}{own}"), events);
        }
    }

    /// There is no run, for this reason. Told once: the first is the cause of the others.
    fn refuse(&mut self, rank: Rank, reason: String, events: &mut Vec<StepEvent>) {
        if self.obstacle.is_none() {
            events.push(StepEvent::Refused { rank, reason: reason.clone() });
            self.obstacle = Some(reason);
        }
    }

    fn take_in(&mut self, directory: &Path, events: &mut Vec<StepEvent>) {
        // A file that cannot be read now is read the next time; at the end the exit status says enough.
        while let Ok(read) = self.read(directory) {
            let whole = self.partial.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let lines: Vec<u8> = self.partial.drain(..whole).collect();
            for line in lines.split(|byte| *byte == b'\n') {
                let labelled = self.labels.read(line);
                let (rank, text) = labelled.as_ref().map_or((None, line), |(rank, text)| (Some(*rank), text.as_ref()));
                let Ok(text) = std::str::from_utf8(text) else { continue };
                self.abort.hear(rank, text);
                match (self.labels, rank) {
                    (Labels::Srun, None) => self.said_by_srun(text, events),
                    (Labels::Srun, Some(_)) => {}
                    (_, None) => self.said_by_mpirun(text),
                    (_, Some(_)) => self.said_by_parent(text, events),
                }
            }
            if self.partial.len() > LONGEST_LINE {
                self.partial.clear();
            }
            if read < PIECE_BYTES {
                break;
            }
        }
    }

    fn said_by_srun(&mut self, line: &str, events: &mut Vec<StepEvent>) {
        if let Some(obstacle) = line.strip_prefix(OWN_WORD).filter(|said| said.starts_with(NO_STEP)) {
            self.obstacle = Some(obstacle.to_owned());
        }
        self.ending |= line.starts_with(CANCELLED);
        let Some((ranks, end)) = rank_ends(line) else { return };
        for rank in ranks {
            // A step that nobody has cancelled ends no rank: a signal is the rank's own affair.
            match end {
                RankEnd::Code(code) if code != 0 => self.hold(rank, end),
                RankEnd::Signal(_) if self.ending && is_echo(end) => self.hold(rank, end),
                _ => self.tell(rank, end, events),
            }
        }
    }

    fn said_by_mpirun(&mut self, line: &str) {
        let word = line.trim_matches([' ', '-', '=']);
        if !word.is_empty() && self.own_words.len() + word.len() < OWN_WORDS {
            self.own_words.push_str(if self.own_words.is_empty() { "" } else { " " });
            self.own_words.push_str(word);
        }
    }

    /// Under mpirun a rank's parent tells how it ended.
    fn said_by_parent(&mut self, line: &str, events: &mut Vec<StepEvent>) {
        match RankNews::parse(line) {
            Some((rank, RankNews::Begins)) => drop(self.begun.insert(rank)),
            Some((rank, RankNews::Refused(reason))) => self.refuse(rank, reason, events),
            // An mpirun ends the others itself, and they tell of that: those wait for the one that began.
            Some((rank, RankNews::Ended(end))) if is_echo(end) => self.hold(rank, end),
            Some((rank, RankNews::Ended(end))) => self.tell(rank, end, events),
            None => {}
        }
    }

    fn hold(&mut self, rank: Rank, end: RankEnd) {
        self.held.push((Instant::now(), rank, end));
    }

    /// Tells of all that wait once one of them has waited long enough.
    fn release_due(&mut self, events: &mut Vec<StepEvent>) {
        let due = |(since, _, end): &(Instant, Rank, RankEnd)| {
            let unexplained = is_ended(*end) && self.labels != Labels::Srun && self.abort.rank().is_none();
            since.elapsed() >= if unexplained { HOLD_BACK_OF_ENDED } else { HOLD_BACK }
        };
        if self.held.iter().any(due) {
            self.release(None, events);
        }
    }

    /// Tells of all that wait, first of the one that began: it called MPI_Abort, or it was not ended by the launcher, or it
    /// is the odd one out, since those that miss it end alike, or it was the first. `launcher` is how the launcher ended, if
    /// it has.
    fn release(&mut self, launcher: Option<RankEnd>, events: &mut Vec<StepEvent>) {
        let mut held = std::mem::take(&mut self.held);
        // Words of a program that somebody started inside of the run say nothing of the run.
        if let Some(rank) = self.abort.rank().filter(|_| launcher != Some(RankEnd::SUCCESS)) {
            let is_own = |(_, other, end): &(Instant, Rank, RankEnd)| *other == rank && matches!(end, RankEnd::Code(_));
            if !held.iter().any(is_own) {
                held.retain(|(_, other, _)| *other != rank);
                held.push((Instant::now(), rank, self.abort.end(launcher)));
            }
        }
        let alike: Vec<RankEnd> = held.iter().map(|(_, _, end)| *end).collect();
        held.sort_by_key(|(since, rank, end)| {
            let is_launcher_s = is_ended(*end) || self.ending && matches!(end, RankEnd::Signal(_));
            (
                !self.abort.was_called_by(*rank),
                is_launcher_s,
                alike.iter().filter(|other| *other == end).count(),
                *since,
            )
        });
        for (_, rank, end) in held {
            self.tell(rank, end, events);
        }
    }

    /// Why the launcher, which has ended with this, started nothing at all, in its own words. It may then be tried again,
    /// with the same watcher.
    pub(super) fn refused(&mut self, directory: &Path, end: RankEnd) -> Option<&str> {
        let mut events = Vec::new();
        self.take_in(directory, &mut events);
        self.untold.append(&mut events);
        let nothing_ran = self.told.is_empty() && self.held.is_empty();
        self.obstacle.as_deref().filter(|_| nothing_ran && matches!(end, RankEnd::Code(_)))
    }

    /// It is tried again: what it said so far does not count.
    pub(super) fn begin_again(&mut self) {
        self.obstacle = None;
        self.ending = false;
    }

    /// The launcher has ended with this: so have all ranks of which it said nothing.
    pub(super) fn finish(&mut self, directory: &Path, end: RankEnd) -> Vec<StepEvent> {
        let mut events = std::mem::take(&mut self.untold);
        self.take_in(directory, &mut events);
        self.release(Some(end), &mut events);
        // That of an mpirun has been told.
        let is_srun = self.labels == Labels::Srun;
        if let (Some(reason), RankEnd::Code(_), true) = (&self.obstacle, end, is_srun && self.told.is_empty()) {
            let rank = self.ranks.keys().next().copied().unwrap_or(Rank(0));
            events.push(StepEvent::Refused { rank, reason: reason.clone() });
        }
        if let Some(failed) = self.failed_without_a_word(end) {
            events.push(failed);
        }
        let silent: Vec<Rank> = self.ranks.keys().filter(|rank| !self.told.contains(rank)).copied().collect();
        // It says nothing of ranks that succeed. If it names none that failed, and fails itself, nobody knows.
        let of_silent = match end {
            RankEnd::Code(0) => RankEnd::SUCCESS,
            RankEnd::Code(_) if self.labels == Labels::Srun && !self.told.is_empty() => RankEnd::SUCCESS,
            _ => RankEnd::Unknown,
        };
        for rank in silent {
            self.tell(rank, of_silent, &mut events);
        }
        events
    }

    /// What an mpirun that failed leaves to be told, if no rank's end explains it.
    fn failed_without_a_word(&self, end: RankEnd) -> Option<StepEvent> {
        let failed = matches!(end, RankEnd::Code(code) if code != 0);
        if self.labels == Labels::Srun || !failed || !self.told.is_empty() || self.obstacle.is_some() {
            return None;
        }
        if !self.begun.is_empty() {
            return Some(StepEvent::Failed { end });
        }
        let said = if self.own_words.is_empty() { "it said nothing" } else { &self.own_words };
        let rank = self.ranks.keys().next().copied().unwrap_or(Rank(0));
        Some(StepEvent::Refused { rank, reason: format!("mpirun ended with {end} before any rank began: {said}") })
    }

    fn tell(&mut self, rank: Rank, end: RankEnd, events: &mut Vec<StepEvent>) {
        if self.ranks.contains_key(&rank) && self.told.insert(rank) {
            events.push(StepEvent::Exited { rank, end });
        }
    }

    fn read(&mut self, directory: &Path) -> io::Result<u64> {
        let file = match &mut self.errors {
            Some(file) => file,
            None => self.errors.insert(File::open(StepPlan::all_errors_in(directory))?),
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let read = file.take(PIECE_BYTES).read_to_end(&mut self.partial)? as u64;
        self.offset += read;
        Ok(read)
    }
}

/// True for an end that may be another rank's doing: an error of a rank that misses it, or the launcher's own signals.
fn is_echo(end: RankEnd) -> bool {
    const SIGKILL: i32 = 9;
    matches!(end, RankEnd::Code(_) | RankEnd::Signal(SIGKILL)) || is_ended(end)
}

/// True for an end that is most likely a launcher's doing: mpirun ends all ranks so when one of them fails.
fn is_ended(end: RankEnd) -> bool {
    const SIGTERM: i32 = 15;
    end == RankEnd::Signal(SIGTERM)
}

/// `srun: error: n[1-2]: tasks 0-1,3: Exited with exit code 3`: which ranks, and how they ended.
fn rank_ends(line: &str) -> Option<(Vec<Rank>, RankEnd)> {
    let rest = line.strip_prefix(OWN_WORD)?;
    // The first part is a list of hosts.
    let (_, rest) = rest.split_once(": task")?;
    let (numbers, how) = rest.trim_start_matches('s').split_once(": ")?;
    Some((rank_list(numbers.trim())?, end_of(how.trim())))
}

/// `0-1,3`.
fn rank_list(text: &str) -> Option<Vec<Rank>> {
    // A list of hosts whose name is nothing.
    let hosts = hostlist::expand(&format!("r[{}]", text.trim_matches(['[', ']']))).ok()?;
    hosts.iter().map(|host| host.as_str().strip_prefix('r')?.parse().ok().map(Rank)).collect()
}

/// srun's word for how a task ended: a code, or the C library's name of a signal.
fn end_of(how: &str) -> RankEnd {
    const SIGNALS: [(&str, i32); 12] = [
        ("Hangup", 1),
        ("Interrupt", 2),
        ("Quit", 3),
        ("Illegal instruction", 4),
        ("Trace/breakpoint trap", 5),
        ("Aborted", 6),
        ("Bus error", 7),
        ("Floating point exception", 8),
        ("Killed", 9),
        ("Segmentation fault", 11),
        ("Broken pipe", 13),
        ("Terminated", 15),
    ];
    if let Some(code) = how.strip_prefix("Exited with exit code ") {
        return code.trim().parse().map_or(RankEnd::Unknown, RankEnd::Code);
    }
    let name = how.strip_suffix("(core dumped)").unwrap_or(how).trim();
    SIGNALS.iter().find(|(known, _)| *known == name).map_or(RankEnd::Unknown, |(_, signal)| RankEnd::Signal(*signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(numbers: &[u32]) -> Vec<Rank> {
        numbers.iter().copied().map(Rank).collect()
    }

    #[test]
    fn what_srun_says_of_its_tasks_is_understood() {
        let table = [
            ("srun: error: n3: task 2: Exited with exit code 3", ranks(&[2]), RankEnd::Code(3)),
            ("srun: error: n[1-2]: tasks 0-1,5: Exited with exit code 1", ranks(&[0, 1, 5]), RankEnd::Code(1)),
            ("srun: error: n1: task 3: Killed", ranks(&[3]), RankEnd::Signal(9)),
            ("srun: error: n2: task 1: Segmentation fault (core dumped)", ranks(&[1]), RankEnd::Signal(11)),
            ("srun: error: n2: task 1: Out Of Memory", ranks(&[1]), RankEnd::Unknown),
        ];
        for (line, expected, end) in table {
            assert_eq!(rank_ends(line), Some((expected, end)), "{line}");
        }
        for line in ["", "srun: Force Terminated StepId=1.1", "2: srun: error: n3: task 2: Killed", "task 3: Killed"] {
            assert_eq!(rank_ends(line), None, "{line}");
        }
    }

    fn watched(directory: &Path, text: &str) -> Watched {
        std::fs::write(StepPlan::all_errors_in(directory), text).unwrap();
        Watched::new(&LauncherCommand {
            program: "srun".into(),
            options: Vec::new(),
            without: Vec::new(),
            ranks: (0..3).map(|rank| (Rank(rank), NodeName::from("n1"))).collect(),
            labels: Labels::Srun,
        })
    }

    fn under_mpirun(directory: &Path, text: &str) -> Watched {
        Watched { labels: Labels::Hydra, ..watched(directory, text) }
    }

    #[test]
    fn under_mpirun_the_rank_that_began_is_told_before_those_that_were_ended_for_it() {
        let base = tempfile::tempdir().unwrap();
        let text = "[0] @holdfast-rank 0 begins\n[2] @holdfast-rank 2 begins\n[0] @holdfast-rank 0 signal 15\n\
                    [2] @holdfast-rank 2 code 3\n[1] @holdfast-rank 1 signal 15\n";
        let mut watched = under_mpirun(base.path(), text);
        assert_eq!(watched.look(base.path()), []);
        let events = watched.finish(base.path(), RankEnd::Code(3));
        assert_eq!(events[0], StepEvent::Exited { rank: Rank(2), end: RankEnd::Code(3) });
        assert_eq!(events.len(), 3);
    }

    #[test]
    fn under_mpirun_silent_ranks_did_not_succeed_when_another_failed() {
        let base = tempfile::tempdir().unwrap();
        let mut watched = under_mpirun(base.path(), "[1] @holdfast-rank 1 signal 11\n");
        assert_eq!(watched.look(base.path()), [StepEvent::Exited { rank: Rank(1), end: RankEnd::Signal(11) }]);
        let unknown = |rank| StepEvent::Exited { rank: Rank(rank), end: RankEnd::Unknown };
        assert_eq!(watched.finish(base.path(), RankEnd::Code(255)), [unknown(0), unknown(2)]);
    }

    #[test]
    fn an_mpirun_that_starts_nothing_is_a_launch_that_failed_in_its_own_words() {
        let base = tempfile::tempdir().unwrap();
        let text = "-----------\nmpirun has detected an attempt to run as root.\n\nWe refuse.\n-----------\n";
        let events = under_mpirun(base.path(), text).finish(base.path(), RankEnd::Code(1));
        let StepEvent::Refused { reason, .. } = &events[0] else { panic!("{events:?}") };
        assert!(reason.contains("attempt to run as root. We refuse."), "{reason}");
    }

    #[test]
    fn an_mpirun_that_fails_without_a_word_of_its_ranks_is_not_one_that_never_began() {
        let base = tempfile::tempdir().unwrap();
        let text = "[0] @holdfast-rank 0 begins\nORTE has lost communication with a remote daemon.\n";
        let events = under_mpirun(base.path(), text).finish(base.path(), RankEnd::Code(205));
        assert_eq!(events[0], StepEvent::Failed { end: RankEnd::Code(205) });
    }

    #[test]
    fn an_abort_is_its_rank_s_whoever_was_ended_for_it() {
        let base = tempfile::tempdir().unwrap();
        let text = "[0] @holdfast-rank 0 begins\n[1] Abort(5) on node 1 (rank 1 in comm 0): application called\n\
                    [0] @holdfast-rank 0 signal 15\n";
        let events = under_mpirun(base.path(), text).finish(base.path(), RankEnd::Code(5));
        assert_eq!(events[0], StepEvent::Exited { rank: Rank(1), end: RankEnd::Code(5) });
    }

    #[test]
    fn an_abort_is_told_first_wherever_its_echo_stands() {
        let said = "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 5.\n";
        let echo = "[1,1]<stderr>:@holdfast-rank 1 signal 15\n";
        let own = "[1,2]<stderr>:@holdfast-rank 2 code 5\n";
        let ended = "[1,2]<stderr>:@holdfast-rank 2 signal 15\n";
        let abort = StepEvent::Exited { rank: Rank(2), end: RankEnd::Code(5) };
        for text in [[said, echo, own], [echo, own, said], [echo, said, own], [echo, own, ""], [ended, echo, said]] {
            let base = tempfile::tempdir().unwrap();
            let mut watched = Watched { labels: Labels::OpenMpi, ..watched(base.path(), &text.concat()) };
            assert_eq!(watched.look(base.path()), [], "another may still turn out to be the first");
            assert_eq!(watched.finish(base.path(), RankEnd::Code(5)).first(), Some(&abort), "{text:?}");
        }
    }

    #[test]
    fn a_library_that_aborts_because_another_rank_is_gone_is_not_the_first() {
        let base = tempfile::tempdir().unwrap();
        let text = "[2] @holdfast-rank 2 code 3\n[0] Abort(807018255) on node 0 (rank 0 in comm 0): Fatal error in \
                    internal_Barrier\n[0] @holdfast-rank 0 code 15\n[1] @holdfast-rank 1 signal 15\n";
        let events = under_mpirun(base.path(), text).finish(base.path(), RankEnd::Code(15));
        assert_eq!(events[0], StepEvent::Exited { rank: Rank(2), end: RankEnd::Code(3) });
        // Where nobody else has an end of his own, it is.
        let text = "0: Abort(807018255) on node 0 (rank 0 in comm 0): Fatal error in internal_Barrier\n\
                    srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n\
                    srun: error: n1: tasks 0-2: Killed\n";
        let events = watched(base.path(), text).finish(base.path(), RankEnd::Code(137));
        assert_eq!(events[0], StepEvent::Exited { rank: Rank(0), end: RankEnd::Code(15) });
        assert_eq!(events.len(), 3);
    }

    #[test]
    fn an_abort_for_which_slurm_kills_the_step_is_its_rank_s() {
        let cancelled = "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n";
        let killed = "srun: error: n1: tasks 0-2: Killed\n";
        let others = "srun: error: n1: tasks 0-1: Killed\n";
        let open_mpi = "2: MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\n2: with errorcode 5.\n";
        let mpich = "2: Abort(5) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 5)\n";
        let own = "srun: error: n1: task 2: Exited with exit code 5\n";
        let abort = StepEvent::Exited { rank: Rank(2), end: RankEnd::Code(5) };
        for text in [
            [open_mpi, cancelled, others, own],
            [open_mpi, cancelled, killed, ""],
            [mpich, cancelled, killed, ""],
            [cancelled, killed, mpich, ""],
            [cancelled, others, own, ""],
        ] {
            let base = tempfile::tempdir().unwrap();
            let mut watched = watched(base.path(), &text.concat());
            assert_eq!(watched.look(base.path()), [], "{text:?}");
            assert_eq!(watched.finish(base.path(), RankEnd::Code(137)).first(), Some(&abort), "{text:?}");
        }
    }

    #[test]
    fn a_program_that_a_node_does_not_have_is_a_launch_that_failed() {
        let base = tempfile::tempdir().unwrap();
        let text = "[0] @holdfast-rank 0 begins\n[0] @holdfast-rank 0 refused cannot run ./app on n3: No such file\n";
        let events = under_mpirun(base.path(), text).finish(base.path(), RankEnd::Code(127));
        let reason = "cannot run ./app on n3: No such file".to_owned();
        assert_eq!(events[0], StepEvent::Refused { rank: Rank(0), reason });
    }

    #[test]
    fn a_rank_s_end_is_told_once_and_the_silent_ones_succeeded() {
        let base = tempfile::tempdir().unwrap();
        let mut watched =
            watched(base.path(), "srun: error: n1: task 1: Aborted\nsrun: error: n1: task 1: Killed\nsrun: er");
        let aborted = StepEvent::Exited { rank: Rank(1), end: RankEnd::Signal(6) };
        assert_eq!(watched.look(base.path()), [aborted]);
        let fine = |rank| StepEvent::Exited { rank: Rank(rank), end: RankEnd::SUCCESS };
        assert_eq!(watched.finish(base.path(), RankEnd::Code(134)), [fine(0), fine(2)]);
    }

    #[test]
    fn a_rank_that_died_of_a_signal_is_told_before_those_that_missed_it() {
        let base = tempfile::tempdir().unwrap();
        let text = "srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n1: task 1: Segmentation fault\n";
        let mut watched = watched(base.path(), text);
        let segfault = StepEvent::Exited { rank: Rank(1), end: RankEnd::Signal(11) };
        assert_eq!(watched.look(base.path()), [segfault]);
        let echo = StepEvent::Exited { rank: Rank(0), end: RankEnd::Code(1) };
        let silent = StepEvent::Exited { rank: Rank(2), end: RankEnd::SUCCESS };
        assert_eq!(watched.finish(base.path(), RankEnd::Code(139)), [echo, silent]);
    }

    #[test]
    fn of_ranks_that_end_with_errors_the_odd_one_out_is_told_first() {
        let base = tempfile::tempdir().unwrap();
        let text = "srun: error: n1: task 0: Exited with exit code 1\n\
                    srun: error: n3: task 2: Exited with exit code 3\n\
                    srun: error: n1: task 1: Exited with exit code 1\n";
        let events = watched(base.path(), text).finish(base.path(), RankEnd::Code(3));
        assert_eq!(events[0], StepEvent::Exited { rank: Rank(2), end: RankEnd::Code(3) });
        assert_eq!(events.len(), 3);
    }

    #[test]
    fn of_a_launcher_that_was_killed_nobody_knows_how_its_ranks_ended() {
        let base = tempfile::tempdir().unwrap();
        let events = watched(base.path(), "").finish(base.path(), RankEnd::Signal(9));
        assert!(events.iter().all(|event| matches!(event, StepEvent::Exited { end: RankEnd::Unknown, .. })));
        assert_eq!(events.len(), 3);
    }

    #[test]
    fn a_step_that_slurm_does_not_make_is_a_launch_that_failed() {
        let base = tempfile::tempdir().unwrap();
        let text = "srun: error: Unable to create step for job 1: Requested nodes are busy\n";
        let events = watched(base.path(), text).finish(base.path(), RankEnd::Code(1));
        let reason = "Unable to create step for job 1: Requested nodes are busy".to_owned();
        assert_eq!(events[0], StepEvent::Refused { rank: Rank(0), reason });
    }

    #[test]
    fn a_launcher_that_was_refused_may_be_tried_again_and_then_only_its_new_words_count() {
        let base = tempfile::tempdir().unwrap();
        let text = "srun: error: Unable to create step for job 1: Memory required by task is not available\n";
        let mut watched = watched(base.path(), text);
        let said = watched.refused(base.path(), RankEnd::Code(1)).map(str::to_owned);
        assert_eq!(said.as_deref(), Some("Unable to create step for job 1: Memory required by task is not available"));
        watched.begin_again();
        assert_eq!(watched.refused(base.path(), RankEnd::Code(0)), None);
        assert!(
            watched
                .finish(base.path(), RankEnd::Code(0))
                .iter()
                .all(|event| matches!(event, StepEvent::Exited { end: RankEnd::SUCCESS, .. }))
        );
    }

    #[test]
    fn a_launcher_whose_rank_ran_was_not_refused_and_its_end_is_not_forgotten() {
        let base = tempfile::tempdir().unwrap();
        let text = "srun: error: n1: task 1: Killed\nsrun: error: Unable to confirm allocation\n";
        let mut watched = watched(base.path(), text);
        assert_eq!(watched.refused(base.path(), RankEnd::Code(1)), None);
        let killed = StepEvent::Exited { rank: Rank(1), end: RankEnd::Signal(9) };
        assert_eq!(watched.finish(base.path(), RankEnd::Code(1))[0], killed);
    }
}
