//! The messages of `flux run` and of the parents of its ranks, and the meaning of its end.

use std::borrow::Cow;
use std::collections::BTreeSet;

use holdfast_model::{Rank, RankEnd};

use crate::launch::command::rank_ends::{LauncherMessages, RankEnds, is_termination, may_be_consequence};
use crate::launch::labels::LineLabels;
use crate::launch::mpirun::rank::{self, RankReport};
use crate::launch::obstacle::Obstacle;

/// Maximum size of the messages that are kept to explain a failed launch.
const LONGEST_MESSAGES: usize = 2 << 10;
/// Messages about what Flux itself, or a node, could not do: another launch may succeed.
const OF_FLUX: [&str; 5] = [
    // A node that is not part of the instance any more.
    "host constraint contains invalid hosts",
    "node failure",
    "lost contact",
    "terminated before first barrier",
    "Connection refused",
];

/// The labels of `flux run --label-io`.
pub(super) static LABELS: LineLabels =
    LineLabels { read: |line| label(line).map(|(rank, text)| (rank, Cow::from(text))), is_internal: rank::is_internal };

/// The messages so far.
#[derive(Debug, Default)]
pub(super) struct FluxMessages {
    /// Ranks that have started.
    begun: BTreeSet<Rank>,
    /// Messages of Flux itself, in one line.
    own: String,
    /// How `flux run` ended.
    ended: Option<RankEnd>,
}

impl FluxMessages {
    /// True if the job does not outlive `flux run`, which has waited for it or was refused.
    pub(super) fn job_has_ended(&self) -> bool {
        matches!(self.ended, Some(RankEnd::Code(_)))
    }
}

impl LauncherMessages for FluxMessages {
    fn labels(&self) -> &'static LineLabels {
        &LABELS
    }

    fn read_line(&mut self, rank: Option<Rank>, text: &str, ends: &mut RankEnds) {
        if rank.is_none() {
            let text = text.trim();
            if !text.is_empty() && self.own.len() + text.len() < LONGEST_MESSAGES {
                self.own.push_str(if self.own.is_empty() { "" } else { "; " });
                self.own.push_str(text);
            }
            return;
        }
        match RankReport::parse(text) {
            Some((rank, RankReport::Begins)) => drop(self.begun.insert(rank)),
            Some((rank, RankReport::Refused(reason))) => ends.refuse(rank, reason, Obstacle::Job),
            // Flux ends the others when a node is lost or MPI aborts, and their parents report that.
            Some((rank, RankReport::Ended(end))) if may_be_consequence(end) => ends.hold(rank, end),
            Some((rank, RankReport::Ended(end))) => ends.report(rank, end),
            None => {}
        }
    }

    fn is_own_signal(&self, end: RankEnd) -> bool {
        is_termination(end)
    }

    fn waits_for_launcher(&self, end: RankEnd) -> bool {
        is_termination(end)
    }

    /// Reports a job that failed, if no rank's end explains it.
    fn finish(&mut self, launcher: RankEnd, ends: &mut RankEnds) {
        self.ended = Some(launcher);
        let failed = matches!(launcher, RankEnd::Code(code) if code != 0);
        if !failed || !ends.none_reported() || ends.refused {
            return;
        }
        if !self.begun.is_empty() {
            return ends.fail(launcher);
        }
        let messages = if self.own.is_empty() { "no message" } else { &self.own };
        let is_of_flux = OF_FLUX.iter().any(|known| messages.contains(known));
        let obstacle = if is_of_flux { Obstacle::Manager } else { Obstacle::Job };
        let reason = format!("flux run ended with {launcher} before any rank started: {messages}");
        ends.refuse(ends.first(), reason, obstacle);
    }

    /// The parents do not report ranks that succeed.
    fn end_of_unreported(&self, launcher: RankEnd, _ends: &RankEnds) -> RankEnd {
        if launcher == RankEnd::SUCCESS { RankEnd::SUCCESS } else { RankEnd::Unknown }
    }
}

/// `12: text`.
fn label(line: &[u8]) -> Option<(Rank, &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let digits = std::str::from_utf8(&line[..colon]).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let text = &line[colon + 1..];
    Some((Rank(digits?.parse().ok()?), text.strip_prefix(b" ").unwrap_or(text)))
}

/// The messages in these tests are those of Flux 0.88.0, with other names.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::StepEvent;
    use crate::launch::command::fixtures::Watched;

    const NODE_FAILURE: &str = "0: @holdfast-rank 0 begins\n1: @holdfast-rank 1 begins\n2: @holdfast-rank 2 begins\n\
                                3.301s: job.exception ƒJJgcnT type=exec severity=0 node failure on n3 (rank 2)\n\
                                3.302s: flux-shell[0]:  WARN: exception: node failure on n3 (shell rank 1)\n\
                                0: @holdfast-rank 0 signal 15\n2: @holdfast-rank 2 signal 15\n\
                                flux-job: task(s) Terminated\n";
    const MISSING_HOST_FILE: &str = "0.040s: job.exception ƒcKstTZ type=exec severity=0 shell_taskmap\n\
         flux-job: job shell Terminated\n\
         0.039s: flux-shell[0]: ERROR: taskmap.hostfile: failed to open hostfile: /g/hosts: No such file or \
         directory\n";
    const MISSING_PROGRAM: &str = "0.056s: flux-shell[1]: FATAL: task 1 (host n2): start failed: /a/b: No such file or \
                                   directory\n0.059s: job.exception ƒPg21xs type=exec severity=0 task 1 (host n2): \
                                   start failed: /a/b: No such file or directory\n\
                                   flux-job: task(s) exited with exit code 127\n";

    fn watched(text: &str) -> Watched<FluxMessages> {
        Watched::new(FluxMessages::default(), text)
    }

    fn ends(events: &[StepEvent]) -> Vec<(u32, RankEnd)> {
        let end = |event: &StepEvent| match event {
            StepEvent::Exited { rank, end } => Some((rank.0, *end)),
            _ => None,
        };
        events.iter().filter_map(end).collect()
    }

    fn refusal(text: &str, code: i32) -> (String, Obstacle) {
        let events = watched(text).finish(RankEnd::Code(code));
        let refused = events.iter().find_map(|event| match event {
            StepEvent::Refused { reason, obstacle, .. } => Some((reason.clone(), *obstacle)),
            _ => None,
        });
        refused.unwrap_or_else(|| panic!("{events:?}"))
    }

    #[test]
    fn labels_are_numbers_and_times_of_its_messages_are_none() {
        assert_eq!(label(b"12: one: two"), Some((Rank(12), b"one: two".as_slice())));
        assert_eq!(label(b"2: "), Some((Rank(2), b"".as_slice())));
        for line in ["0.056s: flux-shell[1]: FATAL", "flux-job: task(s) Killed", ": x", "-1: x", ""] {
            assert_eq!(label(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn a_rank_that_fails_is_reported_and_the_others_succeeded() {
        let text = "0: @holdfast-rank 0 begins\n1: @holdfast-rank 1 begins\n2: @holdfast-rank 2 begins\n1: out\n1: \n\
                    1: @holdfast-rank 1 signal 11\n";
        let mut watched = watched(text);
        assert_eq!(ends(&watched.poll()), [(1, RankEnd::Signal(11))]);
        let rest = watched.finish(RankEnd::Code(139));
        assert_eq!(ends(&rest), [(0, RankEnd::Unknown), (2, RankEnd::Unknown)]);
    }

    #[test]
    fn a_job_that_succeeded_has_only_ranks_that_did() {
        let events = watched("0: @holdfast-rank 0 begins\n").finish(RankEnd::SUCCESS);
        assert_eq!(ends(&events), [0, 1, 2].map(|rank| (rank, RankEnd::SUCCESS)));
    }

    #[test]
    fn ranks_that_flux_ends_after_the_loss_of_a_node_are_not_its_cause() {
        let events = watched(NODE_FAILURE).finish(RankEnd::Code(143));
        let ends = ends(&events);
        assert!(ends.contains(&(1, RankEnd::Unknown)) && ends.contains(&(0, RankEnd::Signal(15))), "{events:?}");
    }

    #[test]
    fn what_flux_or_a_node_could_not_do_may_succeed_later_and_the_rest_not() {
        let gone = "flux-run: ERROR: host constraint contains invalid hosts: host 'n9' not found\n";
        let (reason, obstacle) = refusal(gone, 1);
        assert!(reason.contains("host 'n9' not found") && obstacle == Obstacle::Manager, "{reason}");
        let cores = "0.025s: job.exception ƒTH4GhV type=alloc severity=0 unsatisfiable request: need 2 node(s) with 3 \
                     cores each, only 0 eligible\n";
        let (reason, obstacle) = refusal(cores, 1);
        assert!(reason.contains("need 2 node(s) with 3 cores each") && obstacle == Obstacle::Job, "{reason}");
        for (text, code) in [(MISSING_HOST_FILE, 143), (MISSING_PROGRAM, 127)] {
            let (reason, obstacle) = refusal(text, code);
            assert!(reason.contains("No such file") && obstacle == Obstacle::Job, "{reason}");
        }
    }

    #[test]
    fn a_job_outlives_a_flux_run_that_was_killed() {
        let ended = |end| {
            let mut messages = FluxMessages::default();
            messages.finish(end, &mut RankEnds::default());
            messages.job_has_ended()
        };
        assert!(ended(RankEnd::Code(143)) && !ended(RankEnd::Signal(9)) && !FluxMessages::default().job_has_ended());
    }
}
