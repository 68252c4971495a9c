//! The system data: the description of a model that is common to all engines.

use super::msgpack::{MsgpackError, Token, TokenReader, put_array, put_signed, put_text, put_unsigned};
use super::schema::{Schema, ValueFindings, walk};

pub const SYSTEM_DATA_VERSION: u64 = 1;

/// The largest accepted system data in bytes. It is kept in memory, and comparing its configuration, some kilobytes of
/// JSON in practice, needs many times its size.
pub const MAX_SYSTEM_DATA: u64 = 2 << 20;

/// The block's five members. Texts are bytes, as in servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SystemData {
    /// [`SYSTEM_DATA_VERSION`].
    pub version: u64,
    /// Time of saving, in seconds since 1970.
    pub timestamp: i64,
    pub engine: Vec<u8>,
    /// The id that the model was saved under.
    pub id: Vec<u8>,
    /// The text of the configuration that the server was started with.
    pub config: Vec<u8>,
}

/// Properties of the block's encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemDataForm {
    /// Members of the array. Servers read a missing one as empty and ignore those past the fifth.
    pub members: u32,
    /// Bytes after the array, which servers ignore.
    pub trailing: u64,
    /// True if a text has an encoding that the oldest servers cannot read.
    pub new_forms: bool,
}

/// Why a block is not system data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SystemDataError {
    /// It is not well-formed MessagePack.
    #[error(transparent)]
    Malformed(MsgpackError),
    #[error("{what} is not {expected}")]
    UnexpectedStructure { what: &'static str, expected: &'static str },
}

impl SystemData {
    /// Decodes a block.
    ///
    /// # Errors
    /// When it is not well-formed MessagePack, or does not have the structure that servers require.
    pub fn decode(block: &[u8]) -> Result<(SystemData, SystemDataForm), SystemDataError> {
        let mut source = TokenReader::block(block, block.len() as u64);
        // Servers parse the complete value before they check its structure, so malformed MessagePack is reported first.
        let mut seen = ValueFindings::default();
        walk(&mut source, 0, &Schema::Any, &mut seen).map_err(SystemDataError::Malformed)?;
        let trailing = block.len() as u64 - source.offset();

        let mut source = TokenReader::block(block, block.len() as u64);
        let Token::Array(members) = source.token().map_err(SystemDataError::Malformed)? else {
            return Err(SystemDataError::UnexpectedStructure { what: "the block", expected: "an array" });
        };
        if members == 0 {
            // Servers would compare an uninitialised number.
            return Err(SystemDataError::UnexpectedStructure { what: "the array", expected: "one of five members" });
        }
        let mut data = SystemData { version: version(&mut source)?, ..SystemData::default() };
        if members > 1 {
            data.timestamp = timestamp(&mut source)?;
        }
        let texts = [("the type", &mut data.engine), ("the id", &mut data.id), ("the config", &mut data.config)];
        for (what, text) in texts.into_iter().take(members.saturating_sub(2) as usize) {
            match source.token().map_err(SystemDataError::Malformed)? {
                Token::Text { length, .. } => {
                    *text = source.text(length, u32::MAX).map_err(SystemDataError::Malformed)?;
                }
                _ => return Err(SystemDataError::UnexpectedStructure { what, expected: "a string" }),
            }
        }
        Ok((data, SystemDataForm { members, trailing, new_forms: seen.new_forms }))
    }

    /// Encodes the block; `None` if a text is longer than the format allows.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        put_array(&mut out, 5);
        put_unsigned(&mut out, self.version);
        put_signed(&mut out, self.timestamp);
        let fits = [&self.engine, &self.id, &self.config].into_iter().all(|text| put_text(&mut out, text));
        fits.then_some(out)
    }
}

fn version(source: &mut TokenReader<&[u8]>) -> Result<u64, SystemDataError> {
    match source.token().map_err(SystemDataError::Malformed)? {
        Token::Unsigned(version) => Ok(version),
        _ => Err(SystemDataError::UnexpectedStructure { what: "the version", expected: "an unsigned integer" }),
    }
}

fn timestamp(source: &mut TokenReader<&[u8]>) -> Result<i64, SystemDataError> {
    let wrong = SystemDataError::UnexpectedStructure { what: "the timestamp", expected: "an integer of 64 bits" };
    match source.token().map_err(SystemDataError::Malformed)? {
        Token::Unsigned(seconds) => i64::try_from(seconds).map_err(|_| wrong),
        Token::Negative(seconds) => Ok(seconds),
        _ => Err(wrong),
    }
}
