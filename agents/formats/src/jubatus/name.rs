//! Names: of a model (its id), of a server, and of the file that a server saves a model to.

use std::fmt;
use std::path::Path;

use super::engine::Engine;
use super::header::Release;

const SUFFIX: &str = ".jubatus";

/// Up to 0.5.4 this word stands in the file name of every engine.
const ANY_ENGINE: &str = "jubatus";

/// The name that a model is saved and loaded under.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelId(String);

/// An id that would not be taken, and what would.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// No released server from 0.8.2 on takes it.
    #[error("the model id is empty; give one of 1 to 100 characters of a-z A-Z 0-9 _ -")]
    Empty,
    /// A character that servers refuse, or that would lead out of the data directory.
    #[error("the model id {id:?} contains {character:?}, which servers refuse; use a-z A-Z 0-9 _ -")]
    Character {
        /// The id.
        id: String,
        /// The first such character.
        character: char,
    },
    /// Servers take it, the document does not.
    #[error("the model id {id:?} is not 1 to 100 characters of a-z A-Z 0-9 _ -")]
    OutsideDocument {
        /// The id.
        id: String,
    },
}

impl ModelId {
    /// An id by the document's rule: 1 to 100 characters of `a-z A-Z 0-9 _ -`. What a client should keep to.
    ///
    /// # Errors
    /// When it is not.
    pub fn documented(id: &str) -> Result<ModelId, IdError> {
        let id = ModelId::accepted_by_servers(id)?;
        match is_documented(id.0.as_bytes()) {
            true => Ok(id),
            false => Err(IdError::OutsideDocument { id: id.0 }),
        }
    }

    /// An id by the rule of the servers from 1.0.3 on: at least one byte, each from space to `~`, no slash.
    ///
    /// # Errors
    /// When it is not.
    pub fn accepted_by_servers(id: &str) -> Result<ModelId, IdError> {
        if id.is_empty() {
            return Err(IdError::Empty);
        }
        match id.chars().find(|character| !is_allowed(*character)) {
            Some(character) => Err(IdError::Character { id: id.to_owned(), character }),
            None => Ok(ModelId(id.to_owned())),
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// True for the characters that servers from 1.0.3 on take in an id.
pub(super) fn is_allowed(character: char) -> bool {
    matches!(character, ' '..='~') && character != '/'
}

/// True for an id by the document's rule.
pub(super) fn is_documented(id: &[u8]) -> bool {
    (1..=100).contains(&id.len()) && id.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// The parts of `<address>_<port>_<type>_<id>.jubatus`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFileName {
    /// The text that the server was told to listen on, or its first address.
    pub address: String,
    /// The server's port.
    pub port: u16,
    /// The engine; none in names of the releases up to 0.5.4, which say `jubatus` for every engine.
    pub engine: Option<Engine>,
    /// The id that the model was saved under.
    pub id: String,
}

impl ModelFileName {
    /// The parts of a file's name, when it is that of a model file.
    pub fn of(path: &Path) -> Option<ModelFileName> {
        let stem = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
        let (address, rest) = stem.split_once('_')?;
        let (port, rest) = rest.split_once('_')?;
        let port = port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok())??;
        // An engine's name can hold an underscore, and so can an id: only the known names tell where it ends.
        let id_after = |name: &str| Some(rest.strip_prefix(name)?.strip_prefix('_')?.to_owned());
        let known = Engine::ALL.into_iter().find_map(|engine| Some((Some(engine), id_after(engine.name())?)));
        let (engine, id) = known.or_else(|| Some((None, id_after(ANY_ENGINE)?)))?;
        Some(ModelFileName { address: address.to_owned(), port, engine, id })
    }

    /// Where a server of this release saves the model to, in its data directory.
    pub fn new(address: &str, port: u16, engine: Engine, id: &ModelId, release: Release) -> ModelFileName {
        // The releases up to 0.5.4 leave the engine out; there is none between them and 0.6.0.
        let engine = (release >= Release::new(0, 6, 0)).then_some(engine);
        ModelFileName { address: address.to_owned(), port, engine, id: id.as_str().to_owned() }
    }

    /// The server's name in the answers of MessagePack-RPC: the keys of what `save` and `get_status` give.
    pub fn server_id(&self) -> String {
        format!("{}_{}", self.address, self.port)
    }

    /// The word that stands in the name where the engine belongs.
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
    fn names_come_apart_at_the_engine_whatever_underscores_there_are() {
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
    fn ids_are_taken_by_the_rule_that_is_asked_for() {
        assert!(ModelId::documented("nightly-20131016").is_ok());
        assert!(ModelId::documented(&"i".repeat(100)).is_ok());
        for servers_only in ["..", " ", "arow v2 (copy)~", &"i".repeat(101)] {
            assert!(matches!(ModelId::documented(servers_only), Err(IdError::OutsideDocument { .. })));
            assert!(ModelId::accepted_by_servers(servers_only).is_ok());
        }
        for nobody in ["a/b", "a\nb", "日本", "\u{7f}"] {
            assert!(matches!(ModelId::accepted_by_servers(nobody), Err(IdError::Character { .. })));
        }
        assert_eq!(ModelId::accepted_by_servers(""), Err(IdError::Empty));
    }

    #[test]
    fn a_name_is_the_one_that_a_server_of_the_release_writes() {
        let id = ModelId::documented("weekly").unwrap();
        let name = |release| ModelFileName::new("127.0.0.1", 9199, Engine::Stat, &id, release).to_string();
        assert_eq!(name(Release::new(0, 5, 4)), "127.0.0.1_9199_jubatus_weekly.jubatus");
        assert_eq!(name(Release::NEWEST), "127.0.0.1_9199_stat_weekly.jubatus");
    }
}
