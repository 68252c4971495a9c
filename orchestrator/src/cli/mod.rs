//! The subcommands: one file each, thin.
