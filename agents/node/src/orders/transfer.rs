//! Moves files of ranks to the nodes on which they now run.

use holdfast_core::control::meta::Meta;
use holdfast_core::redundancy::descriptor::from_tree;
use holdfast_model::{CheckpointId, CrcOnCopy};
use holdfast_wire::peer::{FilesKey, Member, OrderResult, Purpose, RankTransfer};

use super::context::{OrderContext, Result, rank_directory};
use super::error::OrderError;
use super::files::KeepAs;
use crate::copy::pipeline::Checksum;
use crate::report::events::total_bytes;

impl OrderContext<'_> {
    pub(super) fn transfer(
        &self,
        checkpoint: CheckpointId,
        outgoing: &[RankTransfer],
        incoming: &[Member],
    ) -> Result<OrderResult> {
        enum Step<'a> {
            Send(&'a RankTransfer),
            Receive(&'a Member),
        }
        let steps: Vec<Step<'_>> = outgoing.iter().map(Step::Send).chain(incoming.iter().map(Step::Receive)).collect();
        self.at_once(&steps, |step| match step {
            Step::Send(step) => self.send_rank(checkpoint, step),
            Step::Receive(member) => self.receive_rank(checkpoint, member),
        })?;
        self.agent.store.fold_logs()?;
        Ok(OrderResult::Done)
    }

    fn send_rank(&self, checkpoint: CheckpointId, step: &RankTransfer) -> Result<()> {
        let not_held = || OrderError::NotHeld { checkpoint, rank: step.rank };
        let descriptor = self.agent.store.descriptor(checkpoint, step.rank).ok_or_else(not_held)?;
        let descriptor = from_tree(&descriptor).map_err(|source| OrderError::Descriptor { rank: step.rank, source })?;
        let owner = Member { rank: step.rank, descriptor };
        let total = self.bytes_of(checkpoint, step)?;
        let working = self.agent.progress.begin(holdfast_model::Task::Transfer, checkpoint, total);
        let purpose = Purpose::Files(FilesKey { order: self.order, rank: step.rank });
        let mut stream = self.connect(&step.to, purpose)?;
        let checksum = Checksum::of(self.run.plan.settings.crc.on_copy != CrcOnCopy::Never);
        self.send_files(&self.pipeline(), &mut stream, checkpoint, &owner, checksum, &working).map(drop)
    }

    /// The sender keeps its files, so that a repeated order replaces what was received before.
    fn receive_rank(&self, checkpoint: CheckpointId, member: &Member) -> Result<()> {
        let purpose = Purpose::Files(FilesKey { order: self.order, rank: member.rank });
        let mut stream = self.claim(&purpose)?;
        self.receive_files(&mut stream, checkpoint, member.rank, &KeepAs::Own)
    }

    fn bytes_of(&self, checkpoint: CheckpointId, step: &RankTransfer) -> Result<u64> {
        let directory = rank_directory(self.agent, checkpoint, step.rank)?;
        let names = self.agent.store.files(checkpoint, step.rank);
        let metas = names.iter().filter_map(|name| Meta::read(&directory.join(name)).ok());
        Ok(total_bytes(metas.map(|meta| meta.size)))
    }
}
