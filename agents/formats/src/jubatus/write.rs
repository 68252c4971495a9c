//! Writing a model file: under a temporary name, renamed when it is complete.
//!
//! Servers truncate the file and write in place: after a crash, on a full disk, or when another process holds its lock,
//! the previous model is lost. Here the previous file is kept until the new one is complete and on disk. User data that
//! no server would load is rejected while it is written.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::engine::Engine;
use super::header::{FORMAT_VERSION, HEADER_LENGTH, Header, MAGIC, Release};
use super::layout::ModelLayout;
use super::msgpack::{MsgpackError, TokenReader, put_array, put_unsigned};
use super::name::ModelId;
use super::scan::user_data;
use super::system_data::{MAX_SYSTEM_DATA, SYSTEM_DATA_VERSION, SystemData};
use super::verify::USER_DATA_VERSION;
use crate::destination;
use crate::error::FormatsError;

/// The description of a new model, without its user data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewModel {
    /// The release whose servers are to load it.
    pub release: Release,
    /// Time of saving, in seconds since 1970.
    pub timestamp: i64,
    pub engine: Engine,
    pub id: ModelId,
    /// The text of the configuration that the model belongs to.
    pub config: Vec<u8>,
}

/// Replaces `path` with a model file whose user data is read from `block`. Returns its header.
///
/// # Errors
/// When the block is not `[1, model]` with a model that the engine can load, has strings in an encoding that not all
/// servers read, or reading or writing fails; a previous file at `path` is then unchanged.
pub fn write_block(path: &Path, model: &NewModel, block: impl Read) -> Result<Header, FormatsError> {
    let unwritable = |fault: Unloadable| FormatsError::Unwritable { path: path.to_owned(), why: fault.to_string() };
    let system = system_block(model).map_err(unwritable)?;
    destination::replace(path, |out| {
        out.write_all(&[0; HEADER_LENGTH as usize])?;
        out.write_all(&system)?;
        let mut crc = crc32fast::Hasher::new();
        crc.update(&system);
        let user_data_size = copy_block(model, block, out, &mut crc)?.map_err(unwritable)?;
        let mut header = Header {
            magic: MAGIC,
            format_version: FORMAT_VERSION,
            release: model.release,
            crc32: 0,
            system_data_size: system.len() as u64,
            user_data_size,
        };
        // The header comes first in the checksum, but is known last.
        let mut checksum = Header::start_checksum(&header.encode());
        checksum.combine(&crc);
        header.crc32 = checksum.finalize();
        out.seek(SeekFrom::Start(0))?;
        out.write_all(&header.encode())?;
        Ok(header)
    })
}

/// As [`write_block`], but reads only the model, the engine's own part of the user data.
pub fn write_model(path: &Path, model: &NewModel, value: impl Read) -> Result<Header, FormatsError> {
    let mut head = Vec::new();
    put_array(&mut head, 2);
    put_unsigned(&mut head, USER_DATA_VERSION);
    write_block(path, model, head.as_slice().chain(value))
}

/// Why no server could load a model.
#[derive(Debug, thiserror::Error)]
enum Unloadable {
    #[error("the configuration is not JSON, and no server could load the model; pass the server's configuration")]
    ConfigNotJson,
    #[error("the configuration is larger than a model file allows; pass the server's configuration")]
    ConfigTooLarge,
    #[error("the user data is not MessagePack: {0}")]
    NoMessagePack(MsgpackError),
    #[error("there are bytes after the user data's array")]
    TrailingBytes,
    #[error("the user data is not an array of two")]
    NotTwo,
    #[error("the version of the user data is not {USER_DATA_VERSION}")]
    Version,
    #[error("the model is not one of {engine}: see offset {at} of the user data")]
    OtherModel { engine: Engine, at: u64 },
    #[error("the model has strings as str8 or bin, which not all servers read; write them as fixraw, raw16 or raw32")]
    NewForms,
}

fn system_block(model: &NewModel) -> Result<Vec<u8>, Unloadable> {
    if !super::config::is_json(&model.config) {
        return Err(Unloadable::ConfigNotJson);
    }
    let system = SystemData {
        version: SYSTEM_DATA_VERSION,
        timestamp: model.timestamp,
        engine: model.engine.name().as_bytes().to_vec(),
        id: model.id.as_str().as_bytes().to_vec(),
        config: model.config.clone(),
    };
    let block = system.encode().filter(|block| block.len() as u64 <= MAX_SYSTEM_DATA);
    block.ok_or(Unloadable::ConfigTooLarge)
}

/// Copies the block and checks it; the inner error is that of the block.
fn copy_block(
    model: &NewModel,
    block: impl Read,
    out: &mut impl Write,
    crc: &mut crc32fast::Hasher,
) -> io::Result<Result<u64, Unloadable>> {
    let mut source = TokenReader::to_end(CopyingReader { reader: block, out, crc });
    let read = user_data(&mut source, &ModelLayout::of(model.engine, model.release, &model.config));
    let (user, trailing) = match read.and_then(|user| Ok((user, source.drain()?))) {
        Ok(read) => read,
        Err(MsgpackError::Io(error)) => return Err(error),
        Err(fault) => return Ok(Err(Unloadable::NoMessagePack(fault))),
    };
    Ok(if user.members != Some(2) {
        Err(Unloadable::NotTwo)
    } else if user.version != Some(USER_DATA_VERSION) {
        Err(Unloadable::Version)
    } else if let Some(at) = user.mismatch {
        Err(Unloadable::OtherModel { engine: model.engine, at })
    } else if user.new_forms {
        Err(Unloadable::NewForms)
    } else if trailing > 0 {
        Err(Unloadable::TrailingBytes)
    } else {
        Ok(source.offset())
    })
}

/// Copies all bytes that it reads to `out`.
struct CopyingReader<'a, R, W> {
    reader: R,
    out: &'a mut W,
    crc: &'a mut crc32fast::Hasher,
}

impl<R: Read, W: Write> Read for CopyingReader<'_, R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.crc.update(&buffer[..read]);
        self.out.write_all(&buffer[..read])?;
        Ok(read)
    }
}
