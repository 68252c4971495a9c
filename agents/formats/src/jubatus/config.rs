//! When two configurations are the same: each line of releases has its own answer.

use serde_json::Value;

use super::header::Release;

/// Whether a server of this release, started with `own`, loads a model saved under `saved`. Both are JSON, or the
/// servers from 0.8.8 on refuse them anyway.
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

/// Whether a server can read it at all.
pub fn is_json(config: &[u8]) -> bool {
    parse(config).is_some()
}

fn parse(config: &[u8]) -> Option<Value> {
    // Its own limit of depth holds here.
    serde_json::from_slice(config).ok()
}

/// As the releases from 0.8.8 to 1.0.4 do, which write both anew and compare the texts: 128 and 128.0 are then the
/// same, and the order of keys matters.
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
    fn each_line_of_releases_compares_in_its_own_way() {
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
            let said = releases.map(|release| same_config(release, saved, own));
            assert_eq!(said, expected, "{}", String::from_utf8_lossy(saved));
        }
    }
}
