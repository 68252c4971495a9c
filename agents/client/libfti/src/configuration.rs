//! The configuration file of FTI. The intervals of snapshots take effect; what else a file sets belongs to the job,
//! which is described before the program starts, and is reported. What would change the meaning of the program is
//! refused.

use std::path::{Path, PathBuf};
use std::time::Duration;

use configparser::ini::{Ini, IniDefault};
use holdfast_client::variables::SnapshotIntervals;

/// The parameters of FTI 1.1 that belong to the job. Its document and its examples contain all of them.
const OF_THE_JOB: [&str; 17] = [
    "basic:ckpt_dir",
    "basic:glbl_dir",
    "basic:meta_dir",
    "basic:node_size",
    "basic:group_size",
    "basic:inline_l2",
    "basic:inline_l3",
    "basic:inline_l4",
    "basic:max_sync_intv",
    "basic:verbosity",
    "advanced:block_size",
    "advanced:transfer_size",
    "advanced:mpi_tag",
    "advanced:local_test",
    "advanced:lustre_striping_unit",
    "advanced:lustre_striping_factor",
    "advanced:lustre_striping_offset",
];
/// Keys of a section that FTI writes, or that only its functions for injected errors read.
const OTHER: [&str; 7] = [
    "restart:failure",
    "restart:exec_id",
    "injection:rank",
    "injection:number",
    "injection:index",
    "injection:position",
    "injection:frequency",
];
const LEVELS: [&str; 4] = ["basic:ckpt_l1", "basic:ckpt_l2", "basic:ckpt_l3", "basic:ckpt_l4"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The intervals of snapshots; `None` if the file has none.
    pub intervals: Option<SnapshotIntervals>,
    /// One process of each node is its head.
    pub heads: Option<Heads>,
    /// Files are staged.
    pub staging: bool,
    /// What has no effect, for a person.
    pub notes: Vec<String>,
}

/// The head processes of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// `FTI_Init` returns in them at the end of the run; otherwise it ends them.
    pub kept_alive: bool,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    #[error("the configuration file {} cannot be read: {source}", path.display())]
    Reading { path: PathBuf, source: std::io::Error },
    #[error("the configuration file cannot be parsed: {0}")]
    Syntax(String),
    #[error("{key} of the configuration file is `{value}`, which is not a number")]
    Number { key: &'static str, value: String },
    #[error("{key} of the configuration file is `{value}`, which is neither 0 nor 1")]
    Boolean { key: &'static str, value: String },
    #[error("Basic:head of the configuration file is {0}: set it to 1, for one head process a node, or to 0")]
    Heads(i64),
    #[error(
        "Basic:ckpt_io of the configuration file is 5 (HDF5), and checkpoints are FTI-FF files: set it to 3, and read \
         the files by `holdfast extract`"
    )]
    Hdf5,
}

/// The number of HDF5 in `ckpt_io`.
const HDF5: i64 = 5;

impl Configuration {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read or parsed, or requires what does not exist.
    pub fn read(path: &Path) -> Result<Self, ConfigurationError> {
        let bytes =
            std::fs::read(path).map_err(|source| ConfigurationError::Reading { path: path.to_owned(), source })?;
        // Comments and paths of any encoding; what takes effect is ASCII.
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Parses the content of a file.
    ///
    /// # Errors
    /// It cannot be parsed, or requires what does not exist.
    pub fn parse(text: &str) -> Result<Self, ConfigurationError> {
        let file = Parameters::parse(text)?;
        let kept_alive = file.boolean("basic:keep_heads_alive")?;
        let heads = match file.number("basic:head")?.unwrap_or(0) {
            0 => None,
            1 => Some(Heads { kept_alive }),
            other => return Err(ConfigurationError::Heads(other)),
        };
        if file.number("basic:ckpt_io")? == Some(HDF5) {
            return Err(ConfigurationError::Hdf5);
        }
        let staging = file.boolean("basic:enable_staging")?;
        Ok(Configuration { intervals: file.intervals()?, heads, staging, notes: file.notes()? })
    }
}

/// The parameters of a file as `section:key`, in lower case, in order.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn parse(text: &str) -> Result<Self, ConfigurationError> {
        let mut style = IniDefault::default();
        // Paths may contain colons.
        style.delimiters = vec!['='];
        let mut parser = Ini::new_from_defaults(style);
        let sections = parser.read(text.to_owned()).map_err(ConfigurationError::Syntax)?;
        let mut parameters: Vec<(String, String)> = sections
            .into_iter()
            .flat_map(|(section, keys)| {
                keys.into_iter().map(move |(key, value)| {
                    let value = value.unwrap_or_default();
                    (format!("{section}:{key}"), value.trim().to_owned())
                })
            })
            .collect();
        parameters.sort();
        Ok(Parameters(parameters))
    }

    fn number(&self, key: &'static str) -> Result<Option<i64>, ConfigurationError> {
        let Some((_, value)) = self.0.iter().find(|(known, _)| known == key) else { return Ok(None) };
        integer(unquoted(value)).map(Some).ok_or_else(|| ConfigurationError::Number { key, value: value.clone() })
    }

    /// As FTI reads it: by the first letter. False if the file does not have it.
    fn boolean(&self, key: &'static str) -> Result<bool, ConfigurationError> {
        let Some((_, value)) = self.0.iter().find(|(known, _)| known == key) else { return Ok(false) };
        match unquoted(value).chars().next() {
            Some('1' | 'y' | 'Y' | 't' | 'T') => Ok(true),
            None | Some('0' | 'n' | 'N' | 'f' | 'F') => Ok(false),
            Some(_) => Err(ConfigurationError::Boolean { key, value: value.clone() }),
        }
    }

    /// Minutes; none below 1, as in FTI.
    fn intervals(&self) -> Result<Option<SnapshotIntervals>, ConfigurationError> {
        let mut minutes = [None; LEVELS.len()];
        for (minutes, key) in minutes.iter_mut().zip(LEVELS) {
            *minutes = self.number(key)?;
        }
        if minutes.iter().all(Option::is_none) {
            return Ok(None);
        }
        let [local, partner, parity, prefix] = minutes.map(|minutes| {
            // Longer intervals than 8000 years mean the same.
            let minutes = minutes.unwrap_or(0).clamp(0, i64::from(u32::MAX));
            Duration::from_secs(60 * minutes.unsigned_abs())
        });
        Ok(Some(SnapshotIntervals { local, partner, parity, prefix }))
    }

    fn notes(&self) -> Result<Vec<String>, ConfigurationError> {
        let mut notes = Vec::new();
        let list = |keep: &dyn Fn(&str) -> bool| -> Vec<&str> {
            self.0.iter().map(|(key, _)| key.as_str()).filter(|key| keep(key)).collect()
        };
        let without_effect = list(&|key| OF_THE_JOB.contains(&key));
        if !without_effect.is_empty() {
            notes.push(format!(
                "{} of the configuration file have no effect: the job spec describes caches, nodes and redundancy",
                without_effect.join(", ")
            ));
        }
        if self.number("basic:ckpt_io")?.is_some_and(|mode| mode != 3) {
            notes.push("Basic:ckpt_io has no effect: checkpoint files are FTI-FF files (3)".to_owned());
        }
        if self.number("basic:keep_last_ckpt")? == Some(0) {
            notes.push("Basic:keep_last_ckpt has no effect: the newest checkpoint is kept on the prefix".to_owned());
        }
        if self.number("basic:head")?.is_none_or(|heads| heads == 0) && self.boolean("basic:keep_heads_alive")? {
            notes.push("Basic:keep_heads_alive has no effect: there are no head processes (Basic:head)".to_owned());
        }
        if self.number("restart:failure")?.is_some_and(|failure| failure != 0) {
            notes.push("the section Restart has no effect: the run finds its newest checkpoint itself".to_owned());
        }
        if self.number("injection:number")?.is_some_and(|number| number != 0) {
            notes.push("the section Injection has no effect: libfti injects no errors".to_owned());
        }
        let known = |key: &str| {
            let read = [
                "basic:head",
                "basic:ckpt_io",
                "basic:keep_last_ckpt",
                "basic:enable_staging",
                "basic:keep_heads_alive",
            ];
            read.contains(&key) || LEVELS.contains(&key) || OF_THE_JOB.contains(&key) || OTHER.contains(&key)
        };
        let unknown = list(&|key| !known(key));
        if !unknown.is_empty() {
            notes.push(format!("{} of the configuration file are unknown", unknown.join(", ")));
        }
        Ok(notes)
    }
}

/// The text between quotes, if a value begins with them.
fn unquoted(value: &str) -> &str {
    let quoted = |quote: char| value.strip_prefix(quote).map(|rest| rest.split(quote).next().unwrap_or_default());
    quoted('"').or_else(|| quoted('\'')).unwrap_or(value).trim()
}

/// The number at the beginning of a text, as C's `strtol`, which FTI calls, reads it: decimal, hexadecimal (`0x`) or
/// octal (`0`), with any text behind it. No text is 0. `None`: the text begins with something else, which FTI takes for
/// 0.
fn integer(text: &str) -> Option<i64> {
    if text.is_empty() {
        return Some(0);
    }
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (radix, digits) = match hexadecimal.filter(|rest| rest.starts_with(|first: char| first.is_ascii_hexdigit())) {
        Some(rest) => (16, rest),
        None if digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    if !digits.starts_with(|first: char| first.is_digit(radix)) {
        return None;
    }
    let values = digits.chars().map_while(|digit| digit.to_digit(radix));
    let magnitude =
        values.fold(0_i64, |sum, digit| sum.saturating_mul(i64::from(radix)).saturating_add(i64::from(digit)));
    Some(if negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_minutes_and_what_has_no_effect_is_noted() {
        let text = "# a file\n[Basic]\nHead = 0\nNode_size = 2 # ranks\nCkpt_dir = /tmp:1 ; a comment\n\
                    Ckpt_L1 = 3\nckpt_l2=0\nCKPT_L4 = 11\nckpt_io = 1\nkeep_last_ckpt = 0\nWarp = 9\n\
                    [Restart]\nFailure = 1\nExec_ID = XXXX\n[Injection]\nnumber = 0\n";
        let configuration = Configuration::parse(text).unwrap();
        let seconds = |seconds| Duration::from_secs(seconds);
        let intervals =
            SnapshotIntervals { local: seconds(180), partner: seconds(0), parity: seconds(0), prefix: seconds(660) };
        assert_eq!(configuration.intervals, Some(intervals));
        let notes = configuration.notes.join("\n");
        for note in ["basic:ckpt_dir, basic:node_size of", "ckpt_io", "keep_last_ckpt", "section Restart", "basic:warp"]
        {
            assert!(notes.contains(note), "{note}: {notes}");
        }
        assert!(!notes.contains("Injection"), "{notes}");
    }

    #[test]
    fn a_file_without_intervals_leaves_them_to_the_job() {
        assert_eq!(Configuration::parse("[basic]\nhead = 0\n").unwrap(), Configuration::default());
    }

    #[test]
    fn numbers_are_those_that_fti_reads() {
        let minutes = |value: &str| {
            let read = Configuration::parse(&format!("[Basic]\nCkpt_L1 = {value}\nCkpt_L2 = 1\n")).unwrap();
            read.intervals.unwrap().local.as_secs() / 60
        };
        let read = [
            ("3", 3),
            ("\"3\"", 3),
            ("'3'", 3),
            ("\" 4 minutes\"", 4),
            ("0x1F", 31),
            ("010", 8),
            ("08", 0),
            ("0x", 0),
            ("+7", 7),
            ("-7", 0),
            ("", 0),
            ("\"\"", 0),
            ("5min", 5),
            ("3.5", 3),
            ("6 ; every six", 6),
            ("99999999999999999999", u64::from(u32::MAX)),
        ];
        for (value, expected) in read {
            assert_eq!(minutes(value), expected, "{value}");
        }
        assert!(matches!(Configuration::parse("[Basic]\nHead = \"2\"\n"), Err(ConfigurationError::Heads(2))));
    }

    #[test]
    fn booleans_are_those_that_fti_reads() {
        let staging = |value: &str| {
            Configuration::parse(&format!("[Basic]\nEnable_Staging = {value}\n")).map(|read| read.staging)
        };
        for (value, expected) in
            [("1", true), ("yes", true), ("\"True\"", true), ("0", false), ("no", false), ("", false)]
        {
            assert_eq!(staging(value).unwrap(), expected, "{value}");
        }
        assert!(staging("2").unwrap_err().to_string().contains("basic:enable_staging"));
    }

    #[test]
    fn head_processes_end_with_the_run_or_return_to_the_program() {
        let heads = |text: &str| Configuration::parse(&format!("[Basic]\n{text}\n")).unwrap();
        assert_eq!(heads("Head = 1").heads, Some(Heads { kept_alive: false }));
        assert_eq!(heads("Head = 1\nKeep_heads_alive = 1").heads, Some(Heads { kept_alive: true }));
        let none = heads("Head = 0\nKeep_heads_alive = 1");
        assert!(none.heads.is_none() && none.notes.concat().contains("keep_heads_alive"), "{none:?}");
    }

    #[test]
    fn files_in_other_encodings_than_utf8_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.fti");
        std::fs::write(&path, b"# f\xfcr alle\n[Basic]\nCkpt_dir = /tmp/\xe9\nCkpt_L4 = 2\n").unwrap();
        let intervals = Configuration::read(&path).unwrap().intervals.unwrap();
        assert_eq!(intervals.prefix, Duration::from_secs(120));
    }

    #[test]
    fn several_heads_a_node_hdf5_and_invalid_numbers_are_refused() {
        assert!(matches!(Configuration::parse("[Basic]\nckpt_io = 5\n"), Err(ConfigurationError::Hdf5)));
        assert!(matches!(Configuration::parse("[Basic]\nHead = 2\n"), Err(ConfigurationError::Heads(2))));
        let error = Configuration::parse("[Basic]\nCkpt_L3 = often\n").unwrap_err().to_string();
        assert!(error.contains("basic:ckpt_l3") && error.contains("often"), "{error}");
        let missing = Configuration::read(Path::new("/nonexistent/config.fti")).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/config.fti"), "{missing}");
    }
}
