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
    let inventories = unrecorded(cx).await?;
    for (at, held) in &inventories {
        cx.memory(|memory| {
            memory.datasets.extend(held.datasets.iter().map(|(id, dataset)| (*id, dataset.clone())));
        });
        let node = cx.plan().nodes.get(*at as usize).map(|node| node.name.to_string()).unwrap_or_default();
        for fault in &held.faults {
            cx.emit(AgentEvent::Notice { message: format!("node {node}: {fault}") });
        }
    }
    Ok(inventories)
}

/// The same beside the collectives: one of them may describe a dataset meanwhile, whose record some node does not have.
pub(super) async fn unrecorded(cx: &Context) -> Result<Inventories, CallError> {
    let mut results = cx.order(cx.all_nodes(&Order::Inventory)).await?;
    let mut inventories = Vec::with_capacity(results.len());
    for (at, node) in (0u32..).zip(&cx.plan().nodes) {
        let Some(OrderResult::Inventory(held)) = results.remove(&node.name) else { continue };
        inventories.push((at, held));
    }
    Ok(inventories)
}
