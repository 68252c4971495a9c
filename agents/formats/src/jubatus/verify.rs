//! Whether a server would load a file: the checks of `load`, in their order, up to the first that fails.
//!
//! The checks are those of the released servers, with one exception: the releases before 0.5.3 read missing bytes as
//! zeros, which is rejected here. Where the format's document and the servers differ (a different configuration is a
//! warning, the id is compared), [`Rules::Documented`] follows the document.

use super::config::{is_json, same_config};
use super::engine::Engine;
use super::header::{FORMAT_VERSION, MAGIC, Release};
use super::name::{self, ModelFileName};
use super::scan::{BlockError, Blocks, Scan};
use super::system_data::{SYSTEM_DATA_VERSION, SystemData, SystemDataForm};
use crate::file_check::Damage;

/// The only version of every engine's user data.
pub const USER_DATA_VERSION: u64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rules {
    /// The rules of the released servers.
    #[default]
    Released,
    /// The rules of the format's document, where the servers differ from it.
    Documented,
}

/// The server that is to load the file. Properties that are `None` are not compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub release: Release,
    pub engine: Option<Engine>,
    /// Its configuration, as text.
    pub config: Option<Vec<u8>>,
    /// The id that `load` is called with.
    pub id: Option<String>,
    pub rules: Rules,
}

impl Server {
    /// A server of the newest release without other properties.
    pub fn newest(rules: Rules) -> Server {
        Server { release: Release::NEWEST, engine: None, config: None, id: None, rules }
    }

    /// A server of the newest release with the engine and id of this file name.
    pub fn for_name(name: &ModelFileName, rules: Rules) -> Server {
        Server { engine: name.engine, id: Some(name.id.clone()), ..Server::newest(rules) }
    }
}

/// The checks of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The file is shorter than its header, or than the sizes in its header.
    Truncated,
    /// The first eight bytes.
    Magic,
    FormatVersion,
    /// The release that wrote the file.
    JubatusVersion,
    /// A block's size is impossible.
    Size,
    Crc32,
    /// The system data is not well-formed MessagePack, or has another structure.
    SystemData,
    /// The version of the system data.
    SystemDataVersion,
    Type,
    Id,
    Config,
    /// The user data is not well-formed MessagePack, or the engine cannot load it.
    UserData,
    /// The version of the user data.
    UserDataVersion,
}

impl Stage {
    /// The stage's name in results.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Truncated => "truncated",
            Stage::Magic => "magic",
            Stage::FormatVersion => "format_version",
            Stage::JubatusVersion => "jubatus_version",
            Stage::Size => "size",
            Stage::Crc32 => "crc32",
            Stage::SystemData => "system_data",
            Stage::SystemDataVersion => "system_data_version",
            Stage::Type => "type",
            Stage::Id => "id",
            Stage::Config => "config",
            Stage::UserData => "user_data",
            Stage::UserDataVersion => "user_data_version",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub stage: Stage,
    /// What was found and what was expected; where a server has a message for it, in the server's wording.
    pub what: String,
    /// The offset in the file, if the cause is at one offset.
    pub offset: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Judgement {
    /// The first check that failed.
    pub refusal: Option<Refusal>,
    /// Findings of interest to users that servers ignore: `config`, `id`, `trailing`, `new_string_form`,
    /// `system_data_members`.
    pub notes: Vec<Damage>,
}

impl Judgement {
    fn note(&mut self, kind: &'static str, what: impl Into<String>) {
        self.notes.push(Damage::new(kind, "model file", what));
    }
}

/// Applies the checks of this server to a scanned file.
pub fn judge(scan: &Scan, server: &Server) -> Judgement {
    let mut judgement = Judgement::default();
    judgement.refusal = check(scan, server, &mut judgement).err();
    judgement
}

fn refuse(stage: Stage, what: impl Into<String>) -> Refusal {
    Refusal { stage, what: what.into(), offset: None }
}

fn refuse_at(stage: Stage, offset: u64, what: impl Into<String>) -> Refusal {
    Refusal { stage, what: what.into(), offset: Some(offset) }
}

fn check(scan: &Scan, server: &Server, judgement: &mut Judgement) -> Result<(), Refusal> {
    asked_id(server)?;
    let Some(header) = &scan.header else {
        return Err(refuse(Stage::Truncated, BlockError::NoHeader { length: scan.length }.to_string()));
    };
    if header.magic != MAGIC {
        return Err(refuse_at(Stage::Magic, 0, "invalid file format: it does not start with \"jubatus\" and a NUL"));
    }
    if header.format_version != FORMAT_VERSION {
        let what = format!("invalid format version: {}, expected {FORMAT_VERSION}", header.format_version);
        return Err(refuse_at(Stage::FormatVersion, 8, what));
    }
    release(header.release, server.release)?;
    let blocks = scan.blocks.as_ref().map_err(|fault| match fault {
        BlockError::Size { .. } => refuse_at(Stage::Size, 32, fault.to_string()),
        BlockError::NoHeader { .. } | BlockError::UnknownFormat | BlockError::Truncated { .. } => {
            refuse(Stage::Truncated, fault.to_string())
        }
    })?;
    if blocks.crc32 != header.crc32 {
        let what = format!("invalid crc32 checksum: {:x}, expected {:x}", blocks.crc32, header.crc32);
        return Err(refuse_at(Stage::Crc32, 28, what));
    }
    let Some(block) = &scan.system else {
        return Err(refuse(Stage::Truncated, BlockError::NoHeader { length: scan.length }.to_string()));
    };
    let (system, form) =
        block.data.as_ref().map_err(|error| refuse(Stage::SystemData, format!("system data is broken: {error}")))?;
    system_data(system, form, server, judgement)?;
    user_data(blocks, header.user_data_offset().unwrap_or(u64::MAX), judgement)?;
    leniencies(blocks, form, judgement);
    Ok(())
}

/// The check of the requested id, which a server makes before it opens the file.
fn asked_id(server: &Server) -> Result<(), Refusal> {
    let Some(id) = &server.id else { return Ok(()) };
    if server.rules == Rules::Documented {
        return match id.is_empty() || name::is_documented(id.as_bytes()) {
            true => Ok(()),
            false => Err(refuse(Stage::Id, format!("the id {id:?} is not 1 to 100 characters of a-z A-Z 0-9 _ -"))),
        };
    }
    if id.is_empty() && server.release >= Release::new(0, 8, 2) {
        return Err(refuse(Stage::Id, "empty id is not allowed"));
    }
    if server.release >= Release::new(1, 0, 3) && !id.chars().all(name::is_allowed) {
        return Err(refuse(Stage::Id, format!("model ID contains invalid character: {id:?}")));
    }
    Ok(())
}

fn release(saved: Release, server: Release) -> Result<(), Refusal> {
    let what = if server < Release::new(1, 0, 3) {
        if saved == server {
            return Ok(());
        }
        format!("jubatus version mismatched: {saved}, expected (current) version: {server}")
    } else {
        if saved.major == server.major {
            return Ok(());
        }
        match saved < Release::new(1, 0, 0) {
            true => format!("cannot load model file created before v1.0.0: {saved} (only servers of {saved} load it)"),
            false => format!("jubatus version mismatched: {saved}, expected major version: {}", server.major),
        }
    };
    Err(refuse_at(Stage::JubatusVersion, 16, what))
}

fn system_data(
    system: &SystemData,
    form: &SystemDataForm,
    server: &Server,
    judgement: &mut Judgement,
) -> Result<(), Refusal> {
    if system.version != SYSTEM_DATA_VERSION {
        let what =
            format!("invalid system data version: saved version: {}, expected {SYSTEM_DATA_VERSION}", system.version);
        return Err(refuse(Stage::SystemDataVersion, what));
    }
    let engine = String::from_utf8_lossy(&system.engine);
    match server.engine {
        Some(expected) if expected.name().as_bytes() != system.engine => {
            return Err(refuse(Stage::Type, format!("server type mismatched: {engine}, expected {expected}")));
        }
        // The engine of the server is unknown, but no engine has this type.
        None if Engine::from_name(&system.engine).is_none() => {
            return Err(refuse(Stage::Type, format!("server type mismatched: there is no server of type {engine:?}")));
        }
        _ => {}
    }
    saved_id(system, server, judgement)?;
    config(system, form, server, judgement)
}

fn saved_id(system: &SystemData, server: &Server, judgement: &mut Judgement) -> Result<(), Refusal> {
    let saved = String::from_utf8_lossy(&system.id);
    let compared = server.rules == Rules::Documented || server.release < Release::new(0, 5, 3);
    if let Some(asked) = server.id.as_deref().filter(|asked| !asked.is_empty() && asked.as_bytes() != system.id) {
        let what = format!("server id mismatched: {saved}, expected {asked}");
        if compared {
            return Err(refuse(Stage::Id, what));
        }
        judgement.note("id", what);
    }
    if server.rules == Rules::Documented && !name::is_documented(&system.id) {
        judgement.note("id", format!("the id {saved:?} is not 1 to 100 characters of a-z A-Z 0-9 _ -"));
    }
    Ok(())
}

fn config(
    system: &SystemData,
    form: &SystemDataForm,
    server: &Server,
    judgement: &mut Judgement,
) -> Result<(), Refusal> {
    let saved = String::from_utf8_lossy(&system.config);
    if form.members < 5 {
        let what = format!("the system data has {} of five members, the configuration is missing", form.members);
        return Err(refuse(Stage::Config, what));
    }
    let mismatched =
        |own: &[u8]| format!("server config mismatched: {saved}, expected {}", String::from_utf8_lossy(own));
    if server.rules == Rules::Documented {
        // By the document, a server compares the texts, warns, and continues.
        match &server.config {
            Some(own) if *own != system.config => judgement.note("config", mismatched(own)),
            None if !is_json(&system.config) => judgement.note("config", "the configuration is not JSON"),
            _ => {}
        }
        return Ok(());
    }
    match &server.config {
        Some(own) if !same_config(server.release, &system.config, own) => Err(refuse(Stage::Config, mismatched(own))),
        // No server can have been started with it.
        None if !is_json(&system.config) => Err(refuse(Stage::Config, "the configuration is not JSON")),
        _ => Ok(()),
    }
}

fn user_data(blocks: &Blocks, offset: u64, judgement: &mut Judgement) -> Result<(), Refusal> {
    let broken = |what: String| refuse_at(Stage::UserData, offset, what);
    let user = blocks.user.as_ref().map_err(|fault| broken(fault.to_string()))?;
    match user.members {
        Some(2) => {}
        Some(members) => return Err(broken(format!("invalid user container: {members} members, expected 2"))),
        None => return Err(broken("user data is broken: it is not an array".to_owned())),
    }
    match user.version {
        Some(USER_DATA_VERSION) => {}
        Some(version) => {
            let what = format!("user data version mismatched: {version}, expected {USER_DATA_VERSION}");
            return Err(refuse_at(Stage::UserDataVersion, offset, what));
        }
        None => return Err(broken("user data is broken: its version is not an unsigned integer".to_owned())),
    }
    if let Some(at) = user.mismatch {
        let what = format!("user data is broken: the engine cannot load the value at offset {at} of the user data");
        return Err(refuse_at(Stage::UserData, offset.saturating_add(at), what));
    }
    if user.new_forms {
        judgement.note(
            "new_string_form",
            "the user data has strings in an encoding (str8 or bin) that the oldest servers cannot read",
        );
    }
    Ok(())
}

/// Adds notes about data that servers accept but do not write.
fn leniencies(blocks: &Blocks, form: &SystemDataForm, judgement: &mut Judgement) {
    if form.new_forms {
        judgement.note(
            "new_string_form",
            "the system data has strings in an encoding (str8 or bin) that the oldest servers cannot read",
        );
    }
    if form.members > 5 {
        judgement.note("system_data_members", format!("the system data has {} members instead of five", form.members));
    }
    let after_user = blocks.user.as_ref().map_or(0, |user| user.trailing);
    let places = [
        (form.trailing, "in the system data, after its array"),
        (after_user, "in the user data, after its array"),
        (blocks.trailing, "after the user data, outside the checksum"),
    ];
    for (bytes, place) in places {
        if bytes > 0 {
            judgement.note("trailing", format!("{bytes} bytes {place}"));
        }
    }
}
