//! Orders that change what the node records of datasets and of the halt conditions, and delete datasets.

use std::collections::BTreeSet;

use holdfast_core::redundancy::descriptor;
use holdfast_model::{CheckpointId, HaltState, Locations, Rank};
use holdfast_wire::peer::{Member, OrderResult};

use super::context::{OrderContext, Result};
use super::error::OrderError;
use crate::agent::inventory::inventory;

impl OrderContext<'_> {
    pub(super) fn inventory(&self) -> Result<OrderResult> {
        Ok(OrderResult::Inventory(inventory(self.agent)?))
    }

    pub(super) fn delete(
        &self,
        checkpoints: &[CheckpointId],
        all_but: Option<&BTreeSet<CheckpointId>>,
    ) -> Result<OrderResult> {
        self.delete_all(checkpoints, all_but)?;
        self.agent.store.fold_logs()?;
        Ok(OrderResult::Done)
    }

    fn delete_all(&self, checkpoints: &[CheckpointId], all_but: Option<&BTreeSet<CheckpointId>>) -> Result<()> {
        let store = &self.agent.store;
        let others =
            all_but.map(|keep| store.checkpoints().into_iter().filter(|id| !keep.contains(id)).collect::<Vec<_>>());
        for id in checkpoints.iter().copied().chain(others.into_iter().flatten()) {
            if self.run.plan.settings.crc.on_delete {
                self.report_differing(id);
            }
            store.delete(id)?;
            store.flush.forget(id)?;
            self.remember(|memory| memory.forget(id))?;
        }
        Ok(())
    }

    pub(super) fn prepare(
        &self,
        checkpoint: CheckpointId,
        delete: &[CheckpointId],
        members: &[Member],
    ) -> Result<OrderResult> {
        self.agent.store.free_later(delete);
        self.delete_all(delete, None)?;
        for member in members {
            let descriptor = descriptor::to_tree(&member.descriptor);
            // The entry first: a directory without an entry would never be deleted.
            self.agent.store.set_descriptor(checkpoint, member.rank, member.rank, &descriptor)?;
            self.agent.store.make_directory(checkpoint, &descriptor)?;
        }
        self.remember(|memory| {
            memory.open = Some(checkpoint);
            memory.restart = None;
            memory.direct = None;
        })?;
        Ok(OrderResult::Done)
    }

    pub(super) fn commit(&self, checkpoint: CheckpointId) -> Result<OrderResult> {
        for rank in self.local() {
            let files = self.agent.store.files(checkpoint, *rank).len();
            self.agent.store.set_expected(checkpoint, *rank, *rank, u32::try_from(files).unwrap_or(u32::MAX))?;
        }
        self.agent.store.free_behind();
        self.agent.store.fold_logs()?;
        self.remember(|memory| memory.open = memory.open.filter(|open| *open != checkpoint))?;
        self.remember_restart(checkpoint)?;
        Ok(OrderResult::Done)
    }

    pub(super) fn adopt(&self, checkpoint: CheckpointId, members: &[Member], restart: bool) -> Result<OrderResult> {
        for member in members {
            self.agent.store.move_rank_to_slot(member.rank, member.rank)?;
            let descriptor = descriptor::to_tree(&member.descriptor);
            let known = self.agent.store.descriptor(checkpoint, member.rank);
            // To write an equal descriptor would only change the order of its elements.
            if !known.is_some_and(|known| known.same_content(&descriptor)) {
                self.agent.store.set_descriptor(checkpoint, member.rank, member.rank, &descriptor)?;
            }
            self.agent.store.make_directory(checkpoint, &descriptor)?;
        }
        self.agent.store.fold_logs()?;
        if restart {
            self.remember_restart(checkpoint)?;
        }
        Ok(OrderResult::Done)
    }

    pub(super) fn discard(&self, checkpoint: CheckpointId, ranks: &[Rank]) -> Result<OrderResult> {
        for rank in ranks {
            self.agent.store.delete_rank(checkpoint, *rank)?;
        }
        self.agent.store.fold_logs()?;
        Ok(OrderResult::Done)
    }

    pub(super) fn note(&self, checkpoint: CheckpointId, locations: Locations) -> Result<OrderResult> {
        self.agent.store.flush.note(checkpoint, locations)?;
        Ok(OrderResult::Done)
    }

    pub(super) fn take_over_halt(&self, state: &HaltState) -> Result<OrderResult> {
        let moment = self.agent.halt.moment(chrono::Utc::now().timestamp(), &self.run.plan.settings);
        self.agent.halt.take_over(state, &moment).map_err(OrderError::Halt)?;
        Ok(OrderResult::Done)
    }
}
