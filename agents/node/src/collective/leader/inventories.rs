//! What the nodes hold.

use holdfast_model::Inventory;
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{Order, OrderResult};

use super::context::Context;
use crate::collective::error::CallError;

/// What each node of the plan holds, with the node's position in it.
pub(super) type Inventories = Vec<(u32, Inventory)>;

/// What every node holds; the leader takes the records of the datasets from it.
pub(super) async fn inventories(cx: &Context) -> Result<Inventories, CallError> {
    let mut results = cx.order(cx.all_nodes(&Order::Inventory)).await?;
    let mut inventories = Vec::with_capacity(results.len());
    for (at, node) in (0u32..).zip(&cx.plan().nodes) {
        let Some(OrderResult::Inventory(held)) = results.remove(&node.name) else { continue };
        cx.memory(|memory| {
            memory.datasets.extend(held.datasets.iter().map(|(id, dataset)| (*id, dataset.clone())));
        });
        for fault in &held.faults {
            cx.emit(AgentEvent::Notice { message: format!("node {}: {fault}", node.name) });
        }
        inventories.push((at, held));
    }
    Ok(inventories)
}
