//! `MPI_Abort`, as MPI libraries say it on standard error: which rank called it, with which code.
//!
//! MPICH says so too of an error that it ends a rank for itself, perhaps only because another rank is gone.
//!
//! The launcher then ends all ranks, often the caller too before it can end itself, and of some it says so before it says
//! anything of the caller. The library's words are what is left of the caller's own end.

use holdfast_model::{Rank, RankEnd};

/// Of an abort whose code nobody has said, or is the one of success.
const SOME_ERROR: i32 = 1;

/// In MPICH's words, what sets a call apart from an error.
const CALLED: &str = "application called MPI_Abort";

/// What was said so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Abort {
    rank: Option<Rank>,
    code: Option<i32>,
    called: bool,
}

impl Abort {
    /// Takes in a line without its label; `label` is the rank whose line it is. The first abort counts.
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

    /// The rank that is aborted.
    pub(super) fn rank(&self) -> Option<Rank> {
        self.rank
    }

    /// True if this rank's program called it. Otherwise the library did, and another rank may have been the first.
    pub(super) fn was_called_by(&self, rank: Rank) -> bool {
        self.called && self.rank == Some(rank)
    }

    /// The end that it meant: its code as a parent process sees it, and never that of success. `launcher` is how the
    /// launcher ended, which passes the code on.
    pub(super) fn end(&self, launcher: Option<RankEnd>) -> RankEnd {
        let of_launcher = match launcher {
            Some(RankEnd::Code(code)) => Some(code),
            _ => None,
        };
        let code = self.code.or(of_launcher).map_or(SOME_ERROR, |code| code & 0xff);
        RankEnd::Code(if code == 0 { SOME_ERROR } else { code })
    }
}

/// `MPI_ABORT was invoked on rank 4 in communicator MPI_COMM_WORLD`; the code follows in the next lines. In another
/// communicator the rank has another number.
fn parse_open_mpi_abort(line: &str) -> Option<(Rank, Option<i32>)> {
    let (_, rest) = line.split_once("MPI_ABORT was invoked on rank ")?;
    let (rank, rest) = rest.split_once(' ')?;
    if !rest.contains("MPI_COMM_WORLD") {
        return None;
    }
    Some((Rank(rank.parse().ok()?), None))
}

/// `with errorcode 5.`, since Open MPI 5 `Errorcode: 5`.
fn parse_open_mpi_code(line: &str) -> Option<i32> {
    let line = line.trim();
    let code = line.strip_prefix("with errorcode ").or_else(|| line.strip_prefix("Errorcode: "))?;
    code.trim_end_matches('.').parse().ok()
}

/// `Abort(5) on node 4 (rank 4 in comm 0): application called MPI_Abort(…)`, also for an error that the library ends the
/// program for. The node is the rank in the world.
fn parse_mpich_abort(label: Option<Rank>, line: &str) -> Option<(Rank, Option<i32>)> {
    let (code, rest) = line.strip_prefix("Abort(")?.split_once(") on node ")?;
    let (node, _) = rest.split_once(' ')?;
    Some((label.or(node.parse().ok().map(Rank))?, Some(code.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[(Option<u32>, &str)]) -> (Option<Rank>, RankEnd) {
        let mut abort = Abort::default();
        lines.iter().for_each(|(label, line)| abort.read_line(label.map(Rank), line));
        (abort.rank(), abort.end(None))
    }

    #[test]
    fn every_library_s_words_are_understood() {
        let open_mpi = "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD";
        let table: [&[(Option<u32>, &str)]; 5] = [
            &[(Some(2), open_mpi), (Some(1), "with errors"), (Some(2), "with errorcode 5.")],
            &[(None, open_mpi), (None, "  Proc: [[2,1],2]"), (None, "  Errorcode: 5")],
            &[(Some(2), "Abort(5) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 5)")],
            &[(None, "Abort(5) on node 2 (rank 0 in comm 7): application called MPI_Abort(comm=0x84000001, 5)")],
            &[(None, open_mpi), (None, "with errorcode 5."), (None, "Abort(6) on node 1 (rank 1 in comm 0): echo")],
        ];
        for lines in table {
            assert_eq!(heard(lines), (Some(Rank(2)), RankEnd::Code(5)), "{lines:?}");
        }
    }

    #[test]
    fn a_call_is_told_from_an_error_of_the_library() {
        let called = |line: &str| {
            let mut abort = Abort::default();
            abort.read_line(Some(Rank(2)), line);
            assert_eq!(abort.rank(), Some(Rank(2)));
            abort.was_called_by(Rank(2))
        };
        assert!(called("MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD"));
        assert!(called("Abort(5) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 5)"));
        assert!(!called(
            "Abort(807018255) on node 2 (rank 2 in comm 0): Fatal error in internal_Barrier: Other MPI error"
        ));
    }

    #[test]
    fn a_rank_of_another_communicator_and_other_words_are_none() {
        let lines = [
            "MPI_ABORT was invoked on rank 0 in communicator MPI COMMUNICATOR 3 SPLIT FROM 0",
            "MPI_ABORT was invoked on rank x in communicator MPI_COMM_WORLD",
            "with errorcode 5.",
            "Abort",
            "Abort(x) on node 1 (rank 1 in comm 0)",
            "Abort(5) on node",
        ];
        for line in lines {
            assert_eq!(heard(&[(Some(1), line)]).0, None, "{line}");
        }
    }

    #[test]
    fn a_code_is_the_one_that_a_parent_would_see_and_never_success() {
        let end = |code: Option<i32>, launcher| Abort { rank: Some(Rank(0)), code, called: true }.end(launcher);
        assert_eq!(end(Some(807_018_255), None), RankEnd::Code(15));
        assert_eq!(end(Some(-1), None), RankEnd::Code(255));
        assert_eq!(end(Some(256), None), RankEnd::Code(1));
        assert_eq!(end(None, Some(RankEnd::Code(5))), RankEnd::Code(5));
        assert_eq!(end(None, Some(RankEnd::Signal(9))), RankEnd::Code(1));
    }
}
