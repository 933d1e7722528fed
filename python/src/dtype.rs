//! NumPy's types in the store's terms and back.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use store::{ByteOrder, DType, Error, Field, FloatFormat, TimeStep, TimeUnit, TypeClass};

use crate::error::raise;

/// `long double` on this machine.
const LONG_DOUBLE: FloatFormat = if cfg!(target_arch = "x86_64") { FloatFormat::X87 } else { FloatFormat::Ieee };

/// `np.dtype.isbuiltin` of a type that another package has registered.
const REGISTERED: i64 = 2;

/// The store's description of a `np.dtype`. What has none is refused by the Python layer, which knows what to do instead
/// (`unkept` in `_numpy.py`); it is an error here too, so that nothing is ever misread.
pub(crate) fn from_numpy(dtype: &Bound<'_, PyAny>) -> PyResult<DType> {
    let py = dtype.py();
    let unknown = |reason| unknown(dtype, reason);
    let kind: char = dtype.getattr("kind")?.extract()?;
    let item_bytes: u64 = dtype.getattr("itemsize")?.extract()?;
    let is_registered = dtype.getattr("isbuiltin")?.extract::<i64>()? == REGISTERED;
    let class = match kind {
        _ if is_registered => return Err(unknown("this version has no form for it")),
        'b' => TypeClass::Bool,
        'i' => TypeClass::Int,
        'u' => TypeClass::Uint,
        'f' => TypeClass::Float(if item_bytes > 8 { LONG_DOUBLE } else { FloatFormat::Ieee }),
        'c' => TypeClass::Complex(if item_bytes > 16 { LONG_DOUBLE } else { FloatFormat::Ieee }),
        'S' => TypeClass::Bytes,
        'U' => TypeClass::Unicode,
        'M' => TypeClass::DateTime(time_step(dtype)?),
        'm' => TypeClass::TimeDelta(time_step(dtype)?),
        'V' => class_of_void(dtype)?,
        _ => return Err(unknown("this version has no form for it")),
    };
    let order = match dtype.getattr("byteorder")?.extract::<char>()? {
        '>' => ByteOrder::Big,
        // What has no order says so itself, except for strings of length zero.
        '|' if kind != 'U' => ByteOrder::None,
        _ => ByteOrder::Little,
    };
    let has_none = matches!(class, TypeClass::Struct { .. } | TypeClass::SubArray { .. } | TypeClass::Void);
    let order = if has_none { ByteOrder::None } else { order };
    DType::new(class, order, item_bytes).map_err(|error| raise(py, &error))
}

fn unknown(dtype: &Bound<'_, PyAny>, reason: &'static str) -> PyErr {
    raise(dtype.py(), &Error::UnknownType { what: format!("the dtype {dtype}"), reason })
}

fn time_step(dtype: &Bound<'_, PyAny>) -> PyResult<TimeStep> {
    let data = dtype.py().import("numpy")?.call_method1("datetime_data", (dtype,))?;
    let (unit, multiple): (String, u32) = data.extract()?;
    let unit = TimeUnit::from_symbol(&unit);
    let unit = unit.ok_or_else(|| unknown(dtype, "its unit of time is unknown to this version"))?;
    Ok(TimeStep { unit, multiple })
}

fn class_of_void(dtype: &Bound<'_, PyAny>) -> PyResult<TypeClass> {
    let sub = dtype.getattr("subdtype")?;
    if !sub.is_none() {
        let (base, shape): (Bound<'_, PyAny>, Vec<u64>) = sub.extract()?;
        return Ok(TypeClass::SubArray { shape, base: Box::new(from_numpy(&base)?) });
    }
    let names = dtype.getattr("names")?;
    if names.is_none() {
        return Ok(TypeClass::Void);
    }
    let table = dtype.getattr("fields")?;
    let mut fields = Vec::new();
    for name in names.try_iter()? {
        let name = name?;
        let entry = table.get_item(&name)?;
        fields.push(Field {
            name: name.extract().map_err(|_| unknown(dtype, "the name of a field has half a character"))?,
            offset_bytes: entry.get_item(1)?.extract()?,
            dtype: from_numpy(&entry.get_item(0)?)?,
        });
    }
    Ok(TypeClass::Struct { fields, aligned: dtype.getattr("isalignedstruct")?.extract()? })
}

/// The `np.dtype` of a description.
pub(crate) fn to_numpy<'py>(py: Python<'py>, dtype: &DType) -> PyResult<Bound<'py, PyAny>> {
    let make = py.import("numpy")?.getattr("dtype")?;
    let order = match dtype.order() {
        ByteOrder::None => '|',
        ByteOrder::Little => '<',
        ByteOrder::Big => '>',
    };
    let size = dtype.item_bytes();
    let is_foreign = |format: &FloatFormat, largest: u64| size > largest && *format != LONG_DOUBLE;
    let text = match dtype.class() {
        TypeClass::Float(format) if is_foreign(format, 8) => return Err(foreign(py)),
        TypeClass::Complex(format) if is_foreign(format, 16) => return Err(foreign(py)),
        TypeClass::Bool => format!("{order}b{size}"),
        TypeClass::Int => format!("{order}i{size}"),
        TypeClass::Uint => format!("{order}u{size}"),
        TypeClass::Float(_) => format!("{order}f{size}"),
        TypeClass::Complex(_) => format!("{order}c{size}"),
        TypeClass::Bytes => format!("|S{size}"),
        TypeClass::Unicode => format!("{order}U{}", size / 4),
        TypeClass::Void => format!("|V{size}"),
        TypeClass::DateTime(step) => format!("{order}M8{}", suffix(step)),
        TypeClass::TimeDelta(step) => format!("{order}m8{}", suffix(step)),
        TypeClass::SubArray { shape, base } => {
            let shape = PyTuple::new(py, shape)?;
            return make.call1(((to_numpy(py, base)?, shape),));
        }
        TypeClass::Struct { fields, aligned } => return structure(py, &make, fields, *aligned, size),
    };
    make.call1((text,))
}

fn foreign(py: Python<'_>) -> PyErr {
    let what = "an array of extended floating-point numbers".to_owned();
    raise(py, &Error::UnknownType { what, reason: "this processor has no such numbers" })
}

fn suffix(step: &TimeStep) -> String {
    match step.unit {
        TimeUnit::Generic => String::new(),
        unit => format!("[{}{}]", step.multiple, unit.symbol()),
    }
}

fn structure<'py>(
    py: Python<'py>,
    make: &Bound<'py, PyAny>,
    fields: &[Field],
    aligned: bool,
    size: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let formats = fields.iter().map(|field| to_numpy(py, &field.dtype)).collect::<PyResult<Vec<_>>>()?;
    let spec = PyDict::new(py);
    spec.set_item("names", fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>())?;
    spec.set_item("formats", formats)?;
    spec.set_item("offsets", fields.iter().map(|field| field.offset_bytes).collect::<Vec<_>>())?;
    spec.set_item("itemsize", size)?;
    let options = PyDict::new(py);
    options.set_item("align", aligned)?;
    make.call((spec,), Some(&options))
}
