//! `<prefix>/.holdfast/commands.json`: the commands of `before:` and `after:` that succeeded in the present allocation,
//! so that none of them is run twice in it. In a job of several steps it is in the job's prefix directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use holdfast_core::owned::OwnedError;
use holdfast_core::state_directory::StateDirectory;
use holdfast_core::state_files;
use holdfast_model::NodeName;
use serde::{Deserialize, Serialize};

use crate::events::CommandKey;
use crate::spec::SiteCommand;

const VERSION: u32 = 1;
const FILE: &str = "commands.json";
const OUTPUT: &str = "commands";
/// The record of a job with hundreds of commands on ten thousand nodes is smaller.
const LARGEST: u64 = 64 << 20;

/// The commands that succeeded in an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CommandRecord {
    version: u32,
    allocation: String,
    done: Vec<DoneCommand>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DoneCommand {
    key: CommandKey,
    /// Its position in the list of the spec.
    number: usize,
    command: Vec<String>,
    /// The nodes on which it succeeded.
    nodes: BTreeSet<NodeName>,
}

impl DoneCommand {
    fn is(&self, key: CommandKey, number: usize, command: &SiteCommand) -> bool {
        self.key == key && self.number == number && self.command == command.command
    }
}

impl CommandRecord {
    fn new(allocation: &str) -> Self {
        CommandRecord { version: VERSION, allocation: allocation.to_owned(), done: Vec::new() }
    }

    /// The record of this allocation; empty if there is none. One that cannot be used counts as none: a command that is
    /// run again is better than one that is left out.
    pub(super) fn read(prefix: &Path, allocation: &str) -> Self {
        let read = state_files::read(&file(prefix), LARGEST).unwrap_or_else(|error| {
            tracing::warn!(%error, "the record of finished commands is not used");
            None
        });
        let known: Option<Self> = read.and_then(|text| serde_json::from_slice(&text).ok());
        let known = known.filter(|known| known.version == VERSION && known.allocation == allocation);
        known.unwrap_or_else(|| CommandRecord::new(allocation))
    }

    /// The nodes on which a command succeeded.
    pub(super) fn done(&self, key: CommandKey, number: usize, command: &SiteCommand) -> BTreeSet<NodeName> {
        let done = self.done.iter().filter(|done| done.is(key, number, command));
        done.flat_map(|done| done.nodes.iter().cloned()).collect()
    }

    pub(super) fn add(&mut self, key: CommandKey, number: usize, command: &SiteCommand, nodes: BTreeSet<NodeName>) {
        match self.done.iter_mut().find(|done| done.is(key, number, command)) {
            Some(done) => done.nodes.extend(nodes),
            None => self.done.push(DoneCommand { key, number, command: command.command.clone(), nodes }),
        }
    }

    /// Writes the record.
    pub(super) fn write(&self, prefix: &Path) -> Result<(), OwnedError> {
        // Names and lists of strings can always be written as JSON.
        state_files::replace(&file(prefix), &serde_json::to_vec(self).unwrap_or_default())
    }
}

/// A job begins in an allocation: the commands of `after:` are run at its end, whether they were run before or not, and
/// those of `before:` too if the job is repeated.
pub(super) fn begin(prefix: &Path, allocation: &str, repeated: bool) -> Result<(), OwnedError> {
    let mut record = CommandRecord::read(prefix, allocation);
    record.done.retain(|done| done.key == CommandKey::Before && !repeated);
    state_files::create_directory(StateDirectory::below(prefix).path())?;
    record.write(prefix)
}

/// The directory for the output of the commands in an allocation.
pub(super) fn output_directory(prefix: &Path, allocation: &str) -> PathBuf {
    StateDirectory::below(prefix).join(OUTPUT).join(allocation.replace('/', "_"))
}

fn file(prefix: &Path) -> PathBuf {
    StateDirectory::below(prefix).join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::CommandNodes;

    fn command(program: &str) -> SiteCommand {
        SiteCommand { command: vec![program.to_owned()], on: CommandNodes::All, time_limit: None }
    }

    #[test]
    fn commands_are_done_in_their_allocation_only_and_as_long_as_they_are_the_same() {
        let prefix = tempfile::tempdir().unwrap();
        begin(prefix.path(), "17", false).unwrap();
        let mut record = CommandRecord::read(prefix.path(), "17");
        record.add(CommandKey::Before, 0, &command("a"), ["n1".into()].into());
        record.add(CommandKey::Before, 0, &command("a"), ["n2".into()].into());
        record.add(CommandKey::After, 0, &command("b"), ["n1".into()].into());
        record.write(prefix.path()).unwrap();
        let done = |allocation: &str, number, program: &str| {
            CommandRecord::read(prefix.path(), allocation).done(CommandKey::Before, number, &command(program)).len()
        };
        assert_eq!((done("17", 0, "a"), done("17", 1, "a"), done("17", 0, "c"), done("18", 0, "a")), (2, 0, 0, 0));
        begin(prefix.path(), "17", false).unwrap();
        assert_eq!(done("17", 0, "a"), 2);
        let after = CommandRecord::read(prefix.path(), "17").done(CommandKey::After, 0, &command("b"));
        assert!(after.is_empty());
        begin(prefix.path(), "17", true).unwrap();
        assert_eq!(done("17", 0, "a"), 0);
    }

    #[test]
    fn a_damaged_record_counts_as_none() {
        let prefix = tempfile::tempdir().unwrap();
        begin(prefix.path(), "17", false).unwrap();
        state_files::replace(&file(prefix.path()), b"{").unwrap();
        assert_eq!(CommandRecord::read(prefix.path(), "17"), CommandRecord::new("17"));
    }
}
