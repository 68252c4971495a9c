//! The job's prefix directories, and the datasets below them that requests and orders name.

pub mod job_prefixes;
