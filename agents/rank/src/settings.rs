//! The settings of a rank process, from the job spec.

use std::time::Duration;

use holdfast_model::Rank;
use holdfast_model::time::millis;
use serde::{Deserialize, Serialize};

/// The value of [`holdfast_wire::environment::RANK_SETTINGS`], as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankSettings {
    pub saver: SaverSettings,
    /// The command when there is a checkpoint to restart from; `None`: the same.
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
    /// Files that the program renames into place.
    Watch { files: Vec<String> },
    /// The program is a Jubatus server, which saves and loads on request.
    Jubatus {
        servers: JubatusServers,
        /// Of each `save` and `load`.
        #[serde(with = "millis")]
        timeout: Duration,
        /// Until a server that was started answers.
        #[serde(with = "millis")]
        start_timeout: Duration,
    },
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

/// Where the ranks reach their servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JubatusServers {
    /// That of rank 0; the port of the others is higher by their rank.
    From(JubatusEndpoint),
    /// One for each rank.
    Each(Vec<JubatusEndpoint>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JubatusEndpoint {
    /// `classifier`, …
    #[serde(rename = "type")]
    pub engine: String,
    /// An address, a name, or `node`: the name of the rank's node.
    pub host: String,
    pub port: u16,
    /// The name of the cluster.
    pub name: String,
}

impl JubatusEndpoint {
    /// The value of `host` for the name of the rank's node.
    pub const NODE: &str = "node";
}

impl JubatusServers {
    /// The server of a rank; `None` if the list is too short, or the port would be too high.
    pub fn of_rank(&self, rank: Rank) -> Option<JubatusEndpoint> {
        match self {
            JubatusServers::From(first) => {
                let port = u16::try_from(u64::from(first.port) + u64::from(rank.0)).ok()?;
                Some(JubatusEndpoint { port, ..first.clone() })
            }
            JubatusServers::Each(servers) => servers.get(usize::try_from(rank.0).ok()?).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_count_up_from_rank_0_unless_each_server_has_its_own() {
        let endpoint = |port| JubatusEndpoint {
            engine: "stat".to_owned(),
            host: JubatusEndpoint::NODE.to_owned(),
            port,
            name: String::new(),
        };
        let from = JubatusServers::From(endpoint(9199));
        assert_eq!(from.of_rank(Rank(3)), Some(endpoint(9202)));
        assert_eq!(from.of_rank(Rank(65535 - 9198)), None);
        let each = JubatusServers::Each(vec![endpoint(1), endpoint(7)]);
        assert_eq!((each.of_rank(Rank(1)), each.of_rank(Rank(2))), (Some(endpoint(7)), None));
    }
}
