//! The prefix directory against files that the original programs wrote, and against invalid files.

mod bad_input;
mod crash;
mod drains;
mod indexes;
mod judgement;
mod world;
