//! Signals that end a process, for work that has to end in order.

use std::sync::atomic::{AtomicU8, Ordering};

static SIGNAL: AtomicU8 = AtomicU8::new(0);

/// What becomes of a second signal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Second {
    /// It ends the process at once.
    Ends,
    /// It changes nothing: something of the machine has to be put back before.
    Waits,
}

/// From now on the first signal that asks the process to end is only noted, for [`signal`] to tell; SIGHUP only where it was not
/// ignored. No crate of the tree handles signals already, and this is less than one more would be.
pub(crate) fn watch(second: Second) {
    extern "C" fn note(signal: libc::c_int) {
        SIGNAL.store(signal as u8, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: zeros are an empty mask and no flags; the handler does nothing but store to an atomic, which is allowed in
        // one (signal-safety(7)).
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut before);
            // Under nohup(1). Ctrl-C is ignored by who was started in a script's background, and still asks for an end.
            if signal == libc::SIGHUP && before.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART | if second == Second::Ends { libc::SA_RESETHAND } else { 0 };
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// The signal that has come.
pub(crate) fn signal() -> Option<u8> {
    Some(SIGNAL.load(Ordering::Relaxed)).filter(|signal| *signal > 0)
}
