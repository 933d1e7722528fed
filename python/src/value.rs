//! Trees of values: nested tuples of Python, each with its node's name first, and the store's nodes.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use store::{Array, Buffer, Node, Order};

use crate::dtype::{from_numpy, to_numpy};

type Pairs<'py> = Vec<(Bound<'py, PyTuple>, Bound<'py, PyTuple>)>;

/// The store's node of a tree.
pub(crate) fn from_tree(tree: &Bound<'_, PyTuple>) -> PyResult<Node> {
    let kind: String = tree.get_item(0)?.extract()?;
    let at = |place: usize| tree.get_item(place);
    let node = |place: usize| from_tree(&at(place)?.cast_into::<PyTuple>()?).map(Box::new);
    let buffer = |place: usize| Ok::<_, PyErr>(Buffer(at(place)?.extract()?));
    Ok(match kind.as_str() {
        "nothing" => Node::Nothing,
        "bool" => Node::Bool(at(1)?.extract()?),
        "int" => Node::Int(at(1)?.extract()?),
        "large_int" => Node::LargeInt { is_negative: at(1)?.extract()?, magnitude: at(2)?.extract()? },
        "float" => Node::Float(at(1)?.extract()?),
        "complex" => Node::Complex(at(1)?.extract()?, at(2)?.extract()?),
        "text" => Node::Text(at(1)?.extract()?),
        "bytes" => Node::Bytes(at(1)?.extract()?),
        "long" => Node::Long { is_text: at(1)?.extract()?, buffer: buffer(2)? },
        "array" => Node::Array(Array {
            dtype: from_numpy(&at(1)?)?,
            shape: at(2)?.extract()?,
            order: if at(3)?.extract::<char>()? == 'F' { Order::ColumnMajor } else { Order::RowMajor },
            buffer: buffer(4)?,
        }),
        "nullable" => Node::Nullable { items: node(1)?, validity: buffer(2)? },
        "strings" => Node::Strings {
            len: at(1)?.extract()?,
            offsets: buffer(2)?,
            data: buffer(3)?,
            validity: at(4)?.extract::<Option<u32>>()?.map(Buffer),
            is_text: at(5)?.extract()?,
        },
        "dictionary" => {
            let (indices, first, values) = (node(1)?, at(2)?.extract()?, node(3)?);
            Node::Dictionary { indices, first, values, is_ordered: at(4)?.extract()? }
        }
        "list" => Node::List(all(&at(1)?)?),
        "tuple" => Node::Tuple(all(&at(1)?)?),
        "mapping" => Node::Mapping(pairs(&at(1)?)?),
        "table" => Node::Table { rows: at(1)?.extract()?, columns: pairs(&at(2)?)? },
        "attributed" => {
            let attributes: Vec<(String, Bound<'_, PyTuple>)> = at(3)?.extract()?;
            let attributes = attributes.into_iter().map(|(name, tree)| Ok((name, from_tree(&tree)?)));
            let attributes = attributes.collect::<PyResult<_>>()?;
            Node::Attributed { value: node(1)?, owner: at(2)?.extract()?, attributes }
        }
        "foreign" => {
            let buffers: Vec<u32> = at(3)?.extract()?;
            let buffers = buffers.into_iter().map(Buffer).collect();
            Node::Foreign { codec: at(1)?.extract()?, stream: buffer(2)?, buffers }
        }
        other => return Err(PyValueError::new_err(format!("there is no node {other:?}"))),
    })
}

fn all(items: &Bound<'_, PyAny>) -> PyResult<Vec<Node>> {
    items.extract::<Vec<Bound<'_, PyTuple>>>()?.iter().map(from_tree).collect()
}

fn pairs(items: &Bound<'_, PyAny>) -> PyResult<Vec<(Node, Node)>> {
    let items: Pairs<'_> = items.extract()?;
    items.iter().map(|(key, value)| Ok((from_tree(key)?, from_tree(value)?))).collect()
}

/// The tree of a node.
pub(crate) fn to_tree<'py>(py: Python<'py>, node: &Node) -> PyResult<Bound<'py, PyTuple>> {
    match node {
        Node::Nothing => ("nothing",).into_pyobject(py),
        Node::Bool(value) => ("bool", *value).into_pyobject(py),
        Node::Int(value) => ("int", *value).into_pyobject(py),
        Node::LargeInt { is_negative, magnitude } => {
            ("large_int", *is_negative, PyBytes::new(py, magnitude)).into_pyobject(py)
        }
        Node::Float(value) => ("float", *value).into_pyobject(py),
        Node::Complex(real, imaginary) => ("complex", *real, *imaginary).into_pyobject(py),
        Node::Text(text) => ("text", text).into_pyobject(py),
        Node::Bytes(bytes) => ("bytes", PyBytes::new(py, bytes)).into_pyobject(py),
        Node::Long { is_text, buffer } => ("long", *is_text, buffer.0).into_pyobject(py),
        Node::Array(Array { dtype, shape, order, buffer }) => {
            let order = if *order == Order::ColumnMajor { 'F' } else { 'C' };
            ("array", to_numpy(py, dtype)?, PyTuple::new(py, shape)?, order, buffer.0).into_pyobject(py)
        }
        Node::Nullable { items, validity } => ("nullable", to_tree(py, items)?, validity.0).into_pyobject(py),
        Node::Strings { len, offsets, data, validity, is_text } => {
            ("strings", *len, offsets.0, data.0, validity.map(|buffer| buffer.0), *is_text).into_pyobject(py)
        }
        Node::Dictionary { indices, first, values, is_ordered } => {
            ("dictionary", to_tree(py, indices)?, *first, to_tree(py, values)?, *is_ordered).into_pyobject(py)
        }
        Node::List(items) => ("list", list(py, items)?).into_pyobject(py),
        Node::Tuple(items) => ("tuple", list(py, items)?).into_pyobject(py),
        Node::Mapping(pairs) => ("mapping", list_of_pairs(py, pairs)?).into_pyobject(py),
        Node::Table { rows, columns } => ("table", *rows, list_of_pairs(py, columns)?).into_pyobject(py),
        Node::Attributed { value, owner, attributes } => {
            let attributes = attributes.iter().map(|(name, node)| Ok((name, to_tree(py, node)?)));
            let attributes = PyList::new(py, attributes.collect::<PyResult<Vec<_>>>()?)?;
            ("attributed", to_tree(py, value)?, owner, attributes).into_pyobject(py)
        }
        Node::Foreign { codec, stream, buffers } => {
            let buffers = PyList::new(py, buffers.iter().map(|buffer| buffer.0))?;
            ("foreign", codec, stream.0, buffers).into_pyobject(py)
        }
    }
}

fn list<'py>(py: Python<'py>, items: &[Node]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, items.iter().map(|item| to_tree(py, item)).collect::<PyResult<Vec<_>>>()?)
}

fn list_of_pairs<'py>(py: Python<'py>, pairs: &[(Node, Node)]) -> PyResult<Bound<'py, PyList>> {
    let pairs = pairs.iter().map(|(key, value)| Ok((to_tree(py, key)?, to_tree(py, value)?)));
    PyList::new(py, pairs.collect::<PyResult<Vec<_>>>()?)
}
