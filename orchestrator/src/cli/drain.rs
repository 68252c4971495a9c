//! `holdfast drain`: saves what is left in the nodes' caches.

use holdfast_core::ids::CheckpointId;

use super::failure::Failure;
use super::job::JobSelection;
use super::output::Style;
use crate::exit;

/// Save the newest checkpoint in the nodes' caches to the prefix directory
///
/// Works in any allocation, with agents that live, are dead, or never were: they are started afresh. Copies in two rounds, the
/// second on behalf of nodes that failed; rebuilds what is missing; updates the index. Running it again finishes what was
/// interrupted.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast drain job.yaml                   the newest checkpoint that can be completed
  holdfast drain --checkpoint 7 job.yaml    this one
  holdfast drain --dry-run job.yaml         what the nodes hold, and what would be copied

JSON: {version, checkpoint, directory, complete, copied_files, copied_bytes, rebuilt_ranks, failed_nodes}

Exit codes: 0 complete, or nothing to save; 65 saved, but not complete; 69 nobody could be reached")]
pub struct DrainArgs {
    /// The job
    #[command(flatten)]
    pub job: JobSelection,
    /// Save this checkpoint instead of the newest that can be completed
    #[arg(long, value_name = "ID")]
    pub checkpoint: Option<CheckpointId>,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
}

pub(super) fn run(_args: DrainArgs, _style: Style) -> Result<u8, Failure> {
    Err(Failure::new(exit::INTERNAL, "`drain` is not wired"))
}
