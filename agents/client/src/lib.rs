//! The checkpoint API that an application links.
