//! The system data: what is true of a model whatever its engine.

use super::msgpack::{MsgpackError, TokenReader, Token, put_array, put_signed, put_text, put_unsigned};
use super::shape::{ValueFindings, Shape, walk};

/// The only version there is.
pub const SYSTEM_DATA_VERSION: u64 = 1;

/// The most that is taken as system data. It is held in memory, and its configuration, some kilobytes of JSON in
/// practice, takes many times its bytes while it is compared.
pub const MAX_SYSTEM_DATA: u64 = 2 << 20;

/// The block's five members. Texts are bytes, as servers take them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SystemData {
    /// [`SYSTEM_DATA_VERSION`].
    pub version: u64,
    /// When the model was saved, in seconds since 1970.
    pub timestamp: i64,
    /// The engine's name.
    pub engine: Vec<u8>,
    /// The id that the model was saved under.
    pub id: Vec<u8>,
    /// The text of the configuration that the server was started with.
    pub config: Vec<u8>,
}

/// How the block was read, besides its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemDataForm {
    /// Members of the array. Servers read a missing one as empty and ignore those past the fifth.
    pub members: u32,
    /// Bytes behind the array, which servers ignore.
    pub trailing: u64,
    /// A text in a form that the oldest servers do not know.
    pub new_forms: bool,
}

/// Why a block is no system data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SystemDataError {
    /// It is no MessagePack.
    #[error(transparent)]
    Malformed(MsgpackError),
    /// It is MessagePack of another shape.
    #[error("{what} is not {expected}")]
    Shape {
        /// The member.
        what: &'static str,
        /// What it has to be.
        expected: &'static str,
    },
}

impl SystemData {
    /// The members of a block.
    ///
    /// # Errors
    /// When it is no MessagePack, or not of the shape that servers demand.
    pub fn decode(block: &[u8]) -> Result<(SystemData, SystemDataForm), SystemDataError> {
        let mut source = TokenReader::block(block, block.len() as u64);
        // A server reads the whole value before it looks at its shape, so a fault of the first kind is found first.
        let mut seen = ValueFindings::default();
        walk(&mut source, 0, &Shape::Any, &mut seen).map_err(SystemDataError::Malformed)?;
        let trailing = block.len() as u64 - source.offset();

        let mut source = TokenReader::block(block, block.len() as u64);
        let Token::Array(members) = source.token().map_err(SystemDataError::Malformed)? else {
            return Err(SystemDataError::Shape { what: "the block", expected: "an array" });
        };
        if members == 0 {
            // Servers compare a number that nobody set.
            return Err(SystemDataError::Shape { what: "the array", expected: "one of five members" });
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
                _ => return Err(SystemDataError::Shape { what, expected: "a string" }),
            }
        }
        Ok((data, SystemDataForm { members, trailing, new_forms: seen.new_forms }))
    }

    /// The block of these members; none when a text is longer than the format can say.
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
        _ => Err(SystemDataError::Shape { what: "the version", expected: "an unsigned integer" }),
    }
}

fn timestamp(source: &mut TokenReader<&[u8]>) -> Result<i64, SystemDataError> {
    let wrong = SystemDataError::Shape { what: "the timestamp", expected: "an integer of 64 bits" };
    match source.token().map_err(SystemDataError::Malformed)? {
        Token::Unsigned(seconds) => i64::try_from(seconds).map_err(|_| wrong),
        Token::Negative(seconds) => Ok(seconds),
        _ => Err(wrong),
    }
}
