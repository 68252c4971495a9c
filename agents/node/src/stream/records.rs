//! Records: the bytes of a stream in place of TLS, between its hello and the next one on the connection.
//!
//! A record is its length (4 bytes, big-endian), so many bytes, and a checksum. The checksum covers both, the number of
//! the record and its direction: with the stream's random key, which the hello carries over TLS, no record can be
//! changed, repeated, left out or moved to another stream. Without a key it is a CRC32C, which detects damage.
//!
//! The reader returns no byte of a record before it has compared the checksum of all of it. Bytes go from the socket to
//! the reader's buffer if that has room for the record.

use std::io::{self, IoSlice, Read, Write};
use std::ops::Range;

use aegis::aegis128x2::Aegis128X2Mac;
use holdfast_wire::peer::{RECORD_KEY, RecordChecksum, RecordProtection};

/// The longest record, bytes.
const LONGEST: usize = 1 << 20;
/// Bytes of the length.
const HEADER: usize = 4;
/// Bytes of the longest checksum.
const CHECKSUM: usize = 16;
/// The most records of one system call: each is three of the parts that it takes (`IOV_MAX` is 1024).
const AT_ONCE: usize = 16;

type Key = [u8; RECORD_KEY];
type Header = [u8; HEADER];

/// Who sends: the end that has connected, or the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    FromConnector = 0,
    FromAcceptor = 1,
}

/// Both directions of a stream.
#[derive(Debug)]
pub(super) struct Records {
    sent: Counter,
    received: Counter,
    /// A record that did not fit into the buffer of the reader, and what of it was not read yet.
    record: Vec<u8>,
    unread: Range<usize>,
}

/// The checksums of the records of one direction.
struct Counter {
    checksum: RecordChecksum,
    key: Key,
    direction: Direction,
    /// Of the next record.
    number: u64,
}

impl std::fmt::Debug for Counter {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counter")
            .field("checksum", &self.checksum)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Records {
    /// As this end of a stream uses them, which sends in this direction.
    ///
    /// # Errors
    /// A key of another length.
    pub(super) fn new(protection: &RecordProtection, sends: Direction) -> io::Result<Self> {
        let key = Key::try_from(protection.key.0.as_slice())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a key of another length"))?;
        let receives = match sends {
            Direction::FromConnector => Direction::FromAcceptor,
            Direction::FromAcceptor => Direction::FromConnector,
        };
        let counter = |direction| Counter { checksum: protection.checksum, key, direction, number: 0 };
        Ok(Records { sent: counter(sends), received: counter(receives), record: Vec::new(), unread: 0..0 })
    }

    /// True if everything that has arrived was read.
    pub(super) fn is_read(&self) -> bool {
        self.unread.is_empty()
    }

    /// As [`Read::read`]. The end of the connection is an error: a stream ends with a message.
    pub(super) fn read(&mut self, socket: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.unread.is_empty() {
            let mut header = [0; HEADER];
            socket.read_exact(&mut header)?;
            let length = u32::from_be_bytes(header) as usize;
            if length == 0 || length > LONGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a record of {length} bytes")));
            }
            if let Some(place) = buffer.get_mut(..length) {
                self.received.receive(socket, header, place)?;
                return Ok(length);
            }
            if self.record.len() < length {
                self.record.resize(length, 0);
            }
            self.received.receive(socket, header, &mut self.record[..length])?;
            self.unread = 0..length;
        }
        let taken = buffer.len().min(self.unread.len());
        let from = self.unread.start;
        buffer[..taken].copy_from_slice(&self.record[from..from + taken]);
        self.unread.start += taken;
        Ok(taken)
    }

    /// As [`Write::write_vectored`]: each part begins a record.
    pub(super) fn write(&mut self, socket: &mut impl Write, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let records = parts.iter().flat_map(|part| part.chunks(LONGEST)).take(AT_ONCE);
        let made: Vec<(Header, &[u8], [u8; CHECKSUM])> = records
            .map(|bytes| {
                // At most `LONGEST`.
                let header = (bytes.len() as u32).to_be_bytes();
                (header, bytes, self.sent.next(header, bytes))
            })
            .collect();
        let length = self.sent.length();
        let mut slices: Vec<IoSlice<'_>> = made
            .iter()
            .flat_map(|(header, bytes, checksum)| [header, *bytes, &checksum[..length]].map(IoSlice::new))
            .collect();
        write_all(socket, &mut slices)?;
        Ok(made.iter().map(|(_, bytes, _)| bytes.len()).sum())
    }
}

impl Counter {
    /// Bytes of a checksum.
    fn length(&self) -> usize {
        match self.checksum {
            RecordChecksum::Keyed => CHECKSUM,
            RecordChecksum::Crc32c => 4,
        }
    }

    /// The checksum of the next record; only the first [`Counter::length`] bytes count.
    fn next(&mut self, header: Header, bytes: &[u8]) -> [u8; CHECKSUM] {
        let mut place = [0; 16];
        place[0] = self.direction as u8;
        place[8..].copy_from_slice(&self.number.to_be_bytes());
        self.number += 1;
        match self.checksum {
            RecordChecksum::Keyed => {
                let mut keyed = Aegis128X2Mac::<CHECKSUM>::new_with_nonce(&self.key, &place);
                keyed.update(&header);
                keyed.update(bytes);
                keyed.finalize()
            }
            RecordChecksum::Crc32c => {
                let begun = crc32c::crc32c_append(crc32c::crc32c(&self.key), &place);
                let crc = crc32c::crc32c_append(crc32c::crc32c_append(begun, &header), bytes);
                let mut checksum = [0; CHECKSUM];
                checksum[..4].copy_from_slice(&crc.to_be_bytes());
                checksum
            }
        }
    }

    /// Reads the rest of the next record.
    fn receive(&mut self, socket: &mut impl Read, header: Header, bytes: &mut [u8]) -> io::Result<()> {
        let mut found = [0; CHECKSUM];
        let found = &mut found[..self.length()];
        socket.read_exact(bytes)?;
        socket.read_exact(found)?;
        let expected = self.next(header, bytes);
        if bool::from(subtle::ConstantTimeEq::ct_eq(&expected[..found.len()], found)) {
            return Ok(());
        }
        // What was not sent so must not be used.
        bytes.fill(0);
        Err(io::Error::new(io::ErrorKind::InvalidData, "the checksum of a record from the other node is wrong"))
    }
}

/// Writes all parts.
pub(crate) fn write_all(to: &mut impl Write, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match to.write_vectored(parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut parts, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_model::DataPlane;
    use holdfast_wire::trust::record_protection;

    const PLANES: [DataPlane; 2] = [DataPlane::Authenticated, DataPlane::Plain];

    fn ends(protection: &RecordProtection) -> (Records, Records) {
        let end = |sends| Records::new(protection, sends).unwrap();
        (end(Direction::FromConnector), end(Direction::FromAcceptor))
    }

    fn protection(plane: DataPlane) -> RecordProtection {
        record_protection(plane).unwrap().unwrap()
    }

    fn sent(records: &mut Records, parts: &[&[u8]]) -> Vec<u8> {
        let mut wire = Vec::new();
        let mut rest: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = &mut rest[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let written = records.write(&mut wire, rest).unwrap();
            IoSlice::advance_slices(&mut rest, written);
        }
        wire
    }

    fn read_all(records: &mut Records, wire: &[u8], buffer: usize) -> io::Result<Vec<u8>> {
        let (mut from, mut all, mut buffer) = (wire, Vec::new(), vec![0; buffer]);
        while !from.is_empty() || !records.is_read() {
            let read = records.read(&mut from, &mut buffer)?;
            all.extend_from_slice(&buffer[..read]);
        }
        Ok(all)
    }

    #[test]
    fn bytes_arrive_as_they_were_sent_whatever_the_sizes_of_the_buffers() {
        let large: Vec<u8> = (0..3 * LONGEST + 17).map(|at| (at % 251) as u8).collect();
        let many = vec![&large[..7]; 100];
        let sendings: [&[&[u8]]; 4] = [&[b"a"], &[b"", b"length", b"", &large], &[&large, &large[..1]], &many];
        for plane in PLANES {
            for parts in sendings {
                for buffer in [1, 5, 4096, LONGEST, 2 * LONGEST] {
                    if buffer == 1 && parts.concat().len() > 1000 {
                        continue;
                    }
                    let (mut connector, mut acceptor) = ends(&protection(plane));
                    let wire = sent(&mut connector, parts);
                    assert!(read_all(&mut acceptor, &wire, buffer).unwrap() == parts.concat(), "{plane:?} {buffer}");
                    let answer = sent(&mut acceptor, &[b"answer"]);
                    assert_eq!(read_all(&mut connector, &answer, 64).unwrap(), b"answer");
                }
            }
        }
    }

    #[test]
    fn no_byte_of_a_changed_or_misplaced_record_is_read() {
        for plane in PLANES {
            let protection = protection(plane);
            let (mut connector, _) = ends(&protection);
            let (one, two) = (sent(&mut connector, &[b"first"]), sent(&mut connector, &[b"other"]));
            let read = |wire: &[u8]| read_all(&mut ends(&protection).1, wire, 64);
            assert_eq!(read(&[&one[..], &two[..]].concat()).unwrap(), b"firstother");
            for at in 0..one.len() {
                let mut changed = one.clone();
                changed[at] ^= 1;
                let (mut from, mut buffer) = (&changed[..], [7; 64]);
                let found = ends(&protection).1.read(&mut from, &mut buffer);
                assert!(found.is_err(), "{plane:?}: byte {at}");
                assert!(!buffer.starts_with(b"first"), "{plane:?}: byte {at}");
            }
            for wrong in [&two[..], &[&one[..], &one[..]].concat(), &[&one[..], &two[..two.len() - 1]].concat()] {
                assert!(read(wrong).is_err(), "{plane:?}");
            }
            // Not by the end that has sent it, and not on another stream.
            assert!(read_all(&mut ends(&protection).0, &one, 64).is_err(), "{plane:?}");
            assert!(read_all(&mut ends(&self::protection(plane)).1, &one, 64).is_err(), "{plane:?}");
        }
    }

    #[test]
    fn a_length_out_of_range_is_refused_before_anything_is_read() {
        let (_, mut acceptor) = ends(&protection(DataPlane::Plain));
        for length in [0, LONGEST as u32 + 1, u32::MAX] {
            let mut wire = &[&length.to_be_bytes()[..], &[0; 64]].concat()[..];
            let refused = acceptor.read(&mut wire, &mut [0; 8]).unwrap_err();
            assert!(refused.to_string().contains(&format!("a record of {length} bytes")), "{refused}");
        }
    }
}
