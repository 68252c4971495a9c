//! Real containers: read, rewritten byte for byte, damaged, and recovered.

mod commands;
mod damaged;
mod mutation;
mod reading;
mod recovery;
mod world;
mod writing;
