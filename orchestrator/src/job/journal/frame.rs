//! Entries of the journal as bytes.
//!
//! An entry is a line: its length in bytes and its CRC-32, each as eight hexadecimal digits, and its content as JSON.
//! An incomplete last entry was being written when the writer died, and is ignored.

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

/// Removes the first entry from the bytes; `None` if there is no complete one.
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
    fn a_journal_cut_off_anywhere_is_read_to_its_last_complete_entry() {
        let entries = ["one", "two\nlines", ""];
        let lines: Vec<Vec<u8>> = entries.iter().map(|entry| encode(entry).unwrap()).collect();
        let bytes = lines.concat();
        assert_eq!(all(&bytes), entries);
        for cut in 0..bytes.len() {
            let mut end = 0;
            let complete = lines.iter().take_while(|line| {
                end += line.len();
                end <= cut
            });
            assert_eq!(all(&bytes[..cut]), entries[..complete.count()], "cut at {cut}");
        }
    }

    #[test]
    fn a_damaged_entry_and_those_after_it_are_ignored() {
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
