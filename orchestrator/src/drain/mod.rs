//! The drain: two rounds, then index.
