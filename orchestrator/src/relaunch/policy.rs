//! Relaunch or stop.
