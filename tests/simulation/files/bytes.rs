//! The content of the application's files: their origin in the first line, then bytes that follow from it.

use holdfast_model::{CheckpointId, Generation, Rank};
use holdfast_testkit::Dice;

use crate::content::{Content, Origin};

/// The bytes of a file.
pub fn bytes_of(origin: &Origin) -> Vec<u8> {
    let Origin { rank, checkpoint, generation, iteration, part } = origin;
    let mut bytes = format!("{rank} {checkpoint} {generation} {iteration} {part}\n").into_bytes();
    let seed = [u64::from(rank.0), checkpoint.0, generation.0, u64::from(*iteration), u64::from(*part)];
    let mut dice = Dice(seed.iter().fold(1_u64, |all, one| all.wrapping_mul(1_000_003).wrapping_add(*one)));
    // The sizes of ranks and of their parts differ.
    let words = dice.below(60_usize);
    bytes.extend((0..words).flat_map(|_| dice.roll().to_le_bytes()));
    bytes
}

/// The content that bytes are, in a file that is complete by its record if it is `sealed`.
pub fn content_of(bytes: &[u8], sealed: bool) -> Content {
    match origin_of(bytes).filter(|origin| bytes_of(origin) == bytes) {
        Some(origin) => Content::Written(origin),
        None if sealed => Content::Damaged,
        None => Content::Torn,
    }
}

fn origin_of(bytes: &[u8]) -> Option<Origin> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let numbers: Option<Vec<u64>> = std::str::from_utf8(line).ok()?.split(' ').map(|text| text.parse().ok()).collect();
    let [rank, checkpoint, generation, iteration, part] = numbers?.try_into().ok()?;
    Some(Origin {
        rank: Rank(rank.try_into().ok()?),
        checkpoint: CheckpointId(checkpoint),
        generation: Generation(generation),
        iteration: iteration.try_into().ok()?,
        part: part.try_into().ok()?,
    })
}
