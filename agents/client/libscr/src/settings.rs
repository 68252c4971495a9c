//! `SCR_Config`: settings as lines of SCR's configuration files, `KEY=value`, or `KEY=value KEY=value …` for the entries
//! of a list (`CKPT=0 TYPE=XOR SET_SIZE=16`).

use std::collections::BTreeMap;

/// Settings that have their effect in this library.
const IN_FORCE: &[&str] = &["SCR_ENABLE", "SCR_CACHE_BYPASS", "SCR_HALT_EXIT"];

/// What the program has set.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `None`: taken back by `KEY=`.
    single: BTreeMap<String, Option<String>>,
    /// Keyed by the `KEY=value` that names the entry.
    entries: BTreeMap<(String, String), BTreeMap<String, Option<String>>>,
}

/// Why a line was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingProblem {
    /// Nothing there.
    #[error("an empty setting; give KEY=value to set, or KEY to ask")]
    Empty,
    /// A word without `=` that is not the last.
    #[error("`{0}` stands between settings; give KEY=value …, or end with the KEY that is asked for")]
    Misplaced(String),
    /// `=value`.
    #[error("`{0}` has no key in front of its `=`")]
    NoKey(String),
}

impl Settings {
    /// Nothing is set.
    pub const fn new() -> Self {
        Settings { single: BTreeMap::new(), entries: BTreeMap::new() }
    }

    /// Sets, takes back or reads. Returns the value that was set or found; `None` if there is none.
    ///
    /// # Errors
    /// The line was not understood; nothing has changed.
    pub fn line(
        &mut self,
        line: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<String>, SettingProblem> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (last, before) = words.split_last().ok_or(SettingProblem::Empty)?;
        let mut pairs = before.iter().map(|word| pair(word)).collect::<Result<Vec<_>, _>>()?;
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

    /// A setting in force: the environment's, as in SCR, before the program's.
    pub fn get(&self, key: &str, environment: impl Fn(&str) -> Option<String>) -> Option<String> {
        environment(key).or_else(|| self.single.get(key).cloned().flatten())
    }

    /// Whether a switch is on; `None` if nobody says.
    pub fn switch(&self, key: &str, environment: impl Fn(&str) -> Option<String>) -> Option<bool> {
        self.get(key, environment).map(|value| value.trim() != "0")
    }

    /// Settings that the program made and that have no effect, because it is the job that settles them.
    pub fn too_late(&self) -> Vec<String> {
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

fn pair(word: &str) -> Result<(&str, &str), SettingProblem> {
    match word.split_once('=') {
        Some(("", _)) => Err(SettingProblem::NoKey(word.to_owned())),
        Some(pair) => Ok(pair),
        None => Err(SettingProblem::Misplaced(word.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn what_was_set_is_read_back_until_it_is_taken_back() {
        let mut settings = Settings::default();
        assert_eq!(settings.line("SCR_FLUSH", nothing), Ok(None));
        assert_eq!(settings.line("SCR_FLUSH=10", nothing), Ok(Some("10".into())));
        assert_eq!(settings.line(" SCR_FLUSH ", nothing), Ok(Some("10".into())));
        assert_eq!(settings.line("SCR_FLUSH=", nothing), Ok(None));
        assert_eq!(settings.line("SCR_FLUSH", nothing), Ok(None));
    }

    #[test]
    fn entries_of_a_list_are_set_and_read_under_their_key() {
        let mut settings = Settings::default();
        assert_eq!(settings.line("CKPT=0 TYPE=XOR SET_SIZE=16", nothing), Ok(Some("16".into())));
        assert_eq!(settings.line("CKPT=0 TYPE", nothing), Ok(Some("XOR".into())));
        assert_eq!(settings.line("CKPT=1 TYPE", nothing), Ok(None));
        assert_eq!(settings.too_late(), ["CKPT=0"]);
    }

    #[test]
    fn the_environment_comes_first() {
        let mut settings = Settings::default();
        settings.line("SCR_CACHE_BYPASS=1", nothing).unwrap();
        assert_eq!(settings.switch("SCR_CACHE_BYPASS", nothing), Some(true));
        assert_eq!(settings.switch("SCR_CACHE_BYPASS", |_| Some("0".into())), Some(false));
        assert!(settings.too_late().is_empty());
    }

    #[test]
    fn nonsense_is_refused_with_its_word() {
        let mut settings = Settings::default();
        assert_eq!(settings.line("  ", nothing), Err(SettingProblem::Empty));
        assert_eq!(settings.line("=1", nothing), Err(SettingProblem::NoKey("=1".into())));
        assert_eq!(settings.line("TYPE CKPT=0", nothing), Err(SettingProblem::Misplaced("TYPE".into())));
    }
}
