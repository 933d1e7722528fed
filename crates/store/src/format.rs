//! Every byte that the store puts into the catalogue; the payloads are the user's own bytes.
#![doc = include_str!("../../../docs/src/formats/store.md")]

mod redo;
mod value;

pub(crate) use redo::{REDO_START_BYTES, decode_redo, decode_redo_start, encode_redo, redo_data_after, redo_data_at};
pub(crate) use value::{
    HeadPlace, decode_head, decode_meta, encode_head, encode_meta, encode_tree, head_bytes, lies_in_extent,
};

use crate::descriptor::{Checksum, Descriptor, Flags, ObjectKind, Order};
use crate::dtype::{ByteOrder, DType, Field, FloatFormat, TimeStep, TimeUnit, TypeClass};

/// The version that this code writes, and the newest that it reads.
pub(crate) const DESCRIPTOR_VERSION: u16 = 1;

/// Where the fields of a descriptor's head lie.
mod at {
    pub(super) const VERSION: usize = 0;
    pub(super) const ORDER: usize = 2;
    pub(super) const DIMENSIONS: usize = 3;
    pub(super) const ALGORITHM: usize = 4;
    pub(super) const PAYLOAD_BYTES: usize = 8;
    pub(super) const CHECKSUM: usize = 16;
    pub(super) const TYPE_BYTES: usize = 24;
    pub(super) const ZERO: usize = 28;
    pub(super) const END: usize = 32;
}

const _: () = {
    assert!(at::ORDER == at::VERSION + 2 && at::DIMENSIONS == at::ORDER + 1 && at::ALGORITHM == at::DIMENSIONS + 1);
    assert!(at::PAYLOAD_BYTES == at::ALGORITHM + 4 && at::CHECKSUM == at::PAYLOAD_BYTES + 8);
    assert!(at::TYPE_BYTES == at::CHECKSUM + 8 && at::ZERO == at::TYPE_BYTES + 4 && at::END == at::ZERO + 4);
    assert!(Descriptor::MAX_DIMENSIONS <= u8::MAX as usize);
};

/// Why a descriptor was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It was written by a version that knows more.
    Unknown(&'static str),
    /// It makes no sense.
    Damaged(&'static str),
}

/// The meta data of an object's region.
pub(crate) fn encode(descriptor: &Descriptor) -> Vec<u8> {
    let mut dtype = Vec::new();
    encode_type(descriptor.dtype(), &mut dtype);
    let (algorithm, checksum) = match descriptor.checksum() {
        Checksum::None => (0u32, 0u64),
        Checksum::Crc32c(crc) => (1, crc.into()),
    };
    let order = match descriptor.order() {
        Order::RowMajor => 0u8,
        Order::ColumnMajor => 1,
    };
    let mut out = Vec::with_capacity(at::END + 8 * descriptor.shape().len() + dtype.len());
    out.extend(DESCRIPTOR_VERSION.to_le_bytes());
    out.extend([order, descriptor.shape().len() as u8]);
    out.extend(algorithm.to_le_bytes());
    out.extend(descriptor.payload_bytes().to_le_bytes());
    out.extend(checksum.to_le_bytes());
    out.extend((dtype.len() as u32).to_le_bytes());
    out.extend(0u32.to_le_bytes());
    debug_assert_eq!(out.len(), at::END);
    descriptor.shape().iter().for_each(|len| out.extend(len.to_le_bytes()));
    out.extend(dtype);
    out
}

/// Reads what [`encode`] wrote, trusting nothing.
pub(crate) fn decode(kind: u32, flags: u32, meta: &[u8]) -> Result<Descriptor, Refused> {
    let kind = ObjectKind::from_number(kind).ok_or(Refused::Unknown("its kind is unknown to this version"))?;
    if flags & !Flags::KNOWN.0 != 0 {
        return Err(Refused::Unknown("it has flags that are unknown to this version"));
    }
    if kind == ObjectKind::Value {
        return value::decode_value(flags, meta);
    }
    let short = Refused::Damaged("it ends too early");
    let mut input = Input(meta);
    if u16::from_le_bytes(input.take().ok_or(short)?) != DESCRIPTOR_VERSION {
        return Err(Refused::Unknown("its description has a version that this one does not know"));
    }
    let [order, dimensions] = input.take().ok_or(short)?;
    let algorithm = u32::from_le_bytes(input.take().ok_or(short)?);
    let payload_bytes = input.u64().ok_or(short)?;
    let checksum = input.u64().ok_or(short)?;
    let type_bytes = input.u32().ok_or(short)?;
    if input.u32().ok_or(short)? != 0 {
        return Err(Refused::Damaged("bytes that must be zero are not"));
    }
    let shape = input.u64s(dimensions.into()).ok_or(short)?;
    if input.0.len() != type_bytes as usize {
        return Err(Refused::Damaged("its length is wrong"));
    }
    let dtype = decode_type(&mut input, 0).ok_or(Refused::Damaged("its type makes no sense"))?;
    if !input.0.is_empty() {
        return Err(Refused::Damaged("bytes follow its type"));
    }
    let order = match order {
        0 => Order::RowMajor,
        1 => Order::ColumnMajor,
        _ => return Err(Refused::Damaged("its order makes no sense")),
    };
    let mut descriptor =
        Descriptor::array(dtype, &shape, order).map_err(|_| Refused::Damaged("its shape makes no sense"))?;
    if descriptor.payload_bytes() != payload_bytes {
        return Err(Refused::Damaged("its length does not fit its shape"));
    }
    if kind != ObjectKind::Array && (shape.len() != 1 || *descriptor.dtype() != DType::U8) {
        return Err(Refused::Damaged("its type does not fit its kind"));
    }
    descriptor.kind = kind;
    descriptor.flags = Flags(flags);
    descriptor.checksum = match (algorithm, u32::try_from(checksum)) {
        (0, Ok(0)) => Checksum::None,
        (1, Ok(crc)) => Checksum::Crc32c(crc),
        (0 | 1, _) => return Err(Refused::Damaged("its checksum makes no sense")),
        _ => return Err(Refused::Unknown("its checksum algorithm is unknown to this version")),
    };
    Ok(descriptor)
}

fn encode_type(dtype: &DType, out: &mut Vec<u8>) {
    let format = |format: &FloatFormat| *format as u16;
    let (class, variant, count): (u8, u16, u32) = match dtype.class() {
        TypeClass::Bool => (1, 0, 0),
        TypeClass::Int => (2, 0, 0),
        TypeClass::Uint => (3, 0, 0),
        TypeClass::Float(f) => (4, format(f), 0),
        TypeClass::Complex(f) => (5, format(f), 0),
        TypeClass::Bytes => (6, 0, 0),
        TypeClass::Unicode => (7, 0, 0),
        TypeClass::Void => (8, 0, 0),
        TypeClass::DateTime(step) => (9, step.unit as u16, step.multiple),
        TypeClass::TimeDelta(step) => (10, step.unit as u16, step.multiple),
        TypeClass::Struct { fields, aligned } => (11, (*aligned).into(), fields.len() as u32),
        TypeClass::SubArray { shape, .. } => (12, 0, shape.len() as u32),
    };
    out.extend([class, dtype.order() as u8]);
    out.extend(variant.to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend(dtype.item_bytes().to_le_bytes());
    match dtype.class() {
        TypeClass::Struct { fields, .. } => {
            for field in fields {
                out.extend(field.offset_bytes.to_le_bytes());
                out.extend((field.name.len() as u16).to_le_bytes());
                out.extend(field.name.as_bytes());
                encode_type(&field.dtype, out);
            }
        }
        TypeClass::SubArray { shape, base } => {
            shape.iter().for_each(|len| out.extend(len.to_le_bytes()));
            encode_type(base, out);
        }
        _ => {}
    }
}

fn decode_type(input: &mut Input<'_>, depth: usize) -> Option<DType> {
    if depth == DType::MAX_DEPTH {
        return None;
    }
    let [class, order] = input.take()?;
    let variant = u16::from_le_bytes(input.take()?);
    let count = input.u32()?;
    let item_bytes = input.u64()?;
    let order = match order {
        0 => ByteOrder::None,
        1 => ByteOrder::Little,
        2 => ByteOrder::Big,
        _ => return None,
    };
    let plain = |class| (variant == 0 && count == 0).then_some(class);
    let float = match variant {
        0 => Some(FloatFormat::Ieee),
        1 => Some(FloatFormat::X87),
        _ => None,
    };
    let step = TimeUnit::ALL.get(usize::from(variant)).map(|&(unit, _)| TimeStep { unit, multiple: count });
    let class = match class {
        1 => plain(TypeClass::Bool)?,
        2 => plain(TypeClass::Int)?,
        3 => plain(TypeClass::Uint)?,
        4 if count == 0 => TypeClass::Float(float?),
        5 if count == 0 => TypeClass::Complex(float?),
        6 => plain(TypeClass::Bytes)?,
        7 => plain(TypeClass::Unicode)?,
        8 => plain(TypeClass::Void)?,
        9 => TypeClass::DateTime(step?),
        10 => TypeClass::TimeDelta(step?),
        11 if variant <= 1 => {
            let fields = (0..count).map(|_| decode_field(input, depth)).collect::<Option<_>>()?;
            TypeClass::Struct { fields, aligned: variant == 1 }
        }
        12 if variant == 0 && count as usize <= Descriptor::MAX_DIMENSIONS => {
            let shape = input.u64s(count as usize)?;
            TypeClass::SubArray { shape, base: Box::new(decode_type(input, depth + 1)?) }
        }
        _ => return None,
    };
    DType::new(class, order, item_bytes).ok()
}

fn decode_field(input: &mut Input<'_>, depth: usize) -> Option<Field> {
    let offset_bytes = input.u64()?;
    let name_bytes = u16::from_le_bytes(input.take()?);
    let name = std::str::from_utf8(input.bytes(name_bytes.into())?).ok()?.to_owned();
    Some(Field { name, offset_bytes, dtype: decode_type(input, depth + 1)? })
}

/// Bytes that are still to be read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn u64s(&mut self, count: usize) -> Option<Vec<u64>> {
        (0..count).map(|_| self.u64()).collect()
    }
}

#[cfg(test)]
mod tests;
