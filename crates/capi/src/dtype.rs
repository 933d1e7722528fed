//! The type of an array's items as a C structure, and back.

use std::ffi::{CString, c_char};

use store::{ByteOrder, DType, Field, FloatFormat, TimeStep, TimeUnit, TypeClass};

use crate::arguments::{handle, items, text};
use crate::error::{Result, c_text, mistake};

/// What an item is: remanent_dtype.type_class.
#[repr(u32)]
#[derive(Clone, Copy)]
#[allow(missing_docs, dead_code, non_camel_case_types)] // the numbers of the format, for C
pub enum Class {
    REMANENT_CLASS_BOOL = 1,
    REMANENT_CLASS_INT = 2,
    REMANENT_CLASS_UINT = 3,
    REMANENT_CLASS_FLOAT = 4,
    /// Two floating-point numbers, real part first.
    REMANENT_CLASS_COMPLEX = 5,
    /// A string of bytes, padded with zeros.
    REMANENT_CLASS_BYTES = 6,
    /// A string of 4-byte code points, padded with zeros.
    REMANENT_CLASS_UNICODE = 7,
    /// Bytes without a meaning.
    REMANENT_CLASS_VOID = 8,
    /// Steps since 1970-01-01 UTC in 8 bytes; the least number is "not a time".
    REMANENT_CLASS_DATETIME = 9,
    /// A number of steps in 8 bytes; the least number is "not a time".
    REMANENT_CLASS_TIMEDELTA = 10,
    /// Named fields.
    REMANENT_CLASS_STRUCT = 11,
    /// A small array within a structure, in C order; its items' type is the only field.
    REMANENT_CLASS_SUB_ARRAY = 12,
}

/// Order of the bytes within a number: remanent_dtype.byte_order.
#[repr(u32)]
#[derive(Clone, Copy)]
#[allow(missing_docs, dead_code, non_camel_case_types)]
pub enum Order {
    /// It has none; where a number has one this means little-endian to functions that write.
    REMANENT_ORDER_NONE = 0,
    REMANENT_ORDER_LITTLE = 1,
    REMANENT_ORDER_BIG = 2,
}

/// Units of time: remanent_dtype.variant of times.
#[repr(u32)]
#[derive(Clone, Copy)]
#[allow(missing_docs, dead_code, non_camel_case_types)]
pub enum Unit {
    REMANENT_UNIT_GENERIC = 0,
    REMANENT_UNIT_YEAR = 1,
    REMANENT_UNIT_MONTH = 2,
    REMANENT_UNIT_WEEK = 3,
    REMANENT_UNIT_DAY = 4,
    REMANENT_UNIT_HOUR = 5,
    REMANENT_UNIT_MINUTE = 6,
    REMANENT_UNIT_SECOND = 7,
    REMANENT_UNIT_MILLISECOND = 8,
    REMANENT_UNIT_MICROSECOND = 9,
    REMANENT_UNIT_NANOSECOND = 10,
    REMANENT_UNIT_PICOSECOND = 11,
    REMANENT_UNIT_FEMTOSECOND = 12,
    REMANENT_UNIT_ATTOSECOND = 13,
}

/// The type of an item. For a plain number the class and the size are enough:
/// `remanent_dtype f8 = {.type_class = REMANENT_CLASS_FLOAT, .item_bytes = 8};`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CDType {
    /// What it is: a remanent_class.
    pub type_class: u32,
    /// Order of its bytes: a remanent_byte_order.
    pub byte_order: u32,
    /// Floating-point and complex numbers: 1 for x87 extended, else 0. Times: a remanent_unit. Structures: 1 when they are
    /// aligned as in C. Else 0.
    pub variant: u32,
    /// Times: units in one step, at least 1. Else 0.
    pub multiple: u32,
    /// Size of one item.
    pub item_bytes: u64,
    /// Structures: the fields. Sub-arrays: one, whose type is that of the items.
    pub fields: *const CField,
    /// How many fields.
    pub field_count: u64,
    /// Sub-arrays: length of each dimension.
    pub shape: *const u64,
    /// Sub-arrays: how many dimensions.
    pub dimensions: u64,
}

/// A field of a structure.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CField {
    /// Its name in UTF-8; unused in a sub-array.
    pub name: *const c_char,
    /// Its first byte, from the start of the structure.
    pub offset_bytes: u64,
    /// Its type.
    pub dtype: *const CDType,
}

/// The store's type of a C structure.
pub(crate) fn from_c(dtype: &CDType) -> Result<DType> {
    from_c_at(dtype, 0)
}

fn from_c_at(dtype: &CDType, depth: usize) -> Result<DType> {
    if depth > DType::MAX_DEPTH {
        return Err(mistake("the type is nested too deep"));
    }
    let format = || match dtype.variant {
        0 => Ok(FloatFormat::Ieee),
        1 => Ok(FloatFormat::X87),
        other => Err(mistake(format!("there is no floating-point format {other}"))),
    };
    let step = || -> Result<TimeStep> {
        let unit = TimeUnit::ALL.get(dtype.variant as usize);
        let unit = unit.ok_or_else(|| mistake(format!("there is no unit of time {}", dtype.variant)))?.0;
        Ok(TimeStep { unit, multiple: dtype.multiple })
    };
    let class = match dtype.type_class {
        1 => TypeClass::Bool,
        2 => TypeClass::Int,
        3 => TypeClass::Uint,
        4 => TypeClass::Float(format()?),
        5 => TypeClass::Complex(format()?),
        6 => TypeClass::Bytes,
        7 => TypeClass::Unicode,
        8 => TypeClass::Void,
        9 => TypeClass::DateTime(step()?),
        10 => TypeClass::TimeDelta(step()?),
        11 => {
            let fields = items(dtype.fields, dtype.field_count as usize, "fields of the type")?;
            let fields = fields.iter().map(|field| field_from_c(field, depth)).collect::<Result<_>>()?;
            TypeClass::Struct { fields, aligned: dtype.variant != 0 }
        }
        12 => {
            let [base] = items(dtype.fields, dtype.field_count as usize, "fields of the type")? else {
                return Err(mistake("a sub-array has one field, the type of its items"));
            };
            let shape = items(dtype.shape, dtype.dimensions as usize, "dimensions of the type")?.to_vec();
            TypeClass::SubArray {
                shape,
                base: Box::new(from_c_at(handle(base.dtype, "type of the sub-array")?, depth + 1)?),
            }
        }
        other => return Err(mistake(format!("there is no class of types {other}"))),
    };
    let has_order = match class {
        TypeClass::Int | TypeClass::Uint => dtype.item_bytes > 1,
        TypeClass::Float(_) | TypeClass::Complex(_) | TypeClass::Unicode => true,
        TypeClass::DateTime(_) | TypeClass::TimeDelta(_) => true,
        _ => false,
    };
    let order = match dtype.byte_order {
        0 if has_order => ByteOrder::Little,
        0 => ByteOrder::None,
        1 => ByteOrder::Little,
        2 => ByteOrder::Big,
        other => return Err(mistake(format!("there is no byte order {other}"))),
    };
    Ok(DType::new(class, order, dtype.item_bytes)?)
}

fn field_from_c(field: &CField, depth: usize) -> Result<Field> {
    Ok(Field {
        name: text(field.name, "name of a field")?.to_owned(),
        offset_bytes: field.offset_bytes,
        dtype: from_c_at(handle(field.dtype, "type of a field")?, depth + 1)?,
    })
}

/// C structures of types, and what they point to. What was given out stays where it is.
#[derive(Default)]
pub(crate) struct DTypes {
    #[allow(clippy::vec_box)] // C has their addresses, and the vector moves what lies in it
    types: Vec<Box<CDType>>,
    fields: Vec<Box<[CField]>>,
    names: Vec<CString>,
    shapes: Vec<Box<[u64]>>,
}

impl DTypes {
    /// The structure of a type, which lives as long as this.
    pub(crate) fn keep(&mut self, dtype: &DType) -> *const CDType {
        let made = Box::new(self.describe(dtype));
        let address: *const CDType = &*made;
        self.types.push(made);
        address
    }

    /// Lengths of dimensions, which live as long as this.
    pub(crate) fn keep_shape(&mut self, shape: &[u64]) -> *const u64 {
        let kept: Box<[u64]> = shape.into();
        let address = kept.as_ptr();
        self.shapes.push(kept);
        address
    }

    fn describe(&mut self, dtype: &DType) -> CDType {
        let format = |format: &FloatFormat| u32::from(*format == FloatFormat::X87);
        let (type_class, variant, multiple) = match dtype.class() {
            TypeClass::Bool => (1, 0, 0),
            TypeClass::Int => (2, 0, 0),
            TypeClass::Uint => (3, 0, 0),
            TypeClass::Float(it) => (4, format(it), 0),
            TypeClass::Complex(it) => (5, format(it), 0),
            TypeClass::Bytes => (6, 0, 0),
            TypeClass::Unicode => (7, 0, 0),
            TypeClass::Void => (8, 0, 0),
            TypeClass::DateTime(step) => (9, step.unit as u32, step.multiple),
            TypeClass::TimeDelta(step) => (10, step.unit as u32, step.multiple),
            TypeClass::Struct { aligned, .. } => (11, u32::from(*aligned), 0),
            TypeClass::SubArray { .. } => (12, 0, 0),
        };
        let byte_order = match dtype.order() {
            ByteOrder::None => 0,
            ByteOrder::Little => 1,
            ByteOrder::Big => 2,
        };
        let fields: Vec<CField> = match dtype.class() {
            TypeClass::Struct { fields, .. } => fields.iter().map(|field| self.field_to_c(field)).collect(),
            TypeClass::SubArray { base, .. } => {
                vec![CField { name: c"".as_ptr(), offset_bytes: 0, dtype: self.keep(base) }]
            }
            _ => Vec::new(),
        };
        let (shape, dimensions) = match dtype.class() {
            TypeClass::SubArray { shape, .. } => (self.keep_shape(shape), shape.len() as u64),
            _ => (std::ptr::null(), 0),
        };
        let (field_count, fields) = (fields.len() as u64, fields.into_boxed_slice());
        let address = if field_count == 0 { std::ptr::null() } else { fields.as_ptr() };
        self.fields.push(fields);
        let item_bytes = dtype.item_bytes();
        CDType {
            type_class,
            byte_order,
            variant,
            multiple,
            item_bytes,
            fields: address,
            field_count,
            shape,
            dimensions,
        }
    }

    fn field_to_c(&mut self, field: &Field) -> CField {
        let name = c_text(field.name.clone());
        let (address, dtype) = (name.as_ptr(), self.keep(&field.dtype));
        self.names.push(name);
        CField { name: address, offset_bytes: field.offset_bytes, dtype }
    }
}
