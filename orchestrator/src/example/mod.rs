//! The example applications that are built into the binary.
