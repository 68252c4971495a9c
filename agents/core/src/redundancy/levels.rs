//! The redundancy scheme of each level of FTI.

use holdfast_model::{Level, Scheme};

use super::{local, partner, xor};

/// The scheme that protects checkpoints of this level in the caches. Level 3 is Reed-Solomon in FTI; here it is XOR,
/// which restores one lost node a set. At level 4 the files are also copied to the prefix directory.
pub fn scheme(level: Level) -> Scheme {
    match level {
        Level::Local | Level::Prefix => local::NAME,
        Level::Partner => partner::NAME,
        Level::Parity => xor::NAME,
    }
}

/// The schemes of all levels.
pub const SCHEMES: [Scheme; 3] = [local::NAME, partner::NAME, xor::NAME];
