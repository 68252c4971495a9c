//! The YAML job spec: types, defaults, diagnostics with line and column.
