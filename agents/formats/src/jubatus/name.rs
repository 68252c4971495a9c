//! Names: of a model (its id), of a server, and of the file that a server saves a model to.

use std::fmt;
use std::path::Path;

use super::engine::Engine;
use super::header::Release;

const SUFFIX: &str = ".jubatus";

/// Up to 0.5.4, file names contain this instead of the engine.
const ANY_ENGINE: &str = "jubatus";

/// The name that a model is saved and loaded under.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelId(String);

/// An invalid id. The message says which ids are valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    #[error("the model id is empty; give one of 1 to 100 characters of a-z A-Z 0-9 _ -")]
    Empty,
    /// A character that servers reject, or that would lead out of the data directory.
    #[error("the model id {id:?} contains {character:?}, which servers reject; use a-z A-Z 0-9 _ -")]
    Character { id: String, character: char },
    /// Servers accept it, the format's document does not.
    #[error("the model id {id:?} is not 1 to 100 characters of a-z A-Z 0-9 _ -")]
    OutsideDocument { id: String },
}

impl ModelId {
    /// An id that is valid by the document's rule: 1 to 100 characters of `a-z A-Z 0-9 _ -`. Clients should use only
    /// such ids.
    ///
    /// # Errors
    /// When the id is invalid by this rule.
    pub fn documented(id: &str) -> Result<ModelId, IdError> {
        let id = ModelId::accepted_by_servers(id)?;
        match is_documented(id.0.as_bytes()) {
            true => Ok(id),
            false => Err(IdError::OutsideDocument { id: id.0 }),
        }
    }

    /// An id that servers from 1.0.3 on accept: at least one character, each from space to `~`, no slash.
    ///
    /// # Errors
    /// When the id is invalid by this rule.
    pub fn accepted_by_servers(id: &str) -> Result<ModelId, IdError> {
        if id.is_empty() {
            return Err(IdError::Empty);
        }
        match id.chars().find(|character| !is_allowed(*character)) {
            Some(character) => Err(IdError::Character { id: id.to_owned(), character }),
            None => Ok(ModelId(id.to_owned())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// True for the characters that servers from 1.0.3 on accept in an id.
pub(super) fn is_allowed(character: char) -> bool {
    matches!(character, ' '..='~') && character != '/'
}

/// True if the id is valid by the document's rule.
pub(super) fn is_documented(id: &[u8]) -> bool {
    (1..=100).contains(&id.len()) && id.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// The parts of `<address>_<port>_<type>_<id>.jubatus`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFileName {
    /// The listen address that the server was configured with, or its first address.
    pub address: String,
    pub port: u16,
    /// The engine; `None` in names of the releases up to 0.5.4, which contain `jubatus` for every engine.
    pub engine: Option<Engine>,
    /// The id that the model was saved under.
    pub id: String,
}

impl ModelFileName {
    /// Parses a file's name; `None` if it is not that of a model file.
    pub fn of(path: &Path) -> Option<ModelFileName> {
        let stem = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
        let (address, rest) = stem.split_once('_')?;
        let (port, rest) = rest.split_once('_')?;
        let port = port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok())??;
        // Engine names and ids can contain underscores: only the known engine names determine where the id starts.
        let id_after = |name: &str| Some(rest.strip_prefix(name)?.strip_prefix('_')?.to_owned());
        let known = Engine::ALL.into_iter().find_map(|engine| Some((Some(engine), id_after(engine.name())?)));
        let (engine, id) = known.or_else(|| Some((None, id_after(ANY_ENGINE)?)))?;
        Some(ModelFileName { address: address.to_owned(), port, engine, id })
    }

    /// The name of the file in the data directory that a server of this release saves the model to.
    pub fn new(address: &str, port: u16, engine: Engine, id: &ModelId, release: Release) -> ModelFileName {
        // The releases up to 0.5.4 omit the engine; the next release is 0.6.0.
        let engine = (release >= Release::new(0, 6, 0)).then_some(engine);
        ModelFileName { address: address.to_owned(), port, engine, id: id.as_str().to_owned() }
    }

    /// The server's name in MessagePack-RPC: the keys in the responses to `save` and `get_status`.
    pub fn server_id(&self) -> String {
        format!("{}_{}", self.address, self.port)
    }

    /// The part of the name at the place of the engine.
    pub fn type_in_name(&self) -> &'static str {
        self.engine.map_or(ANY_ENGINE, Engine::name)
    }
}

impl fmt::Display for ModelFileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_{}_{}{SUFFIX}", self.address, self.port, self.type_in_name(), self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_with_underscores_in_engine_and_id() {
        let name = ModelFileName::of(Path::new("/srv/127.0.0.1_9199_nearest_neighbor_a_b.jubatus")).unwrap();
        assert_eq!((name.engine, name.id.as_str(), name.port), (Some(Engine::NearestNeighbor), "a_b", 9199));
        assert_eq!(name.to_string(), "127.0.0.1_9199_nearest_neighbor_a_b.jubatus");
        assert_eq!(name.server_id(), "127.0.0.1_9199");
        let old = ModelFileName::of(Path::new("127.0.0.1_9199_jubatus_stat_x.jubatus")).unwrap();
        assert_eq!((old.engine, old.id.as_str()), (None, "stat_x"));
        for other in [
            "a_9199_stat_x.js",
            "a_+1_stat_x.jubatus",
            "a_99999_stat_x.jubatus",
            "a_1_unknown_x.jubatus",
            "stat.jubatus",
            "",
        ] {
            assert_eq!(ModelFileName::of(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn checks_ids_by_document_rule_and_by_server_rule() {
        assert!(ModelId::documented("nightly-20131016").is_ok());
        assert!(ModelId::documented(&"i".repeat(100)).is_ok());
        for servers_only in ["..", " ", "arow v2 (copy)~", &"i".repeat(101)] {
            assert!(matches!(ModelId::documented(servers_only), Err(IdError::OutsideDocument { .. })));
            assert!(ModelId::accepted_by_servers(servers_only).is_ok());
        }
        for invalid in ["a/b", "a\nb", "日本", "\u{7f}"] {
            assert!(matches!(ModelId::accepted_by_servers(invalid), Err(IdError::Character { .. })));
        }
        assert_eq!(ModelId::accepted_by_servers(""), Err(IdError::Empty));
    }

    #[test]
    fn file_name_is_that_of_the_release() {
        let id = ModelId::documented("weekly").unwrap();
        let name = |release| ModelFileName::new("127.0.0.1", 9199, Engine::Stat, &id, release).to_string();
        assert_eq!(name(Release::new(0, 5, 4)), "127.0.0.1_9199_jubatus_weekly.jubatus");
        assert_eq!(name(Release::NEWEST), "127.0.0.1_9199_stat_weekly.jubatus");
    }
}
