//! `checkpoint.jubatus:`: where each rank reaches its Jubatus server, and when the models are saved.

use std::time::Duration;

use holdfast_formats::jubatus::Engine;
use holdfast_rank::{JubatusEndpoint, JubatusServers};

use super::frequency::SHORTEST;
use super::keys::{keys, list};
use super::reading::Section;
use super::value_kinds::{Choice, choice, duration, text, whole};

/// The default port of Jubatus servers.
const DEFAULT_PORT: u16 = 9199;
const LOOPBACK: &str = "127.0.0.1";

keys! {
    /// The Jubatus servers of a step: `run.command` starts one for each rank.
    pub struct Jubatus {
        /// The type of the servers, such as `classifier`.
        r#type: Option<Engine> = choice::<Engine>().optional(),
        /// The port of the server of rank 0; that of rank R is higher by R. `$HOLDFAST_JUBATUS_PORT` in `run.command`.
        /// Default: 9199.
        port: Option<u16> = whole::<u16>(1..=u16::MAX.into()).optional(),
        /// The address at which each rank reaches its server; `node`: the name of the rank's node. Default: 127.0.0.1.
        host: Option<String> = text().optional(),
        /// The name of the cluster, if there is one.
        name: Option<String> = text().optional(),
        /// The servers of the ranks, one element for each rank, if they differ.
        servers: Vec<JubatusServer> = list::<JubatusServer>(),
        /// Time from the end of a checkpoint to the next one. Before a halt there is one at once. Default:
        /// `checkpoint.every`.
        every: Option<Duration> = duration().optional(),
        /// Time limit of each `save` and `load`. A checkpoint with a save that takes longer is dropped.
        timeout: Duration = duration().or(Duration::from_secs(60)),
        /// A server must answer within this time after it was started.
        start_timeout: Duration = duration().or(Duration::from_secs(60)),
    }
    checked by Jubatus::check;
}

keys! {
    /// The server of one rank. Keys that are left out have the value beside `servers`.
    pub struct JubatusServer {
        /// The type of the server.
        r#type: Option<Engine> = choice::<Engine>().optional(),
        /// Its port.
        port: Option<u16> = whole::<u16>(1..=u16::MAX.into()).optional(),
        /// Its address.
        host: Option<String> = text().optional(),
        /// The name of its cluster.
        name: Option<String> = text().optional(),
    }
}

impl Choice for Engine {
    const AVAILABLE: &'static [(&'static str, Self)] = &[
        ("anomaly", Engine::Anomaly),
        ("bandit", Engine::Bandit),
        ("burst", Engine::Burst),
        ("classifier", Engine::Classifier),
        ("clustering", Engine::Clustering),
        ("graph", Engine::Graph),
        ("nearest_neighbor", Engine::NearestNeighbor),
        ("recommender", Engine::Recommender),
        ("regression", Engine::Regression),
        ("stat", Engine::Stat),
        ("weight", Engine::Weight),
    ];
}

impl Jubatus {
    fn check(&self, section: &Section<'_>) {
        if self.every.is_some_and(|every| every < SHORTEST) {
            section.mistake("every", "shorter than 100ms", "write `every: 10min`");
        }
        if self.timeout.is_zero() {
            section.mistake("timeout", "every checkpoint would be dropped", "write `timeout: 60s`");
        }
        if self.start_timeout.is_zero() {
            section.mistake("start_timeout", "no server can be ready at once", "write `start_timeout: 60s`");
        }
        if self.servers.is_empty() {
            return;
        }
        let all = |is_set: fn(&JubatusServer) -> bool| self.servers.iter().all(is_set);
        let unused = [
            ("type", self.r#type.is_some() && all(|server| server.r#type.is_some())),
            ("port", self.port.is_some() && all(|server| server.port.is_some())),
            ("host", self.host.is_some() && all(|server| server.host.is_some())),
            ("name", self.name.is_some() && all(|server| server.name.is_some())),
        ];
        for (key, _) in unused.into_iter().filter(|(_, is_unused)| *is_unused) {
            let message = format!("`{key}` has no effect: every element of `servers` has its own");
            section.mistake(key, message, "leave it out");
        }
    }

    /// The port of the server of rank 0.
    pub fn first_port(&self) -> u16 {
        self.port.unwrap_or(DEFAULT_PORT)
    }

    /// Where the ranks reach their servers; `None` if a type is missing.
    pub fn endpoints(&self) -> Option<JubatusServers> {
        let own =
            JubatusServer { r#type: self.r#type, port: self.port, host: self.host.clone(), name: self.name.clone() };
        if self.servers.is_empty() {
            return own.endpoint().map(JubatusServers::From);
        }
        let first = self.first_port();
        let each = (0_u16..).zip(&self.servers).map(|(rank, server)| {
            let server = JubatusServer {
                r#type: server.r#type.or(self.r#type),
                port: server.port.or(first.checked_add(rank)),
                host: server.host.clone().or(self.host.clone()),
                name: server.name.clone().or(self.name.clone()),
            };
            server.endpoint()
        });
        each.collect::<Option<_>>().map(JubatusServers::Each)
    }
}

impl JubatusServer {
    fn endpoint(&self) -> Option<JubatusEndpoint> {
        Some(JubatusEndpoint {
            engine: self.r#type?.name().to_owned(),
            host: self.host.clone().unwrap_or_else(|| LOOPBACK.to_owned()),
            port: self.port.unwrap_or(DEFAULT_PORT),
            name: self.name.clone().unwrap_or_default(),
        })
    }
}
