//! Host lists: `node[1-4,7]`, expanded, compressed, subtracted, intersected.
