//! Launchers behind one trait.
