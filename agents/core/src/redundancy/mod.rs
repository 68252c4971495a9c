//! Redundancy descriptors, groups, and the schemes that rebuild a lost member.
