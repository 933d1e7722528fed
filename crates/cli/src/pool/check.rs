//! `remanent pool check`: what the core and the store find, told together.

use std::path::Path;

use pmem::{CheckReport, ErrorCode, Finding, Mapped, Severity};
use serde_json::{Value, json};

use super::payloads::{self, Payloads};
use crate::failure::{DAMAGE_FOUND, Failure};
use crate::output::Report;
use crate::progress::Progress;
use crate::units;

pub(super) fn run(path: &Path, progress: Progress) -> Result<Report, Failure> {
    let bar = progress.bytes("reading".to_owned(), 0);
    let report = pmem::check(&Mapped::new(), path, |now| {
        bar.set_length(now.total_bytes);
        bar.set_position(now.done_bytes);
    });
    bar.finish_and_clear();
    let report = report?;
    let spinner = progress.spinner("comparing checksums".to_owned());
    let payloads = payloads::compare_pool(path, &report);
    spinner.finish_and_clear();
    let payloads = payloads?;
    let worst = worst(&report, payloads.as_ref());
    let exit = if worst == Some(Severity::Damage) { DAMAGE_FOUND } else { 0 };
    let text = text(path, &report, payloads.as_ref());
    Ok(Report { exit, ..Report::answer(to_json(path, &report, payloads.as_ref()), text) })
}

fn worst(report: &CheckReport, payloads: Option<&Payloads>) -> Option<Severity> {
    let of_payloads = payloads.into_iter().flat_map(|payloads| &payloads.findings).map(|finding| finding.severity);
    report.worst().into_iter().chain(of_payloads).max()
}

fn verdict(worst: Option<Severity>) -> &'static str {
    match worst {
        Some(Severity::Damage) => "damaged",
        Some(Severity::Repairable) => "repairable",
        _ => "sound",
    }
}

fn text(path: &Path, report: &CheckReport, payloads: Option<&Payloads>) -> String {
    let place = |finding: &Finding| match finding.offset_bytes {
        Some(offset_bytes) => format!("{} at byte {offset_bytes}", finding.path.display()),
        None => finding.path.display().to_string(),
    };
    let mut text = String::new();
    for finding in &report.findings {
        text += &format!("{:10}  {}: {}\n", finding.severity.as_str(), place(finding), finding.message);
    }
    for finding in payloads.into_iter().flat_map(|payloads| &payloads.findings) {
        text += &format!("{:10}  {}: {}\n", finding.severity.as_str(), path.display(), finding.message);
    }
    let names = report.names.map_or("names unknown".to_owned(), |names| units::count(names, "name"));
    let compared = payloads.map(|payloads| format!(", {} compared", units::count(payloads.compared(), "checksum")));
    text + &format!(
        "{}: {} ({}, {names}, {} read{})\n",
        path.display(),
        verdict(worst(report, payloads)),
        units::count(report.files.len(), "file"),
        units::size(report.read_bytes),
        compared.unwrap_or_default(),
    )
}

fn to_json(path: &Path, report: &CheckReport, payloads: Option<&Payloads>) -> Value {
    let of_pool = report.findings.iter().map(|finding| {
        json!({
            "severity": finding.severity.as_str(),
            "path": units::path(&finding.path),
            "offset_bytes": finding.offset_bytes,
            "name": null,
            "error": finding.error.map(ErrorCode::name),
            "message": finding.message,
        })
    });
    let of_payloads = payloads.into_iter().flat_map(|payloads| &payloads.findings).map(|finding| {
        json!({
            "severity": finding.severity.as_str(),
            "path": units::path(path),
            "offset_bytes": null,
            "name": finding.name,
            "error": finding.error.name(),
            "message": finding.message,
        })
    });
    let checksums = payloads.map(|payloads| {
        json!({
            "matching": payloads.matching,
            "without_checksum": payloads.without_checksum,
            "changed_meanwhile": payloads.changed_meanwhile,
        })
    });
    json!({
        "path": units::path(path),
        "verdict": verdict(worst(report, payloads)),
        "set": report.set.to_string(),
        "layout": { "name": report.layout.0, "version": report.layout.1 },
        "files": report.files.iter().map(|file| units::path(file)).collect::<Vec<_>>(),
        "is_clean": report.is_clean,
        "has_writer": report.has_writer,
        "generation": report.generation,
        "names": report.names,
        "read_bytes": report.read_bytes,
        "checksums": checksums,
        "findings": of_pool.chain(of_payloads).collect::<Vec<_>>(),
    })
}
