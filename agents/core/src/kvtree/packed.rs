//! The packed form: header, elements, CRC32 (`docs/scr-files.md` §1). Bytes in, tree out, and back; no files here.
//!
//! The input may come from a damaged disk or a hostile peer, so that every number is checked against the available
//! bytes before anything is allocated for it, and nesting is limited.

use std::io::{self, Read};

use super::limits::Limits;
use super::tree::{Element, Tree};

/// The first four bytes of every hash file.
pub const MAGIC: [u8; 4] = [0x95, 0x1f, 0xc3, 0xf5];
/// Bytes in front of the packed hash: magic, type, version, size, flags.
pub const HEADER_BYTES: usize = 20;
/// Deepest nesting that is read. The deepest real file, a filemap, has seven levels
/// (`RANK/0/CKPT/1/CKPTDESC/TYPE/XOR`).
pub const MAX_DEPTH: usize = 64;

const TYPE_HASH: u16 = 1;
const VERSION: u16 = 1;
const FLAG_CRC: u32 = 1;
const CRC_BYTES: usize = 4;
/// An element takes at least the NUL of an empty key and the count of an empty hash.
const SMALLEST_ELEMENT: usize = 5;
/// What is reserved for a hash before its elements are seen; a count may claim far more than will come.
const RESERVED_ELEMENTS: usize = 256;

/// What is wrong with bytes that should be a hash file. Offsets count from the start of the hash file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HashFormatError {
    /// Fewer bytes than a header.
    #[error("only {have} bytes where a hash file has a header of {HEADER_BYTES}: it was cut short, or is empty")]
    NoHeader { have: u64 },
    #[error(
        "starts with {found:02x?} where a hash file has {MAGIC:02x?}: it is another kind of file, or was overwritten"
    )]
    Magic { found: [u8; 4] },
    /// A kind or version of SCR file that is not known.
    #[error("SCR file of type {kind} version {version}, known is type {TYPE_HASH} version {VERSION}")]
    Version { kind: u16, version: u16 },
    #[error("the header records {size} bytes, possible in a file of this name are {smallest} to {largest}")]
    Size {
        size: u64,
        /// The least that its flags allow.
        smallest: u64,
        /// The most that is read of its kind.
        largest: u64,
    },
    #[error("cut short: the file has {have} bytes, its header records {size}")]
    Truncated { size: u64, have: u64 },
    #[error("damaged: its CRC32 is {computed:#010x}, stored is {stored:#010x}")]
    Crc {
        /// The CRC at the end of the file.
        stored: u32,
        computed: u32,
    },
    /// A hash claims more elements than the bytes can hold.
    #[error("at byte {offset}: a hash of {count} elements, but only {left} bytes are left")]
    Count {
        /// Where the count is.
        offset: usize,
        count: u32,
        /// Bytes behind it.
        left: usize,
    },
    /// More elements than its kind of file can need.
    #[error(
        "at byte {offset}: more than {limit} elements, which no file of this name needs (a summary must be named \
         summary.scr)"
    )]
    Elements {
        /// Where the hash starts that has too many.
        offset: usize,
        limit: usize,
    },
    /// A key without its NUL before the end of the hash.
    #[error("at byte {offset}: a key without its end")]
    UnendedKey {
        /// Where the key starts.
        offset: usize,
    },
    /// The bytes end where an element count should be.
    #[error("at byte {offset}: the end, where a count should be")]
    NoCount {
        /// Where the count should be.
        offset: usize,
    },
    /// A key that is not UTF-8. Keys are numbers, identifiers and file names; Holdfast writes no others.
    #[error("at byte {offset}: a key that is not UTF-8 text")]
    Encoding {
        /// Where the key starts.
        offset: usize,
    },
    /// Twice the same key in one hash. No writer does that, and to choose one of two values would be a guess.
    #[error("in the hash that starts at byte {offset}: the key {key:?} twice")]
    Duplicate {
        /// Where the hash starts.
        offset: usize,
        key: String,
    },
    #[error("at byte {offset}: nested deeper than {MAX_DEPTH} levels")]
    Depth {
        /// Where the hash is that is too deep.
        offset: usize,
    },
    /// Bytes between the packed hash and the end.
    #[error("at byte {offset}: {extra} bytes behind the end of the hash")]
    Trailing {
        /// Where the hash ends.
        offset: usize,
        extra: usize,
    },
}

/// Why the hash file in front of a stream could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LeadingHashError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What was read is not a hash file.
    #[error(transparent)]
    Format(#[from] HashFormatError),
}

/// The complete hash file of a tree, with CRC: the original's bytes.
///
/// A key ends at its first NUL, as every C string does; [`super::file::write`] refuses such a tree.
pub fn encode(tree: &Tree) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1024);
    bytes.extend(MAGIC);
    bytes.extend(TYPE_HASH.to_be_bytes());
    bytes.extend(VERSION.to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend(FLAG_CRC.to_be_bytes());
    pack(tree, &mut bytes);
    let size = (bytes.len() + CRC_BYTES) as u64;
    bytes[8..16].copy_from_slice(&size.to_be_bytes());
    let crc = crc32fast::hash(&bytes);
    bytes.extend(crc.to_be_bytes());
    bytes
}

/// Appends the packed form of a tree: count, then key, NUL and packed value of each element, front first.
fn pack(tree: &Tree, bytes: &mut Vec<u8>) {
    let count = u32::try_from(tree.len()).unwrap_or(u32::MAX);
    bytes.extend(count.to_be_bytes());
    for (key, value) in tree.iter() {
        let key = key.as_bytes();
        let end = key.iter().position(|byte| *byte == 0).unwrap_or(key.len());
        bytes.extend(&key[..end]);
        bytes.push(0);
        pack(value, bytes);
    }
}

/// The tree at the front of `bytes`, and how many bytes its hash file takes; what follows (the data of an `.xor`
/// file) is not looked at.
///
/// # Errors
/// What is wrong with the bytes, and where.
pub fn decode(bytes: &[u8]) -> Result<(Tree, usize), HashFormatError> {
    decode_within(bytes, Limits::LARGEST)
}

/// As [`decode`], for a hash that needs no more than this.
///
/// # Errors
/// As [`decode`].
pub fn decode_within(bytes: &[u8], limits: Limits) -> Result<(Tree, usize), HashFormatError> {
    let have = bytes.len() as u64;
    let Some((front, _)) = bytes.split_first_chunk() else { return Err(HashFormatError::NoHeader { have }) };
    let header = Header::parse(front, limits.bytes)?;
    match usize::try_from(header.size).ok().and_then(|size| bytes.get(..size)) {
        Some(file) => Ok((header.body(file, limits.elements)?, file.len())),
        None => Err(HashFormatError::Truncated { size: header.size, have }),
    }
}

/// Reads exactly the hash file in front of a stream, so that the reader is then at the data of an `.xor` file; returns
/// the tree and the number of bytes read.
///
/// # Errors
/// When the stream fails, or what it holds is not a hash file.
pub fn decode_prefix(reader: &mut impl Read, limits: Limits) -> Result<(Tree, u64), LeadingHashError> {
    let mut bytes = Vec::with_capacity(1024);
    let have = reader.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut bytes)? as u64;
    let Some((front, _)) = bytes.split_first_chunk() else { return Err(HashFormatError::NoHeader { have }.into()) };
    let header = Header::parse(front, limits.bytes)?;
    // Grows with what comes, not with what the header claims.
    let have = have + reader.by_ref().take(header.size - HEADER_BYTES as u64).read_to_end(&mut bytes)? as u64;
    if have < header.size {
        return Err(HashFormatError::Truncated { size: header.size, have }.into());
    }
    Ok((header.body(&bytes, limits.elements)?, header.size))
}

struct Header {
    size: u64,
    crc: bool,
}

impl Header {
    fn parse(bytes: &[u8; HEADER_BYTES], largest: u64) -> Result<Header, HashFormatError> {
        let [m0, m1, m2, m3, t0, t1, v0, v1, s0, s1, s2, s3, s4, s5, s6, s7, f0, f1, f2, f3] = *bytes;
        let found = [m0, m1, m2, m3];
        if found != MAGIC {
            return Err(HashFormatError::Magic { found });
        }
        let (kind, version) = (u16::from_be_bytes([t0, t1]), u16::from_be_bytes([v0, v1]));
        if (kind, version) != (TYPE_HASH, VERSION) {
            return Err(HashFormatError::Version { kind, version });
        }
        let size = u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        let crc = u32::from_be_bytes([f0, f1, f2, f3]) & FLAG_CRC != 0;
        let smallest = (HEADER_BYTES + size_of::<u32>() + if crc { CRC_BYTES } else { 0 }) as u64;
        if size < smallest || size > largest {
            return Err(HashFormatError::Size { size, smallest, largest });
        }
        Ok(Header { size, crc })
    }

    /// The tree of a file of exactly the header's size.
    fn body(&self, file: &[u8], most_elements: usize) -> Result<Tree, HashFormatError> {
        let packed = if self.crc {
            let Some((content, stored)) = file.split_last_chunk() else {
                return Err(HashFormatError::NoHeader { have: file.len() as u64 });
            };
            let (stored, computed) = (u32::from_be_bytes(*stored), crc32fast::hash(content));
            if stored != computed {
                return Err(HashFormatError::Crc { stored, computed });
            }
            content
        } else {
            file
        };
        let mut cursor = Cursor { bytes: packed, at: HEADER_BYTES, elements: 0, most_elements };
        let tree = cursor.hash(0)?;
        match packed.len() - cursor.at {
            0 => Ok(tree),
            extra => Err(HashFormatError::Trailing { offset: cursor.at, extra }),
        }
    }
}

/// Walks along the bytes; `at` never passes their end.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Those of all hashes so far, as their counts claim.
    elements: usize,
    most_elements: usize,
}

impl Cursor<'_> {
    fn hash(&mut self, depth: usize) -> Result<Tree, HashFormatError> {
        let offset = self.at;
        let rest = &self.bytes[self.at..];
        let Some((count, rest)) = rest.split_first_chunk() else { return Err(HashFormatError::NoCount { offset }) };
        let (count, left) = (u32::from_be_bytes(*count), rest.len());
        self.at += size_of::<u32>();
        if count == 0 {
            return Ok(Tree::new());
        }
        if depth == MAX_DEPTH {
            return Err(HashFormatError::Depth { offset });
        }
        if count as usize > left / SMALLEST_ELEMENT {
            return Err(HashFormatError::Count { offset, count, left });
        }
        self.elements += count as usize;
        if self.elements > self.most_elements {
            return Err(HashFormatError::Elements { offset, limit: self.most_elements });
        }
        let mut elements = Vec::with_capacity((count as usize).min(RESERVED_ELEMENTS));
        for _ in 0..count {
            let key = self.key()?;
            elements.push(Element { key, value: self.hash(depth + 1)? });
        }
        elements.shrink_to_fit();
        Tree::from_front_to_back(elements).map_err(|twice| HashFormatError::Duplicate { offset, key: twice.0.into() })
    }

    fn key(&mut self) -> Result<Box<str>, HashFormatError> {
        let offset = self.at;
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == 0).ok_or(HashFormatError::UnendedKey { offset })?;
        let key = std::str::from_utf8(&rest[..end]).map_err(|_| HashFormatError::Encoding { offset })?;
        self.at += end + 1;
        Ok(key.into())
    }
}
