//! The relaunch loop: a pure state machine, and the driver that feeds it.
