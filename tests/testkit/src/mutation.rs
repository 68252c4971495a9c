//! Changes that turn valid input into input that a hostile or faulty program may send: seeded, so that a failure is
//! reproducible.

use serde_json::{Map, Value};

use crate::Dice;

/// Numbers at the limits of the types that messages have.
const NUMBERS: [i128; 16] = [
    0,
    1,
    -1,
    2,
    255,
    256,
    65_535,
    1 << 20,
    i32::MAX as i128,
    u32::MAX as i128,
    1 << 32,
    i64::MAX as i128,
    i64::MIN as i128,
    u64::MAX as i128,
    1 << 63,
    (u64::MAX as i128) - 1,
];

/// Changes bytes: between one and four changes of single bytes, lengths or ranges.
pub fn mutate_bytes(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len() + 1).min(bytes.len());
        let end = (at + dice.below(16_usize) + 1).min(bytes.len());
        match dice.below(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let range = bytes[at..end].to_vec();
                bytes.splice(at..at, range);
            }
            3 => {
                let number = NUMBERS[dice.below(NUMBERS.len())].to_string().into_bytes();
                bytes.splice(at..end, number);
            }
            4 => drop(bytes.splice(at..at, vec![b"[{\"0,"[dice.below(5_usize)]; dice.below(300)])),
            5 => bytes[at..end].iter_mut().for_each(|byte| *byte ^= 1 << dice.below(8)),
            6 => bytes[at..end].fill([0, 0xff, b'"', b'9'][dice.below(4_usize)]),
            _ => bytes[at..end].iter_mut().for_each(|byte| *byte = dice.roll() as u8),
        }
    }
}

/// Changes the structure or a value of JSON: between one and three changes. `strings` are used for strings beside the
/// usual ones, for instance paths that must not be touched.
pub fn mutate_json(dice: &mut Dice, value: &mut Value, strings: &[String]) {
    for _ in 0..=dice.below(3) {
        let count = nodes(value);
        let at = dice.below(count);
        let donor = pick(value, &mut dice.below(count)).cloned().unwrap_or(Value::Null);
        if let Some(node) = pick_mut(value, &mut { at }) {
            change(dice, node, donor, strings);
        }
    }
}

fn change(dice: &mut Dice, value: &mut Value, donor: Value, strings: &[String]) {
    match dice.below(10) {
        0 => *value = donor,
        1 => *value = Value::Null,
        2 => *value = number(dice),
        3 => *value = Value::String(string(dice, strings)),
        _ => match value {
            Value::Number(_) => *value = number(dice),
            Value::String(_) => *value = Value::String(string(dice, strings)),
            Value::Bool(flag) => *flag = !*flag,
            Value::Null => *value = [donor, Value::Bool(true), Value::Array(Vec::new())][dice.below(3_usize)].clone(),
            Value::Array(items) => change_array(dice, items, donor),
            Value::Object(map) => change_object(dice, map, donor, strings),
        },
    }
}

fn change_array(dice: &mut Dice, items: &mut Vec<Value>, donor: Value) {
    let at = dice.below(items.len() + 1);
    match dice.below(5) {
        0 => items.clear(),
        1 => items.insert(at, donor),
        2 if at < items.len() => drop(items.remove(at)),
        3 => {
            let item = items.get(at).cloned().unwrap_or(donor);
            items.extend(std::iter::repeat_n(item, dice.below(200)));
        }
        _ => items.reverse(),
    }
}

fn change_object(dice: &mut Dice, map: &mut Map<String, Value>, donor: Value, strings: &[String]) {
    let Some(key) = map.keys().nth(dice.below(map.len())).cloned() else {
        map.insert("unknown".to_owned(), donor);
        return;
    };
    match dice.below(5) {
        0 => drop(map.remove(&key)),
        1 => drop(map.insert(key, donor)),
        2 => drop(map.insert(string(dice, strings), donor)),
        3 => {
            // An unknown variant or key.
            let value = map.remove(&key).unwrap_or_default();
            map.insert(format!("{key}x"), value);
        }
        _ => {
            let value = map.remove(&key).unwrap_or_default();
            map.insert(number(dice).to_string(), value);
        }
    }
}

fn number(dice: &mut Dice) -> Value {
    match dice.below(4) {
        0 => Value::from(dice.below(10_u64)),
        1 => Value::from(dice.roll()),
        2 => Value::from([0.5, -1.0, 1e300, -1e-300, f64::MAX][dice.below(5_usize)]),
        _ => {
            let number = NUMBERS[dice.below(NUMBERS.len())];
            u64::try_from(number).map_or_else(|_| Value::from(number as i64), Value::from)
        }
    }
}

fn string(dice: &mut Dice, strings: &[String]) -> String {
    const USUAL: [&str; 14] = [
        "",
        ".",
        "..",
        "/",
        "../../x",
        "/etc/passwd",
        "a/b",
        "a\0b",
        "a\nb",
        "XOR",
        "LOCAL",
        "{node}",
        "\u{202e}x",
        "summary.scr",
    ];
    if !strings.is_empty() && dice.percent(60) {
        return strings[dice.below(strings.len())].clone();
    }
    match dice.below(4) {
        0 => "x".repeat(dice.below(5000)),
        _ => USUAL[dice.below(USUAL.len())].to_owned(),
    }
}

/// The number of values in a value, itself included.
fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(map) => map.values().map(nodes).sum(),
        _ => 0,
    }
}

fn pick<'a>(value: &'a Value, at: &mut usize) -> Option<&'a Value> {
    if *at == 0 {
        return Some(value);
    }
    *at -= 1;
    match value {
        Value::Array(items) => items.iter().find_map(|item| pick(item, at)),
        Value::Object(map) => map.values().find_map(|item| pick(item, at)),
        _ => None,
    }
}

fn pick_mut<'a>(value: &'a mut Value, at: &mut usize) -> Option<&'a mut Value> {
    if *at == 0 {
        return Some(value);
    }
    *at -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| pick_mut(item, at)),
        Value::Object(map) => map.values_mut().find_map(|item| pick_mut(item, at)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_reproducible_and_reach_every_part() {
        let original = serde_json::json!({"a": [1, 2, {"b": "text"}], "c": null, "d": true});
        let changed = |seed: u64| {
            let mut value = original.clone();
            mutate_json(&mut Dice(seed), &mut value, &[]);
            value
        };
        assert_eq!(changed(7), changed(7));
        let all: Vec<Value> = (0..500).map(changed).collect();
        for pointer in ["/a", "/a/0", "/a/2/b", "/c", "/d"] {
            assert!(all.iter().any(|value| value.pointer(pointer) != original.pointer(pointer)), "{pointer}");
            assert!(all.iter().any(|value| value.pointer(pointer) == original.pointer(pointer)), "{pointer}");
        }
        let mut bytes = b"0123456789".to_vec();
        mutate_bytes(&mut Dice(1), &mut bytes);
        assert_ne!(bytes, b"0123456789");
        mutate_bytes(&mut Dice(1), &mut Vec::new());
    }
}
