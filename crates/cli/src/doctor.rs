//! What this machine offers to pools, how durable a path is and why, and what would make it better.

use std::path::{Path, PathBuf};

use clap::Args;
use pmem::{CopyKernel, Durability, Granularity, LONG_COPY_BYTES, Mapped, MemoryRegion, PlanOrigin, Platform, Probe};
use serde_json::{Value, json};

use crate::failure::{FAILED, Failure};
use crate::output::Report;
use crate::units::{self, Fields};

const HELP: &str = "\
In a directory a small file is made to find out what a pool there would get; it loses its name at once and is gone \
when the answer is printed. A file or a device is only opened for reading. A path that cannot be looked at is reported \
beside the others; the exit code is 1 then.

Examples:
  remanent doctor
  remanent doctor /mnt/pmem0 /var/lib /dev/shm
  remanent --json doctor /mnt/pmem0";

/// What `doctor` is told.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Arguments {
    /// Directories, pools or devices to look at
    paths: Vec<PathBuf>,
}

/// A path, and what was found there or why nothing could be.
struct Look<'a> {
    path: &'a Path,
    found: Result<Probe, Failure>,
}

pub(crate) fn run(arguments: &Arguments) -> Report {
    let media = Mapped::new();
    let look = |path| Look { path, found: media.probe(path).map_err(Failure::from) };
    let looks: Vec<Look<'_>> = arguments.paths.iter().map(PathBuf::as_path).map(look).collect();
    let platform = Platform::detect();
    let advice = advice(&platform, looks.iter().filter_map(|look| look.found.as_ref().ok()));
    let result = json!({
        "machine": machine_json(&platform),
        "paths": looks.iter().map(look_json).collect::<Vec<_>>(),
        "advice": advice,
    });
    let mut text = machine_text(&platform);
    for look in &looks {
        text += &format!("\n{}", look_text(look));
    }
    if !advice.is_empty() {
        text += "\nWhat would make it better\n";
    }
    for line in &advice {
        text += &format!("  - {line}\n");
    }
    let exit = if looks.iter().all(|look| look.found.is_ok()) { 0 } else { FAILED };
    Report { exit, ..Report::answer(result, text) }
}

fn machine_text(platform: &Platform) -> String {
    let plan = &platform.copy_plan;
    let mut fields = Fields::default();
    fields
        .add("machine", format!("{}, {}", platform.architecture, units::count(platform.cpus, "CPU")))
        .add("kernel", &*platform.kernel_release)
        .add("kernel features", kernel_features(platform))
        .add(
            "hypervisor",
            if platform.is_guest { "yes: devices are as safe as those of the host" } else { "none seen" },
        )
        .add("instructions", platform.instructions.join(", "))
        .add("flush", format!("{}, lines of {} bytes", platform.flush.as_str(), platform.line_bytes))
        .add("copy kernels", kernel_names(&platform.copy_kernels).join(", "))
        .add("copies", copy_plan(platform))
        .add("copy choice", origin(plan.origin))
        .add("pages", pages(platform))
        .add("NUMA nodes", numa_nodes(platform));
    if platform.regions.is_empty() {
        fields.add("persistent memory", "no region");
    }
    for region in &platform.regions {
        fields.add(&*region.name, region_text(region));
    }
    for path in &platform.assumed_persistent {
        fields.add("assumed persistent", format!("{} (REMANENT_ASSUME_PERSISTENT)", path.display()));
    }
    fields.to_text()
}

fn kernel_features(platform: &Platform) -> String {
    let say = |there: bool| if there { "yes" } else { "no" };
    let features = platform.kernel_features;
    format!("MADV_POPULATE {}, OFD locks {}", say(features.populate), say(features.ofd_locks))
}

fn kernel_names(kernels: &[CopyKernel]) -> Vec<&'static str> {
    kernels.iter().map(|kernel| kernel.as_str()).collect()
}

fn copy_plan(platform: &Platform) -> String {
    let plan = &platform.copy_plan;
    match plan.kernel {
        CopyKernel::StoreFlush => format!("stored and flushed with {}", plan.flush.as_str()),
        kernel => format!(
            "{} from {} bytes on, from {} as {}; shorter ones are stored and flushed with {}",
            kernel.as_str(),
            plan.direct_from_bytes,
            LONG_COPY_BYTES,
            plan.order.as_str(),
            plan.flush.as_str()
        ),
    }
}

fn origin(origin: PlanOrigin) -> &'static str {
    match origin {
        PlanOrigin::Environment => "by REMANENT_COPY",
        PlanOrigin::EnvironmentIgnored => "measured now; REMANENT_COPY has a name that is not available here",
        _ => "measured now",
    }
}

fn pages(platform: &Platform) -> String {
    let huge: Vec<String> = platform.huge_page_bytes.iter().map(|&bytes| units::size(bytes)).collect();
    let huge = if huge.is_empty() { "no huge pages".to_owned() } else { format!("huge {}", huge.join(", ")) };
    let transparent = platform.transparent_huge_pages.as_deref().unwrap_or("unknown");
    format!("{}; {huge}; transparent huge pages: {transparent}", units::size(platform.page_bytes as u64))
}

fn numa_nodes(platform: &Platform) -> String {
    let nodes: Vec<String> = platform
        .numa_nodes
        .iter()
        .map(|node| match &*node.cpus {
            "" => format!("{} (memory only)", node.index),
            cpus => format!("{} (CPUs {cpus})", node.index),
        })
        .collect();
    if nodes.is_empty() { "unknown".to_owned() } else { nodes.join(", ") }
}

fn region_text(region: &MemoryRegion) -> String {
    let node = region.numa_node.map(|node| format!(", node {node}")).unwrap_or_default();
    let bad = match region.bad_ranges {
        0 => String::new(),
        ranges => format!(", {} of bad blocks", units::count(ranges, "range")),
    };
    format!("{}, persistence domain {}{node}{bad}", units::size(region.size_bytes), region.persistence_domain)
}

fn machine_json(platform: &Platform) -> Value {
    let regions = platform.regions.iter().map(|region| {
        json!({
            "name": region.name,
            "size_bytes": region.size_bytes,
            "persistence_domain": region.persistence_domain,
            "bad_ranges": region.bad_ranges,
            "numa_node": region.numa_node,
        })
    });
    json!({
        "architecture": platform.architecture,
        "cpus": platform.cpus,
        "kernel_release": platform.kernel_release,
        "kernel_features": {
            "madv_populate": platform.kernel_features.populate,
            "ofd_locks": platform.kernel_features.ofd_locks,
        },
        "is_guest": platform.is_guest,
        "instructions": platform.instructions,
        "flush": platform.flush.as_str(),
        "line_bytes": platform.line_bytes,
        "copy_kernels": kernel_names(&platform.copy_kernels),
        "copy_plan": {
            "kernel": platform.copy_plan.kernel.as_str(),
            // Never, when all copies are stored and flushed.
            "direct_from_bytes": Some(platform.copy_plan.direct_from_bytes).filter(|&bytes| bytes != usize::MAX),
            "order": platform.copy_plan.order.as_str(),
            "flush": platform.copy_plan.flush.as_str(),
            "origin": origin(platform.copy_plan.origin),
        },
        "page_bytes": platform.page_bytes,
        "huge_page_bytes": platform.huge_page_bytes,
        "transparent_huge_pages": platform.transparent_huge_pages,
        "numa_nodes": platform
            .numa_nodes
            .iter()
            .map(|node| json!({ "index": node.index, "cpus": node.cpus }))
            .collect::<Vec<_>>(),
        "regions": regions.collect::<Vec<_>>(),
        "assumed_persistent": platform.assumed_persistent.iter().map(|path| units::path(path)).collect::<Vec<_>>(),
    })
}

fn look_text(look: &Look<'_>) -> String {
    match &look.found {
        Ok(probe) => probe_text(probe),
        Err(failure) => failure_text(look.path, failure),
    }
}

fn failure_text(path: &Path, failure: &Failure) -> String {
    let mut fields = Fields::default();
    fields.add("path", units::path(path)).add("error", format!("{}: {}", failure.code(), failure.message()));
    if let Some(hint) = failure.hint() {
        fields.add("hint", hint);
    }
    fields.to_text()
}

fn look_json(look: &Look<'_>) -> Value {
    match &look.found {
        Ok(probe) => probe_json(probe),
        Err(failure) => json!({ "path": units::path(look.path), "error": failure.to_json() }),
    }
}

fn probe_text(probe: &Probe) -> String {
    let backing = &probe.backing;
    let mut fields = Fields::default();
    fields
        .add("path", units::path(&probe.path))
        .add("file system", &*backing.filesystem)
        .add("MAP_SYNC", if probe.map_sync { "granted (DAX)" } else { "refused" })
        .add("granularity", backing.granularity.as_str())
        .add("durability", backing.durability.as_str())
        .add("because", &*backing.reason)
        .add("figures are", backing.provenance.as_str());
    fields.to_text()
}

fn probe_json(probe: &Probe) -> Value {
    json!({
        "path": units::path(&probe.path),
        "is_directory": probe.is_directory,
        "filesystem": probe.backing.filesystem,
        "map_sync": probe.map_sync,
        "granularity": probe.backing.granularity.as_str(),
        "durability": probe.backing.durability.as_str(),
        "reason": probe.backing.reason,
        "provenance": probe.backing.provenance.as_str(),
    })
}

/// What the user could change, most important first.
fn advice<'a>(platform: &Platform, probes: impl Iterator<Item = &'a Probe>) -> Vec<String> {
    let mut advice: Vec<String> = probes.filter_map(|probe| advice_on_path(platform, probe)).collect();
    for region in platform.regions.iter().filter(|region| region.bad_ranges > 0) {
        advice.push(format!("{} lists bad blocks: see `ndctl list -M`, and replace the module", region.name));
    }
    if platform.regions.iter().any(|region| region.persistence_domain == "unknown") {
        advice.push(
            "the platform does not name the persistence domain of a region: update its firmware, or set \
             REMANENT_ASSUME_PERSISTENT if you know that it survives a power failure"
                .to_owned(),
        );
    }
    if !platform.kernel_features.ofd_locks {
        advice
            .push("this kernel has no OFD locks, without which no pool can be opened: use Linux 3.15 or later".into());
    }
    if !platform.kernel_features.populate {
        advice.push("this kernel has no MADV_POPULATE, so opening reads more: use Linux 5.14 or later".to_owned());
    }
    if platform.copy_plan.origin == PlanOrigin::EnvironmentIgnored {
        let names = kernel_names(&platform.copy_kernels).join(", ");
        advice.push(format!("REMANENT_COPY is ignored: choose one of {names}"));
    }
    advice
}

fn advice_on_path(platform: &Platform, probe: &Probe) -> Option<String> {
    let path = probe.path.display();
    let backing = &probe.backing;
    match (backing.durability, backing.granularity) {
        (Durability::PowerFailSafe, Granularity::Page) if !platform.regions.is_empty() => Some(format!(
            "{path} goes through the page cache although there is persistent memory: mount its file system there with \
             -o dax=always, or move the pool to one that is"
        )),
        (Durability::PowerFailSafe, Granularity::Page) => {
            Some(format!("{path} is as fast as its disk: persistent memory with a DAX mount makes each commit faster"))
        }
        (Durability::ProcessCrashSafe, _) => Some(format!(
            "{path} loses everything with the power: keep what must stay on a disk or on persistent memory"
        )),
        (Durability::PersistenceUnknown, _) => Some(format!(
            "nobody says whether {path} survives a power failure: treat it as process-crash safe, or set \
             REMANENT_ASSUME_PERSISTENT={path} if you know that it does"
        )),
        _ => None,
    }
}
