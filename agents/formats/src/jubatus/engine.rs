//! The engines, and their names in system data and file names.

use std::fmt;

use super::header::Release;
use super::schema::{self, Schema};

/// The kind of a Jubatus server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is the engine of that name")]
pub enum Engine {
    Anomaly,
    Bandit,
    Burst,
    Classifier,
    Clustering,
    Graph,
    NearestNeighbor,
    Recommender,
    Regression,
    Stat,
    Weight,
}

impl Engine {
    /// All engines.
    pub const ALL: [Engine; 11] = [
        Engine::Anomaly,
        Engine::Bandit,
        Engine::Burst,
        Engine::Classifier,
        Engine::Clustering,
        Engine::Graph,
        Engine::NearestNeighbor,
        Engine::Recommender,
        Engine::Regression,
        Engine::Stat,
        Engine::Weight,
    ];

    /// The engine's name in files, file names and programs (`juba<name>`).
    pub fn name(self) -> &'static str {
        match self {
            Engine::Anomaly => "anomaly",
            Engine::Bandit => "bandit",
            Engine::Burst => "burst",
            Engine::Classifier => "classifier",
            Engine::Clustering => "clustering",
            Engine::Graph => "graph",
            Engine::NearestNeighbor => "nearest_neighbor",
            Engine::Recommender => "recommender",
            Engine::Regression => "regression",
            Engine::Stat => "stat",
            Engine::Weight => "weight",
        }
    }

    /// The engine of this name.
    pub fn from_name(name: &[u8]) -> Option<Engine> {
        Engine::ALL.into_iter().find(|engine| engine.name().as_bytes() == name)
    }

    /// The structure that every server of this engine requires of a model written by a server of release `writer`.
    pub(super) fn model_schema(self, writer: Release) -> &'static Schema {
        match self {
            Engine::Stat if writer < Release::new(0, 6, 0) => &schema::WRAPPED_STAT,
            _ if writer < Release::new(0, 6, 0) => &schema::WRAPPED,
            Engine::Stat => &schema::STAT,
            Engine::Bandit | Engine::Burst | Engine::Graph => &schema::STRUCTURE,
            // The structure of the other engines' models is known from release 1.0.0 on.
            _ if writer < Release::new(1, 0, 0) => &schema::STRUCTURE,
            Engine::Weight => &schema::WEIGHTS,
            _ => &schema::METHOD_AND_WEIGHTS,
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
