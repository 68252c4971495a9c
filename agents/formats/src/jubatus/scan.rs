//! One pass over a model file that collects facts without judging them. A file of any size is read once, through one
//! buffer.

use std::io::{self, Read};

use sha2::{Digest, Sha256};

use super::engine::Engine;
use super::header::{FORMAT_VERSION, HEADER_LENGTH, Header, MAGIC};
use super::layout::ModelLayout;
use super::msgpack::{MsgpackError, Token, TokenReader};
use super::schema::{Schema, ValueFindings, walk, walk_rest};
use super::system_data::{MAX_SYSTEM_DATA, SystemData, SystemDataError, SystemDataForm};

/// A block size of this many bytes or more is a damaged field, not a truncated file.
const IMPLAUSIBLE: u64 = 1 << 40;

/// What to collect besides the facts that a verification needs.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScanOptions {
    /// SHA-256 of the file and of both blocks.
    pub digests: bool,
    /// Keep the user data if it has at most this many bytes.
    pub user_data_up_to: u64,
}

/// The facts about a file.
#[derive(Debug)]
pub struct Scan {
    /// Bytes of the file.
    pub length: u64,
    /// The header, if the file has 48 bytes.
    pub header: Option<Header>,
    /// The system data, if it is complete.
    pub system: Option<SystemBlock>,
    /// The content of both blocks, if they are complete.
    pub blocks: Result<Blocks, BlockError>,
    /// SHA-256 of the file, if requested.
    pub sha256: Option<[u8; 32]>,
}

/// Why the blocks cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    #[error("the file has {length} bytes, a header has {HEADER_LENGTH}")]
    NoHeader { length: u64 },
    /// The magic number or format version is unknown.
    #[error("not a model file of a known format")]
    UnknownFormat,
    #[error("{what} cannot have {size} bytes: the file has {length}")]
    Size { what: &'static str, size: u64, length: u64 },
    #[error("the file ends inside {what}: it has {length} bytes, {needed} are needed")]
    Truncated {
        what: &'static str,
        length: u64,
        /// The size of a file that contains this block completely.
        needed: u64,
    },
}

/// The system data of a file.
#[derive(Debug)]
pub struct SystemBlock {
    pub data: Result<(SystemData, SystemDataForm), SystemDataError>,
    /// SHA-256 of the block, if requested.
    pub sha256: Option<[u8; 32]>,
}

/// The facts that require both blocks.
#[derive(Debug)]
pub struct Blocks {
    /// The checksum over the header's part and both blocks.
    pub crc32: u32,
    pub user: Result<UserData, MsgpackError>,
    /// Bytes after the user data, which servers ignore.
    pub trailing: u64,
    /// SHA-256 of the user data, if requested.
    pub user_sha256: Option<[u8; 32]>,
    /// The user data, if requested and not too large.
    pub user_bytes: Option<Vec<u8>>,
}

/// The facts about the user data, collected without keeping it in memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserData {
    /// Members of the outer array; `None` if it is not an array.
    pub members: Option<u32>,
    /// The first member, if it is an unsigned integer.
    pub version: Option<u64>,
    /// The offset in the block of the first value that the engine cannot load.
    pub mismatch: Option<u64>,
    /// The offset of the model in the block.
    pub model_offset: u64,
    /// Bytes of the model.
    pub model_length: u64,
    /// Bytes of the block after the array, which servers ignore.
    pub trailing: u64,
    /// True if a text has an encoding that the oldest servers cannot read.
    pub new_forms: bool,
    /// True if `mismatch` covers everything that the engine checks when it loads its model.
    pub is_engine_data_checked: bool,
}

/// Scans a file of this length. `progress` is called with the number of bytes of each part read.
///
/// # Errors
/// When the reader fails. Damage is not an error: it is part of the result.
pub fn scan(mut reader: impl Read, length: u64, want: ScanOptions, progress: &mut dyn FnMut(u64)) -> io::Result<Scan> {
    let mut file_hasher = want.digests.then(Sha256::new);
    let mut see = |part: &[u8]| {
        if let Some(hasher) = &mut file_hasher {
            hasher.update(part);
        }
        progress(part.len() as u64);
    };
    let head = read_up_to(&mut reader, HEADER_LENGTH)?;
    see(&head);
    let bytes: Option<[u8; HEADER_LENGTH as usize]> = head.as_slice().try_into().ok();
    let header = bytes.map(|bytes| Header::decode(&bytes));
    let (mut system, mut crc) = (None, crc32fast::Hasher::new());
    let mut blocks = match (&header, &bytes) {
        (Some(header), Some(bytes)) => {
            crc = Header::start_checksum(bytes);
            match header.magic == MAGIC && header.format_version == FORMAT_VERSION {
                true => check_size("the system data", HEADER_LENGTH, header.system_data_size, MAX_SYSTEM_DATA, length),
                false => Err(BlockError::UnknownFormat),
            }
        }
        _ => Err(BlockError::NoHeader { length: head.len() as u64 }),
    };
    if let (Ok(()), Some(header)) = (&blocks, &header) {
        let block = read_up_to(&mut reader, header.system_data_size)?;
        see(&block);
        crc.update(&block);
        blocks = match block.len() as u64 == header.system_data_size {
            true => {
                let start = header.user_data_offset().unwrap_or(u64::MAX);
                check_size("the user data", start, header.user_data_size, u64::MAX, length)
            }
            false => Err(shrunk("the system data", length)),
        };
        if block.len() as u64 == header.system_data_size {
            let sha256 = want.digests.then(|| Sha256::digest(&block).into());
            system = Some(SystemBlock { data: SystemData::decode(&block), sha256 });
        }
    }
    let blocks = match (blocks, &header) {
        (Ok(()), Some(header)) => {
            let model = system.as_ref().and_then(|system| model_layout(system, header));
            let model = model.unwrap_or(ModelLayout::UNKNOWN);
            read_user_block(&mut reader, header, &model, crc, length, want, &mut see)?
        }
        (Err(fault), _) => Err(fault),
        (Ok(()), None) => Err(BlockError::NoHeader { length }),
    };
    if want.digests {
        // The rest of the file; everything after the header if the blocks could not be delimited.
        let mut rest = TokenReader::to_end(ObservedReader { reader, see: &mut see });
        into_io(rest.drain())?;
    }
    Ok(Scan { length, header, system, blocks, sha256: file_hasher.map(|hasher| hasher.finalize().into()) })
}

fn check_size(what: &'static str, start: u64, size: u64, most: u64, length: u64) -> Result<(), BlockError> {
    match start.checked_add(size) {
        Some(needed) if needed <= length && size <= most => Ok(()),
        Some(needed) if needed > length && size < IMPLAUSIBLE => Err(BlockError::Truncated { what, length, needed }),
        _ => Err(BlockError::Size { what, size, length }),
    }
}

/// The file was long enough when its length was read: a server may be rewriting it in place.
fn shrunk(what: &'static str, length: u64) -> BlockError {
    BlockError::Truncated { what, length, needed: length }
}

fn model_layout(system: &SystemBlock, header: &Header) -> Option<ModelLayout> {
    let (data, _) = system.data.as_ref().ok()?;
    Some(ModelLayout::of(Engine::from_name(&data.engine)?, header.release, &data.config))
}

fn read_user_block(
    reader: &mut impl Read,
    header: &Header,
    model: &ModelLayout,
    mut crc: crc32fast::Hasher,
    length: u64,
    want: ScanOptions,
    see: &mut dyn FnMut(&[u8]),
) -> io::Result<Result<Blocks, BlockError>> {
    let mut user_hasher = want.digests.then(Sha256::new);
    let mut user_bytes = (header.user_data_size <= want.user_data_up_to).then(Vec::new);
    let mut see_user = |part: &[u8]| {
        see(part);
        crc.update(part);
        if let Some(hasher) = &mut user_hasher {
            hasher.update(part);
        }
        if let Some(bytes) = &mut user_bytes {
            bytes.extend_from_slice(part);
        }
    };
    let mut source = TokenReader::block(ObservedReader { reader, see: &mut see_user }, header.user_data_size);
    let mut user = user_data(&mut source, model);
    let behind = match source.drain() {
        Ok(behind) => behind,
        Err(MsgpackError::Ended) => return Ok(Err(shrunk("the user data", length))),
        Err(fault) => return into_io(Err(fault)),
    };
    if let Ok(user) = &mut user {
        user.trailing = behind;
        user.is_engine_data_checked = model.is_complete;
    }
    if let Err(MsgpackError::Io(error)) = user {
        return Err(error);
    }
    Ok(Ok(Blocks {
        crc32: crc.finalize(),
        user,
        trailing: length - HEADER_LENGTH - header.system_data_size - header.user_data_size,
        user_sha256: user_hasher.map(|hasher| hasher.finalize().into()),
        user_bytes,
    }))
}

/// Parses a user data block up to the end of its array.
pub(super) fn user_data<R: Read>(source: &mut TokenReader<R>, model: &ModelLayout) -> Result<UserData, MsgpackError> {
    let mut user = UserData::default();
    let mut seen = ValueFindings::default();
    match source.token()? {
        Token::Array(members) => {
            user.members = Some(members);
            for index in 0..members {
                match index {
                    0 => user.version = version(source, &mut seen)?,
                    1 => {
                        user.model_offset = source.offset();
                        model.walk(source, 1, &mut seen)?;
                        user.model_length = source.offset() - user.model_offset;
                        user.mismatch = seen.mismatch;
                    }
                    _ => walk(source, 1, &Schema::Any, &mut seen)?,
                }
            }
        }
        other => walk_rest(source, 0, other, &mut seen)?,
    }
    user.new_forms = seen.new_forms;
    Ok(user)
}

fn version<R: Read>(source: &mut TokenReader<R>, seen: &mut ValueFindings) -> Result<Option<u64>, MsgpackError> {
    match source.token()? {
        Token::Unsigned(version) => Ok(Some(version)),
        other => {
            walk_rest(source, 1, other, seen)?;
            Ok(None)
        }
    }
}

fn read_up_to(reader: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn into_io<T>(result: Result<T, MsgpackError>) -> io::Result<T> {
    result.map_err(|fault| match fault {
        MsgpackError::Io(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
    })
}

/// Passes all bytes that it reads to `see`, once and in order.
struct ObservedReader<'a, R> {
    reader: R,
    see: &'a mut dyn FnMut(&[u8]),
}

impl<R: Read> Read for ObservedReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        (self.see)(&buffer[..read]);
        Ok(read)
    }
}
