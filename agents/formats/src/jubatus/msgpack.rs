//! MessagePack in the dialect of Jubatus: a tokenizer for blocks of bounded length, and an encoder.
//!
//! No values are built: a model can be larger than memory, and a few bytes can declare billions of members. A
//! [`TokenReader`] has one buffer of constant size; the caller of [`TokenReader::text`] limits the length of the text.
//! The messages of MessagePack-RPC use the same tokens.

use std::io::{self, Read};

use rmp::{Marker, encode};

/// The largest depth of nested containers: the limit of the library that the released servers are linked with.
pub const MAX_DEPTH: usize = 32;

/// The largest token head: a marker and eight bytes.
const LONGEST_HEAD: usize = 9;

const BUFFER: usize = 256 << 10;

/// One token of a MessagePack stream. The bytes of a text follow its token, and must be read or skipped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Token {
    Nil,
    Bool(bool),
    /// An integer that is not negative, in any encoding.
    Unsigned(u64),
    Negative(i64),
    /// A number of four bytes.
    Float32(f32),
    /// A number of eight bytes.
    Float64(f64),
    /// A string or raw bytes: the dialect does not distinguish them.
    Text {
        /// Bytes that follow.
        length: u32,
        /// Encoded as str8 or bin, which the oldest servers cannot read.
        new_form: bool,
    },
    /// An array; this many members follow.
    Array(u32),
    /// A map; this many pairs follow.
    Map(u32),
}

/// Why a token or text cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MsgpackError {
    #[error("insufficient bytes: the block ends inside a value, after {offset} bytes")]
    Insufficient { offset: u64 },
    /// A byte that is not a valid marker.
    #[error("parse error: no value starts with the byte {byte:#04x}, at offset {offset} of the block")]
    Parse { offset: u64, byte: u8 },
    #[error("parse error: arrays and maps are nested deeper than {MAX_DEPTH}, at offset {offset} of the block")]
    TooDeep { offset: u64 },
    /// A text is longer than the caller's limit.
    #[error("a text of {length} bytes, longer than the limit of {limit}, at offset {offset} of the block")]
    TooLong { offset: u64, length: u32, limit: u32 },
    /// The file is shorter than the block's declared length.
    #[error("the file ended inside the block")]
    Ended,
    #[error("{0}")]
    Io(io::Error),
}

/// Reads a block token by token through one buffer.
pub struct TokenReader<R> {
    reader: R,
    /// Bytes of the block that were not read yet; `None` if the block ends with the reader.
    left: Option<u64>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
}

impl<R: Read> TokenReader<R> {
    /// The next `length` bytes of the reader.
    pub fn block(reader: R, length: u64) -> TokenReader<R> {
        let size = usize::try_from(length).unwrap_or(BUFFER).clamp(LONGEST_HEAD, BUFFER);
        TokenReader { reader, left: Some(length), buffer: vec![0; size], start: 0, end: 0, offset: 0 }
    }

    /// Everything up to the reader's end.
    pub fn to_end(reader: R) -> TokenReader<R> {
        TokenReader { reader, left: None, buffer: vec![0; BUFFER], start: 0, end: 0, offset: 0 }
    }

    /// Bytes consumed so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next token. Reads no bytes beyond it that would have to be waited for, so that a complete response on
    /// an open connection can be read.
    ///
    /// # Errors
    /// When the block ends before it, or no token starts here.
    pub fn token(&mut self) -> Result<Token, MsgpackError> {
        self.fill(1)?;
        let Some(&byte) = self.buffer[..self.end].get(self.start) else {
            return Err(MsgpackError::Insufficient { offset: self.offset });
        };
        let marker = Marker::from_u8(byte);
        let Some(width) = number_width(marker) else { return Err(MsgpackError::Parse { offset: self.offset, byte }) };
        self.fill(1 + width)?;
        let bytes = &self.buffer[self.start + 1..self.end];
        let number = match bytes.first_chunk() {
            // The usual case: eight bytes are loaded, and those that are not part of the number are shifted out.
            Some(eight) => u64::from_be_bytes(*eight).checked_shr(64 - 8 * width as u32).unwrap_or(0),
            None => match bytes.get(..width) {
                Some(bytes) => bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
                None => return Err(MsgpackError::Insufficient { offset: self.offset }),
            },
        };
        // `number` has at most as many bits as its token, so that the casts below lose nothing.
        let number32 = number as u32;
        let text = |length, new_form| Token::Text { length, new_form };
        let token = match marker {
            Marker::FixPos(value) => Token::Unsigned(u64::from(value)),
            Marker::FixNeg(value) => integer(i64::from(value)),
            Marker::FixStr(length) => text(u32::from(length), false),
            Marker::FixArray(count) => Token::Array(u32::from(count)),
            Marker::FixMap(count) => Token::Map(u32::from(count)),
            Marker::False => Token::Bool(false),
            Marker::True => Token::Bool(true),
            Marker::U8 | Marker::U16 | Marker::U32 | Marker::U64 => Token::Unsigned(number),
            Marker::I8 => integer(i64::from(number as u8 as i8)),
            Marker::I16 => integer(i64::from(number as u16 as i16)),
            Marker::I32 => integer(i64::from(number32.cast_signed())),
            Marker::I64 => integer(number.cast_signed()),
            Marker::F32 => Token::Float32(f32::from_bits(number32)),
            Marker::F64 => Token::Float64(f64::from_bits(number)),
            Marker::Str16 | Marker::Str32 => text(number32, false),
            Marker::Str8 | Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => text(number32, true),
            Marker::Array16 | Marker::Array32 => Token::Array(number32),
            Marker::Map16 | Marker::Map32 => Token::Map(number32),
            // What has no width was refused above.
            _ => Token::Nil,
        };
        self.take(1 + width);
        Ok(token)
    }

    /// Skips up to `most` values that are in the buffer, contain no other values, and have their length in the first
    /// byte. Returns how many were skipped. Most values of a model are of this kind.
    pub fn skip_plain(&mut self, most: u64) -> u64 {
        let held = &self.buffer[self.start..self.end];
        let (mut at, mut skipped) = (0, 0);
        while skipped < most
            && let Some(head) = held.get(at)
        {
            let bytes = usize::from(PLAIN[usize::from(*head)]);
            if bytes == 0 || held.len() - at < bytes {
                break;
            }
            at += bytes;
            skipped += 1;
        }
        self.take(at);
        skipped
    }

    /// If the next token is a small array or map in the buffer, consumes its head and returns the number of values in
    /// it. A fast path for the most frequent token.
    pub fn small_container(&mut self) -> Option<u64> {
        let head = *self.buffer[self.start..self.end].first()?;
        let values = match head {
            0x80..=0x8f => 2 * u64::from(head & 0x0f),
            0x90..=0x9f => u64::from(head & 0x0f),
            _ => return None,
        };
        self.take(1);
        Some(values)
    }

    /// Reads the bytes of a text after its token.
    ///
    /// # Errors
    /// When the block ends inside the text, or the text is longer than `limit` bytes.
    pub fn text(&mut self, length: u32, limit: u32) -> Result<Vec<u8>, MsgpackError> {
        if length > limit {
            return Err(MsgpackError::TooLong { offset: self.offset, length, limit });
        }
        let mut bytes = Vec::new();
        self.each(u64::from(length), |part| bytes.extend_from_slice(part))?;
        Ok(bytes)
    }

    /// Skips the bytes of a text after its token.
    ///
    /// # Errors
    /// When the block ends inside the text.
    pub fn skip(&mut self, length: u32) -> Result<(), MsgpackError> {
        self.each(u64::from(length), |_| ())
    }

    /// Reads the rest of the block without parsing it, and returns the number of bytes.
    ///
    /// # Errors
    /// When the file is shorter than the block, or cannot be read.
    pub fn drain(&mut self) -> Result<u64, MsgpackError> {
        let before = self.offset;
        loop {
            self.fill(1)?;
            if self.start == self.end {
                return Ok(self.offset - before);
            }
            self.take(self.end - self.start);
        }
    }

    fn each(&mut self, mut length: u64, mut see: impl FnMut(&[u8])) -> Result<(), MsgpackError> {
        while length > 0 {
            self.fill(1)?;
            let held = self.end - self.start;
            if held == 0 {
                return Err(MsgpackError::Insufficient { offset: self.offset });
            }
            let part = usize::try_from(length).unwrap_or(usize::MAX).min(held);
            see(&self.buffer[self.start..self.start + part]);
            self.take(part);
            length -= part as u64;
        }
        Ok(())
    }

    fn take(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Fills the buffer with at least `wanted` bytes, or with the rest of the block.
    fn fill(&mut self, wanted: usize) -> Result<(), MsgpackError> {
        if self.end - self.start >= wanted {
            return Ok(());
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < wanted {
            let room = self.buffer.len() - self.end;
            let most = self.left.map_or(room, |left| usize::try_from(left).unwrap_or(usize::MAX).min(room));
            if most == 0 {
                return Ok(());
            }
            match self.reader.read(&mut self.buffer[self.end..self.end + most]) {
                Ok(0) if self.left.is_some() => return Err(MsgpackError::Ended),
                Ok(0) => return Ok(()),
                Ok(read) => {
                    self.end += read;
                    self.left = self.left.map(|left| left.saturating_sub(read as u64));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(MsgpackError::Io(error)),
            }
        }
        Ok(())
    }
}

/// For each first byte, the total bytes of the value if the byte determines it; else 0.
static PLAIN: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut head = 0;
    while head < 256 {
        bytes[head] = match head {
            0x00..=0x7f | 0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => 1,
            0xa0..=0xbf => (head - 0xa0) as u8 + 1,
            0xcc | 0xd0 => 2,
            0xcd | 0xd1 => 3,
            0xca | 0xce | 0xd2 => 5,
            0xcb | 0xcf | 0xd3 => 9,
            _ => 0,
        };
        head += 1;
    }
    bytes
};

/// Bytes of the number after a marker; `None` for markers that the servers' library rejects, such as extension types.
fn number_width(marker: Marker) -> Option<usize> {
    match marker {
        Marker::FixPos(_) | Marker::FixNeg(_) | Marker::FixStr(_) | Marker::FixArray(_) | Marker::FixMap(_) => Some(0),
        Marker::Null | Marker::False | Marker::True => Some(0),
        Marker::U8 | Marker::I8 | Marker::Str8 | Marker::Bin8 => Some(1),
        Marker::U16 | Marker::I16 | Marker::Str16 | Marker::Bin16 | Marker::Array16 | Marker::Map16 => Some(2),
        Marker::U32 | Marker::I32 | Marker::F32 => Some(4),
        Marker::Str32 | Marker::Bin32 | Marker::Array32 | Marker::Map32 => Some(4),
        Marker::U64 | Marker::I64 | Marker::F64 => Some(8),
        _ => None,
    }
}

fn integer(value: i64) -> Token {
    u64::try_from(value).map_or(Token::Negative(value), Token::Unsigned)
}

/// Appends the head of an array.
pub fn put_array(out: &mut Vec<u8>, count: u32) {
    // A vector takes everything, here and below.
    let _ = encode::write_array_len(out, count);
}

/// Appends an integer in its shortest form.
pub fn put_unsigned(out: &mut Vec<u8>, value: u64) {
    let _ = encode::write_uint(out, value);
}

/// Appends an integer in its shortest form.
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    let _ = encode::write_sint(out, value);
}

/// Appends a text in the old encodings (fixraw, raw16, raw32), which every release reads. Returns false if the text is
/// too long.
#[must_use]
pub fn put_text(out: &mut Vec<u8>, text: &[u8]) -> bool {
    let Ok(length) = u32::try_from(text.len()) else { return false };
    match length {
        0..32 => out.push(Marker::FixStr(length as u8).to_u8()),
        32..0x1_0000 => put_head(out, Marker::Str16, &(length as u16).to_be_bytes()),
        _ => put_head(out, Marker::Str32, &length.to_be_bytes()),
    }
    out.extend_from_slice(text);
    true
}

fn put_head(out: &mut Vec<u8>, marker: Marker, bytes: &[u8]) {
    out.push(marker.to_u8());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(bytes: &[u8]) -> Result<Vec<Token>, MsgpackError> {
        let mut source = TokenReader::block(bytes, bytes.len() as u64);
        let mut tokens = Vec::new();
        while source.offset() < bytes.len() as u64 {
            let token = source.token()?;
            if let Token::Text { length, .. } = token {
                source.skip(length)?;
            }
            tokens.push(token);
        }
        Ok(tokens)
    }

    #[test]
    fn writes_integers_in_shortest_encoding_and_reads_them_back() {
        let mut edges = vec![0_i64, i64::MAX, i64::MIN];
        for shift in [5, 7, 8, 15, 16, 31, 32] {
            for around in -1..=1 {
                edges.extend([(1_i64 << shift) + around, -(1_i64 << shift) + around]);
            }
        }
        for value in edges {
            let mut bytes = Vec::new();
            put_signed(&mut bytes, value);
            assert_eq!(tokens(&bytes).unwrap(), [integer(value)], "{value}");
        }
        let mut bytes = Vec::new();
        put_unsigned(&mut bytes, u64::MAX);
        assert_eq!(tokens(&bytes).unwrap(), [Token::Unsigned(u64::MAX)]);
    }

    #[test]
    fn writes_texts_of_every_length_in_old_encodings() {
        for (length, head) in [(0, 0xa0), (31, 0xbf), (32, 0xda), (255, 0xda), (65535, 0xda), (65536, 0xdb)] {
            let mut bytes = Vec::new();
            assert!(put_text(&mut bytes, &vec![b'x'; length]));
            assert_eq!(bytes[0], head);
            assert_eq!(tokens(&bytes).unwrap(), [Token::Text { length: length as u32, new_form: false }]);
        }
        assert_eq!(tokens(b"\xd9\x01x").unwrap(), [Token::Text { length: 1, new_form: true }]);
        for count in [0, 15, 16, 65535, 65536] {
            let mut bytes = Vec::new();
            put_array(&mut bytes, count);
            assert_eq!(tokens(&bytes).unwrap(), [Token::Array(count)]);
        }
    }

    #[test]
    fn distinguishes_block_end_inside_value_from_file_end_inside_block() {
        for cut in [&b"\xce\x00\x00"[..], b"\xdb", b"\xda\x00\x05four", b"\xcb1234567"] {
            assert!(matches!(tokens(cut), Err(MsgpackError::Insufficient { .. })), "{cut:?}");
        }
        let mut source = TokenReader::block(&b"\xda\x00\x05fo"[..], 8);
        assert_eq!(source.token().unwrap(), Token::Text { length: 5, new_form: false });
        assert!(matches!(source.skip(5), Err(MsgpackError::Ended)));
        assert!(matches!(tokens(b"\x01\xc1"), Err(MsgpackError::Parse { offset: 1, byte: 0xc1 })));
        assert!(matches!(tokens(b"\xd4\x00\x00"), Err(MsgpackError::Parse { .. })));
        assert!(matches!(
            TokenReader::to_end(&b""[..]).text(9, 8),
            Err(MsgpackError::TooLong { length: 9, limit: 8, .. })
        ));
    }

    #[test]
    fn skip_plain_skips_as_many_bytes_as_the_tokens_have() {
        for head in 0..=255_u8 {
            let bytes = [vec![head], vec![0; 40]].concat();
            let mut one_by_one = TokenReader::block(&bytes[..], 41);
            let token = one_by_one.token();
            if let Ok(Token::Text { length, .. }) = token {
                one_by_one.skip(length).unwrap();
            }
            let mut at_once = TokenReader::block(&bytes[..], 41);
            assert_eq!(at_once.skip_plain(1), 0, "nothing is in the buffer");
            at_once.fill(41).unwrap();
            match at_once.skip_plain(1) {
                1 => assert_eq!(at_once.offset(), one_by_one.offset(), "{head:#04x}"),
                _ => assert!(at_once.offset() == 0 && head >= 0x80, "{head:#04x}"),
            }
        }
        let mut source = TokenReader::block(&b"\x01\xa2ab\xcb\0\0"[..], 7);
        source.fill(7).unwrap();
        assert_eq!((source.skip_plain(9), source.offset()), (2, 4), "the last one is incomplete");
    }

    #[test]
    fn reads_tokens_across_the_end_of_the_buffer() {
        /// Returns one byte at a time, as a slow connection does.
        struct Slow<'a>(&'a [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let most = buffer.len().min(1);
                self.0.read(&mut buffer[..most])
            }
        }
        let mut bytes = vec![0xc0; BUFFER - 4];
        bytes.extend([0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0]);
        for slow in [false, true] {
            let reader: Box<dyn Read> = if slow { Box::new(Slow(&bytes)) } else { Box::new(&bytes[..]) };
            let mut source = TokenReader::block(reader, bytes.len() as u64);
            for _ in 0..BUFFER - 4 {
                assert_eq!(source.token().unwrap(), Token::Nil);
            }
            assert_eq!(source.token().unwrap(), Token::Float64(1.0));
            assert_eq!(source.drain().unwrap(), 0);
        }
    }

    #[test]
    fn reads_response_on_open_connection_without_waiting_for_more() {
        /// A connection on which no further bytes arrive.
        struct Open<'a>(&'a [u8]);
        impl Read for Open<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                assert!(!self.0.is_empty(), "the reader would wait for ever");
                self.0.read(buffer)
            }
        }
        let mut source = TokenReader::to_end(Open(b"\x94\x01\x00\xc0\xa2ok"));
        let head: Vec<Token> = (0..4).map(|_| source.token().unwrap()).collect();
        assert_eq!(head, [Token::Array(4), Token::Unsigned(1), Token::Unsigned(0), Token::Nil]);
        assert_eq!(source.token().unwrap(), Token::Text { length: 2, new_form: false });
        assert_eq!(source.text(2, 2).unwrap(), b"ok");
    }
}
