//! The loop against worlds that exist only here: hand-made scenarios and arbitrary events. Seeded storms: `tests/simulation`.

mod arbitrary;
mod changes;
mod scenarios;
mod takeover;
mod verdicts;
mod world;
