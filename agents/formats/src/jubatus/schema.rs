//! The structure that an engine requires of its model. Servers check it last, when they already replace the model in
//! memory.
//!
//! A schema contains only the requirements of every server of a release line. `structures` has the classes of the
//! servers as schemas, `layout` combines them to the model of an engine.

use std::io::Read;

use super::msgpack::{MAX_DEPTH, MsgpackError, Token, TokenReader};

/// The required structure of a value.
#[derive(Debug)]
pub enum Schema {
    Any,
    /// An integer that is not negative.
    Unsigned,
    /// An integer that is not negative and at most this.
    UnsignedUpTo(u64),
    /// This integer.
    Value(u64),
    /// A signed integer of four bytes.
    Int,
    Bool,
    Float,
    /// A string or raw bytes.
    Text,
    /// An array whose members all match this schema.
    List(&'static Schema),
    /// An array of exactly these members.
    Exactly(&'static [Schema]),
    /// An array that starts with these members: servers ignore further ones.
    Members(&'static [Schema]),
    /// An array that starts with these members, or with the first of them: servers keep the defaults of missing ones.
    Struct(&'static [Schema]),
    Map(&'static Schema, &'static Schema),
    /// The number of bits of all hashes of a table: [`ValueFindings::hash_bits`].
    HashBits,
    /// The bytes of a bit vector, in words of eight, whose number of bits is the value before.
    Bits,
}

static ANY: Schema = Schema::Any;

/// Findings of a walk over values.
#[derive(Debug, Default)]
pub struct ValueFindings {
    /// The offset in the block of the first value that does not have the required structure.
    pub mismatch: Option<u64>,
    /// A text in a form that the oldest servers do not know.
    pub new_forms: bool,
    /// The offset and value of the first [`Schema::HashBits`].
    pub hash_bits: Option<(u64, u64)>,
}

impl ValueFindings {
    /// Records a value at this offset that does not have the required structure.
    pub(super) fn mismatch_at(&mut self, offset: u64) {
        self.mismatch = Some(self.mismatch.map_or(offset, |first| first.min(offset)));
    }
}

struct OpenContainer {
    /// Values not read yet: a map has two for each pair.
    left: u64,
    index: usize,
    schema: &'static Schema,
}

impl OpenContainer {
    fn next(&mut self) -> &'static Schema {
        let index = self.index;
        self.index = self.index.saturating_add(1);
        match self.schema {
            Schema::List(member) => member,
            Schema::Exactly(members) | Schema::Members(members) | Schema::Struct(members) => {
                members.get(index).unwrap_or(&ANY)
            }
            Schema::Map(key, value) => match index.is_multiple_of(2) {
                true => key,
                false => value,
            },
            _ => &ANY,
        }
    }
}

/// Reads one value inside `depth` open containers. A value of another structure is recorded, and reading goes on,
/// because malformed MessagePack anywhere has precedence, as in servers.
///
/// # Errors
/// When the value is not well-formed, or its containers are nested too deep.
pub fn walk<R: Read>(
    source: &mut TokenReader<R>,
    depth: usize,
    schema: &'static Schema,
    seen: &mut ValueFindings,
) -> Result<(), MsgpackError> {
    let mut open: Vec<OpenContainer> = Vec::new();
    let mut expected = schema;
    let mut number_before = None;
    loop {
        let offset = source.offset();
        let token = source.token()?;
        let number = match token {
            Token::Unsigned(number) => Some(number),
            _ => None,
        };
        if !fits(expected, token, number_before) {
            seen.mismatch_at(offset);
            expected = &ANY;
        }
        if let (Schema::HashBits, Some(bits)) = (expected, number) {
            seen.hash_bits.get_or_insert((offset, bits));
        }
        number_before = number;
        let inside = match token {
            Token::Array(count) => Some(u64::from(count)),
            Token::Map(count) => Some(2 * u64::from(count)),
            Token::Text { length, new_form } => {
                seen.new_forms |= new_form;
                source.skip(length)?;
                None
            }
            _ => None,
        };
        if let Some(left) = inside {
            // As in the servers' library, an empty container counts too.
            if depth + open.len() >= MAX_DEPTH {
                return Err(MsgpackError::TooDeep { offset });
            }
            open.push(OpenContainer { left, index: 0, schema: expected });
        }
        loop {
            let Some(container) = open.last_mut() else { return Ok(()) };
            // Members can have any value.
            if matches!(container.schema, Schema::Any | Schema::List(Schema::Any)) {
                container.left -= source.skip_plain(container.left);
                let offset = source.offset();
                if container.left > 0
                    && let Some(left) = source.small_container()
                {
                    container.left -= 1;
                    if depth + open.len() >= MAX_DEPTH {
                        return Err(MsgpackError::TooDeep { offset });
                    }
                    open.push(OpenContainer { left, index: 0, schema: &ANY });
                    continue;
                }
            }
            if container.left > 0 {
                container.left -= 1;
                expected = container.next();
                break;
            }
            open.pop();
        }
    }
}

/// Reads what follows a token at this depth that was read already: the bytes of a text, or the members of a container,
/// which can be any.
///
/// # Errors
/// As [`walk`].
pub(super) fn walk_rest<R: Read>(
    source: &mut TokenReader<R>,
    depth: usize,
    token: Token,
    seen: &mut ValueFindings,
) -> Result<(), MsgpackError> {
    let values = match token {
        Token::Array(members) => u64::from(members),
        Token::Map(pairs) => 2 * u64::from(pairs),
        Token::Text { length, .. } => return source.skip(length),
        _ => 0,
    };
    (0..values).try_for_each(|_| walk(source, depth + 1, &ANY, seen))
}

/// `number_before` is the value before the token, if it is an integer that is not negative.
fn fits(expected: &Schema, token: Token, number_before: Option<u64>) -> bool {
    match (expected, token) {
        (Schema::Any, _)
        | (Schema::Unsigned | Schema::HashBits, Token::Unsigned(_))
        | (Schema::Bool, Token::Bool(_))
        | (Schema::Float, Token::Float32(_) | Token::Float64(_))
        | (Schema::Text, Token::Text { .. })
        | (Schema::List(_) | Schema::Struct(_), Token::Array(_))
        | (Schema::Map(..), Token::Map(_)) => true,
        (Schema::UnsignedUpTo(most), Token::Unsigned(value)) => value <= *most,
        (Schema::Value(expected), Token::Unsigned(value)) => value == *expected,
        (Schema::Bits, Token::Text { length, .. }) => number_before.map(bit_vector_bytes) == Some(u64::from(length)),
        (Schema::Int, Token::Unsigned(value)) => i32::try_from(value).is_ok(),
        (Schema::Int, Token::Negative(value)) => i32::try_from(value).is_ok(),
        (Schema::Exactly(members), Token::Array(count)) => count as usize == members.len(),
        (Schema::Members(members), Token::Array(count)) => count as usize >= members.len(),
        _ => false,
    }
}

/// Bytes of a bit vector in a file.
fn bit_vector_bytes(bits: u64) -> u64 {
    bits.div_ceil(64).saturating_mul(8)
}

#[cfg(test)]
mod tests {
    use super::super::structures::STAT;
    use super::*;

    fn seen(bytes: &[u8], schema: &'static Schema) -> Result<ValueFindings, MsgpackError> {
        let mut seen = ValueFindings::default();
        walk(&mut TokenReader::block(bytes, bytes.len() as u64), 0, schema, &mut seen)?;
        Ok(seen)
    }

    #[test]
    fn rejects_nesting_deeper_than_the_limit_of_servers() {
        let deep = |arrays: usize| [vec![0x91; arrays], vec![0xc0]].concat();
        assert!(seen(&deep(32), &ANY).is_ok());
        assert!(matches!(seen(&deep(33), &ANY), Err(MsgpackError::TooDeep { offset: 32 })));
        let empty_in_32 = [vec![0x91; 32], vec![0x90]].concat();
        assert!(matches!(seen(&empty_in_32, &ANY), Err(MsgpackError::TooDeep { .. })));
    }

    #[test]
    fn declared_four_billion_members_allocate_no_memory() {
        for bytes in [&b"\xdd\xff\xff\xff\xff"[..], b"\xdf\xff\xff\xff\xff\x01", b"\xdb\xff\xff\xff\xffx"] {
            assert!(matches!(seen(bytes, &ANY), Err(MsgpackError::Insufficient { .. })));
        }
    }

    #[test]
    fn reports_offset_of_first_value_of_another_structure() {
        let good = b"\x95\x20\x91\x92\x01\x92\xa1x\xcb\0\0\0\0\0\0\0\0\x80\xca\0\0\0\0\xca\0\0\0\0";
        assert_eq!(seen(good, &STAT).unwrap().mismatch, None);
        let mut text_for_a_number = good.to_vec();
        text_for_a_number[1] = 0xa0;
        assert_eq!(seen(&text_for_a_number, &STAT).unwrap().mismatch, Some(1));
        assert_eq!(seen(b"\x81\x01\x02", &STAT).unwrap().mismatch, Some(0));
        assert_eq!(seen(b"\x94\x01\x90\x80\x01", &STAT).unwrap().mismatch, Some(0));
        assert!(seen(b"\x91\xc4\x00", &ANY).unwrap().new_forms);
    }

    #[test]
    fn bit_vector_has_the_bytes_of_its_number_of_bits() {
        static BIT_VECTOR: Schema = Schema::Exactly(&[Schema::HashBits, Schema::Bits]);
        let vector = |bits: &[u8], bytes: usize| {
            let head = [&[0x92], bits, &[0xa0 + bytes as u8]].concat();
            seen(&[head, vec![0; bytes]].concat(), &BIT_VECTOR).unwrap()
        };
        for (bits, bytes) in [(0, 0), (1, 8), (64, 8), (65, 16)] {
            let found = vector(&[bits], bytes);
            assert_eq!((found.mismatch, found.hash_bits), (None, Some((1, u64::from(bits)))), "{bits} bits");
            assert_eq!(vector(&[bits], bytes + 1).mismatch, Some(2), "{bits} bits");
        }
        assert_eq!(vector(&[0xc0], 8).mismatch, Some(1));
        assert_eq!(vector(b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 8).mismatch, Some(10));
    }
}
