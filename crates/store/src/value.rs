//! Values made of parts: sequences, mappings, tables, strings, and what a language keeps beside them.
//!
//! A value is a tree. Its leaves that hold many items are arrays in buffers, which are copied and mapped like any other
//! payload; everything else lies in the tree itself. No node belongs to a language, but for [`Node::Foreign`]: what one
//! language knows of a value and others need not is an attribute beside it ([`Node::Attributed`]).

use crate::descriptor::{Descriptor, Order};
use crate::dtype::{DType, payload_bytes};

/// A part of a value.
///
/// # Invariants
/// 1. A tree is at most [`Node::MAX_DEPTH`] nodes deep, so that reading one cannot exhaust a stack, and has at most
///    [`Node::MAX_NODES`], for memory's sake.
/// 2. A buffer belongs to one node.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// Nothing: Python's None, R's NULL.
    Nothing,
    /// A truth value.
    Bool(bool),
    /// A number of 64 bits.
    Int(i64),
    /// A larger one: sign, and magnitude with the lowest byte first.
    LargeInt {
        /// Whether it is below zero.
        is_negative: bool,
        /// Bytes of its magnitude.
        magnitude: Vec<u8>,
    },
    /// A binary64 number.
    Float(f64),
    /// Two of them.
    Complex(f64, f64),
    /// A short text.
    Text(String),
    /// Some bytes.
    Bytes(Vec<u8>),
    /// A long text or many bytes, in a buffer.
    Long {
        /// Whether it is UTF-8.
        is_text: bool,
        /// Where it lies.
        buffer: Buffer,
    },
    /// Items of one type in a grid.
    Array(Array),
    /// Items of which some are missing.
    Nullable {
        /// All of them; a missing one has any value.
        items: Box<Node>,
        /// A bit for each item as they lie, the lowest first, set where it is there.
        validity: Buffer,
    },
    /// Strings of any length, as in Arrow's large layout: string i is `data[offsets[i]..offsets[i + 1]]`.
    Strings {
        /// How many.
        len: u64,
        /// `len + 1` offsets of 64 bits, little-endian.
        offsets: Buffer,
        /// The bytes of all strings.
        data: Buffer,
        /// A bit for each string, the lowest first, set where it is there; none when all are.
        validity: Option<Buffer>,
        /// Whether every string is UTF-8.
        is_text: bool,
    },
    /// Items by their place among few values: a categorical, a factor, strings that repeat.
    Dictionary {
        /// Places; below the first one where an item is missing.
        indices: Box<Node>,
        /// The place of the first value: 1 in R, else 0.
        first: u8,
        /// The values.
        values: Box<Node>,
        /// Whether the values have an order.
        is_ordered: bool,
    },
    /// Values one after the other.
    List(Vec<Node>),
    /// The same, not to be changed.
    Tuple(Vec<Node>),
    /// Pairs of key and value, in their order.
    Mapping(Vec<(Node, Node)>),
    /// Columns of one length.
    Table {
        /// Rows.
        rows: u64,
        /// Names and contents.
        columns: Vec<(Node, Node)>,
    },
    /// A value with what a language keeps beside it.
    Attributed {
        /// The value.
        value: Box<Node>,
        /// Whose attributes they are, for example `r` or `pandas`.
        owner: String,
        /// Names and values.
        attributes: Vec<(String, Node)>,
    },
    /// What only one language can read, by one of its codecs.
    Foreign {
        /// The codec, for example `python.pickle-5`.
        codec: String,
        /// Its main stream.
        stream: Buffer,
        /// What it keeps out of that, in its order.
        buffers: Vec<Buffer>,
    },
}

/// Items of one type in a grid, in a buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// The type of an item.
    pub dtype: DType,
    /// Length of each dimension; none for a single item.
    pub shape: Vec<u64>,
    /// Which index varies fastest.
    pub order: Order,
    /// Where the items lie, side by side.
    pub buffer: Buffer,
}

/// A buffer of a value, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Buffer(pub u32);

/// Where a buffer lies in its object's extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number of the extent.
    pub(crate) extent: u32,
    /// CRC-32C of the buffer, where one was asked for.
    pub(crate) crc: Option<u32>,
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
}

impl Node {
    /// Nodes below one another.
    pub const MAX_DEPTH: usize = 128;
    /// Nodes of one tree. What has more is better kept in arrays and strings.
    pub const MAX_NODES: usize = 1 << 22;

    /// Checks the lengths of all buffers against what the nodes say of them.
    ///
    /// # Errors
    /// What is wrong: a buffer that is missing, used twice, or too short or long for its node; columns of unequal length.
    pub fn check(&self, buffer_bytes: &[u64]) -> Result<(), &'static str> {
        let mut check = Check { buffer_bytes, used: vec![false; buffer_bytes.len()], nodes: 0 };
        check.node(self, 0)?;
        if check.used.iter().all(|used| *used) { Ok(()) } else { Err("a buffer belongs to no node") }
    }

    /// How many items it has where another node counts on it; none for what has no length.
    fn len(&self) -> Option<u64> {
        match self {
            Node::Array(array) => Some(array.shape.first().copied().unwrap_or(1)),
            Node::Nullable { items, .. } => items.len(),
            Node::Strings { len, .. } => Some(*len),
            Node::Dictionary { indices, .. } => indices.len(),
            Node::List(items) | Node::Tuple(items) => Some(items.len() as u64),
            Node::Table { rows, .. } => Some(*rows),
            Node::Attributed { value, .. } => value.len(),
            _ => None,
        }
    }

    /// How many items it has in all its dimensions.
    fn items(&self) -> Option<u64> {
        match self {
            Node::Array(array) => payload_bytes(&array.shape, 1),
            Node::Attributed { value, .. } => value.items(),
            _ => self.len(),
        }
    }

    /// Whether it can be a column. Only its own language knows how many items something foreign has.
    fn fits_rows(&self, rows: u64) -> bool {
        match self {
            Node::Foreign { .. } => true,
            Node::Attributed { value, .. } => value.fits_rows(rows),
            _ => self.len() == Some(rows),
        }
    }
}

/// Lengths of texts and bytes take four bytes.
fn counted(len: usize) -> Result<(), &'static str> {
    if u32::try_from(len).is_ok() { Ok(()) } else { Err("a text or bytes of 4 GiB belong into a buffer") }
}

struct Check<'a> {
    buffer_bytes: &'a [u64],
    used: Vec<bool>,
    nodes: usize,
}

impl Check<'_> {
    fn node(&mut self, node: &Node, depth: usize) -> Result<(), &'static str> {
        if depth == Node::MAX_DEPTH {
            return Err("it is nested too deep");
        }
        self.nodes += 1;
        if self.nodes > Node::MAX_NODES {
            return Err("it has more than 4 million parts");
        }
        let below = |check: &mut Self, node: &Node| check.node(node, depth + 1);
        match node {
            Node::Nothing | Node::Bool(_) | Node::Int(_) | Node::Float(_) | Node::Complex(..) => Ok(()),
            Node::LargeInt { magnitude, .. } => counted(magnitude.len()),
            Node::Text(text) => counted(text.len()),
            Node::Bytes(bytes) => counted(bytes.len()),
            Node::Long { buffer, .. } => self.buffer(*buffer).map(drop),
            Node::Array(Array { shape, .. }) if shape.len() > Descriptor::MAX_DIMENSIONS => {
                Err("an array has more than 64 dimensions")
            }
            Node::Array(Array { dtype, shape, buffer, .. }) => {
                self.buffer_of(*buffer, payload_bytes(shape, dtype.item_bytes()))
            }
            Node::Nullable { items, validity } => {
                let count = items.items().ok_or("missing items of what has no items")?;
                self.buffer_of(*validity, Some(count.div_ceil(8)))?;
                below(self, items)
            }
            Node::Strings { len, offsets, data, validity, .. } => {
                self.buffer_of(*offsets, len.checked_add(1).and_then(|count| count.checked_mul(8)))?;
                self.buffer(*data)?;
                validity.map_or(Ok(()), |validity| self.buffer_of(validity, Some(len.div_ceil(8))))
            }
            Node::Dictionary { indices, first, values, .. } => {
                let is_array = |node: &Node| matches!(node, Node::Array(_));
                if !is_array(indices) || values.len().is_none() || *first > 1 {
                    return Err("a dictionary needs an array of places, from 0 or 1, and values");
                }
                below(self, indices)?;
                below(self, values)
            }
            Node::List(items) | Node::Tuple(items) => items.iter().try_for_each(|item| below(self, item)),
            Node::Mapping(pairs) => {
                pairs.iter().try_for_each(|(key, value)| below(self, key).and_then(|()| below(self, value)))
            }
            Node::Table { rows, columns } => columns.iter().try_for_each(|(name, column)| {
                if !column.fits_rows(*rows) {
                    return Err("a column has not as many items as its table has rows");
                }
                below(self, name)?;
                below(self, column)
            }),
            Node::Attributed { value, attributes, .. } => {
                below(self, value)?;
                attributes.iter().try_for_each(|(_, value)| below(self, value))
            }
            Node::Foreign { stream, buffers, .. } => {
                self.buffer(*stream)?;
                buffers.iter().try_for_each(|buffer| self.buffer(*buffer).map(drop))
            }
        }
    }

    /// Takes a buffer; its length.
    fn buffer(&mut self, buffer: Buffer) -> Result<u64, &'static str> {
        let number = buffer.0 as usize;
        let used = self.used.get_mut(number).ok_or("a buffer is missing")?;
        if std::mem::replace(used, true) {
            return Err("a buffer belongs to two nodes");
        }
        Ok(self.buffer_bytes[number])
    }

    fn buffer_of(&mut self, buffer: Buffer, bytes: Option<u64>) -> Result<(), &'static str> {
        if Some(self.buffer(buffer)?) == bytes { Ok(()) } else { Err("a buffer has another length than its node says") }
    }
}
