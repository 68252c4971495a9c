//! `libholdfast_pairs`: the calls of [`holdfast_pairs_client`] for C by `include/holdfast_pairs.h`, and for Python by
//! `holdfast.pairs`.
//!
//! * [`c`]: the functions of the header;
//! * [`session`]: their behaviour.

pub mod c;
pub mod session;
