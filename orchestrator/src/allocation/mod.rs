//! Resource managers behind one trait.
