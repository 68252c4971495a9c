//! Requests and answers of MessagePack-RPC as bytes.
//!
//! Messages have no frames: an answer ends where its value ends. Requests contain only the string encodings of the old
//! specification (fixraw, raw16, raw32), which every release of Jubatus reads.

use std::fmt;
use std::io::Read;

use holdfast_formats::jubatus::msgpack::{MsgpackError, Token, TokenReader, put_array, put_text, put_unsigned};

const REQUEST: u64 = 0;
const ANSWER: u64 = 1;
/// Errors that the RPC library of the servers reports as integers.
const NO_SUCH_METHOD: u64 = 1;
const INVALID_ARGUMENTS: u64 = 2;
/// Texts in error messages are cut after this many characters.
const SHOWN: usize = 300;

/// What an answer may contain. The largest legal one is a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub bytes: u64,
    /// Values in all, the members of containers included.
    pub values: u32,
    /// Nested arrays and maps.
    pub depth: u32,
}

impl Limits {
    /// The status of a server has about 40 pairs of short texts, its configuration some kilobytes.
    pub const STANDARD: Limits = Limits { bytes: 4 << 20, values: 10_000, depth: 8 };
}

/// A value of an answer. Texts need not be UTF-8.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Negative(i64),
    Float(f64),
    Text(Vec<u8>),
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

impl Value {
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// For messages: texts are escaped and cut, containers are counted.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Nil => f.write_str("nil"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Unsigned(value) => write!(f, "{value}"),
            Value::Negative(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value}"),
            Value::Text(bytes) => write!(f, "\"{}\"", shown(bytes)),
            Value::Array(members) => write!(f, "an array of {}", members.len()),
            Value::Map(pairs) => write!(f, "a map of {}", pairs.len()),
        }
    }
}

/// A server's text as part of a message: one line of limited length.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown: String = text.chars().take(SHOWN).collect::<String>().escape_debug().to_string();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

/// An error that the server returned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    #[error("it has no such method")]
    NoSuchMethod,
    #[error("it does not accept the arguments ({0})")]
    InvalidArguments(Value),
    /// The method failed; the text is the server's.
    #[error("{}", shown(.0))]
    Failed(Vec<u8>),
    #[error("error {0}")]
    Other(Value),
}

/// Why bytes are no result of a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    #[error("returned an error: {0}")]
    Remote(RemoteError),
    #[error("ended the connection before its answer was complete")]
    Ended,
    #[error("answered with more than {limit} {what}")]
    TooLarge { what: &'static str, limit: u64 },
    #[error("answered with bytes that are not MessagePack: {0}")]
    Malformed(MsgpackError),
    #[error("answered with a message that is not an answer: {found} instead of {expected}")]
    Structure { expected: &'static str, found: Value },
    #[error("answered with message id {found} instead of {expected}")]
    MessageId { expected: u32, found: Value },
    #[error(transparent)]
    Io(std::io::Error),
}

/// The bytes of a request; `None` if a text is longer than MessagePack allows.
pub fn encode_request(message_id: u32, method: &str, parameters: &[&str]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    put_array(&mut out, 4);
    put_unsigned(&mut out, REQUEST);
    put_unsigned(&mut out, u64::from(message_id));
    let mut fits = put_text(&mut out, method.as_bytes());
    put_array(&mut out, u32::try_from(parameters.len()).ok()?);
    for parameter in parameters {
        fits &= put_text(&mut out, parameter.as_bytes());
    }
    fits.then_some(out)
}

/// Reads one answer, and returns its result.
///
/// # Errors
/// When the server returned an error, or the bytes are not the answer to this message, or exceed the limits.
pub fn read_answer<R: Read>(
    tokens: &mut TokenReader<R>,
    message_id: u32,
    limits: Limits,
) -> Result<Value, AnswerError> {
    let mut reader = AnswerReader { tokens, values_left: limits.values, limits };
    let structure = |expected, found| AnswerError::Structure { expected, found };
    match reader.token()? {
        Token::Array(4) => {}
        Token::Array(_) => {
            return Err(structure("an array of four", Value::Text(b"an array of another length".into())));
        }
        other => return Err(structure("an array of four", reader.value_of(other, limits.depth)?)),
    }
    // Each member is checked before the next one is read: the rest of a wrong message need not arrive.
    match reader.value(limits.depth)? {
        Value::Unsigned(ANSWER) => {}
        other => return Err(structure("message type 1", other)),
    }
    match reader.value(limits.depth)? {
        Value::Unsigned(id) if id == u64::from(message_id) => {}
        found => return Err(AnswerError::MessageId { expected: message_id, found }),
    }
    let error = reader.value(limits.depth)?;
    let result = reader.value(limits.depth)?;
    Err(AnswerError::Remote(match error {
        Value::Nil => return Ok(result),
        Value::Unsigned(NO_SUCH_METHOD) => RemoteError::NoSuchMethod,
        Value::Unsigned(INVALID_ARGUMENTS) => RemoteError::InvalidArguments(result),
        Value::Text(text) => RemoteError::Failed(text),
        other => RemoteError::Other(other),
    }))
}

struct AnswerReader<'a, R> {
    tokens: &'a mut TokenReader<R>,
    values_left: u32,
    limits: Limits,
}

impl<R: Read> AnswerReader<'_, R> {
    fn token(&mut self) -> Result<Token, AnswerError> {
        let too_large = |what, limit| AnswerError::TooLarge { what, limit };
        self.values_left = self.values_left.checked_sub(1).ok_or(too_large("values", u64::from(self.limits.values)))?;
        let token = self.tokens.token().map_err(of_stream)?;
        let text = if let Token::Text { length, .. } = token { u64::from(length) } else { 0 };
        match self.tokens.offset().saturating_add(text) > self.limits.bytes {
            true => Err(too_large("bytes", self.limits.bytes)),
            false => Ok(token),
        }
    }

    fn value(&mut self, depth_left: u32) -> Result<Value, AnswerError> {
        let token = self.token()?;
        self.value_of(token, depth_left)
    }

    fn value_of(&mut self, token: Token, depth_left: u32) -> Result<Value, AnswerError> {
        let deeper = || {
            let too_deep = AnswerError::TooLarge { what: "nested containers", limit: u64::from(self.limits.depth) };
            depth_left.checked_sub(1).ok_or(too_deep)
        };
        Ok(match token {
            Token::Nil => Value::Nil,
            Token::Bool(value) => Value::Bool(value),
            Token::Unsigned(value) => Value::Unsigned(value),
            Token::Negative(value) => Value::Negative(value),
            Token::Float32(value) => Value::Float(f64::from(value)),
            Token::Float64(value) => Value::Float(value),
            // Its length was compared with the limit.
            Token::Text { length, .. } => Value::Text(self.tokens.text(length, length).map_err(of_stream)?),
            // No capacity is reserved: the counts are untrusted.
            Token::Array(count) => {
                let depth_left = deeper()?;
                let mut members = Vec::new();
                for _ in 0..count {
                    members.push(self.value(depth_left)?);
                }
                Value::Array(members)
            }
            Token::Map(count) => {
                let depth_left = deeper()?;
                let mut pairs = Vec::new();
                for _ in 0..count {
                    pairs.push((self.value(depth_left)?, self.value(depth_left)?));
                }
                Value::Map(pairs)
            }
        })
    }
}

fn of_stream(error: MsgpackError) -> AnswerError {
    match error {
        // A connection has no declared length: the value ends where the connection ends.
        MsgpackError::Insufficient { .. } | MsgpackError::Ended => AnswerError::Ended,
        MsgpackError::Io(error) => AnswerError::Io(error),
        other => AnswerError::Malformed(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use holdfast_testkit::fixtures;
    use serde_json::Value as Json;

    fn answer(bytes: &[u8], message_id: u32, limits: Limits) -> Result<Value, AnswerError> {
        read_answer(&mut TokenReader::to_end(bytes), message_id, limits)
    }

    fn to_json(value: &Value) -> Json {
        match value {
            Value::Nil => Json::Null,
            Value::Bool(value) => Json::from(*value),
            Value::Unsigned(value) => Json::from(*value),
            Value::Negative(value) => Json::from(*value),
            Value::Float(value) => Json::from(*value),
            Value::Text(bytes) => Json::from(std::str::from_utf8(bytes).unwrap()),
            Value::Array(members) => members.iter().map(to_json).collect(),
            Value::Map(pairs) => {
                pairs.iter().map(|(key, value)| (key.as_text().unwrap().to_owned(), to_json(value))).collect()
            }
        }
    }

    /// The recorded exchanges: number and name, both directions as bytes and as JSON.
    fn exchanges() -> Vec<(String, Vec<u8>, Vec<u8>, Json)> {
        let directory = fixtures("jubatus").join("rpc");
        let index: Json = serde_json::from_slice(&std::fs::read(directory.join("index.json")).unwrap()).unwrap();
        let read = |entry: &Json, key: &str| std::fs::read(directory.join(entry[key].as_str().unwrap())).unwrap();
        let list = index["exchanges"].as_array().unwrap();
        let exchange = |entry: &Json| {
            let name = entry["exchange"].as_str().unwrap().to_owned();
            (name, read(entry, "request_file"), read(entry, "response_file"), entry.clone())
        };
        list.iter().map(exchange).collect()
    }

    #[test]
    fn encodes_every_recorded_request_of_the_original_client_byte_for_byte() {
        let mut compared = 0;
        for (name, request, _, entry) in exchanges() {
            if !entry["client"].as_str().unwrap().starts_with("C++ client library") {
                continue;
            }
            let mut encoded = Vec::new();
            for message in entry["request_decoded"].as_array().unwrap() {
                let parameters: Vec<&str> =
                    message[3].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
                let id = u32::try_from(message[1].as_u64().unwrap()).unwrap();
                encoded.extend(encode_request(id, message[2].as_str().unwrap(), &parameters).unwrap());
            }
            assert_eq!(encoded, request, "{name}");
            compared += 1;
        }
        assert!(compared > 40, "{compared}");
    }

    #[test]
    fn decodes_every_recorded_answer() {
        let mut compared = 0;
        for (name, _, bytes, entry) in exchanges() {
            let mut tokens = TokenReader::to_end(bytes.as_slice());
            for message in entry["response_decoded"].as_array().unwrap() {
                let id = u32::try_from(message[1].as_u64().unwrap()).unwrap();
                match (read_answer(&mut tokens, id, Limits::STANDARD), &message[2]) {
                    (Ok(result), Json::Null) => assert_eq!(to_json(&result), message[3], "{name}"),
                    (Err(AnswerError::Remote(RemoteError::NoSuchMethod)), error) => assert_eq!(error, 1, "{name}"),
                    (Err(AnswerError::Remote(RemoteError::InvalidArguments(result))), error) => {
                        assert_eq!((error, to_json(&result)), (&Json::from(2), message[3].clone()), "{name}");
                    }
                    (Err(AnswerError::Remote(RemoteError::Failed(text))), error) => {
                        assert_eq!(std::str::from_utf8(&text).unwrap(), error, "{name}");
                    }
                    (other, _) => panic!("{name}: {other:?}"),
                }
                compared += 1;
            }
            assert_eq!(tokens.offset(), bytes.len() as u64, "{name}");
        }
        assert!(compared > 55, "{compared}");
    }

    #[test]
    fn distinguishes_every_kind_of_wrong_answer() {
        let result = |bytes: &[u8]| answer(bytes, 7, Limits::STANDARD).map_err(|error| error.to_string());
        assert_eq!(result(b"\x94\x01\x07\xc0\xc3"), Ok(Value::Bool(true)));
        for (bytes, message) in [
            (&b"\x94\x01\x08\xc0\xc3"[..], "message id 8 instead of 7"),
            (b"\x94\x01\xff\xc0\xc3", "message id -1 instead of 7"),
            (b"\x94\x00\x07\xc0\xc3", "0 instead of message type 1"),
            (b"\x93\x01\x07\xc0", "instead of an array of four"),
            (b"\xa2ok", "\"ok\" instead of an array of four"),
            (b"\x94\x01\x07\xc0", "ended the connection before"),
            (b"\x94\x01\x07\xc0\xda\x00\x10abc", "ended the connection before"),
            (b"", "ended the connection before"),
            (b"\xc1", "not MessagePack"),
            (b"\x94\x01\x07\xa3bad\xc0", "returned an error: bad"),
            (b"\x94\x01\x07\xa4a\nbc\xc0", "returned an error: a\\nbc"),
            (b"\x94\x01\x07\x01\xa4save", "it has no such method"),
            (b"\x94\x01\x07\x02\xa3why", "does not accept the arguments (\"why\")"),
            (b"\x94\x01\x07\x03\xc0", "error 3"),
        ] {
            let error = result(bytes).unwrap_err();
            assert!(error.contains(message), "{bytes:?}: {error}");
        }
    }

    #[test]
    fn limits_bytes_values_and_depth_before_anything_is_allocated_for_them() {
        let limits = Limits { bytes: 40, values: 12, depth: 3 };
        let error = |bytes: &[u8]| answer(bytes, 7, limits).unwrap_err().to_string();
        let head = b"\x94\x01\x07\xc0";
        let with = |rest: &[u8]| [head, rest].concat();
        assert!(answer(&with(&[&[0xda, 0, 33][..], &[b'x'; 33]].concat()), 7, limits).is_ok());
        assert_eq!(error(&with(b"\xdb\xff\xff\xff\xff")), "answered with more than 40 bytes");
        assert_eq!(error(&with(&[&[0xda, 0, 34][..], &[b'x'; 34]].concat())), "answered with more than 40 bytes");
        assert!(answer(&with(b"\x97\0\0\0\0\0\0\0"), 7, limits).is_ok());
        assert_eq!(
            error(&with(&[&b"\xdd\xff\xff\xff\xff"[..], &[0; 30]].concat())),
            "answered with more than 12 values"
        );
        assert_eq!(
            error(&with(&[&b"\xdf\xff\xff\xff\xff"[..], &[0; 30]].concat())),
            "answered with more than 12 values"
        );
        assert!(answer(&with(b"\x91\x91\x91\0"), 7, limits).is_ok());
        assert_eq!(error(&with(b"\x91\x91\x91\x91\0")), "answered with more than 3 nested containers");
        assert_eq!(
            error(&[0x91; 30]),
            "answered with a message that is not an answer: \"an array of another length\" \
                   instead of an array of four"
        );
    }
}
