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
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::crew;
use crate::error::{Error, Result};

const CONTROL: u64 = 0x1a4;
const ALL_OFF: u64 = 0b1111;

const FOLDER: &str = "/dev/cpu";

/// How often [`Off`] has switched them.
static SWITCHES: AtomicU64 = AtomicU64::new(0);

/// Whether the prefetchers of the CPUs that this process may use work: `on`, `off`, `mixed` or `unknown`. It is asked for between
/// samples, so the registers are read once, and again when [`Off`] has switched.
pub fn state() -> &'static str {
    static FOUND: Mutex<Option<(u64, &str)>> = Mutex::new(None);
    let switches = SWITCHES.load(Ordering::SeqCst);
    let mut found = FOUND.lock().expect("nothing panics here");
    match *found {
        Some((then, state)) if then == switches => state,
        _ => found.insert((switches, read_state())).1,
    }
}

fn read_state() -> &'static str {
    let folder = Path::new(FOLDER);
    let bits: Option<Vec<u64>> =
        if is_intel() { crew::cpus().into_iter().map(|cpu| read(&open(folder, cpu).ok()?)).collect() } else { None };
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
        Off::switch_in(Path::new(FOLDER), &crew::cpus())
    }

    fn switch_in(folder: &Path, cpus: &[usize]) -> Result<Off> {
        let refused = |cpu: usize, error: std::io::Error| {
            let what = format!(
                "the prefetchers of CPU {cpu} cannot be switched off: {error}; it takes root, and `modprobe msr`"
            );
            Error::unavailable(what)
        };
        // All are read before one is written: the two threads of a core have one register.
        let registers = cpus.iter().map(|&cpu| {
            let file = open(folder, cpu).map_err(|error| refused(cpu, error))?;
            let bits = read(&file).ok_or_else(|| refused(cpu, std::io::ErrorKind::Unsupported.into()))?;
            Ok((cpu, file, bits))
        });
        let mut off = Off { before: Vec::new() };
        for (cpu, file, bits) in registers.collect::<Result<Vec<_>>>()? {
            let written = file.write_all_at(&(bits | ALL_OFF).to_le_bytes(), CONTROL);
            // What was switched so far, and maybe this, is switched back when a CPU refuses.
            off.before.push((file, bits));
            written.map_err(|error| refused(cpu, error))?;
        }
        SWITCHES.fetch_add(1, Ordering::SeqCst);
        Ok(off)
    }
}

impl Drop for Off {
    fn drop(&mut self) {
        for (file, bits) in &self.before {
            // Nobody is left to be told; the state is read again for the next report.
            let _ = file.write_all_at(&bits.to_le_bytes(), CONTROL);
        }
        SWITCHES.fetch_add(1, Ordering::SeqCst);
    }
}

fn open(folder: &Path, cpu: usize) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(folder.join(cpu.to_string()).join("msr"))
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

    #[test]
    fn a_register_that_two_cpus_share_is_as_before_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = |cpu: usize| folder.path().join(cpu.to_string()).join("msr");
        (0..3).for_each(|cpu| std::fs::create_dir(path(cpu).parent().unwrap()).unwrap());
        for (cpu, bits) in [(0, 0b0010u64), (2, 0)] {
            File::create(path(cpu)).unwrap().write_all_at(&bits.to_le_bytes(), CONTROL).unwrap();
        }
        std::fs::hard_link(path(0), path(1)).unwrap();
        let bits = |cpu: usize| read(&File::open(path(cpu)).unwrap()).unwrap();
        let switches = || SWITCHES.load(Ordering::SeqCst);
        let before = switches();
        let off = Off::switch_in(folder.path(), &[0, 1, 2]).unwrap();
        assert!((0..3).all(|cpu| bits(cpu) & ALL_OFF == ALL_OFF));
        assert_eq!(switches(), before + 1, "what was found before is not told behind it");
        drop(off);
        assert_eq!(switches(), before + 2);
        assert_eq!([bits(0), bits(1), bits(2)], [0b0010, 0b0010, 0]);
        assert!(Off::switch_in(folder.path(), &[0, 7]).is_err());
        assert_eq!(bits(0), 0b0010, "nothing is changed when a CPU has no register");
    }
}
