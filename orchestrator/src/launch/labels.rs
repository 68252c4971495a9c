//! The labels of lines in a file of all ranks: which rank has printed a line.

use std::borrow::Cow;

use holdfast_model::Rank;

/// A rank and its output.
pub type LabelledText<'a> = (Rank, Cow<'a, [u8]>);

/// The labels of lines in a file of all ranks.
#[derive(Debug)]
pub struct LineLabels {
    /// The rank and the text of a line; `None` for the launcher's own messages.
    pub read: fn(&[u8]) -> Option<LabelledText<'_>>,
    /// True for a text that is for the supervisor only.
    pub is_internal: fn(&[u8]) -> bool,
}
