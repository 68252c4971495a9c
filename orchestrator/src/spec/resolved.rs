//! A spec with every default filled in, as YAML. `holdfast check --resolved` prints it, to keep it with the results of
//! a job or to start a new spec from it.
//!
//! There are two YAML crates. `saphyr-parser` reads specs (`document`), because it keeps the position of every node,
//! which diagnostics need; it cannot write. `serde_yaml` writes, with quotes where they are needed; it never reads a
//! spec.

use serde_yaml::{Mapping, Value};

use super::settings::{NOT_SET, Settings};

/// The settings in force as a spec; reading it again gives the same settings.
///
/// # Errors
/// A value cannot be written as YAML, which would be a defect of the settings.
pub fn yaml(settings: &Settings) -> Result<String, serde_yaml::Error> {
    let mut document = Value::Mapping(Mapping::new());
    for setting in settings.iter().filter(|setting| setting.value != NOT_SET) {
        let value: Value = serde_yaml::from_str(&setting.value)?;
        *at(&mut document, &setting.key) = value;
    }
    serde_yaml::to_string(&document)
}

/// A string as an element of a YAML list: quoted where it would otherwise be read as something else.
pub(crate) fn list_item(text: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "./_-+=@%^~/".contains(character);
    let is_text = !text.is_empty()
        && text.chars().all(plain)
        && matches!(serde_yaml::from_str::<Value>(text), Ok(Value::String(same)) if same == text);
    if is_text { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}

/// The value at a key path such as `checkpoint.redundancy[0].set_size`; missing levels are created.
fn at<'a>(document: &'a mut Value, path: &str) -> &'a mut Value {
    let mut place = document;
    for part in path.split(['.', '[']) {
        place = match part.strip_suffix(']').and_then(|index| index.parse::<usize>().ok()) {
            Some(index) => {
                if !place.is_sequence() {
                    *place = Value::Sequence(Vec::new());
                }
                let Value::Sequence(items) = place else { continue };
                while items.len() <= index {
                    items.push(Value::Null);
                }
                &mut items[index]
            }
            None => {
                if !place.is_mapping() {
                    *place = Value::Mapping(Mapping::new());
                }
                let Value::Mapping(entries) = place else { continue };
                entries.entry(Value::from(part)).or_insert(Value::Null)
            }
        };
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::JobSpec;

    fn parse(text: &str) -> JobSpec {
        JobSpec::of_test(text)
    }

    fn settings(text: &str) -> Vec<(String, String)> {
        let spec = parse(text);
        spec.settings.iter().map(|setting| (setting.key.clone(), setting.value.clone())).collect()
    }

    #[test]
    fn a_resolved_spec_has_the_same_settings_when_it_is_read_again() {
        let text = "
job: wave
allocation: {manager: local, nodes: 3, faults: [{node: 1, after_checkpoint: 2}, {node: 2, after: 1min}]}
run: {nodes: 2, command: [./wave, --steps, '400', 'a: b']}
checkpoint: {redundancy: [{scheme: partner}, {scheme: xor, every: 4, set_size: 3}], flush: {every: 0}}
";
        let spec = parse(text);
        let resolved = yaml(&spec.settings).unwrap();
        assert!(resolved.contains("hop_distance: 1"), "{resolved}");
        assert_eq!(settings(&resolved), settings(text), "{resolved}");
    }

    #[test]
    fn the_quick_start_and_the_reference_can_be_resolved() {
        for text in [include_str!("../../../configs/quickstart.yaml"), include_str!("../../../configs/reference.yaml")]
        {
            let spec = parse(text);
            assert_eq!(settings(&yaml(&spec.settings).unwrap()), settings(text));
        }
    }
}
