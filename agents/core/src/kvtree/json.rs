//! Trees as JSON: nested objects in file order, a key with an empty hash is `{}`. The same form
//! carries trees in messages.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use super::tree::{Element, Tree};

/// The tree as a JSON value, in file order.
pub fn value(tree: &Tree) -> Value {
    Value::Object(tree.iter().map(|(key, child)| (key.to_owned(), value(child))).collect::<Map<_, _>>())
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (key, value) in self.iter() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Tree {
    /// Keeps the order, refuses a key that comes twice. The depth is limited by the deserialiser (`serde_json`: 128).
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        struct Elements;

        impl<'de> Visitor<'de> for Elements {
            type Value = Tree;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("nested objects")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
                let mut elements = Vec::new();
                while let Some((key, value)) = map.next_entry()? {
                    elements.push(Element { key, value });
                }
                Tree::from_front_to_back(elements).map_err(|twice| A::Error::custom(format!("{twice} in one object")))
            }
        }

        deserializer.deserialize_map(Elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_nested_objects_in_file_order_and_comes_back_the_same() {
        let mut tree = Tree::new();
        tree.set_kv("B", 2);
        tree.set_kv("A", 1).set_kv("Z", "");
        let text = serde_json::to_string(&tree).unwrap();
        assert_eq!(text, r#"{"A":{"1":{"Z":{"":{}}}},"B":{"2":{}}}"#);
        assert_eq!(value(&tree).to_string(), text);
        assert_eq!(serde_json::from_str::<Tree>(&text).unwrap(), tree);
    }

    #[test]
    fn json_that_is_no_tree_is_refused() {
        for text in [r#"{"A":1}"#, r#"{"A":{},"A":{}}"#, "[]", &"{\"A\":".repeat(100_000)] {
            assert!(serde_json::from_str::<Tree>(text).is_err());
        }
    }
}
