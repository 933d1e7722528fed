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

#[cfg(test)]
mod tests {
    use super::*;

    fn disposition(signal: libc::c_int) -> usize {
        // SAFETY: zeros are a valid value, which the call only writes to.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut now);
            now.sa_sigaction
        }
    }

    fn set(signal: libc::c_int, disposition: usize) {
        // SAFETY: it is one of those that a program always has.
        unsafe { libc::signal(signal, disposition) };
    }

    /// It has come when this returns: to the thread itself a signal is delivered at once (raise(3)).
    fn noted(signal: libc::c_int) -> Option<u8> {
        SIGNAL.store(0, Ordering::Relaxed);
        // SAFETY: the signal is handled or ignored.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
        super::signal()
    }

    /// One test, because signals are the whole process's.
    #[test]
    fn a_first_signal_is_noted_and_a_second_one_ends_the_process_unless_it_has_to_wait() {
        let all = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
        all.iter().for_each(|signal| set(*signal, libc::SIG_DFL));
        watch(Second::Waits);
        for signal in all {
            assert_eq!([noted(signal), noted(signal)], [Some(signal as u8); 2], "{signal} changes nothing more");
            assert_ne!(disposition(signal), libc::SIG_DFL);
        }
        all.iter().for_each(|signal| set(*signal, libc::SIG_DFL));
        watch(Second::Ends);
        for signal in all {
            assert_ne!(disposition(signal), libc::SIG_DFL);
            assert_eq!(noted(signal), Some(signal as u8));
            assert_eq!(disposition(signal), libc::SIG_DFL, "another {signal} ends the process");
        }
        // Under nohup(1), and in the background of a script.
        all.iter().for_each(|signal| set(*signal, libc::SIG_IGN));
        watch(Second::Ends);
        assert_eq!(noted(libc::SIGHUP), None);
        assert_eq!(noted(libc::SIGINT), Some(libc::SIGINT as u8));
        all.iter().for_each(|signal| set(*signal, libc::SIG_DFL));
    }
}
