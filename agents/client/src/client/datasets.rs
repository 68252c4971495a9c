//! Named datasets, and output that is no checkpoint: the calls that SCR 3 added.

use holdfast_model::CheckpointId;
use holdfast_wire::rank::{Call, Reply};

use super::{Client, Phase, unexpected};
use crate::error::ClientError;

/// What a dataset is for; [`Default`] is what [`Client::start_checkpoint`] begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetOptions {
    /// The application's name for it, under which a restart finds it; it never becomes a path.
    pub name: Option<String>,
    /// A run can restart from it.
    pub checkpoint: bool,
    /// It must reach the prefix directory. Alone, without `checkpoint`, it leaves the cache then.
    pub output: bool,
    /// Files go to the prefix directory at once, past the cache: needed where several ranks write one file.
    pub bypass: bool,
}

impl Default for DatasetOptions {
    fn default() -> Self {
        DatasetOptions { name: None, checkpoint: true, output: false, bypass: false }
    }
}

impl Client {
    /// Begins a dataset (`SCR_Start_output` of SCR 3); ended by [`Client::complete_checkpoint`]. All ranks give the same
    /// options.
    pub fn start_output(&mut self, options: &DatasetOptions) -> Result<CheckpointId, ClientError> {
        if *options == DatasetOptions::default() {
            return self.start_checkpoint();
        }
        let DatasetOptions { name, checkpoint, output, bypass } = options.clone();
        self.start(Call::StartOutput { name, checkpoint, output, bypass }, "start_output")
    }

    /// The name that the dataset of [`Client::have_restart`] was given; `None` if it was given none. All ranks together.
    pub fn restart_name(&mut self) -> Result<Option<String>, ClientError> {
        match self.call(Call::RestartName)? {
            None => Ok(None),
            Some(Reply::Name(name)) => Ok(name),
            Some(other) => Err(unexpected(&Call::RestartName, &other)),
        }
    }

    /// Says that the application restarted by itself from the dataset of this name: what it writes from now on is newer.
    /// There is nothing to restart from any more, unless [`Client::load_current`] is called. All ranks together.
    pub fn current(&mut self, name: &str) -> Result<(), ClientError> {
        self.expect_computing("current")?;
        self.done(Call::Current { name: name.to_owned() })?;
        self.offered = None;
        Ok(())
    }

    /// Loads what the prefix directory has as current, instead of what `init` found: [`Client::have_restart`] then says
    /// what it is. All ranks together.
    pub fn load_current(&mut self) -> Result<(), ClientError> {
        self.expect_computing("load_current")?;
        match self.call(Call::Load)? {
            None => Ok(()),
            Some(Reply::Restart(restart)) => {
                self.take_restart(restart);
                Ok(())
            }
            Some(other) => Err(unexpected(&Call::Load, &other)),
        }
    }

    /// Has the index forget the dataset of this name; its files stay. All ranks together.
    pub fn drop_dataset(&mut self, name: &str) -> Result<(), ClientError> {
        self.expect_computing("drop_dataset")?;
        self.done(Call::Drop { name: name.to_owned() })
    }

    /// Deletes the dataset of this name, in cache and on the prefix directory. All ranks together.
    pub fn delete_dataset(&mut self, name: &str) -> Result<(), ClientError> {
        self.expect_computing("delete_dataset")?;
        self.done(Call::Delete { name: name.to_owned() })
    }

    pub(super) fn start(&mut self, call: Call, name: &'static str) -> Result<CheckpointId, ClientError> {
        self.expect_computing(name)?;
        let checkpoint = match self.call(call.clone())? {
            None => {
                self.last = self.last.next();
                self.last
            }
            Some(Reply::Started { checkpoint, .. }) => checkpoint,
            Some(other) => return Err(unexpected(&call, &other)),
        };
        self.offered = None;
        self.phase = Phase::Checkpointing(checkpoint);
        Ok(checkpoint)
    }

    fn done(&mut self, call: Call) -> Result<(), ClientError> {
        match self.call(call.clone())? {
            None | Some(Reply::Done) => Ok(()),
            Some(other) => Err(unexpected(&call, &other)),
        }
    }
}
