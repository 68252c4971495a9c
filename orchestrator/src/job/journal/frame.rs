//! Entries of the journal as bytes.
//!
//! An entry is a line: its length in bytes and its CRC-32, each as eight hexadecimal digits, and its content as JSON. What
//! follows the last entry that is whole was being written when the writer died: it counts as never written.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Length, space, checksum, space.
const HEAD: usize = 18;

/// An entry as a line.
pub fn encode(entry: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let content = serde_json::to_vec(entry)?;
    let mut line = format!("{:08x} {:08x} ", content.len(), crc32fast::hash(&content)).into_bytes();
    line.extend_from_slice(&content);
    line.push(b'\n');
    Ok(line)
}

/// Takes the first entry off the bytes; `None` if there is no whole one.
pub fn decode<T: DeserializeOwned>(bytes: &mut &[u8]) -> Option<T> {
    let head = std::str::from_utf8(bytes.get(..HEAD)?).ok()?;
    let (length, rest) = head.split_once(' ')?;
    let checksum = u32::from_str_radix(rest.trim_end(), 16).ok()?;
    let length = usize::from_str_radix(length, 16).ok()?;
    let end = HEAD.checked_add(length)?;
    let content = bytes.get(HEAD..end)?;
    if crc32fast::hash(content) != checksum || bytes.get(end) != Some(&b'\n') {
        return None;
    }
    let entry = serde_json::from_slice(content).ok()?;
    *bytes = &bytes[end + 1..];
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut bytes: &[u8]) -> Vec<String> {
        std::iter::from_fn(|| decode(&mut bytes)).collect()
    }

    #[test]
    fn entries_come_back_and_a_tail_cut_off_anywhere_is_left_out() {
        let entries = ["one", "two\nlines", ""];
        let lines: Vec<Vec<u8>> = entries.iter().map(|entry| encode(entry).unwrap()).collect();
        let bytes = lines.concat();
        assert_eq!(all(&bytes), entries);
        for cut in 0..bytes.len() {
            let mut end = 0;
            let whole = lines.iter().take_while(|line| {
                end += line.len();
                end <= cut
            });
            assert_eq!(all(&bytes[..cut]), entries[..whole.count()], "cut at {cut}");
        }
    }

    #[test]
    fn an_entry_with_any_byte_changed_and_whatever_follows_it_is_left_out() {
        let (first, second) = (encode(&"first").unwrap(), encode(&"second").unwrap());
        let bytes = [first.clone(), second].concat();
        for at in first.len()..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(all(&damaged).len() <= 1, "byte {at}");
            assert_eq!(all(&damaged)[0], "first");
        }
    }
}
