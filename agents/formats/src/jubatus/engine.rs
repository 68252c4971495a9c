//! The engines, and their names in system data and file names.

use std::fmt;

use super::header::Release;
use super::schema::{self, ModelSchema};

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

    /// The structure that every server of this engine with this configuration requires of a model written by a server
    /// of release `writer`.
    pub(super) fn model_schema(self, writer: Release, config: &[u8]) -> ModelSchema {
        let complete = |schema| ModelSchema { schema, is_complete: true };
        let partial = |schema| ModelSchema { schema, is_complete: false };
        match self {
            Engine::Stat if writer < Release::new(0, 6, 0) => complete(&schema::WRAPPED_STAT),
            _ if writer < Release::new(0, 6, 0) => partial(&schema::WRAPPED),
            Engine::Stat => complete(&schema::STAT),
            // The structure of the other engines' models is known from release 1.0.0 on, completely from 1.1.0 on.
            Engine::Bandit | Engine::Burst | Engine::Graph if writer < Release::new(1, 1, 0) => {
                partial(&schema::STRUCTURE)
            }
            _ if writer < Release::new(1, 0, 0) => partial(&schema::STRUCTURE),
            Engine::Weight if writer < Release::new(1, 1, 0) => partial(&schema::WEIGHTS),
            _ if writer < Release::new(1, 1, 0) => partial(&schema::METHOD_AND_WEIGHTS),
            Engine::Bandit => complete(&schema::BANDIT),
            Engine::Graph => complete(&schema::GRAPH),
            Engine::Burst => partial(&schema::STRUCTURE),
            Engine::Weight => complete(&schema::WEIGHT),
            Engine::Classifier if is_linear(config) => complete(&schema::LINEAR_CLASSIFIER),
            Engine::Regression if is_linear(config) => complete(&schema::LINEAR_REGRESSION),
            // With an unlearner there is one more member.
            Engine::NearestNeighbor => partial(&schema::STRUCTURE),
            _ => partial(&schema::OTHER_METHOD),
        }
    }
}

/// The methods of classifiers and regressions whose model is a table of weights.
const LINEAR: [&str; 13] = [
    "perceptron",
    "PA",
    "passive_aggressive",
    "PA1",
    "passive_aggressive_1",
    "PA2",
    "passive_aggressive_2",
    "CW",
    "confidence_weighted",
    "AROW",
    "arow",
    "NHERD",
    "normal_herd",
];

/// True for a linear method without unlearner, which would add a member to the model.
fn is_linear(config: &[u8]) -> bool {
    let Ok(config) = serde_json::from_slice::<serde_json::Value>(config) else { return false };
    let method = config.get("method").and_then(serde_json::Value::as_str);
    let unlearner = config.get("parameter").and_then(|parameter| parameter.get("unlearner"));
    method.is_some_and(|method| LINEAR.contains(&method)) && unlearner.is_none_or(serde_json::Value::is_null)
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
