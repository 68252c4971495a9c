//! The event log, the report, what a person sees.
