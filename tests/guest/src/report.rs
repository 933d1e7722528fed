//! What the host is told, line by line, over a serial line that nobody else writes to.
//!
//! | line | meaning |
//! | --- | --- |
//! | `plan N` | N results follow |
//! | `pass NAME` | a check, or a test program, passed |
//! | `fail NAME: REASON` | it did not |
//! //! | `found STEPS CONTROL` | after a boot: the last step that the store has, the records that the control has |
//! | `ack STEPS CONTROL` | both were told to be durable up to here |
//! | `end` | the scene is over, nothing is left out |

use std::fs::{File, OpenOptions};
use std::io::Write;

/// The second serial line; the first is the kernel's.
pub(crate) struct Report {
    port: File,
}

impl Report {
    pub(crate) fn open() -> Report {
        let port = OpenOptions::new().write(true).open("/dev/ttyS1").expect("the machine has a second serial line");
        Report { port }
    }

    /// Returns when the host has the line.
    pub(crate) fn line(&mut self, text: &str) {
        let text = text.replace(['\n', '\r'], " | ");
        self.port.write_all(format!("{text}\n").as_bytes()).expect("the host reads the serial line");
        rustix::termios::tcdrain(&self.port).expect("the host reads the serial line");
    }
}
