//! The prefix directory: index, summary, rank filemaps, scan, rebuild at drain, current link.
