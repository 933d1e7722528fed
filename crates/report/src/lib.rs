//! Measurement reports.
