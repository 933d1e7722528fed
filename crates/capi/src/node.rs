//! The parts of an object in a row, as C reads them.

use std::collections::VecDeque;
use std::ffi::c_char;
use std::ptr;

use store::{Array, Buffer, Node, Order};

use crate::dtype::{CDType, DTypes};

/// What a node is: remanent_node.kind.
#[repr(u32)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub enum NodeKind {
    /// Python's None, R's NULL.
    REMANENT_NODE_NOTHING = 0,
    /// integer is 0 or 1.
    REMANENT_NODE_BOOL = 1,
    /// integer.
    REMANENT_NODE_INT = 2,
    /// text holds the magnitude, the lowest byte first; a flag tells the sign.
    REMANENT_NODE_LARGE_INT = 3,
    /// real.
    REMANENT_NODE_FLOAT = 4,
    /// real and imaginary.
    REMANENT_NODE_COMPLEX = 5,
    /// text, in UTF-8 as it was written; a long one has a buffer too.
    REMANENT_NODE_TEXT = 6,
    /// text holds the bytes; many have a buffer too.
    REMANENT_NODE_BYTES = 7,
    /// dtype, shape, dimensions, length; buffer 0 holds the items.
    REMANENT_NODE_ARRAY = 8,
    /// One child, the items; buffer 0 has a bit for each, set where it is there.
    REMANENT_NODE_NULLABLE = 9,
    /// length strings; buffers 0 offsets (8 bytes each, one more than strings), 1 bytes, 2 (if it is there) bits as above.
    REMANENT_NODE_STRINGS = 10,
    /// Two children, places and values; integer is the place of the first value.
    REMANENT_NODE_DICTIONARY = 11,
    /// Children.
    REMANENT_NODE_LIST = 12,
    /// Children; not to be changed.
    REMANENT_NODE_TUPLE = 13,
    /// Children: key, value, key, value.
    REMANENT_NODE_MAPPING = 14,
    /// length rows; children: name, column, name, column.
    REMANENT_NODE_TABLE = 15,
    /// text is the owner; children: the value, then its attributes, each with a name.
    REMANENT_NODE_ATTRIBUTED = 16,
    /// text is the codec; buffer 0 holds its stream, further ones what it keeps beside.
    REMANENT_NODE_FOREIGN = 17,
}

/// Strings: all of them are UTF-8.
pub const REMANENT_FLAG_UTF8: u32 = 1;
/// Dictionaries: the values have an order.
pub const REMANENT_FLAG_ORDERED: u32 = 2;
/// Large integers: below zero.
pub const REMANENT_FLAG_NEGATIVE: u32 = 4;
/// Arrays: the first index varies fastest.
pub const REMANENT_FLAG_COLUMN_MAJOR: u32 = 8;

/// A part of an object. What it points to lives as long as the view.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CNode {
    /// What it is: a remanent_node_kind.
    pub kind: u32,
    /// REMANENT_FLAG_*.
    pub flags: u32,
    /// Number of the first child; the others follow it.
    pub first_child: u32,
    /// How many children.
    pub child_count: u32,
    /// See remanent_node_kind.
    pub integer: i64,
    /// See remanent_node_kind.
    pub real: f64,
    /// See remanent_node_kind.
    pub imaginary: f64,
    /// Items of an array, strings, rows of a table; else 0.
    pub length: u64,
    /// See remanent_node_kind. A short one ends with a NUL, which is not counted.
    pub text: *const c_char,
    /// Bytes of text.
    pub text_bytes: u64,
    /// Of an attribute: its name, which ends with a NUL; else null.
    pub name: *const c_char,
    /// Bytes of name.
    pub name_bytes: u64,
    /// Of an array: the type of its items.
    pub dtype: *const CDType,
    /// Of an array: length of each dimension.
    pub shape: *const u64,
    /// Of an array: how many dimensions.
    pub dimensions: u64,
    /// Numbers of its buffers.
    pub buffers: *const u32,
    /// How many buffers.
    pub buffer_count: u64,
}

const EMPTY: CNode = CNode {
    kind: 0,
    flags: 0,
    first_child: 0,
    child_count: 0,
    integer: 0,
    real: 0.0,
    imaginary: 0.0,
    length: 0,
    text: ptr::null(),
    text_bytes: 0,
    name: ptr::null(),
    name_bytes: 0,
    dtype: ptr::null(),
    shape: ptr::null(),
    dimensions: 0,
    buffers: ptr::null(),
    buffer_count: 0,
};

/// A tree whose nodes lie in a row, the children of each side by side, and what they point to.
pub(crate) struct Nodes {
    pub(crate) nodes: Vec<CNode>,
    types: DTypes,
    texts: Vec<Box<[u8]>>,
    buffers: Vec<Box<[u32]>>,
}

impl Nodes {
    /// Lays a tree out. `at` tells where a buffer lies.
    pub(crate) fn of(tree: &Node, at: impl Fn(Buffer) -> (*const u8, u64)) -> Nodes {
        let (texts, buffers) = (Vec::new(), Vec::new());
        let mut made = Nodes { nodes: vec![EMPTY], types: DTypes::default(), texts, buffers };
        // Breadth first, which is what puts children side by side.
        let mut waiting = VecDeque::from([(0usize, tree)]);
        while let Some((index, node)) = waiting.pop_front() {
            let children = children(node);
            let first = made.nodes.len();
            let mut c_node = made.node(node, &at);
            (c_node.first_child, c_node.child_count) = (first as u32, children.len() as u32);
            (c_node.name, c_node.name_bytes) = (made.nodes[index].name, made.nodes[index].name_bytes);
            made.nodes[index] = c_node;
            for (name, child) in children {
                let mut empty = EMPTY;
                if let Some(name) = name {
                    (empty.name, empty.name_bytes) = made.keep_text(name.as_bytes());
                }
                waiting.push_back((made.nodes.len(), child));
                made.nodes.push(empty);
            }
        }
        made
    }

    fn keep_text(&mut self, text: &[u8]) -> (*const c_char, u64) {
        let kept: Box<[u8]> = text.iter().copied().chain([0]).collect();
        let address = kept.as_ptr();
        self.texts.push(kept);
        (address.cast(), text.len() as u64)
    }

    fn keep_buffers(&mut self, buffers: impl IntoIterator<Item = Buffer>) -> (*const u32, u64) {
        let kept: Box<[u32]> = buffers.into_iter().map(|buffer| buffer.0).collect();
        let (address, count) = (kept.as_ptr(), kept.len() as u64);
        self.buffers.push(kept);
        (address, count)
    }

    /// Everything of a node but its children and its name.
    fn node(&mut self, node: &Node, at: &impl Fn(Buffer) -> (*const u8, u64)) -> CNode {
        use NodeKind::*;
        let mut made = EMPTY;
        let kind = match node {
            Node::Nothing => REMANENT_NODE_NOTHING,
            Node::Bool(value) => {
                made.integer = i64::from(*value);
                REMANENT_NODE_BOOL
            }
            Node::Int(value) => {
                made.integer = *value;
                REMANENT_NODE_INT
            }
            Node::LargeInt { is_negative, magnitude } => {
                made.flags = if *is_negative { REMANENT_FLAG_NEGATIVE } else { 0 };
                (made.text, made.text_bytes) = self.keep_text(magnitude);
                REMANENT_NODE_LARGE_INT
            }
            Node::Float(value) => {
                made.real = *value;
                REMANENT_NODE_FLOAT
            }
            Node::Complex(real, imaginary) => {
                (made.real, made.imaginary) = (*real, *imaginary);
                REMANENT_NODE_COMPLEX
            }
            Node::Text(text) => {
                (made.text, made.text_bytes) = self.keep_text(text.as_bytes());
                REMANENT_NODE_TEXT
            }
            Node::Bytes(bytes) => {
                (made.text, made.text_bytes) = self.keep_text(bytes);
                REMANENT_NODE_BYTES
            }
            Node::Long { is_text, buffer } => {
                let (address, len_bytes) = at(*buffer);
                (made.text, made.text_bytes) = (address.cast(), len_bytes);
                (made.buffers, made.buffer_count) = self.keep_buffers([*buffer]);
                if *is_text { REMANENT_NODE_TEXT } else { REMANENT_NODE_BYTES }
            }
            Node::Array(array) => {
                self.array(array, &mut made);
                REMANENT_NODE_ARRAY
            }
            Node::Nullable { validity, .. } => {
                (made.buffers, made.buffer_count) = self.keep_buffers([*validity]);
                REMANENT_NODE_NULLABLE
            }
            Node::Strings { len, offsets, data, validity, is_text } => {
                made.length = *len;
                made.flags = if *is_text { REMANENT_FLAG_UTF8 } else { 0 };
                let buffers = [*offsets, *data].into_iter().chain(*validity);
                (made.buffers, made.buffer_count) = self.keep_buffers(buffers);
                REMANENT_NODE_STRINGS
            }
            Node::Dictionary { first, is_ordered, .. } => {
                made.integer = i64::from(*first);
                made.flags = if *is_ordered { REMANENT_FLAG_ORDERED } else { 0 };
                REMANENT_NODE_DICTIONARY
            }
            Node::List(_) => REMANENT_NODE_LIST,
            Node::Tuple(_) => REMANENT_NODE_TUPLE,
            Node::Mapping(_) => REMANENT_NODE_MAPPING,
            Node::Table { rows, .. } => {
                made.length = *rows;
                REMANENT_NODE_TABLE
            }
            Node::Attributed { owner, .. } => {
                (made.text, made.text_bytes) = self.keep_text(owner.as_bytes());
                REMANENT_NODE_ATTRIBUTED
            }
            Node::Foreign { codec, stream, buffers } => {
                (made.text, made.text_bytes) = self.keep_text(codec.as_bytes());
                let all = std::iter::once(*stream).chain(buffers.iter().copied());
                (made.buffers, made.buffer_count) = self.keep_buffers(all);
                REMANENT_NODE_FOREIGN
            }
        };
        made.kind = kind as u32;
        made
    }

    fn array(&mut self, array: &Array, made: &mut CNode) {
        made.flags = if array.order == Order::ColumnMajor { REMANENT_FLAG_COLUMN_MAJOR } else { 0 };
        made.dtype = self.types.keep(&array.dtype);
        made.shape = self.types.keep_shape(&array.shape);
        made.dimensions = array.shape.len() as u64;
        // Zeros first: the others may be too many to multiply, and then there are no items all the same.
        let is_empty = array.shape.contains(&0);
        made.length = if is_empty { 0 } else { array.shape.iter().fold(1, |items, len| items.saturating_mul(*len)) };
        (made.buffers, made.buffer_count) = self.keep_buffers([array.buffer]);
    }
}

type Child<'n> = (Option<&'n str>, &'n Node);

fn children(node: &Node) -> Vec<Child<'_>> {
    let unnamed = |node| (None, node);
    match node {
        Node::Nullable { items, .. } => vec![unnamed(&**items)],
        Node::Dictionary { indices, values, .. } => vec![unnamed(&**indices), unnamed(&**values)],
        Node::List(items) | Node::Tuple(items) => items.iter().map(unnamed).collect(),
        Node::Mapping(pairs) | Node::Table { columns: pairs, .. } => {
            pairs.iter().flat_map(|(key, value)| [unnamed(key), unnamed(value)]).collect()
        }
        Node::Attributed { value, attributes, .. } => {
            let attributes = attributes.iter().map(|(name, node)| (Some(name.as_str()), node));
            std::iter::once(unnamed(&**value)).chain(attributes).collect()
        }
        _ => Vec::new(),
    }
}
