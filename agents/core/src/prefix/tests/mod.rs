//! The prefix directory with files that SCR wrote, and with invalid files.

mod bad_input;
mod crash;
mod drains;
mod indexes;
mod interrupted;
mod judgement;
pub(super) mod world;
