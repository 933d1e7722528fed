//! The CPU's prefetchers, which make sequential loads faster than the memory: told, and switched off where that is permitted.
//!
//! | CPU | register | bits that switch off |
//! | --- | --- | --- |
//! | Intel | 0x1a4 (Intel SDM volume 4, MSR_MISC_FEATURE_CONTROL) | 0 and 1 of the second-level cache, 2 and 3 of the first |
//!
//! Registers are files of the kernel's module msr (msr(4)), which only root may open.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::crew;
use crate::error::{Error, Result};

const CONTROL: u64 = 0x1a4;
const ALL_OFF: u64 = 0b1111;

/// Whether the prefetchers of the CPUs that this process may use work: `on`, `off`, `mixed` or `unknown`.
pub fn state() -> &'static str {
    let bits: Option<Vec<u64>> =
        if is_intel() { crew::cpus().into_iter().map(|cpu| read(&open(cpu).ok()?)).collect() } else { None };
    match bits {
        None => "unknown",
        Some(all) if all.iter().all(|bits| bits & ALL_OFF == ALL_OFF) => "off",
        Some(all) if all.iter().all(|bits| bits & ALL_OFF == 0) => "on",
        Some(_) => "mixed",
    }
}

/// Prefetchers that are off as long as it lives.
#[derive(Debug)]
pub struct Off {
    /// Each CPU's register, and what was in it.
    before: Vec<(File, u64)>,
}

impl Off {
    /// Switches them off.
    ///
    /// # Errors
    /// `Unavailable` when the CPU is not known, or its registers cannot be written; nothing is changed then.
    pub fn switch() -> Result<Off> {
        if !is_intel() {
            return Err(Error::unavailable("how the prefetchers of this CPU are switched off is not known".into()));
        }
        let mut off = Off { before: Vec::new() };
        for cpu in crew::cpus() {
            let refused = |error: std::io::Error| {
                let what = format!(
                    "the prefetchers of CPU {cpu} cannot be switched off: {error}; it takes root, and `modprobe msr`"
                );
                Error::unavailable(what)
            };
            let file = open(cpu).map_err(refused)?;
            let bits = read(&file).ok_or_else(|| refused(std::io::ErrorKind::Unsupported.into()))?;
            file.write_all_at(&(bits | ALL_OFF).to_le_bytes(), CONTROL).map_err(refused)?;
            // What was switched so far is switched back when a later CPU refuses.
            off.before.push((file, bits));
        }
        Ok(off)
    }
}

impl Drop for Off {
    fn drop(&mut self) {
        for (file, bits) in &self.before {
            // Nobody is left to be told; the state is read again for the next report.
            let _ = file.write_all_at(&bits.to_le_bytes(), CONTROL);
        }
    }
}

fn open(cpu: usize) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(Path::new("/dev/cpu").join(cpu.to_string()).join("msr"))
}

fn read(file: &File) -> Option<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, CONTROL).ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn is_intel() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("GenuineIntel"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the registers can be written they are as before afterwards; else the reason is told.
    #[test]
    fn prefetchers_are_as_before_when_they_were_off() {
        let before = state();
        match Off::switch() {
            Ok(off) => {
                assert_eq!(state(), "off");
                drop(off);
            }
            Err(error) => assert!(error.to_string().contains("prefetchers"), "{error}"),
        }
        assert_eq!(state(), before);
    }
}
