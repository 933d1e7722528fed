//! Values of a plan's keys: numbers with units, ranges and words.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::crew;
use crate::machine;

/// What a key of a cell is set to.
#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A count, or bytes.
    Number(u64),
    /// A part of one, or a factor.
    Real(f64),
    /// One of the words that the key knows, or a place.
    Word(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Real(real) => write!(f, "{real}"),
            Value::Word(word) => f.write_str(word),
        }
    }
}

impl From<&str> for Value {
    fn from(word: &str) -> Value {
        Value::Word(word.to_owned())
    }
}

/// Most values that a range may have.
pub const MAX_RANGE: usize = 1000;

const UNITS: [(&str, u64); 4] = [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("Ti", 1 << 40)];

/// The factor of a unit: `Ki`, `KiB` and the bare letter, as in truncate(1), are powers of 1024, `kB` is one of 1000, and `llc` is
/// the last-level cache of this machine ([`machine::last_cache_bytes`]), and `cpus` the CPUs that this process may use.
fn factor(unit: &str) -> Option<u64> {
    let power = |letter: char| "kmgt".find(letter.to_ascii_lowercase()).map(|power| power as u32 + 1);
    let (letter, rest) = match unit {
        "" | "B" => return Some(1),
        "llc" => return Some(machine::last_cache_bytes()),
        "cpus" => return Some(crew::cpus().len() as u64),
        _ => unit.split_at(1),
    };
    match (power(letter.chars().next()?)?, rest) {
        (power, "" | "i" | "iB") => Some(1 << (10 * power)),
        (power, "B") => Some(1000u64.pow(power)),
        _ => None,
    }
}

/// A number such as `64`, `4Ki`, `1.5GiB`, `16MB`, `4llc` or `cpus`, in which digits may be grouped by `_`, or one less another, as
/// in `cpus-1`.
pub fn number(text: &str) -> Result<u64, String> {
    match text.split_once('-') {
        Some((one, less)) if !one.is_empty() => {
            let (one, less) = (a_number(one)?, a_number(less)?);
            one.checked_sub(less).ok_or_else(|| format!("'{text}' is less than nothing"))
        }
        _ => a_number(text),
    }
}

fn a_number(text: &str) -> Result<u64, String> {
    // It is one of them when no digits say how many.
    let text = if text == "cpus" { "1cpus" } else { text };
    let expected = || format!("'{text}' is no number: expected one such as 64, 4Ki, 1.5Gi or 16MB");
    let is_digit = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
    let (digits, unit) = text.split_at(text.find(|c| !is_digit(c)).unwrap_or(text.len()));
    let factor = unit.trim_start().is_ascii().then(|| factor(unit.trim_start())).flatten().ok_or_else(expected)?;
    let digits = digits.replace('_', "");
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(expected());
    }
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| format!("{text} is too large"));
    }
    let real: f64 = digits.parse().map_err(|_| expected())?;
    let bytes = real * factor as f64;
    // Not `1.5`, for a count of one and a half makes no sense, nor 2^64 and more.
    if bytes.fract() != 0.0 || !(0.0..1.8e19).contains(&bytes) {
        return Err(expected());
    }
    Ok(bytes as u64)
}

/// Numbers: one, or a range `64:*2:16Mi` (each twice the one before) or `1:+1:8`, whose end belongs to it if it is met.
pub fn numbers(text: &str) -> Result<Vec<u64>, String> {
    let parts: Vec<&str> = text.split(':').map(str::trim).collect();
    let [first, step, last] = parts[..] else {
        return match parts[..] {
            [one] => Ok(vec![number(one)?]),
            _ => Err(format!("'{text}' is no range: expected one such as 64:*2:16Mi or 1:+1:8")),
        };
    };
    let (first, last) = (number(first)?, number(last)?);
    let next: Box<dyn Fn(u64) -> Option<u64>> = match (step.split_at_checked(1), first) {
        (Some(("*", factor)), 1..) => match number(factor)? {
            factor @ 2.. => Box::new(move |at| at.checked_mul(factor)),
            _ => return Err(format!("'{text}' never ends: the factor is 2 or more")),
        },
        (Some(("*", _)), 0) => return Err(format!("'{text}' never ends: 0 times anything is 0")),
        (Some(("+", step)), _) => match number(step)? {
            step @ 1.. => Box::new(move |at| at.checked_add(step)),
            _ => return Err(format!("'{text}' never ends: the step is 1 or more")),
        },
        _ => return Err(format!("'{step}' is no step: expected one such as *2 or +64")),
    };
    if first > last {
        return Err(format!("'{text}' is empty: {first} is more than {last}"));
    }
    let found: Vec<u64> =
        std::iter::successors(Some(first), |at| next(*at).filter(|at| *at <= last)).take(MAX_RANGE + 1).collect();
    if found.len() > MAX_RANGE { Err(format!("'{text}' has more than {MAX_RANGE} values")) } else { Ok(found) }
}

/// A time such as `90s`, `5m`, `1.5h` or `200ms`, in nanoseconds.
pub fn time_ns(text: &str) -> Result<u64, String> {
    const TIMES: [(&str, f64); 6] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];
    let expected = || format!("'{text}' is no time: expected one such as 200ms, 90s, 5m or 1h");
    let (name, factor) = TIMES
        .iter()
        .find(|(name, _)| {
            text.strip_suffix(name).is_some_and(|digits| digits.ends_with(|c: char| c.is_ascii_digit() || c == ' '))
        })
        .ok_or_else(expected)?;
    let digits: f64 = text[..text.len() - name.len()].trim_end().parse().map_err(|_| expected())?;
    let ns = digits * factor;
    if (0.0..1e18).contains(&ns) { Ok(ns as u64) } else { Err(expected()) }
}

/// A fraction such as `0.5` or `2%`.
pub fn real(text: &str) -> Result<f64, String> {
    let (digits, factor) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits.trim_end(), 0.01));
    match digits.parse::<f64>() {
        Ok(real) if real.is_finite() => Ok(real * factor),
        _ => Err(format!("'{text}' is no number: expected one such as 0.5, 1.2 or 2%")),
    }
}

/// A part of a whole, such as `2%`: neither nothing nor all of it.
pub fn part(text: &str) -> Result<f64, String> {
    match real(text)? {
        part if part > 0.0 && part < 1.0 => Ok(part),
        _ => Err(format!("{text} is not between 0 and 1: expected a part such as 2%")),
    }
}

/// Bytes as people write them: `64`, `4Ki`, `5568`.
pub fn short_bytes(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    unit.map_or_else(|| bytes.to_string(), |(name, factor)| format!("{}{name}", bytes / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_grouped_digits() {
        let expected = [
            ("0", 0),
            ("64", 64),
            ("4Ki", 4096),
            ("4KiB", 4096),
            ("1.5Gi", 3 << 29),
            ("16MB", 16_000_000),
            ("1M", 1 << 20),
        ];
        for (text, number_of_it) in expected.into_iter().chain([("1_000", 1000), ("2 MiB", 2 << 20), ("64B", 64)]) {
            assert_eq!(number(text), Ok(number_of_it), "{text}");
        }
        assert_eq!(number("4llc"), Ok(4 * machine::last_cache_bytes()));
        assert_eq!((number("8-1"), number("8-8")), (Ok(7), Ok(0)));
        assert_eq!(number("1-2"), Err("'1-2' is less than nothing".into()));
        assert!(number("8-2-1").is_err() && number(&"1-".repeat(100_000)).is_err(), "one less another");
        let cpus = crew::cpus().len() as u64;
        assert_eq!((number("cpus"), number("2cpus"), number("cpus-1")), (Ok(cpus), Ok(2 * cpus), Ok(cpus - 1)));
        assert!(number("cpus2").is_err());
        for text in ["", "-1", "4-", "2llcs", "1.5", "Ki", "4Kj", "inf", "nan", "+4", "99999999999Gi", "1:2"] {
            assert!(number(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_end_where_they_say_or_before() {
        assert_eq!(numbers("64:*2:500"), Ok(vec![64, 128, 256]));
        assert_eq!(numbers("1:+3:10"), Ok(vec![1, 4, 7, 10]));
        assert_eq!(numbers("16Mi:*4:1Gi").unwrap().len(), 4);
        assert_eq!(numbers("7"), Ok(vec![7]));
        assert_eq!(numbers("1:*2:18446744073709551615").unwrap().len(), 64, "it ends before it overflows");
        for text in
            ["1:*1:9", "0:*2:9", "1:+0:9", "9:+1:1", "1:2:3", "1:*2", "1:*2:3:4", "1:+1:100000", "1::4", "1:é:4"]
        {
            assert!(numbers(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_and_fractions_have_units() {
        assert_eq!(time_ns("5m"), Ok(300_000_000_000));
        assert_eq!(time_ns("200 ms"), Ok(200_000_000));
        assert_eq!(time_ns("1.5us"), Ok(1500));
        assert_eq!((real("2%"), real("0.99")), (Ok(0.02), Ok(0.99)));
        for text in ["5", "m", "", "-5s", "5 minutes", "1e30h"] {
            assert!(time_ns(text).is_err(), "{text}");
        }
        assert!(real("much").is_err() && real("inf").is_err());
        assert_eq!([64, 4096, 5568, 3 << 29].map(short_bytes), ["64", "4Ki", "5568", "1536Mi"]);
    }
}
