//! Starting, polling and commanding the agents.
