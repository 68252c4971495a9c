//! Byte strings of messages. In JSON alone they are base64 text. In a message between processes (module
//! [`frame`](crate::frame)) they travel beside the JSON as they are, and the JSON has their lengths: no third more
//! bytes, no copy to encode them, and all byte strings of one message share one buffer at the receiver.
//!
//! Serde passes nothing but the serializer to a field, and serde_json has no place for raw bytes. The bytes beside the
//! JSON are therefore collected, and supplied again, through a thread-local variable, for the duration of one call
//! only.

use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;

use ::bytes::Bytes;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::bytes::Base64;

/// Bytes in a message. A clone shares them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Payload(Bytes);

thread_local! {
    // Without a destructor, so that exit handlers of a process can still send messages. `Scope` leaves nothing in it.
    static PAYLOAD_MODE: RefCell<ManuallyDrop<PayloadMode>> =
        const { RefCell::new(ManuallyDrop::new(PayloadMode::Text)) };
}

/// Sets the mode, and returns the one before.
fn replace_mode(mode: PayloadMode) -> PayloadMode {
    ManuallyDrop::into_inner(PAYLOAD_MODE.replace(ManuallyDrop::new(mode)))
}

/// What this thread is doing with payloads.
#[derive(Default)]
enum PayloadMode {
    /// They are base64 text.
    #[default]
    Text,
    /// A message is encoded: these were left out of its JSON.
    Collecting(Vec<Payload>),
    /// A message is decoded: these bytes came beside its JSON.
    Supplying(Bytes),
}

/// Ends collecting and supplying, however the call ends.
struct Scope;

impl Scope {
    fn begin(beside: PayloadMode) -> Scope {
        replace_mode(beside);
        Scope
    }

    fn end(self) -> PayloadMode {
        replace_mode(PayloadMode::Text)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        replace_mode(PayloadMode::Text);
    }
}

impl Payload {
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Payload(bytes.into())
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        Payload(Bytes::copy_from_slice(bytes))
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.len())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let collected = PAYLOAD_MODE.with_borrow_mut(|beside| match &mut **beside {
            PayloadMode::Collecting(payloads) => {
                payloads.push(self.clone());
                true
            }
            PayloadMode::Text | PayloadMode::Supplying(_) => false,
        });
        if collected {
            serializer.serialize_u64(self.len() as u64)
        } else {
            Base64::serialize_bytes(&self.0, serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PayloadVisitor)
    }
}

struct PayloadVisitor;

impl Visitor<'_> for PayloadVisitor {
    type Value = Payload;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes as base64 text, or their length if they follow the message")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Payload, E> {
        Base64::decode(text).map(Payload::from).map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, length: u64) -> Result<Payload, E> {
        PAYLOAD_MODE.with_borrow_mut(|beside| match &mut **beside {
            PayloadMode::Supplying(bytes) => {
                let length = usize::try_from(length).ok().filter(|length| *length <= bytes.len());
                let length = length.ok_or_else(|| E::custom("more bytes are announced than follow the message"))?;
                Ok(Payload(bytes.split_to(length)))
            }
            PayloadMode::Text | PayloadMode::Collecting(_) => Err(E::custom("no bytes follow this message")),
        })
    }
}

/// JSON of a value, after what is already in `json`; returns the payloads that belong beside it, in order.
pub fn encode(value: &impl Serialize, json: &mut Vec<u8>) -> Result<Vec<Payload>, serde_json::Error> {
    let scope = Scope::begin(PayloadMode::Collecting(Vec::new()));
    serde_json::to_writer(json, value)?;
    match scope.end() {
        PayloadMode::Collecting(payloads) => Ok(payloads),
        PayloadMode::Text | PayloadMode::Supplying(_) => Ok(Vec::new()),
    }
}

/// The value of JSON and of the bytes that came beside it, which must all be used.
pub fn decode<T: serde::de::DeserializeOwned>(json: &[u8], beside: Bytes) -> Result<T, serde_json::Error> {
    let scope = Scope::begin(PayloadMode::Supplying(beside));
    let value = serde_json::from_slice(json)?;
    match scope.end() {
        PayloadMode::Supplying(rest) if !rest.is_empty() => {
            Err(serde_json::Error::custom(format!("{} bytes follow the message that it does not announce", rest.len())))
        }
        _ => Ok(value),
    }
}

/// A value as the content of a file: JSON, and if it has payloads, a line feed and these.
pub fn to_file(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut content = Vec::new();
    let payloads = encode(value, &mut content)?;
    if !payloads.is_empty() {
        content.reserve_exact(1 + payloads.iter().map(Payload::len).sum::<usize>());
        // JSON that is written without spaces has no line feed in it.
        content.push(b'\n');
        payloads.iter().for_each(|payload| content.extend_from_slice(payload.as_slice()));
    }
    Ok(content)
}

/// The value of such a file.
pub fn from_file<T: serde::de::DeserializeOwned>(content: Vec<u8>) -> Result<T, serde_json::Error> {
    let content = Bytes::from(content);
    let end = content.iter().position(|byte| *byte == b'\n').unwrap_or(content.len());
    decode(&content[..end], content.slice((end + 1).min(content.len())..))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Vec<Payload> {
        vec![vec![1, 2, 3].into(), Payload::default(), vec![0, 255].into()]
    }

    #[test]
    fn payloads_stay_out_of_the_json_and_come_back() {
        let mut json = Vec::new();
        let beside = encode(&three(), &mut json).unwrap();
        assert_eq!((json.as_slice(), beside.as_slice()), (&b"[3,0,2]"[..], three().as_slice()));
        let raw: Vec<u8> = beside.iter().flat_map(|payload| payload.as_slice().to_vec()).collect();
        assert_eq!(decode::<Vec<Payload>>(&json, raw.into()).unwrap(), three());
    }

    #[test]
    fn a_file_has_payloads_after_the_json_and_a_truncated_file_is_an_error() {
        let content = to_file(&(three(), "a\nb")).unwrap();
        assert_eq!(content, b"[[3,0,2],\"a\\nb\"]\n\x01\x02\x03\x00\xff");
        let read: (Vec<Payload>, String) = from_file(content.clone()).unwrap();
        assert_eq!(read, (three(), "a\nb".to_owned()));
        for end in 0..content.len() {
            assert!(from_file::<(Vec<Payload>, String)>(content[..end].to_vec()).is_err(), "{end} bytes");
        }
        assert_eq!(to_file(&7).unwrap(), b"7");
        assert_eq!(from_file::<u32>(b"7".to_vec()).unwrap(), 7);
    }

    #[test]
    fn payloads_in_plain_json_are_base64_text() {
        let text = serde_json::to_string(&three()).unwrap();
        assert_eq!(text, r#"["AQID","","AP8="]"#);
        assert_eq!(serde_json::from_str::<Vec<Payload>>(&text).unwrap(), three());
    }

    #[test]
    fn lengths_that_do_not_match_the_bytes_are_refused_and_leave_nothing_behind() {
        for (json, raw) in [("[5]", &b"1234"[..]), ("[18446744073709551615]", b"1"), ("[1,1]", b"1"), ("[1]", b"12")] {
            assert!(decode::<Vec<Payload>>(json.as_bytes(), Bytes::copy_from_slice(raw)).is_err(), "{json}");
        }
        assert!(serde_json::from_str::<Vec<Payload>>("[0]").is_err(), "nothing is supplied any more");
        assert!(encode(&f64::NAN, &mut Vec::new()).is_ok());
        assert_eq!(serde_json::to_string(&three()[0]).unwrap(), r#""AQID""#, "nothing is collected any more");
    }
}
