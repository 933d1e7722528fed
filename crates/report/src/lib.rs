//! Measurements, and what may be said of them.
//!
//! A figure stands with its spread, its unit and its [`Provenance`]; two things are compared by running them in turn in
//! one process ([`compare`]). The crate knows nothing of what is measured, and depends on no other crate of the tree.

mod chart;
mod comparison;
mod date;
mod record;
mod samples;

pub use chart::{Axis, AxisScale, Chart, Mark, Point, Series};
pub use comparison::{Comparison, compare};
pub use date::utc;
pub use record::{Provenance, Record};
pub use samples::{Interval, Samples};
