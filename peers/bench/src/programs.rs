//! Other programs that measure memory.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

fn output_of(command: &mut Command) -> Result<String, Error> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// As such programs write sizes: `16Ki` is `16k`.
fn size_of(text: &str) -> String {
    text.replace("Ki", "k").replace("Mi", "m").replace("Gi", "g")
}

/// fio(1).
pub(crate) struct Fio;

impl Fio {
    pub(crate) fn find() -> Option<Fio> {
        Command::new("fio").arg("--version").output().ok().filter(|output| output.status.success()).map(|_| Fio)
    }

    /// 10^9 bytes a second through a mapping of a file of 512 MiB, one job, for a second after a quarter of one.
    pub(crate) fn gb_s(&self, kind: &str, block: &str) -> Result<f64, Error> {
        let folder = tempfile::tempdir_in("/dev/shm")?;
        let mut fio = Command::new("fio");
        fio.args(["--name=peer", "--ioengine=mmap", "--size=512m", "--numjobs=1", "--time_based", "--runtime=1"]);
        fio.args(["--ramp_time=0.25", "--output-format=terse", "--terse-version=3", "--cpus_allowed=0"]);
        fio.arg(format!("--rw={kind}")).arg(format!("--bs={}", size_of(block)));
        fio.arg(format!("--directory={}", folder.path().display()));
        let text = output_of(&mut fio)?;
        // HOWTO, "Terse output": KiB/s of reads are the 7th field, of writes the 48th.
        let field = if kind == "read" { 6 } else { 47 };
        let kib_s: f64 = text.trim().split(';').nth(field).ok_or("fio printed another form")?.parse()?;
        Ok(kib_s * 1024.0 / 1e9)
    }
}

/// multichase and multiload, built in a folder.
pub(crate) struct Multichase(PathBuf);

impl Multichase {
    pub(crate) fn find(folder: PathBuf) -> Result<Multichase, Error> {
        for name in ["multichase", "multiload"] {
            if !folder.join(name).is_file() {
                return Err(format!("there is no {name} in {}", folder.display()).into());
            }
        }
        Ok(Multichase(folder))
    }

    fn run(&self, name: &str, arguments: &[&str]) -> Result<String, Error> {
        output_of(Command::new(Path::new(&self.0).join(name)).args(arguments))
    }

    /// A dependent load of every line, the average of its samples, with 4 KiB pages and a locality of 256 KiB.
    pub(crate) fn load_ns(&self, size: &str) -> Result<f64, Error> {
        Ok(self.run("multichase", &["-a", "-s", "64", "-n", "4", "-m", &size_of(size)])?.trim().parse()?)
    }

    /// 10^9 bytes a second, the average of its samples.
    pub(crate) fn gb_s(&self, load: &str) -> Result<f64, Error> {
        let text = self.run("multiload", &["-n", "3", "-t", "1", "-m", "512M", "-l", load])?;
        // The heading is LdAvgMibs.
        let average = text.lines().last().and_then(|line| line.split(',').nth(8)).map(str::trim);
        let mib_s: f64 = average.ok_or_else(|| format!("multiload printed another form: {text}"))?.parse()?;
        Ok(mib_s * 1048576.0 / 1e9)
    }
}
