//! The halt conditions: read on the leader's node, and written to all nodes.

use holdfast_model::HaltState;
use holdfast_wire::peer::Order;

use super::action::HaltWork;
use super::context::Context;
use super::files;
use crate::collective::error::CallError;

/// The halt condition that is met now, if any.
pub(super) async fn halt_condition(cx: &Context) -> Result<Option<String>, CallError> {
    Ok(files::halt(cx, HaltWork::Read).await?.met)
}

/// Writes the halt conditions to every node, so that they survive the loss of the leader's node; returns the one that
/// is met.
pub(super) async fn spread_halt(cx: &Context, state: HaltState) -> Result<Option<String>, CallError> {
    let met = state.met.clone();
    cx.order(cx.all_nodes(&Order::Halt { state })).await?;
    Ok(met)
}
