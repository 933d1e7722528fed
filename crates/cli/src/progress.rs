//! Bars and spinners on standard error, if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pmem::Prefault;

/// Quick enough to look alive, slow enough to cost nothing.
const TICK: Duration = Duration::from_millis(100);

/// Whether work shows how far it is.
#[derive(Clone, Copy)]
pub(crate) enum Progress {
    Hidden,
    OnTerminal,
}

impl Progress {
    /// For work that has no measure, such as one call to the system.
    pub(crate) fn spinner(self, what: String) -> ProgressBar {
        let bar = self.bar(None, "{spinner} {msg} {elapsed}", what);
        bar.enable_steady_tick(TICK);
        bar
    }

    /// For work that is counted in bytes.
    pub(crate) fn bytes(self, what: String, total_bytes: u64) -> ProgressBar {
        let template = "{msg} [{wide_bar}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
        self.bar(Some(total_bytes), template, what)
    }

    /// For work of which the part that is done is known, in thousandths.
    pub(crate) fn share(self, what: String) -> ProgressBar {
        self.bar(Some(1000), "[{bar:24}] {wide_msg}", what)
    }

    /// Waits for a pre-fault and shows how far it is.
    pub(crate) fn follow(self, what: String, prefault: Prefault) -> pmem::Result<()> {
        let bar = self.bytes(what, prefault.progress().total_bytes);
        if !bar.is_hidden() {
            while !prefault.is_finished() {
                bar.set_position(prefault.progress().done_bytes);
                std::thread::sleep(TICK);
            }
        }
        let result = prefault.join();
        bar.finish_and_clear();
        result
    }

    fn bar(self, total_bytes: Option<u64>, template: &str, what: String) -> ProgressBar {
        let target = match self {
            Progress::Hidden => ProgressDrawTarget::hidden(),
            // It draws nothing where standard error is no terminal.
            Progress::OnTerminal => ProgressDrawTarget::stderr(),
        };
        let style = ProgressStyle::with_template(template).expect("the templates above are valid");
        ProgressBar::with_draw_target(total_bytes, target).with_style(style.progress_chars("=> ")).with_message(what)
    }
}
