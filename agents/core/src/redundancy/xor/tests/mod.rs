mod any_size;
mod scr_files;

use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::Path;

use crate::redundancy::link::{LinkReceiver, LinkSender};
use crate::redundancy::logical::LogicalFile;
use crate::redundancy::parity::encode::{WrittenFile, encode_member};
use crate::redundancy::parity::header::ParityHeader;
use crate::redundancy::parity::member::Member;

/// The XOR file that a member writes, and what the encoding reports of it.
fn encoded(
    member: &Member,
    header: &mut ParityHeader,
    data: &mut LogicalFile,
    left: &mut dyn LinkReceiver,
    right: &mut dyn LinkSender,
) -> (Vec<u8>, WrittenFile) {
    let mut out = Cursor::new(Vec::new());
    let mut go_on = |_| ControlFlow::Continue(());
    let written = encode_member(member, header, data, left, right, (Path::new("xor"), &mut out), &mut go_on).unwrap();
    let out = out.into_inner();
    assert_eq!((written.bytes, written.crc), (out.len() as u64, crc32fast::hash(&out)));
    (out, written)
}
