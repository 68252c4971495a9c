//! The machine against simulated agents and a simulated prefix directory: scenarios, and events in random order.

mod arbitrary;
mod crash;
mod scenarios;
mod world;
