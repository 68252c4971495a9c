//! The saver for each kind of settings.

use crate::command::CommandSaver;
use crate::error::SaveError;
use crate::jubatus::JubatusSaver;
use crate::saver::{Saver, SaverContext};
use crate::settings::SaverSettings;
use crate::signal::SignalSaver;
use crate::watch::WatchSaver;

impl SaverSettings {
    /// # Errors
    /// The settings cannot be used on this machine.
    pub fn saver(&self, context: SaverContext) -> Result<Box<dyn Saver>, SaveError> {
        Ok(match self.clone() {
            SaverSettings::Command { save, timeout } => {
                Box::new(CommandSaver { words: save, timeout, variables: context.variables })
            }
            SaverSettings::Signal { signal, until, timeout } => Box::new(SignalSaver::new(&signal, until, timeout)?),
            SaverSettings::Watch { files } => Box::new(WatchSaver::start(&files, context)?),
            SaverSettings::Jubatus { servers, timeout, start_timeout } => {
                Box::new(JubatusSaver::new(&servers, timeout, start_timeout, context)?)
            }
        })
    }
}
