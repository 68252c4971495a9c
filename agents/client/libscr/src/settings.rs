//! `SCR_Config`: parameters in the syntax of SCR's configuration files, `KEY=value`, or `KEY=value KEY=value …` for
//! entries of a list (`CKPT=0 TYPE=XOR SET_SIZE=16`).

use std::collections::BTreeMap;

/// Parameters that take effect in this library.
const IN_FORCE: &[&str] = &["SCR_ENABLE", "SCR_CACHE_BYPASS", "SCR_HALT_EXIT"];

/// The parameters that the program has set.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    single: BTreeMap<String, String>,
    /// By the first `KEY=value`, which identifies the entry.
    entries: BTreeMap<(String, String), BTreeMap<String, String>>,
}

/// A line of `SCR_Config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting<'a> {
    /// `KEY`, or `KEY=value KEY`, which reads from that entry of a list.
    Read {
        entry: Option<(&'a str, &'a str)>,
        /// The parameter that is read.
        key: &'a str,
    },
    /// One `KEY=value`, or several, of which the first identifies an entry. An empty value unsets the parameter.
    Set(Vec<(&'a str, &'a str)>),
}

/// Why a setting is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error("an empty setting; use KEY=value to set a parameter, or KEY to read it")]
    Empty,
    /// An item without `=` that is not the last.
    #[error("`{0}` is not KEY=value; only the last item may be a KEY, which is then read")]
    Misplaced(String),
    #[error("`{0}` has no key before its `=`")]
    NoKey(String),
    #[error("`{0}` cannot be read while other parameters are set; use KEY=value KEY, with one KEY=value")]
    SetAndRead(String),
    /// A list with several entries has no single value.
    #[error("`{0}` has several entries; read a parameter of one of them with {0}=value KEY")]
    Several(String),
}

impl<'a> Setting<'a> {
    /// Reads a line. Blanks around `=` do not count, as in SCR; a value can contain `=`.
    pub fn parse(line: &'a str) -> Result<Self, SettingError> {
        let mut pairs = Vec::new();
        let mut rest = line.trim();
        while !rest.is_empty() {
            let (key, behind) = rest.split_at(rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len()));
            let behind = behind.trim_start();
            let Some(value) = behind.strip_prefix('=') else {
                return if behind.is_empty() { Self::read(&pairs, key) } else { Err(misplaced(key)) };
            };
            let value = value.trim_start();
            let (value, behind) = value.split_at(value.find(char::is_whitespace).unwrap_or(value.len()));
            if key.is_empty() {
                return Err(SettingError::NoKey(format!("={value}")));
            }
            pairs.push((key, value));
            rest = behind.trim_start();
        }
        if pairs.is_empty() { Err(SettingError::Empty) } else { Ok(Setting::Set(pairs)) }
    }

    fn read(pairs: &[(&'a str, &'a str)], key: &'a str) -> Result<Self, SettingError> {
        match pairs {
            [] => Ok(Setting::Read { entry: None, key }),
            [entry] => Ok(Setting::Read { entry: Some(*entry), key }),
            _ => Err(SettingError::SetAndRead(key.to_owned())),
        }
    }
}

impl Settings {
    pub const fn new() -> Self {
        Settings { single: BTreeMap::new(), entries: BTreeMap::new() }
    }

    /// Sets, unsets or reads a parameter. Returns the value that was read; `None` if there is none, or if a parameter
    /// was set.
    ///
    /// # Errors
    /// The parameter that is read is a list with several entries.
    pub fn apply(
        &mut self,
        setting: &Setting<'_>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<String>, SettingError> {
        match setting {
            Setting::Set(pairs) => {
                self.set(pairs);
                Ok(None)
            }
            Setting::Read { entry: Some((key, value)), key: wanted } => {
                let entry = self.entries.get(&((*key).to_owned(), (*value).to_owned()));
                Ok(entry.and_then(|entry| entry.get(*wanted).cloned()))
            }
            Setting::Read { entry: None, key } => {
                let mut values = self.entries.keys().filter(|(list, _)| list == key).map(|(_, value)| value);
                match (self.get(key, environment), values.next(), values.next()) {
                    (None, Some(_), Some(_)) => Err(SettingError::Several((*key).to_owned())),
                    (found, only, _) => Ok(found.or_else(|| only.cloned())),
                }
            }
        }
    }

    /// The effective value: the environment has precedence over the program, as in SCR.
    pub fn get(&self, key: &str, environment: impl Fn(&str) -> Option<String>) -> Option<String> {
        environment(key).or_else(|| self.single.get(key).cloned())
    }

    /// The value of a boolean parameter; `None` if it is not set.
    pub fn switch(&self, key: &str, environment: impl Fn(&str) -> Option<String>) -> Option<bool> {
        self.get(key, environment).map(|value| value.trim() != "0")
    }

    /// Parameters that the program has set without effect, because they are configured per job.
    pub fn without_effect(&self) -> Vec<String> {
        let single = self.single.keys().filter(|key| !IN_FORCE.contains(&key.as_str()));
        let entries = self.entries.keys().map(|(key, value)| format!("{key}={value}"));
        single.cloned().chain(entries).collect()
    }

    fn set(&mut self, pairs: &[(&str, &str)]) {
        let Some(((key, first), others)) = pairs.split_first() else { return };
        if others.is_empty() {
            self.entries.retain(|(list, _), _| list != key);
            put(&mut self.single, key, first);
            return;
        }
        self.single.remove(*key);
        let entry = self.entries.entry(((*key).to_owned(), (*first).to_owned())).or_default();
        for (key, value) in others {
            put(entry, key, value);
        }
    }
}

/// Stores a value; an empty one removes the parameter.
fn put(parameters: &mut BTreeMap<String, String>, key: &str, value: &str) {
    if value.is_empty() {
        parameters.remove(key);
    } else {
        parameters.insert(key.to_owned(), value.to_owned());
    }
}

fn misplaced(item: &str) -> SettingError {
    SettingError::Misplaced(item.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn line(settings: &mut Settings, line: &str) -> Result<Option<String>, SettingError> {
        settings.apply(&Setting::parse(line)?, nothing)
    }

    #[test]
    fn reads_parameter_until_it_is_unset() {
        let mut settings = Settings::default();
        assert_eq!(line(&mut settings, "SCR_FLUSH"), Ok(None));
        assert_eq!(line(&mut settings, "SCR_FLUSH=10"), Ok(None));
        assert_eq!(line(&mut settings, " SCR_FLUSH "), Ok(Some("10".into())));
        assert_eq!(line(&mut settings, "SCR_FLUSH="), Ok(None));
        assert_eq!(line(&mut settings, "SCR_FLUSH"), Ok(None));
    }

    #[test]
    fn blanks_around_the_sign_do_not_count_and_values_can_contain_it() {
        for written in ["KEY=v=1", "KEY =v=1", "KEY= v=1", " KEY  =  v=1 "] {
            let mut settings = Settings::default();
            assert_eq!(line(&mut settings, written), Ok(None), "{written}");
            assert_eq!(line(&mut settings, "KEY"), Ok(Some("v=1".into())), "{written}");
        }
        let mut settings = Settings::default();
        line(&mut settings, "STORE= /dev/shm GROUP = NODE COUNT  =1").unwrap();
        assert_eq!(line(&mut settings, "STORE = /dev/shm GROUP"), Ok(Some("NODE".into())));
    }

    #[test]
    fn sets_and_reads_list_entries_by_key() {
        let mut settings = Settings::default();
        assert_eq!(line(&mut settings, "CKPT=0 TYPE=XOR SET_SIZE=16"), Ok(None));
        assert_eq!(line(&mut settings, "CKPT=0 TYPE"), Ok(Some("XOR".into())));
        assert_eq!(line(&mut settings, "CKPT=1 TYPE"), Ok(None));
        assert_eq!(settings.without_effect(), ["CKPT=0"]);
    }

    #[test]
    fn a_list_has_the_value_of_its_only_entry_until_it_is_unset() {
        let mut settings = Settings::default();
        line(&mut settings, "STORE=/a COUNT=1").unwrap();
        assert_eq!(line(&mut settings, "STORE"), Ok(Some("/a".into())));
        line(&mut settings, "STORE=/b COUNT=2").unwrap();
        assert_eq!(line(&mut settings, "STORE"), Err(SettingError::Several("STORE".into())));
        line(&mut settings, "STORE=").unwrap();
        assert_eq!(line(&mut settings, "STORE"), Ok(None));
        assert_eq!(line(&mut settings, "STORE=/a COUNT"), Ok(None));
        assert!(settings.without_effect().is_empty());
    }

    #[test]
    fn environment_has_precedence() {
        let mut settings = Settings::default();
        line(&mut settings, "SCR_CACHE_BYPASS=1").unwrap();
        assert_eq!(settings.switch("SCR_CACHE_BYPASS", nothing), Some(true));
        assert_eq!(settings.switch("SCR_CACHE_BYPASS", |_| Some("0".into())), Some(false));
        assert!(settings.without_effect().is_empty());
    }

    #[test]
    fn rejects_invalid_settings() {
        assert_eq!(Setting::parse("  "), Err(SettingError::Empty));
        assert_eq!(Setting::parse("=1"), Err(SettingError::NoKey("=1".into())));
        assert_eq!(Setting::parse("TYPE CKPT=0"), Err(SettingError::Misplaced("TYPE".into())));
        assert_eq!(Setting::parse("CKPT=0 TYPE=XOR SET_SIZE"), Err(SettingError::SetAndRead("SET_SIZE".into())));
    }
}
