//! The numbers of redundancy schemes: what a descriptor asks of its scheme beside the name.
//!
//! A scheme declares its numbers in its folder ([`RedundancyScheme::numbers`](super::RedundancyScheme::numbers)). From
//! the declaration follow the key of the job spec, SCR's parameter, the key in CKPTDESC lines and in the descriptors of
//! file maps; messages carry the numbers by their names.

use std::ops::RangeInclusive;

use holdfast_model::{NumberName, Scheme, SchemeNumbers};
use thiserror::Error;

/// A number of a scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemeNumber {
    /// Its name in descriptors: in file maps, CKPTDESC lines and messages.
    pub name: NumberName,
    /// Its key in a descriptor of the job spec.
    pub key: &'static str,
    /// The parameter that sets it for all descriptors.
    pub parameter: &'static str,
    /// Its name in sentences: "set size".
    pub title: &'static str,
    /// The documentation of the key.
    pub documentation: &'static str,
    pub default: u32,
    pub range: RangeInclusive<u32>,
}

/// For schemes whose members exchange data with neighbours.
pub static HOP_DISTANCE: SchemeNumber = SchemeNumber {
    name: NumberName::new("HOP_DISTANCE"),
    key: "hop_distance",
    parameter: "SCR_HOP_DISTANCE",
    title: "hop distance",
    documentation: "Distance in nodes between members of a set, or to the partner.",
    default: 1,
    range: 1..=65_536,
};

/// For schemes that divide the ranks into sets.
pub static SET_SIZE: SchemeNumber = SchemeNumber {
    name: NumberName::new("SET_SIZE"),
    key: "set_size",
    parameter: "SCR_SET_SIZE",
    title: "set size",
    documentation: "`xor` and `rs`: members in a set, at least 2.",
    default: 8,
    range: 1..=65_536,
};

/// SCR has these two in every descriptor, whatever its scheme.
pub static OF_EVERY_DESCRIPTOR: [&SchemeNumber; 2] = [&SET_SIZE, &HOP_DISTANCE];

impl SchemeNumber {
    /// The number of a descriptor.
    pub fn of(&self, numbers: &SchemeNumbers) -> u32 {
        numbers.get(self.name).unwrap_or(self.default)
    }

    /// True if SCR has it in every descriptor.
    pub fn is_of_every_descriptor(&self) -> bool {
        OF_EVERY_DESCRIPTOR.iter().any(|common| common.name == self.name)
    }
}

/// A number that a scheme cannot use.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{} {value} cannot be used with {scheme}: {why}; {help}", number.title)]
pub struct NumberError {
    pub scheme: Scheme,
    pub number: &'static SchemeNumber,
    pub value: u32,
    /// What is wrong with it: completes "with XOR, …".
    pub why: String,
    /// Completes "expected is …".
    pub expected: &'static str,
    /// What to write in a job spec.
    pub help: &'static str,
}
