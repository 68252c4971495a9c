//! The engines, and their names in system data and file names.

use std::fmt;

/// The kind of a Jubatus server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
