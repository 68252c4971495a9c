//! Named datasets, and output datasets: the calls that SCR 3 added.

use holdfast_model::CheckpointId;
use holdfast_wire::rank::{Call, GroupPlace, Reply};

use super::{Client, Phase};
use crate::error::ClientError;

/// The properties of a dataset; [`Default`] is that of [`Client::start_checkpoint`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetOptions {
    /// The application's name of the dataset, by which it can be restarted from. Its directory below the prefix carries
    /// it.
    pub name: Option<String>,
    /// A run can restart from it.
    pub checkpoint: bool,
    /// It must be flushed to the prefix directory, where its files lie at the paths that [`Client::route_file`] was
    /// given. Without `checkpoint`, it is removed from the cache afterwards.
    pub output: bool,
    /// Files are written to the prefix directory, not to the cache. Required if several ranks write one file.
    pub bypass: bool,
}

impl Default for DatasetOptions {
    fn default() -> Self {
        DatasetOptions { name: None, checkpoint: true, output: false, bypass: false }
    }
}

impl Client {
    /// Starts a dataset (`SCR_Start_output` of SCR 3); [`Client::complete_checkpoint`] ends it. All ranks must pass the
    /// same options.
    pub fn start_output(&mut self, options: &DatasetOptions) -> Result<CheckpointId, ClientError> {
        if *options == DatasetOptions::default() {
            return self.start_checkpoint();
        }
        let DatasetOptions { name, checkpoint, output, bypass } = options.clone();
        self.start(Call::StartOutput { name, checkpoint, output, bypass }, "start_output")
    }

    /// The name of the dataset of [`Client::have_restart`]; `None` if it has no name. Collective.
    pub fn restart_name(&mut self) -> Result<Option<String>, ClientError> {
        Ok(ask!(self, Call::RestartName, Reply::Name(name) => name).flatten())
    }

    /// Reports that the application restarted from the dataset of this name without Holdfast: datasets that it writes
    /// from now on are newer. Afterwards there is no checkpoint to restart from, unless [`Client::load_current`] is
    /// called. Collective.
    pub fn current(&mut self, name: &str) -> Result<(), ClientError> {
        self.expect_computing("current")?;
        self.done(Call::Current { name: name.to_owned() })?;
        self.offered = None;
        Ok(())
    }

    /// Loads the current dataset of the prefix directory, instead of the one that `init` found;
    /// [`Client::have_restart`] then returns it. Collective.
    pub fn load_current(&mut self) -> Result<(), ClientError> {
        self.expect_computing("load_current")?;
        if let Some(restart) = ask!(self, Call::Load, Reply::Restart(restart) => restart) {
            self.take_restart(restart);
        }
        Ok(())
    }

    /// Removes the dataset of this name from the index; its files are kept. Collective.
    pub fn drop_dataset(&mut self, name: &str) -> Result<(), ClientError> {
        self.expect_computing("drop_dataset")?;
        self.done(Call::Drop { name: name.to_owned() })
    }

    /// Deletes the dataset of this name from the cache and the prefix directory. Collective.
    pub fn delete_dataset(&mut self, name: &str) -> Result<(), ClientError> {
        self.expect_computing("delete_dataset")?;
        self.done(Call::Delete { name: name.to_owned() })
    }

    pub(super) fn start(&mut self, call: Call, name: &'static str) -> Result<CheckpointId, ClientError> {
        self.start_placed(call, name).map(|(checkpoint, _)| checkpoint)
    }

    /// Also returns the rank's place in its group, if a neighbour keeps a copy of its files.
    pub(super) fn start_placed(
        &mut self,
        call: Call,
        name: &'static str,
    ) -> Result<(CheckpointId, Option<GroupPlace>), ClientError> {
        self.expect_computing(name)?;
        let started = ask!(self, call, Reply::Started { checkpoint, mirrored, .. } => (checkpoint, mirrored));
        let (checkpoint, mirrored) = started.unwrap_or_else(|| {
            self.last = self.last.next();
            (self.last, None)
        });
        self.offered = None;
        self.routed.clear();
        self.phase = Phase::Checkpointing(checkpoint);
        Ok((checkpoint, mirrored))
    }

    pub(super) fn done(&mut self, call: Call) -> Result<(), ClientError> {
        ask!(self, call, Reply::Done => ());
        Ok(())
    }
}
