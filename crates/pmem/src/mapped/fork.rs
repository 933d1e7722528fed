//! What a forked child does with the locks that it has inherited.
//!
//! An OFD lock belongs to the open file (fcntl(2)), and fork(2) makes a second descriptor of that: the lock falls when
//! the last of them is closed. So a child that outlives a killed parent keeps the next writer out, although it may not
//! write itself. Closing its descriptor would let the writer in, but also take away the pins that its inherited regions
//! stand on. Therefore the child opens the file anew, pins through that what it holds, and puts the new descriptor in
//! the place of the old one. Closing a copy takes no lock away from the parent, which has the other. Mappings hold open
//! files as well, and stay in the child: that is why locks have an open file of their own.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::OFlags;

use super::{Mapped, MappedFile, direct, lock};
use crate::error::{Error, Result};
use crate::media::{LockKind, MediaFile, OpenMode};
use crate::pins;
use crate::pool::Pool;

static FORKS: AtomicU64 = AtomicU64::new(0);

/// Grows when this process forks, before it and after it, as far as the C library knows: children that start another
/// program at once (vfork, posix_spawn) do not count. A child has what its parent had mapped at the fork, and for a moment
/// no locks of its own.
pub fn forks() -> u64 {
    static COUNTING: Once = Once::new();
    extern "C" fn before() {
        direct::before_fork();
        FORKS.fetch_add(1, Ordering::SeqCst);
    }
    extern "C" fn after() {
        FORKS.fetch_add(1, Ordering::SeqCst);
        direct::after_fork();
    }
    extern "C" fn in_child() {
        direct::in_child();
    }
    COUNTING.call_once(|| {
        // SAFETY: the handlers touch statics only, and a lock that the forking thread takes before and gives back after, so
        // they may run at any fork, in any thread.
        let registered = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
        assert_eq!(registered, 0, "pthread_atfork fails without memory only");
    });
    FORKS.load(Ordering::SeqCst)
}

impl Pool<Mapped> {
    /// To be called by a child of fork(2), before anything else: leaves the writer's lock to its parent alone, and pins
    /// the regions that the child has inherited for the child itself. They stay as they are from then on, whatever
    /// becomes of the parent, until the child drops the pool or ends. Everything else on this handle is refused in the
    /// child as before. In the process that opened the pool this does nothing.
    ///
    /// Tells whether the child has locks of its own now. It has not when another thread of the parent was counting
    /// regions at the moment of the fork; then the child shares its parent's locks as long as it lives.
    ///
    /// # Errors
    /// `Io` when the file cannot be opened again, for example without /proc; the locks are shared then.
    pub fn settle_in_child(&self) -> Result<bool> {
        let shared = &*self.shared;
        if shared.check_process().is_ok() || shared.set.mode() == OpenMode::Inspect {
            return Ok(false);
        }
        let Some(generations) = shared.pins.try_own() else { return Ok(false) };
        let open = |file: &MappedFile| {
            file.open_again(OFlags::RDONLY).map_err(|error| Error::io("opening in a forked child", file.path(), error))
        };
        let first = shared.set.first_file();
        let own = open(first)?;
        for generation in generations {
            lock::try_lock(&own, LockKind::Shared, pins::byte_of(generation))
                .map_err(|error| Error::io("locking", first.path(), error))?;
        }
        // Further files carry the writer's lock and no pins. All are opened before the first is exchanged.
        let mut exchanges = vec![(first, own)];
        if shared.set.mode() == OpenMode::Writer {
            for file in shared.set.parts().flat_map(|part| &part.files).skip(1) {
                exchanges.push((file, open(file)?));
            }
        }
        for (file, own) in exchanges {
            replace(file.lock_file()?, own)
                .map_err(|error| Error::io("closing in a forked child", file.path(), error))?;
        }
        Ok(true)
    }
}

/// Puts `new` in the place of `old`, whose number stays and whose open file is let go of.
fn replace(old: &OwnedFd, new: OwnedFd) -> std::io::Result<()> {
    loop {
        // SAFETY: both descriptors are open. dup3(2) exchanges what `old` stands for in one step, so that its owner
        // never has a number that is somebody else's.
        if unsafe { libc::dup3(new.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) } >= 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) {
            return Err(error);
        }
    }
}
