//! The `remanent` command.
fn main() {}
