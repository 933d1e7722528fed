//! Requests of io_uring(7), as many at a time as there may be.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

use crate::error::{Error, Result};

/// Requests that are under way at a time, at most.
pub(super) const DEPTH: u32 = 8;

/// # Errors
/// `Unavailable` when the kernel has no io_uring, or lets nobody use it.
pub(super) fn check_rings() -> Result<()> {
    IoUring::new(DEPTH).map(drop).map_err(|error| Error::unavailable(format!("io_uring: {error}")))
}

/// What is asked for.
#[derive(Clone, Copy)]
pub(super) enum Request {
    Write { flags: i32 },
    Read,
}

/// A ring of one thread.
///
/// # Invariants
/// 1. While requests are under way the kernel may read or write their bytes: whoever owns these waits with [`Ring::drain`]
///    before they go, or never lets them go.
pub(super) struct Ring<'s> {
    file: &'s File,
    ring: Box<IoUring>,
    pub(super) request: Request,
    /// Requests that the kernel, or its queue, has.
    under_way: u32,
    /// The first that went wrong: all that come after it may do so because of it.
    failed: Option<io::Error>,
}

impl<'s> Ring<'s> {
    pub(super) fn new(file: &'s File, request: Request) -> io::Result<Ring<'s>> {
        Ok(Ring { file, ring: Box::new(IoUring::new(DEPTH)?), request, under_way: 0, failed: None })
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Asks for a block, once there is room; how many have arrived meanwhile.
    ///
    /// # Errors
    /// The first request's that has failed, or what the kernel says to a ring that cannot be used.
    ///
    /// # Safety
    /// The bytes are there for reading, or writing, until [`Ring::drain`] has returned without an error.
    pub(super) unsafe fn ask(&mut self, bytes: *mut u8, len_bytes: u32, offset: u64) -> io::Result<u64> {
        let arrived = if self.under_way == DEPTH { self.reap(1, len_bytes)? } else { 0 };
        self.told()?;
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = match self.request {
            Request::Write { flags } => opcode::Write::new(fd, bytes, len_bytes).offset(offset).rw_flags(flags).build(),
            // All of them into the same bytes, which hold the same.
            Request::Read => opcode::Read::new(fd, bytes, len_bytes).offset(offset).build(),
        };
        // SAFETY: as the caller says.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        // From here on the kernel has it, or will have it with the next call.
        self.under_way += 1;
        uninterrupted(|| self.ring.submit())?;
        Ok(arrived)
    }

    /// Waits for all that is under way, whatever becomes of it; how many have arrived.
    ///
    /// # Errors
    /// When the kernel cannot be waited for: some may be under way for ever.
    pub(super) fn drain(&mut self, len_bytes: u32) -> io::Result<u64> {
        let mut arrived = 0;
        while self.under_way > 0 {
            arrived += self.reap(self.under_way, len_bytes)?;
        }
        Ok(arrived)
    }

    /// # Errors
    /// That of the first request that has failed, once.
    pub(super) fn told(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Waits for so many requests at least and takes all that have ended; how many did what they should.
    fn reap(&mut self, count: u32, len_bytes: u32) -> io::Result<u64> {
        uninterrupted(|| self.ring.submit_and_wait(count as usize))?;
        let mut arrived = 0;
        for entry in self.ring.completion() {
            self.under_way -= 1;
            let failed = match entry.result() {
                error @ ..0 => io::Error::from_raw_os_error(-error),
                done if done as u32 != len_bytes => io::Error::other("a request came to an end before its block"),
                _ => {
                    arrived += 1;
                    continue;
                }
            };
            self.failed.get_or_insert(failed);
        }
        Ok(arrived)
    }
}

/// Calls the kernel again while a signal has come between.
fn uninterrupted<T>(call: impl Fn() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
