//! The machine with hand-made scenarios and with arbitrary events. Seeded simulations of whole jobs:
//! `tests/simulation`.

mod arbitrary;
mod before;
mod changes;
mod disturbances;
mod end_causes;
mod exclusions;
mod halts;
mod lending;
mod prevented;
mod progress;
mod scenarios;
mod takeover;
mod world;
