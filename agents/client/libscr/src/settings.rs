//! `SCR_Config`: parameters in the syntax of SCR's configuration files, `KEY=value`, or `KEY=value KEY=value …` for
//! entries of a list (`CKPT=0 TYPE=XOR SET_SIZE=16`).

use std::collections::BTreeMap;

/// Parameters that take effect in this library.
const IN_FORCE: &[&str] = &["SCR_ENABLE", "SCR_CACHE_BYPASS", "SCR_HALT_EXIT"];

/// The parameters that the program has set.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `None` after `KEY=`, which unsets the parameter.
    single: BTreeMap<String, Option<String>>,
    /// By the first `KEY=value`, which identifies the entry.
    entries: BTreeMap<(String, String), BTreeMap<String, Option<String>>>,
}

/// Why a setting is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The text is empty.
    #[error("an empty setting; use KEY=value to set a parameter, or KEY to read it")]
    Empty,
    /// An item without `=` that is not the last.
    #[error("`{0}` is not KEY=value; only the last item may be a KEY, which is then read")]
    Misplaced(String),
    /// `=value`.
    #[error("`{0}` has no key before its `=`")]
    NoKey(String),
}

impl Settings {
    /// No parameters.
    pub const fn new() -> Self {
        Settings { single: BTreeMap::new(), entries: BTreeMap::new() }
    }

    /// Sets, unsets or reads a parameter. Returns its value; `None` if there is none.
    ///
    /// # Errors
    /// The line is invalid; nothing was changed.
    pub fn line(
        &mut self,
        line: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<String>, SettingError> {
        let items: Vec<&str> = line.split_whitespace().collect();
        let (last, before) = items.split_last().ok_or(SettingError::Empty)?;
        let mut pairs = before.iter().map(|item| pair(item)).collect::<Result<Vec<_>, _>>()?;
        if last.contains('=') {
            pairs.push(pair(last)?);
            return Ok(self.set(&pairs));
        }
        Ok(match pairs.first() {
            None => self.get(last, environment),
            Some((key, value)) => {
                self.entries.get(&((*key).to_owned(), (*value).to_owned())).and_then(|entry| entry.get(*last)?.clone())
            }
        })
    }

    /// The effective value: the environment has precedence over the program, as in SCR.
    pub fn get(&self, key: &str, environment: impl Fn(&str) -> Option<String>) -> Option<String> {
        environment(key).or_else(|| self.single.get(key).cloned().flatten())
    }

    /// The value of a boolean parameter; `None` if it is not set.
    pub fn switch(&self, key: &str, environment: impl Fn(&str) -> Option<String>) -> Option<bool> {
        self.get(key, environment).map(|value| value.trim() != "0")
    }

    /// Parameters that the program has set without effect, because they are configured per job.
    pub fn without_effect(&self) -> Vec<String> {
        let single = self.single.iter().filter(|(key, value)| value.is_some() && !IN_FORCE.contains(&key.as_str()));
        let entries = self.entries.keys().map(|(key, value)| format!("{key}={value}"));
        single.map(|(key, _)| key.clone()).chain(entries).collect()
    }

    fn set(&mut self, pairs: &[(&str, &str)]) -> Option<String> {
        let value = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (key, first) = pairs.first()?;
        if pairs.len() == 1 {
            self.single.insert((*key).to_owned(), value(first));
            return value(first);
        }
        let entry = self.entries.entry(((*key).to_owned(), (*first).to_owned())).or_default();
        entry.extend(pairs.iter().skip(1).map(|(key, text)| ((*key).to_owned(), value(text))));
        pairs.last().and_then(|(_, text)| value(text))
    }
}

fn pair(item: &str) -> Result<(&str, &str), SettingError> {
    match item.split_once('=') {
        Some(("", _)) => Err(SettingError::NoKey(item.to_owned())),
        Some(pair) => Ok(pair),
        None => Err(SettingError::Misplaced(item.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn reads_parameter_until_it_is_unset() {
        let mut settings = Settings::default();
        assert_eq!(settings.line("SCR_FLUSH", nothing), Ok(None));
        assert_eq!(settings.line("SCR_FLUSH=10", nothing), Ok(Some("10".into())));
        assert_eq!(settings.line(" SCR_FLUSH ", nothing), Ok(Some("10".into())));
        assert_eq!(settings.line("SCR_FLUSH=", nothing), Ok(None));
        assert_eq!(settings.line("SCR_FLUSH", nothing), Ok(None));
    }

    #[test]
    fn sets_and_reads_list_entries_by_key() {
        let mut settings = Settings::default();
        assert_eq!(settings.line("CKPT=0 TYPE=XOR SET_SIZE=16", nothing), Ok(Some("16".into())));
        assert_eq!(settings.line("CKPT=0 TYPE", nothing), Ok(Some("XOR".into())));
        assert_eq!(settings.line("CKPT=1 TYPE", nothing), Ok(None));
        assert_eq!(settings.without_effect(), ["CKPT=0"]);
    }

    #[test]
    fn environment_has_precedence() {
        let mut settings = Settings::default();
        settings.line("SCR_CACHE_BYPASS=1", nothing).unwrap();
        assert_eq!(settings.switch("SCR_CACHE_BYPASS", nothing), Some(true));
        assert_eq!(settings.switch("SCR_CACHE_BYPASS", |_| Some("0".into())), Some(false));
        assert!(settings.without_effect().is_empty());
    }

    #[test]
    fn rejects_invalid_settings() {
        let mut settings = Settings::default();
        assert_eq!(settings.line("  ", nothing), Err(SettingError::Empty));
        assert_eq!(settings.line("=1", nothing), Err(SettingError::NoKey("=1".into())));
        assert_eq!(settings.line("TYPE CKPT=0", nothing), Err(SettingError::Misplaced("TYPE".into())));
    }
}
