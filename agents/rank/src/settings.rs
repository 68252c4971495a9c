//! The settings of a rank process, from the job spec.

use std::time::Duration;

use holdfast_model::time::millis;
use serde::{Deserialize, Serialize};

/// The value of [`holdfast_wire::environment::RANK_SETTINGS`], as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankSettings {
    pub saver: SaverSettings,
    /// The command when there is a checkpoint to restart from; `None`: the same.
    #[serde(default)]
    pub resume: Option<Vec<String>>,
    /// How long the program may take from SIGTERM to its end after the last checkpoint before a halt.
    #[serde(with = "millis")]
    pub grace: Duration,
}

/// What has the program write the files of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SaverSettings {
    /// A command, which ends with exit code 0 when the files are complete.
    Command {
        save: Vec<String>,
        #[serde(with = "millis")]
        timeout: Duration,
    },
    /// A signal to the program.
    Signal {
        /// `USR1`, or its number.
        signal: String,
        until: Until,
        #[serde(with = "millis")]
        timeout: Duration,
    },
    /// Files that the program renames into place by itself.
    Watch { files: Vec<String> },
}

/// When the files that a program writes after a signal are complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// There is a file of this name beside them. It is not part of the checkpoint.
    File(String),
    /// There are files, and none has changed for so long.
    Quiet(#[serde(with = "millis")] Duration),
}
