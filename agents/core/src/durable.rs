//! The one way to replace a file: temp, fsync, rename, fsync directory.
