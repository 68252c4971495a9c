//! The loop against worlds that exist only here: hand-made scenarios, seeded storms, arbitrary events.

mod arbitrary;
mod oracle;
mod scenarios;
mod simulation;
mod storm;
mod takeover;
mod verdicts;
mod world;
