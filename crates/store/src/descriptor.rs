//! What the catalogue says of an object: its kind, type and shape.

use crate::dtype::{DType, payload_bytes};
use crate::error::{Error, Result};

/// What an object is. The number stands in the catalogue and never changes its meaning; numbers that this version does
/// not know are listed and can be removed, but not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum ObjectKind {
    /// Items of one type in a grid.
    Array = 1,
    /// Bytes without a meaning.
    Bytes = 2,
    /// UTF-8.
    Text = 3,
    /// A tree of parts: a sequence, a mapping, a table, strings; see [`crate::Node`].
    Value = 4,
}

impl ObjectKind {
    /// The kind with this number.
    pub fn from_number(number: u32) -> Option<ObjectKind> {
        [ObjectKind::Array, ObjectKind::Bytes, ObjectKind::Text, ObjectKind::Value]
            .into_iter()
            .find(|kind| *kind as u32 == number)
    }
}

impl std::fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ObjectKind::Array => "an array",
            ObjectKind::Bytes => "bytes",
            ObjectKind::Text => "a text",
            ObjectKind::Value => "a value of several parts",
        })
    }
}

/// Which index of an array varies fastest. Strides are never stored: the items lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The last one (C).
    RowMajor,
    /// The first one (Fortran, R).
    ColumnMajor,
}

/// A checksum over an object's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// None was asked for.
    None,
    /// CRC-32C (Castagnoli, RFC 3720 appendix B.4).
    Crc32c(u32),
}

/// Marks of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub(crate) u32);

impl Flags {
    /// The object is changed in place: between two persists its bytes may be old and new ones mixed.
    pub const IN_PLACE: Flags = Flags(1);
    /// Bytes of it wait in its last extent to be copied to where they belong.
    pub(crate) const REDO: Flags = Flags(2);
    /// The object was changed in place by a writer that ended before it was done: its bytes may be old and new ones mixed.
    pub const INTERRUPTED: Flags = Flags(4);
    pub(crate) const KNOWN: Flags = Flags(7);

    /// Whether all of `flags` are set.
    pub fn contains(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    pub(crate) fn with(self, flags: Flags) -> Flags {
        Flags(self.0 | flags.0)
    }

    pub(crate) fn without(self, flags: Flags) -> Flags {
        Flags(self.0 & !flags.0)
    }
}

/// A checked description of an object.
///
/// # Invariants
/// 1. `payload_bytes` is the product of the shape and the item size, and can be addressed.
/// 2. There are at most [`Descriptor::MAX_DIMENSIONS`] dimensions.
/// 3. Bytes and texts have one dimension of single bytes; so have values: the bytes of all their buffers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Descriptor {
    pub(crate) kind: ObjectKind,
    pub(crate) flags: Flags,
    dtype: DType,
    shape: Vec<u64>,
    order: Order,
    payload_bytes: u64,
    pub(crate) checksum: Checksum,
}

impl Descriptor {
    /// As many as NumPy allows.
    pub const MAX_DIMENSIONS: usize = 64;

    /// Describes an array.
    ///
    /// # Errors
    /// `ShapeOverflow`; `UnknownType` with more than 64 dimensions.
    pub fn array(dtype: DType, shape: &[u64], order: Order) -> Result<Descriptor> {
        if shape.len() > Descriptor::MAX_DIMENSIONS {
            let what = format!("an array with {} dimensions", shape.len());
            return Err(Error::unknown_type(what, "64 dimensions are the most"));
        }
        let Some(payload_bytes) = payload_bytes(shape, dtype.item_bytes()) else {
            return Err(Error::ShapeOverflow { shape: shape.to_vec(), item_bytes: dtype.item_bytes() });
        };
        Ok(Descriptor {
            kind: ObjectKind::Array,
            flags: Flags::default(),
            dtype,
            shape: shape.to_vec(),
            order,
            payload_bytes,
            checksum: Checksum::None,
        })
    }

    /// Describes bytes, a text or a value.
    pub(crate) fn plain(kind: ObjectKind, len_bytes: u64) -> Descriptor {
        Descriptor {
            kind,
            flags: Flags::default(),
            dtype: DType::U8,
            shape: vec![len_bytes],
            order: Order::RowMajor,
            payload_bytes: len_bytes,
            checksum: Checksum::None,
        }
    }

    /// What the object is.
    pub fn kind(&self) -> ObjectKind {
        self.kind
    }

    /// Its marks.
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// The type of its items.
    pub fn dtype(&self) -> &DType {
        &self.dtype
    }

    /// Its dimensions; none for a single item.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Which index varies fastest.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Bytes of its payload.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// The checksum of its payload.
    pub fn checksum(&self) -> Checksum {
        self.checksum
    }
}
