//! How pools and their regions are shown.

use std::path::Path;

use pmem::{Mapped, PartInfo, PoolInfo, Region};
use serde_json::{Value, json};

use crate::units::{self, Fields};

pub(super) fn info_text(path: &Path, info: &PoolInfo) -> String {
    let files = info.parts.iter().map(|part| part.files.len()).sum();
    let mut fields = Fields::default();
    fields
        .add("pool", units::path(path))
        .add("identity", info.set.to_string())
        .add("layout", format!("{} version {}", info.layout.0, info.layout.1))
        .add("created", report::utc(info.created_s))
        .add("state", state(info))
        .add("generation", info.generation.to_string())
        .add("names", info.names.to_string())
        .add("size", format!("{} in {}", units::size(info.total_bytes), units::count(files, "file")))
        .add("free", format!("{}, largest {}", units::size(info.free_bytes), units::size(info.largest_free_bytes)))
        .add("waiting", format!("{} for readers", units::size(info.retired_bytes)))
        .add("durability", info.backing.durability.as_str())
        .add("granularity", info.backing.granularity.as_str())
        .add("because", &*info.backing.reason);
    for (index, part) in info.parts.iter().enumerate() {
        fields.add(format!("part {index}"), format!("{}  {}", units::size(part.len_bytes), files_text(part)));
    }
    fields.to_text()
}

fn state(info: &PoolInfo) -> &'static str {
    match (info.has_writer, info.is_clean) {
        (true, _) => "open in a writer",
        (false, true) => "clean",
        (false, false) => "not closed in order; the next writer recovers it",
    }
}

/// A part's files on one line.
pub(super) fn files_text(part: &PartInfo) -> String {
    let files: Vec<String> = part.files.iter().map(|file| units::path(file)).collect();
    match part.stripe.members {
        1 => files.join(" "),
        _ => format!("{} (chunks of {})", files.join(" "), units::size(part.stripe.chunk_bytes)),
    }
}

pub(super) fn info_json(path: &Path, info: &PoolInfo) -> Value {
    let part = |part: &PartInfo| {
        json!({
            "files": part.files.iter().map(|file| units::path(file)).collect::<Vec<_>>(),
            "size_bytes": part.len_bytes,
            "chunk_bytes": (part.stripe.members > 1).then_some(part.stripe.chunk_bytes),
        })
    };
    json!({
        "path": units::path(path),
        "set": info.set.to_string(),
        "layout": { "name": info.layout.0, "version": info.layout.1 },
        "created_s": info.created_s,
        "is_clean": info.is_clean,
        "has_writer": info.has_writer,
        "generation": info.generation,
        "names": info.names,
        "size_bytes": info.total_bytes,
        "free_bytes": info.free_bytes,
        "largest_free_bytes": info.largest_free_bytes,
        "retired_bytes": info.retired_bytes,
        "durability": info.backing.durability.as_str(),
        "granularity": info.backing.granularity.as_str(),
        "provenance": info.backing.provenance.as_str(),
        "filesystem": info.backing.filesystem,
        "reason": info.backing.reason,
        "parts": info.parts.iter().map(part).collect::<Vec<_>>(),
    })
}

fn region_bytes(region: &Region<Mapped>) -> u64 {
    region.info().extents.iter().map(|extent| extent.len_bytes).sum()
}

pub(super) fn region_json(region: &Region<Mapped>) -> Value {
    let info = region.info();
    json!({
        "name": region.name(),
        "kind": info.kind,
        "flags": info.flags,
        "size_bytes": region_bytes(region),
        "extents": info.extents.len(),
        "meta_bytes": info.meta.len(),
        "born": info.born,
    })
}

/// A table with the name last, because it may be long.
pub(super) fn regions_text(regions: &[Region<Mapped>]) -> String {
    let mut text = format!("{:>6} {:>12} {:>8} {:>10}  {}\n", "KIND", "SIZE", "EXTENTS", "BORN", "NAME");
    for region in regions {
        let info = region.info();
        let (size, extents) = (units::size(region_bytes(region)), info.extents.len());
        text += &format!("{:>6} {size:>12} {extents:>8} {:>10}  {}\n", info.kind, info.born, region.name());
    }
    text
}
