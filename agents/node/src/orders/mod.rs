//! The steps that a leader can order. Each can be repeated: an agent that was restarted gets its order again.
//!
//! * [`seal`]: check the ranks' files, write their meta files;
//! * [`group`]: a member's part in encoding and rebuilding, by the redundancy scheme; [`links`] between members;
//! * [`verify`]: compare files in cache with their checksums;
//! * [`transfer`]: the files of a rank, to the node on which it now runs;
//! * [`direct`]: datasets that the ranks write to the prefix directory themselves;
//! * [`fetch`] and [`flush`]: from and to the prefix directory;
//! * [`entries`]: what the node records; [`context`]: what all of them share.

mod context;
mod direct;
mod entries;
mod error;
mod fetch;
mod files;
mod flush;
mod group;
mod links;
mod seal;
mod transfer;
mod verify;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use holdfast_model::Failure;
use holdfast_wire::peer::{Order, OrderResult};

use context::OrderContext;

use crate::agent::Agent;
use crate::copy::pace::OrderControl;
use crate::run::Run;

/// Carries out one order. Blocks.
pub(crate) fn execute(
    agent: &Arc<Agent>,
    run: &Arc<Run>,
    order: u64,
    what: Order,
    control: &OrderControl,
) -> Result<OrderResult, Failure> {
    let context = OrderContext { agent, run, order, control };
    let result = match what {
        Order::Inventory => context.inventory(),
        Order::Delete { checkpoints, all_but } => context.delete(&checkpoints, all_but.as_ref()),
        Order::Prepare { checkpoint, delete, members } => context.prepare(checkpoint, &delete, &members),
        Order::Seal { checkpoint, ranks, crc } => context.seal(checkpoint, ranks, crc),
        Order::Encode { checkpoint, groups, crc, only, limits } => {
            context.encode(checkpoint, &groups, crc, only.as_deref(), limits)
        }
        Order::Commit { checkpoint } => context.commit(checkpoint),
        Order::Discard { checkpoint, ranks } => context.discard(checkpoint, &ranks),
        Order::Transfer { checkpoint, outgoing, incoming } => context.transfer(checkpoint, &outgoing, &incoming),
        Order::Adopt { checkpoint, members, restart } => context.adopt(checkpoint, &members, restart),
        Order::Verify { checkpoint, ranks } => context.verify(checkpoint, &ranks),
        Order::Rebuild { checkpoint, groups } => context.rebuild(checkpoint, &groups),
        Order::Fetch { checkpoint, directory, ranks, total_ranks, width } => {
            context.fetch(checkpoint, &directory, &ranks, total_ranks, width)
        }
        Order::Flush { checkpoint, directory, limits, background, crc, container } => {
            context.flush(checkpoint, &directory, (limits, background), crc, container.as_ref())
        }
        Order::VerifyStored { directory, files, limits, .. } => context.verify_stored(&directory, &files, limits),
        Order::Describe { checkpoint, dataset } => context.describe(checkpoint, dataset),
        Order::OpenDirect { checkpoint, directory } => context.open_direct(checkpoint, directory),
        Order::SealDirect { checkpoint } => context.seal_direct(checkpoint),
        Order::CloseDirect { checkpoint } => context.close_direct(checkpoint),
        Order::ReadDirect { checkpoint, directory, files, written_by } => {
            context.read_direct(checkpoint, directory, files, written_by)
        }
        Order::Note { checkpoint, locations } => context.note(checkpoint, locations),
        Order::Halt { state } => context.take_over_halt(&state),
    };
    agent.streams.settled(order);
    result.map_err(|error| Failure::from(error).on_node(&agent.start.node))
}
