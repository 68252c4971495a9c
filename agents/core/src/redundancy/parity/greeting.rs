//! What members send before the first piece: lists of files and descriptors. One message, since a link need not hold
//! more before the other end receives; each part of it after its length, 4 bytes.

use holdfast_model::RankDescriptor;

use crate::kvtree::{Tree, file as hash_file};
use crate::redundancy::RedundancyError;
use crate::redundancy::link::{LinkReceiver, LinkSender};

const DOING: &str = "exchanging the lists of files";

/// Sends the parts.
pub fn send(right: &mut dyn LinkSender, parts: &[Vec<u8>]) -> Result<(), RedundancyError> {
    let mut message = Vec::new();
    for part in parts {
        message.extend(u32::try_from(part.len()).map_err(unusable)?.to_be_bytes());
        message.extend(part);
    }
    right.send(message).map_err(RedundancyError::right(DOING))
}

/// Receives parts, at least one.
pub fn receive(left: &mut dyn LinkReceiver) -> Result<Vec<Vec<u8>>, RedundancyError> {
    let message = left.receive().map_err(RedundancyError::left(DOING))?;
    let (mut rest, mut parts) = (message.as_slice(), Vec::new());
    while !rest.is_empty() || parts.is_empty() {
        let (length, behind) = rest.split_first_chunk().ok_or_else(too_short)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (part, behind) = behind.split_at_checked(length).ok_or_else(too_short)?;
        parts.push(part.to_vec());
        rest = behind;
    }
    Ok(parts)
}

/// A descriptor as a part.
pub fn of_descriptor(descriptor: &RankDescriptor) -> Result<Vec<u8>, RedundancyError> {
    serde_json::to_vec(descriptor).map_err(unusable)
}

/// Reads a part.
pub fn to_descriptor(part: &[u8]) -> Result<RankDescriptor, RedundancyError> {
    serde_json::from_slice(part).map_err(unusable)
}

/// A tree as a part.
pub fn of_tree(tree: &Tree) -> Vec<u8> {
    hash_file::encode(tree)
}

/// Reads a part.
pub fn to_tree(part: &[u8]) -> Result<Tree, RedundancyError> {
    Ok(hash_file::decode(part).map_err(unusable)?.0)
}

/// A greeting with fewer parts than it must have.
pub fn too_short() -> RedundancyError {
    unusable("its greeting is too short")
}

fn unusable(error: impl std::fmt::Display) -> RedundancyError {
    RedundancyError::Header { origin: "the left neighbour".into(), why: error.to_string() }
}
