//! The equality of two configurations, which differs between the release lines of Jubatus.

use serde_json::Value;

use super::header::Release;

/// True if a server of this release, started with the configuration `own`, loads a model saved with `saved`. From 0.8.8
/// on, servers load no configuration that is not JSON.
pub fn same_config(release: Release, saved: &[u8], own: &[u8]) -> bool {
    if release < Release::new(0, 8, 8) {
        return saved == own;
    }
    match (parse(saved), parse(own)) {
        (Some(saved), Some(own)) if release < Release::new(1, 0, 5) => same_text(&saved, &own),
        (Some(saved), Some(own)) => saved == own,
        _ => false,
    }
}

/// True if the configuration is JSON, which every server requires.
pub fn is_json(config: &[u8]) -> bool {
    parse(config).is_some()
}

fn parse(config: &[u8]) -> Option<Value> {
    // serde_json limits the depth itself.
    serde_json::from_slice(config).ok()
}

/// The comparison of the releases 0.8.8 to 1.0.4, which serialise both values and compare the texts: 128 equals 128.0,
/// and the order of keys matters.
fn same_text(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same_text(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| one.0 == other.0 && same_text(one.1, other.1))
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_configurations_by_the_rule_of_each_release_line() {
        let own = br#"{"window_size": 128, "z": [1]}"#;
        let texts: [(&[u8], [bool; 3]); 6] = [
            (own, [true, true, true]),
            (br#"{"window_size":128,"z":[1]}"#, [false, true, true]),
            (br#"{"z":[1],"window_size":128}"#, [false, false, true]),
            (br#"{"window_size":128.0,"z":[1]}"#, [false, true, false]),
            (br#"{"window_size":128,"z":[2]}"#, [false, false, false]),
            (b"hello", [false, false, false]),
        ];
        for (saved, expected) in texts {
            let releases = [Release::new(0, 5, 0), Release::new(0, 9, 4), Release::new(1, 1, 1)];
            let equal = releases.map(|release| same_config(release, saved, own));
            assert_eq!(equal, expected, "{}", String::from_utf8_lossy(saved));
        }
    }
}
