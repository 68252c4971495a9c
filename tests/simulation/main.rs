//! The relaunch loop against ten thousand worlds that exist only here, each made from a seed.

// Tests report by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod names;
mod oracle;
mod simulation;
mod storm;
