//! Small models of the engines and methods of which no file of a server is at hand, for tests and as inputs of fuzzing.
//! They follow the classes of jubatus_core 1.1.1.

use serde_json::{Value, json};

use super::engine::Engine;
use super::msgpack::{put_array, put_text, put_unsigned};

pub(crate) struct Example {
    pub engine: Engine,
    pub config: &'static str,
    /// The data of the method; the weights of the converter follow.
    method: fn() -> Value,
}

/// A map in the notation of a description.
fn map(key: impl Into<Value>, value: impl Into<Value>) -> Value {
    json!({ "$map": [[key.into(), value.into()]] })
}

fn weights() -> Value {
    let counted = || [map("f", 1.5)];
    let keywords = json!([1, counted(), counted(), counted(), map("f", 0.5)]);
    json!([[0], keywords, keywords])
}

fn keys() -> Value {
    json!([map("k", 0), map(0, "k"), 1])
}

fn lru() -> Value {
    json!([["a"], ["b"]])
}

fn random() -> Value {
    json!([map("a", 0), ["a"]])
}

fn labels() -> Value {
    json!([map("l", 1), map("l", 0), [0]])
}

fn matrix() -> Value {
    json!([map("a", map(0, 0.5)), keys()])
}

fn inverted_index() -> Value {
    json!([map("a", map(0, 0.5)), map("a", map(0, 0.5)), map(0, 1.0), map(0, 1.0), keys()])
}

fn bit_vector() -> Value {
    json!([64, "12345678"])
}

fn bit_index() -> Value {
    json!([map("a", bit_vector()), map("b", bit_vector())])
}

fn lsh_index() -> Value {
    let entry = || json!([[7, 8], bit_vector(), 0.5]);
    json!([map("a", entry()), map("b", entry()), map(7, [0]), map(8, [1]), [0.25], 4, keys()])
}

fn numbers() -> Value {
    json!([[9, 0], [0.5]])
}

fn table(columns: &[Value]) -> Value {
    json!([["a"], 1, [[["127.0.0.1_9199"], 3]], columns, 4, map("a", 0)])
}

fn hashes() -> Value {
    json!([[10, 64], [7]])
}

fn lof() -> Value {
    json!([map("a", [0.5, 1.5]), map("b", [0.5, 1.5]), 10, 30, true])
}

fn points() -> Value {
    json!([["p", 1.0, [["f", 0.5]], [[["t", "x"]], [["n", 0.5]], [["b", "y"]]]]])
}

/// The models. Each has a value of every kind that its classes have.
pub(crate) const EXAMPLES: &[Example] = &[
    Example {
        engine: Engine::Anomaly,
        config: r#"{"method":"lof","parameter":{"unlearner":"lru","method":"euclid_lsh","parameter":{"hash_num":64}}}"#,
        method: || json!([lru(), lof(), [matrix(), lsh_index()]]),
    },
    Example {
        engine: Engine::Anomaly,
        config: r#"{"method":"lof","parameter":{"method":"nearest_neighbor_recommender","parameter":{"method":"minhash",
            "parameter":{"hash_num":64},"unlearner":"random"}}}"#,
        method: || json!([lof(), [random(), matrix(), table(&[hashes()])]]),
    },
    Example {
        engine: Engine::Anomaly,
        config: r#"{"method":"light_lof","parameter":{"unlearner":"random","method":"euclid_lsh",
            "nearest_neighbor_num":5,"parameter":{"hash_num":64}}}"#,
        method: || json!([random(), table(&[hashes(), numbers()]), table(&[numbers(), numbers()])]),
    },
    Example {
        engine: Engine::Classifier,
        config: r#"{"method":"cosine","parameter":{"nearest_neighbor_num":5}}"#,
        method: || json!([inverted_index(), labels()]),
    },
    Example {
        engine: Engine::Classifier,
        config: r#"{"method":"NN","parameter":{"method":"lsh","parameter":{"hash_num":64},"nearest_neighbor_num":5,
            "unlearner":"lru"}}"#,
        method: || json!([lru(), table(&[hashes()]), labels()]),
    },
    Example {
        engine: Engine::Classifier,
        config: r#"{"method":"AROW","parameter":{"regularization_weight":1.0,"unlearner":"random"}}"#,
        method: || {
            let weights = || map("f", map(0, [0.5, 1.5, 2.5]));
            json!([random(), [weights(), keys(), weights(), [0]], labels()])
        },
    },
    Example {
        engine: Engine::Clustering,
        config: r#"{"method":"kmeans","compressor_method":"simple","parameter":{"k":2}}"#,
        method: || json!([[3, [["127.0.0.1_9200", points()]]], points()]),
    },
    Example {
        engine: Engine::Clustering,
        config: r#"{"method":"gmm","compressor_method":"compressive","parameter":{"k":2}}"#,
        method: || json!([[3, [["127.0.0.1_9200", points()]]], [points(), []], 2]),
    },
    Example {
        engine: Engine::NearestNeighbor,
        config: r#"{"method":"euclid_lsh","parameter":{"hash_num":64}}"#,
        method: || table(&[hashes(), numbers()]),
    },
    Example {
        engine: Engine::NearestNeighbor,
        config: r#"{"method":"minhash","parameter":{"hash_num":64}}"#,
        method: || table(&[hashes()]),
    },
    Example {
        engine: Engine::Recommender,
        config: r#"{"method":"minhash","parameter":{"hash_num":64,"unlearner":"lru"}}"#,
        method: || json!([lru(), matrix(), bit_index()]),
    },
    Example {
        engine: Engine::Recommender,
        config: r#"{"method":"euclid_lsh","parameter":{"hash_num":64}}"#,
        method: || json!([matrix(), lsh_index()]),
    },
    Example {
        engine: Engine::Recommender,
        config: r#"{"method":"inverted_index_euclid","parameter":{"unlearner":"random"}}"#,
        method: || json!([random(), matrix(), inverted_index()]),
    },
    Example {
        engine: Engine::Recommender,
        config: r#"{"method":"nearest_neighbor_recommender","parameter":{"method":"lsh","parameter":{"hash_num":64}}}"#,
        method: || json!([matrix(), table(&[hashes()])]),
    },
    Example {
        engine: Engine::Regression,
        config: r#"{"method":"NN","parameter":{"method":"euclid_lsh","parameter":{"hash_num":64},
            "nearest_neighbor_num":5,"unlearner":"lru"}}"#,
        method: || json!([lru(), table(&[hashes(), numbers()]), table(&[numbers()])]),
    },
    Example {
        engine: Engine::Regression,
        config: r#"{"method":"euclidean","parameter":{"nearest_neighbor_num":5}}"#,
        method: || json!([inverted_index(), table(&[numbers()])]),
    },
];

impl Example {
    /// The model, and the number of its values.
    pub(crate) fn model(&self) -> (Vec<u8>, usize) {
        let mut written = Written { out: Vec::new(), values: 0, nil_at: None, offset: 0 };
        written.value(&json!([(self.method)(), weights()]));
        (written.out, written.values)
    }

    /// The model with nil in the place of this value, and the value's offset.
    #[cfg(test)]
    pub(super) fn model_with_nil_at(&self, value: usize) -> (Vec<u8>, u64) {
        let mut written = Written { out: Vec::new(), values: 0, nil_at: Some(value), offset: 0 };
        written.value(&json!([(self.method)(), weights()]));
        (written.out, written.offset as u64)
    }
}

struct Written {
    out: Vec<u8>,
    values: usize,
    nil_at: Option<usize>,
    /// Where nil was written.
    offset: usize,
}

impl Written {
    fn value(&mut self, value: &Value) {
        self.values += 1;
        if self.nil_at == Some(self.values - 1) {
            self.offset = self.out.len();
            self.out.push(0xc0);
            return;
        }
        match value {
            Value::Bool(value) => self.out.push(0xc2 + u8::from(*value)),
            Value::Number(number) => match number.as_u64() {
                Some(number) => put_unsigned(&mut self.out, number),
                None => {
                    self.out.push(0xcb);
                    self.out.extend_from_slice(&number.as_f64().unwrap_or_default().to_be_bytes());
                }
            },
            Value::String(text) => assert!(put_text(&mut self.out, text.as_bytes())),
            Value::Array(members) => {
                put_array(&mut self.out, members.len() as u32);
                members.iter().for_each(|member| self.value(member));
            }
            Value::Object(_) => {
                // One pair, as `map` makes it.
                self.out.push(0x81);
                let pair = value["$map"][0].as_array().into_iter().flatten();
                pair.for_each(|member| self.value(member));
            }
            Value::Null => self.out.push(0xc0),
        }
    }
}
