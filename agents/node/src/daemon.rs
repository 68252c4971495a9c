//! From the line on standard input to the end of the process.
