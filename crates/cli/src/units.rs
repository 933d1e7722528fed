//! Sizes and times as people write and read them.

use std::fmt::Write as _;
use std::path::Path;

/// A size from the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// The letters of the powers of 1000 and of 1024, from the first on.
const POWERS: &str = "kmgtp";

impl Size {
    /// Reads `4096`, `512KiB`, `1.5GiB`, `1GB`, `1G`; capitals and a space before the unit do not matter, and a bare
    /// letter means what it does to truncate(1): a power of 1024. The Python package reads the same.
    pub(crate) fn parse(text: &str) -> Result<Size, String> {
        let trimmed = text.trim();
        if trimmed.starts_with('-') {
            return Err("a size cannot be negative".to_owned());
        }
        let is_part = |c: char| c.is_ascii_digit() || c == '.';
        let (number, suffix) = trimmed.split_at(trimmed.len() - trimmed.trim_start_matches(is_part).len());
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        // Of a byte there are no fractions.
        let unit = unit_bytes(suffix).filter(|&unit| unit > 1 || !number.contains('.'));
        let (true, Some(unit)) = (is_number(whole) && is_number(fraction), unit) else {
            return Err("a size is a number, alone or with KiB, MiB, GiB, TiB, PiB, kB, MB, GB, TB, PB, K, M, G, T \
                        or P; only with one of these it may have a fraction, as in 1.5GiB"
                .to_owned());
        };
        let whole_bytes = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(unit));
        let bytes = whole_bytes.and_then(|whole| whole.checked_add(fraction_of(fraction, unit)));
        bytes.map(Size).ok_or_else(|| "no file can be larger than 16 EiB".to_owned())
    }

    /// Rounded up to whole pages of 4 KiB, of which pools are made. Zero stays zero, and is refused by the core.
    pub(crate) fn in_pages(self) -> u64 {
        self.0.checked_next_multiple_of(4096).unwrap_or(u64::MAX)
    }
}

fn unit_bytes(suffix: &str) -> Option<u64> {
    let suffix = suffix.trim_start().to_ascii_lowercase();
    let Some(power) = POWERS.find(suffix.chars().next().unwrap_or('b')) else {
        return matches!(&*suffix, "" | "b").then_some(1);
    };
    let base: u64 = match &suffix[1..] {
        "" | "ib" => 1024,
        "b" => 1000,
        _ => return None,
    };
    Some(base.pow(power as u32 + 1))
}

/// The part behind the point, rounded down to bytes. Digits beyond the 19th are less than a byte of any unit.
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let digits = &digits[..digits.len().min(19)];
    let part: u128 = digits.parse().expect("some digits");
    (part * u128::from(unit) / 10u128.pow(digits.len() as u32)) as u64
}

/// A number of bytes for people: exact if it is a round one, else with one decimal.
pub(crate) fn size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let Some((unit, shift)) = units.into_iter().find(|(_, shift)| bytes >> shift > 0) else {
        return format!("{bytes} B");
    };
    if bytes.trailing_zeros() >= shift {
        return format!("{} {unit}", bytes >> shift);
    }
    format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64)
}

/// A thing counted: `1 file`, `2 files`.
pub(crate) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A path for a JSON string, which must be Unicode.
pub(crate) fn path(path: &Path) -> String {
    path.display().to_string()
}

/// Lines of a name and a value, the values below each other.
#[derive(Default)]
pub(crate) struct Fields {
    rows: Vec<(String, String)>,
}

impl Fields {
    pub(crate) fn add(&mut self, name: impl Into<String>, value: impl Into<String>) -> &mut Fields {
        self.rows.push((name.into(), value.into()));
        self
    }

    pub(crate) fn to_text(&self) -> String {
        let width = self.rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (name, value) in &self.rows {
            let _ = writeln!(text, "{name:width$}  {value}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_every_suffix() {
        for (text, bytes) in [
            ("4096", 4096),
            ("512KiB", 512 << 10),
            ("512 kib", 512 << 10),
            ("1GiB", 1 << 30),
            ("1GB", 1_000_000_000),
            ("1g", 1 << 30),
            ("7b", 7),
            ("1.5GiB", 3 << 29),
            (" 1.5 kib ", 1536),
            ("0.1MB", 100_000),
            ("1.00000000000000000000000000009K", 1024),
            ("2P", 2 << 50),
            ("16777215TiB", 16_777_215 << 40),
            ("0", 0),
        ] {
            assert_eq!(Size::parse(text), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_says_why() {
        for (text, why) in [
            ("-1", "negative"),
            ("-5GiB", "negative"),
            ("", "is a number"),
            ("GiB", "is a number"),
            ("1.5", "is a number"),
            ("1.5B", "is a number"),
            ("1.GiB", "is a number"),
            (".5GiB", "is a number"),
            ("1.5.1GiB", "is a number"),
            ("1,5GiB", "is a number"),
            ("1e9", "is a number"),
            ("1 GiB x", "is a number"),
            ("1Gi", "is a number"),
            ("1\u{e9}", "is a number"),
            ("1k\u{e9}", "is a number"),
            ("0x10", "is a number"),
            ("16384P", "16 EiB"),
            ("16777216TiB", "16 EiB"),
            ("99999999999999999999", "16 EiB"),
        ] {
            assert!(Size::parse(text).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn sizes_are_written_exactly_where_they_are_round() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (4 << 20, "4 MiB"),
            (1_000_000_000, "953.7 MiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn pages_are_rounded_up() {
        assert_eq!([0, 1, 4096, 4097, u64::MAX].map(|bytes| Size(bytes).in_pages()), [0, 4096, 4096, 8192, u64::MAX]);
    }
}
