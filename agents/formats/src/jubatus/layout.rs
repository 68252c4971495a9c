//! The structure of an engine's model, as the server's configuration and the release that wrote it determine it: most
//! methods have a class of their own, an unlearner adds a member, and some methods contain another one.

use std::io::Read;

use serde_json::Value;

use super::engine::Engine;
use super::header::Release;
use super::msgpack::{MsgpackError, Token, TokenReader};
use super::schema::{Schema, ValueFindings, walk, walk_rest};
use super::structures as class;

/// The required structure of a model.
#[derive(Debug)]
pub(super) struct ModelLayout {
    layout: Layout,
    /// True if a server that decodes the model has no other requirements of the form of its values.
    pub(super) is_complete: bool,
}

#[derive(Debug)]
enum Layout {
    Class(&'static Schema),
    /// A table of hashes, all of this number of bits if it is known.
    Hashes {
        table: &'static Schema,
        bits: Option<u64>,
    },
    /// An array of exactly these.
    Parts(Vec<Layout>),
}

impl ModelLayout {
    /// Nothing is known.
    pub(super) const UNKNOWN: ModelLayout = ModelLayout { layout: Layout::Class(&Schema::Any), is_complete: false };

    /// The structure that every server of this engine with this configuration requires of a model written by a server
    /// of release `writer`.
    pub(super) fn of(engine: Engine, writer: Release, config: &[u8]) -> ModelLayout {
        let complete = |class| ModelLayout { layout: Layout::Class(class), is_complete: true };
        let partial = |class| ModelLayout { layout: Layout::Class(class), is_complete: false };
        match engine {
            Engine::Stat if writer < Release::new(0, 6, 0) => complete(&class::WRAPPED_STAT),
            Engine::Stat => complete(&class::STAT),
            // The structure of the other engines' models is known from release 1.0.0 on, completely from 1.1.0 on.
            _ if writer < Release::new(1, 0, 0) => partial(&class::STRUCTURE),
            Engine::Bandit | Engine::Burst | Engine::Graph if writer < Release::new(1, 1, 0) => {
                partial(&class::STRUCTURE)
            }
            Engine::Weight if writer < Release::new(1, 1, 0) => partial(&class::SOME_WEIGHTS),
            _ if writer < Release::new(1, 1, 0) => partial(&class::METHOD_AND_SOME_WEIGHTS),
            Engine::Bandit => complete(&class::BANDIT),
            Engine::Burst => complete(&class::BURST),
            Engine::Graph => complete(&class::GRAPH),
            Engine::Weight => with_weights(Vec::new()),
            _ => {
                let config = serde_json::from_slice(config).unwrap_or(Value::Null);
                match method_of(engine, &config) {
                    Some(method) => with_weights(vec![method]),
                    None => ModelLayout { is_complete: false, ..with_weights(vec![Layout::Class(&Schema::Any)]) },
                }
            }
        }
    }

    /// Reads a model inside `depth` open containers, as [`walk`] does.
    ///
    /// # Errors
    /// As [`walk`].
    pub(super) fn walk<R: Read>(
        &self,
        source: &mut TokenReader<R>,
        depth: usize,
        seen: &mut ValueFindings,
    ) -> Result<(), MsgpackError> {
        self.layout.walk(source, depth, seen)
    }
}

impl Layout {
    fn walk<R: Read>(
        &self,
        source: &mut TokenReader<R>,
        depth: usize,
        seen: &mut ValueFindings,
    ) -> Result<(), MsgpackError> {
        match self {
            Layout::Class(class) => walk(source, depth, class, seen),
            Layout::Hashes { table, bits } => {
                walk(source, depth, table, seen)?;
                if let Some((offset, found)) = seen.hash_bits.take()
                    && bits.is_some_and(|bits| bits != found)
                {
                    seen.mismatch_at(offset);
                }
                Ok(())
            }
            Layout::Parts(parts) => {
                let offset = source.offset();
                match source.token()? {
                    Token::Array(members) if members as usize == parts.len() => {
                        parts.iter().try_for_each(|part| part.walk(source, depth + 1, seen))
                    }
                    other => {
                        seen.mismatch_at(offset);
                        seen.new_forms |= matches!(other, Token::Text { new_form: true, .. });
                        walk_rest(source, depth, other, seen)
                    }
                }
            }
        }
    }
}

/// These, and the weights of the converter.
fn with_weights(mut parts: Vec<Layout>) -> ModelLayout {
    parts.push(Layout::Class(&class::WEIGHT_MANAGER));
    ModelLayout { layout: Layout::Parts(parts), is_complete: true }
}

/// A method and its parameters. Configurations, and the parameters of methods that contain another one, have both.
struct Method<'a> {
    name: &'a str,
    parameter: &'a Value,
}

impl<'a> Method<'a> {
    fn of(config: &'a Value) -> Option<Method<'a>> {
        Some(Method {
            name: config.get("method")?.as_str()?,
            parameter: config.get("parameter").unwrap_or(&Value::Null),
        })
    }

    /// An array of these, after the unlearner if there is one.
    fn parts(&self, classes: impl IntoIterator<Item = Layout>) -> Option<Layout> {
        let unlearner = match self.parameter.get("unlearner") {
            None | Some(Value::Null) => None,
            Some(name) => Some(Layout::Class(match name.as_str()? {
                "lru" => &class::LRU_UNLEARNER,
                "random" => &class::RANDOM_UNLEARNER,
                _ => return None,
            })),
        };
        Some(Layout::Parts(unlearner.into_iter().chain(classes).collect()))
    }
}

/// The data of an engine's method; `None` if no server of release 1.1 can be started with the configuration.
fn method_of(engine: Engine, config: &Value) -> Option<Layout> {
    match engine {
        Engine::Anomaly => anomaly(&Method::of(config)?),
        Engine::Classifier => classifier(&Method::of(config)?),
        // The method of a clustering has no data that are saved.
        Engine::Clustering => match config.get("compressor_method")?.as_str()? {
            "simple" => Some(Layout::Class(&class::SIMPLE_STORAGE)),
            "compressive" => Some(Layout::Class(&class::COMPRESSIVE_STORAGE)),
            _ => None,
        },
        Engine::NearestNeighbor => nearest_neighbor(config),
        Engine::Recommender => recommender(&Method::of(config)?),
        Engine::Regression => regression(&Method::of(config)?),
        Engine::Bandit | Engine::Burst | Engine::Graph | Engine::Stat | Engine::Weight => None,
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

fn classifier(method: &Method<'_>) -> Option<Layout> {
    let labels = Layout::Class(&class::LABELS);
    match method.name {
        name if LINEAR.contains(&name) => method.parts([Layout::Class(&class::LINEAR_STORAGE), labels]),
        "NN" | "nearest_neighbor" => method.parts([nearest_neighbor(method.parameter)?, labels]),
        // Without unlearner, whatever the configuration is.
        "cosine" | "euclidean" => Some(Layout::Parts(vec![Layout::Class(&class::INVERTED_INDEX), labels])),
        _ => None,
    }
}

fn regression(method: &Method<'_>) -> Option<Layout> {
    let values = Layout::Class(&class::VALUE_TABLE);
    match method.name {
        name if LINEAR.contains(&name) => Some(Layout::Parts(vec![Layout::Class(&class::LINEAR_STORAGE)])),
        "NN" | "nearest_neighbor" => method.parts([nearest_neighbor(method.parameter)?, values]),
        "cosine" | "euclidean" => Some(Layout::Parts(vec![Layout::Class(&class::INVERTED_INDEX), values])),
        _ => None,
    }
}

fn recommender(method: &Method<'_>) -> Option<Layout> {
    let index = match method.name {
        "inverted_index" | "inverted_index_euclid" => Layout::Class(&class::INVERTED_INDEX),
        "minhash" | "lsh" => Layout::Class(&class::BIT_INDEX),
        "euclid_lsh" => Layout::Class(&class::LSH_INDEX),
        "nearest_neighbor_recommender" => nearest_neighbor(method.parameter)?,
        _ => return None,
    };
    method.parts([Layout::Class(&class::SPARSE_MATRIX), index])
}

fn anomaly(method: &Method<'_>) -> Option<Layout> {
    match method.name {
        "lof" => method.parts([Layout::Class(&class::LOF_STORAGE), recommender(&Method::of(method.parameter)?)?]),
        "light_lof" => method.parts([nearest_neighbor(method.parameter)?, Layout::Class(&class::LIGHT_LOF_TABLE)]),
        _ => None,
    }
}

/// The table of the nearest neighbour method that is named in a configuration or in parameters.
fn nearest_neighbor(config: &Value) -> Option<Layout> {
    let method = Method::of(config)?;
    let table = match method.name {
        "lsh" | "minhash" => &class::HASH_TABLE,
        "euclid_lsh" => &class::HASH_AND_NORM_TABLE,
        _ => return None,
    };
    Some(Layout::Hashes { table, bits: method.parameter.get("hash_num").and_then(Value::as_u64) })
}

#[cfg(test)]
mod tests {
    use super::super::examples::{EXAMPLES, Example};
    use super::*;

    fn walked(layout: &ModelLayout, model: &[u8]) -> ValueFindings {
        let mut seen = ValueFindings::default();
        let mut source = TokenReader::block(model, model.len() as u64);
        layout.walk(&mut source, 0, &mut seen).unwrap();
        assert_eq!(source.offset(), model.len() as u64);
        seen
    }

    fn layout(example: &Example, config: &str) -> ModelLayout {
        ModelLayout::of(example.engine, Release::NEWEST, config.as_bytes())
    }

    #[test]
    fn every_value_of_every_method_is_checked() {
        for example in EXAMPLES {
            let layout = layout(example, example.config);
            let (model, values) = example.model();
            assert!(layout.is_complete, "{}", example.config);
            assert_eq!(walked(&layout, &model).mismatch, None, "{}", example.config);
            assert!(values > 40, "{}: {values}", example.config);
            for value in 0..values {
                let (changed, offset) = example.model_with_nil_at(value);
                assert_eq!(walked(&layout, &changed).mismatch, Some(offset), "{}: value {value}", example.config);
            }
        }
    }

    #[test]
    fn model_of_another_method_or_without_the_unlearner_is_refused() {
        let mut refused = 0;
        for example in EXAMPLES {
            let (model, _) = example.model();
            // A server ignores that a table has another number of columns.
            let is_other = |other: &&Example| other.engine == example.engine && other.engine != Engine::NearestNeighbor;
            for other in EXAMPLES.iter().filter(is_other) {
                let found = walked(&layout(example, other.config), &model).mismatch;
                assert_eq!(found.is_none(), other.config == example.config, "{} as {}", example.config, other.config);
                refused += usize::from(found.is_some());
            }
            let without = example.config.replace("unlearner", "other");
            let found = walked(&layout(example, &without), &model).mismatch;
            assert_eq!(found.is_none(), without == example.config, "{without}");
        }
        assert!(refused > 20, "{refused}");
    }

    #[test]
    fn hashes_have_the_number_of_bits_of_the_configuration() {
        let mut refused = 0;
        let has_table = |example: &&Example| {
            example.engine == Engine::NearestNeighbor || example.config.contains("nearest_neighbor")
        };
        for example in EXAMPLES.iter().filter(has_table) {
            let (model, _) = example.model();
            let longer = example.config.replace(r#""hash_num":64"#, r#""hash_num":65"#);
            let found = walked(&layout(example, &longer), &model).mismatch;
            assert_eq!(found.is_none(), longer == example.config, "{longer}");
            refused += usize::from(found.is_some());
        }
        assert!(refused > 0);
    }

    #[test]
    fn data_of_an_unknown_method_are_any_and_reported_as_not_checked() {
        for (engine, config) in [
            (Engine::Anomaly, r#"{"method":"lof","parameter":{"method":"x"}}"#),
            (Engine::Anomaly, r#"{"method":"lof"}"#),
            (Engine::Classifier, r#"{"method":"AROW","parameter":{"unlearner":"x"}}"#),
            (Engine::Clustering, r#"{"method":"kmeans"}"#),
            (Engine::NearestNeighbor, r#"{"method":7}"#),
            (Engine::Recommender, "not JSON"),
        ] {
            let layout = ModelLayout::of(engine, Release::NEWEST, config.as_bytes());
            assert!(!layout.is_complete, "{config}");
            assert_eq!(walked(&layout, b"\x92\x07\x90").mismatch, None, "{config}");
            assert_eq!(walked(&layout, b"\x92\x07\x01").mismatch, Some(2), "{config}");
            assert_eq!(walked(&layout, b"\x91\x07").mismatch, Some(0), "{config}");
        }
    }
}
