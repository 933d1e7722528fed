//! Ctrl-C and SIGTERM, for work that has to end in order.

use std::sync::atomic::{AtomicU8, Ordering};

static SIGNAL: AtomicU8 = AtomicU8::new(0);

/// From now on the first SIGINT or SIGTERM is only noted, for [`signal`] to tell; a second one ends the process at once. No
/// crate of the tree handles signals already, and this is less than one more would be.
pub(crate) fn watch() {
    extern "C" fn note(signal: libc::c_int) {
        SIGNAL.store(signal as u8, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: zeros are an empty mask and no flags; the handler does nothing but store to an atomic, which is allowed in
        // one (signal-safety(7)).
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// The signal that has come.
pub(crate) fn signal() -> Option<u8> {
    Some(SIGNAL.load(Ordering::Relaxed)).filter(|signal| *signal > 0)
}
