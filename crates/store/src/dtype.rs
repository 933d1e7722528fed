//! The type of an array's items, in terms that no language owns.

use std::collections::BTreeSet;

use crate::error::{Error, Result};

/// Order of the bytes within one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// It has no order: single bytes, and containers.
    None,
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// How a floating-point number is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatFormat {
    /// IEEE 754 binary16, binary32, binary64 or binary128.
    Ieee,
    /// x87 80-bit extended, padded to 12 or 16 bytes (`long double` on x86).
    X87,
}

/// The unit of times and durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // units of time
pub enum TimeUnit {
    Generic,
    Years,
    Months,
    Weeks,
    Days,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
    Picoseconds,
    Femtoseconds,
    Attoseconds,
}

impl TimeUnit {
    /// Every unit with its symbol (as in NumPy), coarsest first after the generic one. The position is the number in
    /// the format, so the order never changes.
    pub const ALL: [(TimeUnit, &'static str); 14] = [
        (TimeUnit::Generic, "generic"),
        (TimeUnit::Years, "Y"),
        (TimeUnit::Months, "M"),
        (TimeUnit::Weeks, "W"),
        (TimeUnit::Days, "D"),
        (TimeUnit::Hours, "h"),
        (TimeUnit::Minutes, "m"),
        (TimeUnit::Seconds, "s"),
        (TimeUnit::Milliseconds, "ms"),
        (TimeUnit::Microseconds, "us"),
        (TimeUnit::Nanoseconds, "ns"),
        (TimeUnit::Picoseconds, "ps"),
        (TimeUnit::Femtoseconds, "fs"),
        (TimeUnit::Attoseconds, "as"),
    ];

    /// Its symbol.
    pub fn symbol(self) -> &'static str {
        TimeUnit::ALL[self as usize].1
    }

    /// The unit with this symbol.
    pub fn from_symbol(symbol: &str) -> Option<TimeUnit> {
        TimeUnit::ALL.iter().find(|(_, s)| *s == symbol).map(|&(unit, _)| unit)
    }
}

/// The step in which a time counts: so many units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimeStep {
    /// The unit.
    pub unit: TimeUnit,
    /// How many units make one step, at least 1.
    pub multiple: u32,
}

/// A field of a structure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Its name, unique in the structure.
    pub name: String,
    /// Its first byte, from the start of the structure.
    pub offset_bytes: u64,
    /// Its type.
    pub dtype: DType,
}

/// What an item is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TypeClass {
    /// One byte, 0 or 1.
    Bool,
    /// Two's complement of 1, 2, 4 or 8 bytes.
    Int,
    /// Unsigned, of 1, 2, 4 or 8 bytes.
    Uint,
    /// A floating-point number.
    Float(FloatFormat),
    /// Two floating-point numbers, real part first.
    Complex(FloatFormat),
    /// A string of bytes, padded with zeros.
    Bytes,
    /// A string of 4-byte code points, padded with zeros.
    Unicode,
    /// Bytes without a meaning.
    Void,
    /// 8 bytes, steps since 1970-01-01; the smallest number is "not a time".
    DateTime(TimeStep),
    /// 8 bytes, a number of steps; the smallest number is "not a time".
    TimeDelta(TimeStep),
    /// Named fields.
    Struct {
        /// In the order in which they were declared.
        fields: Vec<Field>,
        /// Laid out as a C compiler would.
        aligned: bool,
    },
    /// A small array of a fixed shape within a structure, in C order.
    SubArray {
        /// Its dimensions.
        shape: Vec<u64>,
        /// The type of its items.
        base: Box<DType>,
    },
}

/// A checked item type.
///
/// # Invariants
/// 1. The size fits the class, and the byte order is there exactly when the class has one.
/// 2. Fields lie within their structure and have different names.
/// 3. It is nested at most [`DType::MAX_DEPTH`] deep.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DType {
    class: TypeClass,
    order: ByteOrder,
    item_bytes: u64,
}

impl DType {
    /// How deep structures and sub-arrays may be nested.
    pub const MAX_DEPTH: usize = 32;

    /// Single bytes.
    pub const U8: DType = DType { class: TypeClass::Uint, order: ByteOrder::None, item_bytes: 1 };

    /// Checks and makes a type.
    ///
    /// # Errors
    /// `UnknownType` when size, order or nesting do not fit the class.
    pub fn new(class: TypeClass, order: ByteOrder, item_bytes: u64) -> Result<DType> {
        let dtype = DType { class, order, item_bytes };
        match dtype.flaw() {
            None => Ok(dtype),
            Some(reason) => Err(Error::unknown_type(format!("an item type of {item_bytes} bytes"), reason)),
        }
    }

    /// What it is.
    pub fn class(&self) -> &TypeClass {
        &self.class
    }

    /// Byte order of its numbers.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// Bytes of one item.
    pub fn item_bytes(&self) -> u64 {
        self.item_bytes
    }

    fn flaw(&self) -> Option<&'static str> {
        let size = self.item_bytes;
        let fits = match &self.class {
            TypeClass::Bool => size == 1,
            TypeClass::Int | TypeClass::Uint => matches!(size, 1 | 2 | 4 | 8),
            TypeClass::Float(FloatFormat::Ieee) => matches!(size, 2 | 4 | 8 | 16),
            TypeClass::Float(FloatFormat::X87) => matches!(size, 12 | 16),
            TypeClass::Complex(FloatFormat::Ieee) => matches!(size, 4 | 8 | 16 | 32),
            TypeClass::Complex(FloatFormat::X87) => matches!(size, 24 | 32),
            TypeClass::Bytes | TypeClass::Void => true,
            TypeClass::Unicode => size.is_multiple_of(4),
            TypeClass::DateTime(step) | TypeClass::TimeDelta(step) => size == 8 && step.multiple > 0,
            TypeClass::Struct { fields, .. } => return self.flaw_of_fields(fields),
            TypeClass::SubArray { shape, base } => payload_bytes(shape, base.item_bytes) == Some(size),
        };
        if !fits {
            return Some("its size does not fit its class");
        }
        let has_order = match &self.class {
            TypeClass::Int | TypeClass::Uint => size > 1,
            TypeClass::Float(_) | TypeClass::Complex(_) | TypeClass::Unicode => true,
            TypeClass::DateTime(_) | TypeClass::TimeDelta(_) => true,
            _ => false,
        };
        if has_order != (self.order != ByteOrder::None) {
            return Some("its byte order does not fit its class");
        }
        (self.depth() > DType::MAX_DEPTH).then_some("it is nested too deep")
    }

    fn flaw_of_fields(&self, fields: &[Field]) -> Option<&'static str> {
        let mut names = BTreeSet::new();
        for field in fields {
            let end = field.offset_bytes.checked_add(field.dtype.item_bytes);
            if end.is_none_or(|end| end > self.item_bytes) {
                return Some("a field lies outside its structure");
            }
            if field.name.len() > usize::from(u16::MAX) {
                return Some("the name of a field has more than 65535 bytes");
            }
            if !names.insert(field.name.as_str()) {
                return Some("two of its fields have the same name");
            }
        }
        if self.order != ByteOrder::None {
            return Some("its byte order does not fit its class");
        }
        (self.depth() > DType::MAX_DEPTH).then_some("it is nested too deep")
    }

    fn depth(&self) -> usize {
        match &self.class {
            TypeClass::Struct { fields, .. } => 1 + fields.iter().map(|f| f.dtype.depth()).max().unwrap_or(0),
            TypeClass::SubArray { base, .. } => 1 + base.depth(),
            _ => 1,
        }
    }
}

/// Bytes of an array, or none when they are more than can be addressed. A dimension of length 0 makes none.
pub fn payload_bytes(shape: &[u64], item_bytes: u64) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    let bytes = shape.iter().try_fold(item_bytes, |bytes, &len| bytes.checked_mul(len))?;
    (bytes <= i64::MAX as u64).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_orders_that_do_not_fit_are_refused() {
        let refused = [
            (TypeClass::Bool, ByteOrder::None, 2),
            (TypeClass::Int, ByteOrder::Little, 3),
            (TypeClass::Int, ByteOrder::None, 4),
            (TypeClass::Uint, ByteOrder::Little, 1),
            (TypeClass::Float(FloatFormat::X87), ByteOrder::Little, 8),
            (TypeClass::Unicode, ByteOrder::Little, 6),
            (TypeClass::DateTime(TimeStep { unit: TimeUnit::Days, multiple: 0 }), ByteOrder::Little, 8),
            (TypeClass::SubArray { shape: vec![3], base: Box::new(DType::U8) }, ByteOrder::None, 4),
        ];
        for (class, order, size) in refused {
            assert!(DType::new(class.clone(), order, size).is_err(), "{class:?} {order:?} {size}");
        }
    }

    #[test]
    fn fields_stay_inside_and_differ_in_name() {
        let field = |name: &str, offset_bytes| Field { name: name.into(), offset_bytes, dtype: DType::U8 };
        let make = |fields, size| DType::new(TypeClass::Struct { fields, aligned: false }, ByteOrder::None, size);
        make(vec![field("a", 0), field("b", 3)], 4).unwrap();
        assert!(make(vec![field("a", 4)], 4).is_err());
        assert!(make(vec![field("a", u64::MAX)], 4).is_err());
        assert!(make(vec![field("a", 0), field("a", 1)], 4).is_err());
    }

    #[test]
    fn units_stand_at_their_numbers() {
        for (number, (unit, symbol)) in TimeUnit::ALL.into_iter().enumerate() {
            assert_eq!((unit as usize, unit.symbol(), TimeUnit::from_symbol(symbol)), (number, symbol, Some(unit)));
        }
    }

    #[test]
    fn a_shape_with_a_zero_has_no_bytes_and_one_too_large_none_that_fit() {
        assert_eq!(payload_bytes(&[], 8), Some(8));
        assert_eq!(payload_bytes(&[u64::MAX, 0, u64::MAX], 8), Some(0));
        assert_eq!(payload_bytes(&[1 << 32, 1 << 32], 8), None);
        assert_eq!(payload_bytes(&[1 << 60], 8), None);
    }
}
