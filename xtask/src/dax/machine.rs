//! One run of QEMU: it ends by itself, by its deadline, by a power cut, or with this program.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::kernel::Flavour;

/// How long a machine may take. Emulation on a busy host is slow, and a machine that hangs is rare.
const LIMIT: Duration = Duration::from_secs(240);
const MEMORY: &str = "768M,slots=8,maxmem=8G";
/// A panic ends the machine, and a busy host is no reason for one: the timer is not tried out. The rest saves time.
const KERNEL_COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 no_timer_check tsc=reliable mitigations=off audit=0 \
                                   apparmor=0 cryptomgr.notests";

/// A device of the machine, by the name of its file in the folder and its size.
#[derive(Clone)]
pub(super) enum Device {
    Nvdimm(&'static str, u64),
    VirtioPmem(&'static str, u64),
}

/// A machine that can be started. All its files lie in one folder, so no path ever stands in an option of QEMU.
pub(super) struct Machine<'a> {
    /// Holds `vmlinuz-FLAVOUR`, `initramfs-FLAVOUR` and the devices, and takes the logs.
    pub(super) folder: &'a Path,
    pub(super) kernel: Flavour,
    /// Names the logs.
    pub(super) name: &'a str,
    pub(super) devices: &'a [Device],
    /// QEMU's word for what the platform saves at a power failure; without one it says nothing about it.
    pub(super) persistence: Option<&'a str>,
    /// `remanent.NAME=VALUE` for the guest, beside the number of devices.
    pub(super) settings: &'a [(&'a str, String)],
}

impl Machine<'_> {
    /// Starts the machine. It is killed when the thread that called this ends, however that happens.
    pub(super) fn start(&self) -> Result<Running, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.folder.display());
        let errors = File::create(self.log("qemu")).map_err(failed)?;
        let report = File::create(self.log("report")).map_err(failed)?;
        let mut command = self.command();
        command.current_dir(self.folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().map_err(|error| format!("setpriv does not start: {error}"))?;
        let output = child.stdout.take().expect("the output is a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            read_lines(output, report, |line| sender.send(line).is_ok());
        });
        Ok(Running { child, lines, deadline: Instant::now() + LIMIT })
    }

    fn log(&self, kind: &str) -> PathBuf {
        self.folder.join(format!("{}.{kind}.log", self.name))
    }

    fn command(&self) -> Command {
        let platform = self.persistence.map_or(String::new(), |domain| format!(",nvdimm-persistence={domain}"));
        let settings: String = self.settings.iter().map(|(name, value)| format!(" remanent.{name}={value}")).collect();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none"]);
        // The first line is the kernel's, the second the report's.
        command.args(["-serial", &format!("file:{}.console.log", self.name), "-serial", "stdio"]);
        command.args(["-machine", &format!("pc,nvdimm=on{platform}"), "-accel", "tcg", "-cpu", "max", "-smp", "1"]);
        let flavour = self.kernel.name();
        command.args(["-m", MEMORY, "-kernel", &format!("vmlinuz-{flavour}")]);
        command.args(["-initrd", &format!("initramfs-{flavour}")]);
        let devices = self.devices.len();
        command.args(["-append", &format!("{KERNEL_COMMAND_LINE} remanent.devices={devices}{settings}")]);
        for (index, device) in self.devices.iter().enumerate() {
            let (Device::Nvdimm(file, size_mib) | Device::VirtioPmem(file, size_mib)) = device;
            let memory = format!("id=m{index},share=on,mem-path={file},size={size_mib}M,align=128M");
            command.args(["-object", &format!("memory-backend-file,{memory}")]);
            command.args([
                "-device",
                &match device {
                    Device::Nvdimm(..) => format!("nvdimm,id=d{index},memdev=m{index}"),
                    Device::VirtioPmem(..) => format!("virtio-pmem-pci,id=d{index},memdev=m{index}"),
                },
            ]);
        }
        command
    }
}

/// Hands on the lines that are whole: a power cut may leave the beginning of one.
fn read_lines(output: impl Read, mut log: File, mut take: impl FnMut(String) -> bool) {
    let (mut output, mut line) = (BufReader::new(output), Vec::new());
    while output.read_until(b'\n', &mut line).is_ok() && line.ends_with(b"\n") {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        // A log that cannot be written is no reason to lose the result.
        let _ = writeln!(log, "{text}");
        if !take(text) {
            return;
        }
        line.clear();
    }
}

/// A machine with power.
pub(super) struct Running {
    child: Child,
    lines: Receiver<String>,
    deadline: Instant,
}

impl Running {
    /// The next line of the report; none when the machine is off.
    pub(super) fn next_line(&mut self) -> Result<Option<String>, String> {
        match self.lines.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(format!("the machine did not end within {} s", LIMIT.as_secs())),
        }
    }

    /// Waits until the machine is off, or the time is over, whatever the guest still says.
    pub(super) fn run_for(&mut self, time: Duration) -> Vec<String> {
        let (end, mut lines) = (Instant::now() + time, Vec::new());
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            lines.push(line);
        }
        lines
    }

    /// Takes the power away, and returns the whole lines that were out by then.
    pub(super) fn cut(mut self) -> Result<Vec<String>, String> {
        self.kill()?;
        Ok(self.lines.iter().collect())
    }

    fn kill(&mut self) -> Result<ExitStatus, String> {
        self.child.kill().and_then(|()| self.child.wait()).map_err(|error| format!("QEMU cannot be killed: {error}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A process that is gone cannot be killed, and that is what is wanted.
        let _ = self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_line_is_no_line() {
        let mut lines = Vec::new();
        let log = tempfile::tempfile().unwrap();
        read_lines(&b"ack 1 1\r\nack 12 12\nack 1"[..], log, |line| {
            lines.push(line);
            true
        });
        assert_eq!(lines, ["ack 1 1", "ack 12 12"]);
    }
}
