//! Results as lines, in the form of `remanent-report`.

use std::io::{self, Write};
use std::path::Path;

use remanent_pmem::Backing;
use remanent_report::{Comparison, Provenance, Record, Samples};

/// The label of figures that were measured on a backing.
pub(crate) fn provenance(backing: &Backing) -> Provenance {
    match backing.provenance {
        remanent_pmem::Provenance::Measured => Provenance::Measured,
        remanent_pmem::Provenance::Emulated => Provenance::Emulated,
        remanent_pmem::Provenance::Modelled => Provenance::Modelled,
    }
}

/// Where the figures that follow are measured, and what a persist is worth there.
pub(crate) fn place(out: &mut dyn Write, path: &Path, backing: &Backing) -> io::Result<()> {
    let Backing { filesystem, granularity, durability, .. } = backing;
    let (durability, granularity) = (durability.as_str(), granularity.as_str());
    writeln!(out, "# {} ({filesystem}): {durability}, {granularity} granularity", path.display())
}

/// A line for each side of a comparison and one for `b / a`, taken round by round.
pub(crate) fn comparison(
    out: &mut dyn Write,
    [a, b]: [&str; 2],
    unit: &'static str,
    provenance: Provenance,
    comparison: &Comparison,
) -> io::Result<()> {
    samples(out, a, unit, provenance, &comparison.a)?;
    samples(out, b, unit, provenance, &comparison.b)?;
    samples(out, "  ratio of the second to the first", "times", provenance, &comparison.ratios)
}

/// One line.
pub(crate) fn samples(
    out: &mut dyn Write,
    name: &str,
    unit: &'static str,
    provenance: Provenance,
    samples: &Samples,
) -> io::Result<()> {
    writeln!(out, "{}", Record::new(name, unit, provenance, samples))
}
