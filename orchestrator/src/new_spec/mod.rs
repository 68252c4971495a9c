//! A job spec for a program that is given (`holdfast init`).
//!
//! | file | subject |
//! |---|---|
//! | [`program`] | what the program is: its libraries, its interpreter, what it imports |
//! | [`surroundings`] | where this process is: an allocation, a hosts file, one machine |
//! | [`choice`] | what follows from both: manager, launcher, source, each with its reason |
//! | [`text`] | the spec, with comments |

pub mod choice;
pub mod program;
pub mod surroundings;
pub mod text;
