//! What an answer to the orchestrator's poll contains: events and progress, and the node's health (`usage`:
//! its memory and load). `contact` records when the last request was received.

pub mod contact;
pub mod events;
pub mod health;
mod usage;
