//! OFD byte-range locks: they belong to the open file, not to the process.
//!
//! The traditional locks of fcntl(2) fall when the process closes *any* descriptor of the file, which a library
//! cannot prevent. rustix 1.1 has only those, so these calls go through libc.
//!
//! A child process shares the open file, and so the lock, from fork until exec closes its copy of the descriptor: a
//! lock may outlive its holder by that moment if another thread is just starting a program. What a child does that
//! goes on without exec is in `fork`.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::media::LockKind;

/// Takes a lock; false when another holder is in the way.
pub(super) fn try_lock(file: &OwnedFd, kind: LockKind, range: Range<u64>) -> io::Result<bool> {
    let kind = match kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
    };
    match call(file, libc::F_OFD_SETLK, &mut describe(kind, range)) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Gives a range back.
pub(super) fn unlock(file: &OwnedFd, range: Range<u64>) -> io::Result<()> {
    call(file, libc::F_OFD_SETLK, &mut describe(libc::F_UNLCK, range))
}

/// The first byte inside `range` of some lock that an exclusive one would wait for.
pub(super) fn find_lock(file: &OwnedFd, range: Range<u64>) -> io::Result<Option<u64>> {
    let mut lock = describe(libc::F_WRLCK, range.clone());
    call(file, libc::F_OFD_GETLK, &mut lock)?;
    if lock.l_type == libc::F_UNLCK as i16 {
        return Ok(None);
    }
    Ok(Some((lock.l_start as u64).max(range.start)))
}

/// # Panics
/// If the range is empty, which the system would take for "to the end of the world", or reaches past `i64::MAX`.
fn describe(kind: i32, range: Range<u64>) -> libc::flock {
    assert!(range.start < range.end && range.end <= i64::MAX as u64, "no such range to lock: {range:?}");
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: range.start as i64,
        l_len: (range.end - range.start) as i64,
        l_pid: 0, // must be 0 for OFD locks
    }
}

fn call(file: &OwnedFd, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open as long as `file` lives, and these commands read and write one `flock`.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
