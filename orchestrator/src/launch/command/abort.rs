//! `MPI_Abort`, parsed from the messages of MPI libraries on standard error: the rank that called it, and its code.
//!
//! MPICH prints the same message for an error for which it aborts a rank itself, perhaps only because another rank was
//! lost.
//!
//! After a call, the launcher kills all ranks, often including the caller before it can exit, and reports some of them
//! before the caller. Then the library's message is the only source of the caller's exit code.

use holdfast_model::{Rank, RankEnd};

/// The code of an abort whose code is unknown or 0.
const SOME_ERROR: i32 = 1;

/// In MPICH's message, distinguishes a call from an error.
const CALLED: &str = "application called MPI_Abort";

/// The first abort so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Abort {
    /// The rank that aborted.
    pub(super) rank: Option<Rank>,
    code: Option<i32>,
    called: bool,
}

impl Abort {
    /// Parses a line without its label; `label` is its rank. Only the first abort counts.
    pub(super) fn read_line(&mut self, label: Option<Rank>, line: &str) {
        if self.rank.is_none()
            && let Some((rank, code)) = parse_open_mpi_abort(line).or_else(|| parse_mpich_abort(label, line))
        {
            (self.rank, self.code) = (Some(rank), code);
            self.called = code.is_none() || line.contains(CALLED);
        } else if self.rank.is_some() && self.code.is_none() {
            self.code = parse_open_mpi_code(line);
        }
    }

    /// True if the program of this rank called `MPI_Abort`. Otherwise the library aborted, and another rank may have
    /// failed first.
    pub(super) fn was_called_by(&self, rank: Rank) -> bool {
        self.called && self.rank == Some(rank)
    }

    /// The end of the rank: its code as a parent process sees it, and never 0. `launcher` is the end of the launcher,
    /// which passes the code on.
    pub(super) fn end(&self, launcher: Option<RankEnd>) -> RankEnd {
        let of_launcher = match launcher {
            Some(RankEnd::Code(code)) => Some(code),
            _ => None,
        };
        let code = self.code.or(of_launcher).map_or(SOME_ERROR, |code| code & 0xff);
        RankEnd::Code(if code == 0 { SOME_ERROR } else { code })
    }
}

/// `MPI_ABORT was invoked on rank 4 in communicator MPI_COMM_WORLD`; the code follows on the next lines. Ranks of other
/// communicators are numbered differently and ignored.
fn parse_open_mpi_abort(line: &str) -> Option<(Rank, Option<i32>)> {
    let (_, rest) = line.split_once("MPI_ABORT was invoked on rank ")?;
    let (rank, rest) = rest.split_once(' ')?;
    if !rest.contains("MPI_COMM_WORLD") {
        return None;
    }
    Some((Rank(rank.parse().ok()?), None))
}

/// `with errorcode 5.`; since Open MPI 5 `Errorcode: 5`.
fn parse_open_mpi_code(line: &str) -> Option<i32> {
    let line = line.trim();
    let code = line.strip_prefix("with errorcode ").or_else(|| line.strip_prefix("Errorcode: "))?;
    code.trim_end_matches('.').parse().ok()
}

/// `Abort(5) on node 4 (rank 4 in comm 0): application called MPI_Abort(…)`, also for errors for which the library
/// aborts. The node is the rank in MPI_COMM_WORLD.
fn parse_mpich_abort(label: Option<Rank>, line: &str) -> Option<(Rank, Option<i32>)> {
    let (code, rest) = line.strip_prefix("Abort(")?.split_once(") on node ")?;
    let (node, _) = rest.split_once(' ')?;
    Some((label.or(node.parse().ok().map(Rank))?, Some(code.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(lines: &[(Option<u32>, &str)]) -> (Option<Rank>, RankEnd) {
        let mut abort = Abort::default();
        lines.iter().for_each(|(label, line)| abort.read_line(label.map(Rank), line));
        (abort.rank, abort.end(None))
    }

    #[test]
    fn parses_the_messages_of_all_libraries() {
        let open_mpi = "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD";
        let table: [&[(Option<u32>, &str)]; 5] = [
            &[(Some(2), open_mpi), (Some(1), "with errors"), (Some(2), "with errorcode 5.")],
            &[(None, open_mpi), (None, "  Proc: [[2,1],2]"), (None, "  Errorcode: 5")],
            &[(Some(2), "Abort(5) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 5)")],
            &[(None, "Abort(5) on node 2 (rank 0 in comm 7): application called MPI_Abort(comm=0x84000001, 5)")],
            &[(None, open_mpi), (None, "with errorcode 5."), (None, "Abort(6) on node 1 (rank 1 in comm 0): echo")],
        ];
        for lines in table {
            assert_eq!(parsed(lines), (Some(Rank(2)), RankEnd::Code(5)), "{lines:?}");
        }
    }

    #[test]
    fn a_call_is_distinguished_from_an_error_of_the_library() {
        let called = |line: &str| {
            let mut abort = Abort::default();
            abort.read_line(Some(Rank(2)), line);
            assert_eq!(abort.rank, Some(Rank(2)));
            abort.was_called_by(Rank(2))
        };
        assert!(called("MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD"));
        assert!(called("Abort(5) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 5)"));
        assert!(!called(
            "Abort(807018255) on node 2 (rank 2 in comm 0): Fatal error in internal_Barrier: Other MPI error"
        ));
    }

    #[test]
    fn ignores_ranks_of_other_communicators_and_other_text() {
        let lines = [
            "MPI_ABORT was invoked on rank 0 in communicator MPI COMMUNICATOR 3 SPLIT FROM 0",
            "MPI_ABORT was invoked on rank x in communicator MPI_COMM_WORLD",
            "with errorcode 5.",
            "Abort",
            "Abort(x) on node 1 (rank 1 in comm 0)",
            "Abort(5) on node",
        ];
        for line in lines {
            assert_eq!(parsed(&[(Some(1), line)]).0, None, "{line}");
        }
    }

    #[test]
    fn the_code_is_that_seen_by_a_parent_process_and_never_0() {
        let end = |code: Option<i32>, launcher| Abort { rank: Some(Rank(0)), code, called: true }.end(launcher);
        assert_eq!(end(Some(807_018_255), None), RankEnd::Code(15));
        assert_eq!(end(Some(-1), None), RankEnd::Code(255));
        assert_eq!(end(Some(256), None), RankEnd::Code(1));
        assert_eq!(end(None, Some(RankEnd::Code(5))), RankEnd::Code(5));
        assert_eq!(end(None, Some(RankEnd::Signal(9))), RankEnd::Code(1));
    }
}
