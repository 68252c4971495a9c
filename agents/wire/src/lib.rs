//! The messages between orchestrator, agents and ranks.
