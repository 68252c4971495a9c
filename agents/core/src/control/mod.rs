//! The files of the control directory, and the meta files beside checkpoint files.
