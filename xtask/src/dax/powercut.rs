//! Power cuts: the guest says what it has acknowledged, QEMU is killed, and the next boot says what is left.
//!
//! One store goes through a chain of cuts, each at a random moment after at least one acknowledgement; beside it each
//! boot writes a negative control of its own. What must hold at every boot:
//! 1. The store opens, and every name has the content of the step that the store says it has; the guest compares.
//! 2. That step is the last acknowledged one, or the one after it, which was under way.
//! 3. The control of the boot before has lost acknowledged records. If it has not, the cut proves nothing and fails.
//!
//! A cut of QEMU loses no line of a CPU cache: whether a flush or a fence is missing, the crash simulator finds out.

use std::fmt;
use std::time::{Duration, Instant};

use super::kernel::Flavour;
use super::machine::{Device, Machine, Running};
use super::site::Site;

/// The least that QEMU takes: several NVDIMMs have to be aligned to 128 MiB.
const SIZE_MIB: u64 = 128;
const FILES: [(&str, &str); 2] = [("cut-first.img", "first"), ("cut-second.img", "second")];
/// Acknowledgements before a cut, at most, and the time from the last of them to the cut.
const MOST_ACKS: u64 = 500;
const MOST_DELAY: Duration = Duration::from_millis(30);

/// A chain of cuts of one store.
pub(super) struct Chain<'a> {
    site: &'a Site<'a>,
    random: Random,
    boots: u64,
    judge: Judge,
    /// From power-on to the first acknowledgement.
    slowest_boot: Duration,
}

/// What one cut has shown.
#[derive(Debug, PartialEq)]
pub(super) struct Cut {
    /// Acknowledgements of the boot that was cut.
    pub(super) acknowledged: u64,
    /// Whether the step that was under way is there as well.
    pub(super) one_more: bool,
    /// Records of the control that were left, of as many as were acknowledged.
    pub(super) control_left: u64,
}

impl Chain<'_> {
    /// Makes new devices. The seed decides about contents and moments.
    pub(super) fn start<'a>(site: &'a Site<'a>, seed: u64) -> Result<Chain<'a>, String> {
        for (file, label) in FILES {
            site.make_fs_dax(file, SIZE_MIB, label)?;
        }
        let judge = Judge { seed, ..Judge::default() };
        Ok(Chain { site, random: Random(seed), boots: 0, judge, slowest_boot: Duration::ZERO })
    }

    /// Boots, hears what is left of the last cut, lets the guest go on, and cuts again.
    pub(super) fn cut(&mut self) -> Result<Option<Cut>, String> {
        let (mut machine, verdict) = self.boot()?;
        for _ in 0..1 + self.random.below(MOST_ACKS) {
            match machine.next_line()? {
                Some(line) => self.judge.hear(&line)?,
                None => return Err("the machine went off by itself".into()),
            };
        }
        // The moment falls anywhere in a step.
        std::thread::sleep(self.random.duration(MOST_DELAY));
        for line in machine.cut()? {
            self.judge.hear(&line)?;
        }
        Ok(verdict)
    }

    /// Boots only to hear what is left.
    pub(super) fn look(&mut self) -> Result<Option<Cut>, String> {
        let (_machine, verdict) = self.boot()?;
        Ok(verdict)
    }

    /// The names of the last machines: the one that was cut, and the one that looked.
    pub(super) fn machines(&self) -> impl Iterator<Item = String> {
        (self.boots.saturating_sub(2)..self.boots).map(machine_name)
    }

    /// Cuts at some moment between power-on and the first acknowledgements, so that opening is interrupted too.
    pub(super) fn cut_early(&mut self) -> Result<Option<Cut>, String> {
        let mut machine = self.power_on()?;
        let mut lines = machine.run_for(self.random.duration(self.slowest_boot * 5 / 4));
        lines.extend(machine.cut()?);
        let mut verdict = None;
        for line in lines {
            verdict = self.judge.hear(&line)?.or(verdict);
        }
        Ok(verdict)
    }

    fn boot(&mut self) -> Result<(Running, Option<Cut>), String> {
        let start = Instant::now();
        let mut machine = self.power_on()?;
        let Some(line) = machine.next_line()? else { return Err("the machine went off before it had opened".into()) };
        self.slowest_boot = self.slowest_boot.max(start.elapsed());
        let verdict = self.judge.hear(&line)?;
        Ok((machine, verdict))
    }

    fn power_on(&mut self) -> Result<Running, String> {
        let mut settings = vec![
            ("scene", "powercut".to_owned()),
            ("seed", self.judge.seed.to_string()),
            ("boot", self.boots.to_string()),
        ];
        settings.extend(self.judge.control.map(|(boot, _)| ("control", boot.to_string())));
        self.judge.boot = self.boots;
        self.boots += 1;
        let devices = FILES.map(|(file, _)| Device::Nvdimm(file, SIZE_MIB));
        let name = machine_name(self.judge.boot);
        let persistence = Some("mem-ctrl");
        let (folder, kernel) = (self.site.folder(), Flavour::Cloud);
        Machine { folder, kernel, name: &name, devices: &devices, persistence, settings: &settings }.start()
    }
}

fn machine_name(boot: u64) -> String {
    format!("cut-{boot}")
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.one_more { ", and the step under way" } else { "" };
        let Cut { acknowledged, control_left, .. } = self;
        write!(f, "{acknowledged} acknowledged and all there{more}; the control has {control_left} of as many")
    }
}

/// Compares what was acknowledged with what is found.
#[derive(Debug, Default)]
struct Judge {
    seed: u64,
    boot: u64,
    /// The step that the store must have.
    steps: u64,
    /// Acknowledgements that no boot has confirmed yet.
    acknowledged: u64,
    /// The boot whose control is to be looked at, and its acknowledged records.
    control: Option<(u64, u64)>,
}

impl Judge {
    /// Takes in a line of the report; gives a verdict when there was a cut to be judged.
    fn hear(&mut self, line: &str) -> Result<Option<Cut>, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse().map_err(|_| format!("the guest says {line:?}"));
        match words.as_slice() {
            ["found", steps, left] => self.compare(number(steps)?, number(left)?),
            ["ack", steps, records] => {
                self.steps = number(steps)?;
                self.acknowledged += 1;
                self.control = Some((self.boot, number(records)?));
                Ok(None)
            }
            _ => Err(format!("the guest says: {line}")),
        }
    }

    fn compare(&mut self, found: u64, control_left: u64) -> Result<Option<Cut>, String> {
        if found < self.steps {
            return Err(format!("step {} was acknowledged, and the store has only {found}", self.steps));
        }
        if found > self.steps + 1 {
            return Err(format!("step {found} is there, and {} was the last acknowledged one", self.steps));
        }
        let one_more = found > self.steps;
        self.steps = found;
        let acknowledged = std::mem::take(&mut self.acknowledged);
        match self.control.take() {
            Some((_, records)) if control_left >= records => {
                Err(format!("the negative control has all of its {records} records: the cut has lost nothing"))
            }
            Some(_) => Ok(Some(Cut { acknowledged, one_more, control_left })),
            None => Ok(None),
        }
    }
}

/// SplitMix64: small, and the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn duration(&mut self, limit: Duration) -> Duration {
        Duration::from_micros(self.below(limit.as_micros() as u64 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A judge that has heard three acknowledgements.
    fn judge() -> Judge {
        let mut judge = Judge::default();
        for line in ["found 0 0", "ack 1 1", "ack 2 2", "ack 3 3"] {
            assert_eq!(judge.hear(line), Ok(None));
        }
        judge
    }

    #[test]
    fn what_was_acknowledged_must_be_there_and_one_step_more_may_be() {
        for (found, one_more) in [("found 3 0", false), ("found 4 2", true)] {
            let verdict = judge().hear(found).unwrap().unwrap();
            assert_eq!((verdict.acknowledged, verdict.one_more), (3, one_more));
        }
        assert!(judge().hear("found 2 0").unwrap_err().contains("only 2"));
        assert!(judge().hear("found 5 0").unwrap_err().contains("step 5"));
    }

    #[test]
    fn a_control_that_loses_nothing_fails_the_cut() {
        assert!(judge().hear("found 3 3").unwrap_err().contains("negative control"));
    }

    #[test]
    fn a_cut_without_acknowledgements_is_judged_with_the_next_one() {
        let mut judge = judge();
        judge.hear("found 4 0").unwrap().unwrap();
        assert_eq!(judge.hear("found 4 0"), Ok(None), "there was nothing new to lose");
        assert!(judge.hear("found 3 0").is_err(), "what was found once stays");
    }

    #[test]
    fn anything_else_that_the_guest_says_is_a_failure() {
        assert!(judge().hear("fail power cut: name 03 of step 2 is torn").unwrap_err().contains("torn"));
        assert!(judge().hear("ack x 1").is_err());
    }
}
