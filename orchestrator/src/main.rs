//! The `holdfast` program.
fn main() {}
