//! SCR_* parameters: environment, user file, system file, default.
