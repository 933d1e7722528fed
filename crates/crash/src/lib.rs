//! Crash-image simulator.
