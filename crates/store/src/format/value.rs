//! What the store keeps of a value: the meta data of its region, and the head with the places of its buffers and its tree.

use super::{Input, Refused, decode_type, encode_type};
use crate::descriptor::{Descriptor, Flags, ObjectKind, Order};
use crate::value::{Array, Buffer, Node, Place};

/// The version of values that this code writes, and the newest that it reads.
const VALUE_VERSION: u16 = 1;
/// The version of trees that this code writes, and the newest that it reads.
const TREE_VERSION: u16 = 1;
/// Bytes of the meta data before the head.
const META_BYTES: usize = 24;
/// A head up to this length lies in the meta data, a longer one at the start of an extent: the catalogue is read whole at
/// each open.
const INLINE_BYTES: usize = 16 << 10;
/// Bytes of a buffer's place.
const PLACE_BYTES: usize = 24;

/// Where the head of a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadPlace {
    /// In the meta data, from this byte on.
    Meta(usize),
    /// At the start of the extent with this number.
    Extent(usize),
}

/// What the meta data say of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueMeta {
    pub(crate) head: HeadPlace,
    pub(crate) head_bytes: u64,
    pub(crate) head_crc: u32,
    /// Bytes of all buffers.
    pub(crate) payload_bytes: u64,
}

/// Whether a head of this length lies in an extent.
pub(crate) fn lies_in_extent(head_bytes: usize) -> bool {
    head_bytes > INLINE_BYTES
}

/// How long the head with this tree and so many buffers is.
pub(crate) fn head_bytes(tree: &[u8], buffers: usize) -> usize {
    8 + PLACE_BYTES * buffers + tree.len()
}

/// The head of a value.
pub(crate) fn encode_head(tree: &[u8], places: &[Place]) -> Vec<u8> {
    let mut out = Vec::with_capacity(head_bytes(tree, places.len()));
    out.extend((places.len() as u32).to_le_bytes());
    out.extend(u32::from(places.iter().any(|place| place.crc.is_some())).to_le_bytes());
    for place in places {
        out.extend(place.extent.to_le_bytes());
        out.extend(place.crc.unwrap_or(0).to_le_bytes());
        out.extend(place.offset_bytes.to_le_bytes());
        out.extend(place.len_bytes.to_le_bytes());
    }
    out.extend(tree);
    out
}

/// The meta data of a value's region; the head itself follows, or lies in the extent with this number.
pub(crate) fn encode_meta(head: &[u8], payload_bytes: u64, extent: usize) -> Vec<u8> {
    let is_outside = lies_in_extent(head.len());
    let place = if is_outside { extent as u16 + 1 } else { 0 };
    let mut out = Vec::with_capacity(META_BYTES + if is_outside { 0 } else { head.len() });
    out.extend(VALUE_VERSION.to_le_bytes());
    out.extend(place.to_le_bytes());
    out.extend(crc32c::crc32c(head).to_le_bytes());
    out.extend(payload_bytes.to_le_bytes());
    out.extend((head.len() as u64).to_le_bytes());
    debug_assert_eq!(out.len(), META_BYTES);
    if !is_outside {
        out.extend(head);
    }
    out
}

/// Reads the meta data of a value's region, trusting nothing.
pub(crate) fn decode_meta(meta: &[u8]) -> Result<ValueMeta, Refused> {
    let short = Refused::Damaged("it ends too early");
    let mut input = Input(meta);
    if u16::from_le_bytes(input.take().ok_or(short)?) != VALUE_VERSION {
        return Err(Refused::Unknown("its description has a version that this one does not know"));
    }
    let place = u16::from_le_bytes(input.take().ok_or(short)?);
    let head_crc = input.u32().ok_or(short)?;
    let (payload_bytes, head_bytes) = (input.u64().ok_or(short)?, input.u64().ok_or(short)?);
    let head = match place {
        0 if input.0.len() as u64 == head_bytes => HeadPlace::Meta(META_BYTES),
        1.. if input.0.is_empty() => HeadPlace::Extent(usize::from(place) - 1),
        _ => return Err(Refused::Damaged("its length is wrong")),
    };
    Ok(ValueMeta { head, head_bytes, head_crc, payload_bytes })
}

/// The description of a value, from the meta data alone.
pub(super) fn decode_value(flags: u32, meta: &[u8]) -> Result<Descriptor, Refused> {
    let mut descriptor = Descriptor::plain(ObjectKind::Value, decode_meta(meta)?.payload_bytes);
    descriptor.flags = Flags(flags);
    Ok(descriptor)
}

/// Reads a head: the places of the buffers, and the tree.
pub(crate) fn decode_head(head: &[u8]) -> Result<(Vec<Place>, Node), Refused> {
    let short = Refused::Damaged("its head ends too early");
    let mut input = Input(head);
    let count = input.u32().ok_or(short)?;
    let has_sums = match input.u32().ok_or(short)? {
        0 => false,
        1 => true,
        _ => return Err(Refused::Unknown("its checksum algorithm is unknown to this version")),
    };
    // A count is not believed before the places are there.
    let mut places = Input(input.bytes((count as usize).checked_mul(PLACE_BYTES).ok_or(short)?).ok_or(short)?);
    let mut take = || {
        let (extent, crc) = (places.u32()?, places.u32()?);
        let (offset_bytes, len_bytes) = (places.u64()?, places.u64()?);
        Some(Place { extent, crc: has_sums.then_some(crc), offset_bytes, len_bytes })
    };
    let places = (0..count).map(|_| take()).collect::<Option<Vec<_>>>().ok_or(short)?;
    Ok((places, decode_tree(input.0)?))
}

const NOTHING: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT: u8 = 3;
const LARGE_INT: u8 = 4;
const FLOAT: u8 = 5;
const COMPLEX: u8 = 6;
const TEXT: u8 = 7;
const BYTES: u8 = 8;
const LONG: u8 = 9;
const ARRAY: u8 = 10;
const NULLABLE: u8 = 11;
const STRINGS: u8 = 12;
const DICTIONARY: u8 = 13;
const LIST: u8 = 14;
const TUPLE: u8 = 15;
const MAPPING: u8 = 16;
const TABLE: u8 = 17;
const ATTRIBUTED: u8 = 18;
const FOREIGN: u8 = 19;

/// No buffer.
const NONE: u32 = u32::MAX;

/// The bytes of a tree.
pub(crate) fn encode_tree(node: &Node) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(TREE_VERSION.to_le_bytes());
    put(node, &mut out);
    out
}

/// Reads what [`encode_tree`] wrote, trusting nothing; which buffers there are is for [`Node::check`].
fn decode_tree(bytes: &[u8]) -> Result<Node, Refused> {
    let mut input = Input(bytes);
    let short = Refused::Damaged("its tree ends too early");
    if u16::from_le_bytes(input.take().ok_or(short)?) != TREE_VERSION {
        return Err(Refused::Unknown("its tree has a version that this one does not know"));
    }
    let mut left = Node::MAX_NODES;
    let node = take(&mut input, 0, &mut left)?;
    if input.0.is_empty() { Ok(node) } else { Err(Refused::Damaged("bytes follow its tree")) }
}

fn put(node: &Node, out: &mut Vec<u8>) {
    match node {
        Node::Nothing => out.push(NOTHING),
        Node::Bool(value) => out.push(if *value { TRUE } else { FALSE }),
        Node::Int(value) => {
            out.push(INT);
            out.extend(value.to_le_bytes());
        }
        Node::LargeInt { is_negative, magnitude } => {
            out.extend([LARGE_INT, (*is_negative).into()]);
            put_bytes(magnitude, out);
        }
        Node::Float(value) => {
            out.push(FLOAT);
            out.extend(value.to_le_bytes());
        }
        Node::Complex(real, imaginary) => {
            out.push(COMPLEX);
            out.extend(real.to_le_bytes());
            out.extend(imaginary.to_le_bytes());
        }
        Node::Text(text) => {
            out.push(TEXT);
            put_bytes(text.as_bytes(), out);
        }
        Node::Bytes(bytes) => {
            out.push(BYTES);
            put_bytes(bytes, out);
        }
        Node::Long { is_text, buffer } => {
            out.extend([LONG, (*is_text).into()]);
            out.extend(buffer.0.to_le_bytes());
        }
        Node::Array(Array { dtype, shape, order, buffer }) => {
            let order = match order {
                Order::RowMajor => 0,
                Order::ColumnMajor => 1,
            };
            out.extend([ARRAY, order, shape.len() as u8]);
            shape.iter().for_each(|len| out.extend(len.to_le_bytes()));
            out.extend(buffer.0.to_le_bytes());
            encode_type(dtype, out);
        }
        Node::Nullable { items, validity } => {
            out.push(NULLABLE);
            out.extend(validity.0.to_le_bytes());
            put(items, out);
        }
        Node::Strings { len, offsets, data, validity, is_text } => {
            out.extend([STRINGS, (*is_text).into()]);
            out.extend(len.to_le_bytes());
            let buffers = [offsets.0, data.0, validity.map_or(NONE, |buffer| buffer.0)];
            buffers.iter().for_each(|buffer| out.extend(buffer.to_le_bytes()));
        }
        Node::Dictionary { indices, first, values, is_ordered } => {
            out.extend([DICTIONARY, (*is_ordered).into(), *first]);
            put(indices, out);
            put(values, out);
        }
        Node::List(items) => put_all(LIST, items, out),
        Node::Tuple(items) => put_all(TUPLE, items, out),
        Node::Mapping(pairs) => {
            out.push(MAPPING);
            put_pairs(pairs, out);
        }
        Node::Table { rows, columns } => {
            out.push(TABLE);
            out.extend(rows.to_le_bytes());
            put_pairs(columns, out);
        }
        Node::Attributed { value, owner, attributes } => {
            out.push(ATTRIBUTED);
            put_bytes(owner.as_bytes(), out);
            out.extend((attributes.len() as u32).to_le_bytes());
            for (name, attribute) in attributes {
                put_bytes(name.as_bytes(), out);
                put(attribute, out);
            }
            put(value, out);
        }
        Node::Foreign { codec, stream, buffers } => {
            out.push(FOREIGN);
            put_bytes(codec.as_bytes(), out);
            out.extend(stream.0.to_le_bytes());
            out.extend((buffers.len() as u32).to_le_bytes());
            buffers.iter().for_each(|buffer| out.extend(buffer.0.to_le_bytes()));
        }
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

fn put_all(tag: u8, items: &[Node], out: &mut Vec<u8>) {
    out.push(tag);
    out.extend((items.len() as u32).to_le_bytes());
    items.iter().for_each(|item| put(item, out));
}

fn put_pairs(pairs: &[(Node, Node)], out: &mut Vec<u8>) {
    out.extend((pairs.len() as u32).to_le_bytes());
    for (key, value) in pairs {
        put(key, out);
        put(value, out);
    }
}

/// `left` is how many nodes there may be: some take a byte of their tree, and all take many of memory.
fn take(input: &mut Input<'_>, depth: usize, left: &mut usize) -> Result<Node, Refused> {
    if depth == Node::MAX_DEPTH {
        return Err(Refused::Damaged("its tree is nested too deep"));
    }
    *left = left.checked_sub(1).ok_or(Refused::Damaged("its tree has too many nodes"))?;
    let short = Refused::Damaged("its tree ends too early");
    let depth = depth + 1;
    Ok(match input.take::<1>().ok_or(short)?[0] {
        NOTHING => Node::Nothing,
        FALSE => Node::Bool(false),
        TRUE => Node::Bool(true),
        INT => Node::Int(i64::from_le_bytes(input.take().ok_or(short)?)),
        LARGE_INT => Node::LargeInt { is_negative: input.flag()?, magnitude: input.counted().ok_or(short)?.to_vec() },
        FLOAT => Node::Float(input.f64().ok_or(short)?),
        COMPLEX => Node::Complex(input.f64().ok_or(short)?, input.f64().ok_or(short)?),
        TEXT => Node::Text(input.text()?),
        BYTES => Node::Bytes(input.counted().ok_or(short)?.to_vec()),
        LONG => Node::Long { is_text: input.flag()?, buffer: input.buffer().ok_or(short)? },
        ARRAY => Node::Array(take_array(input)?),
        NULLABLE => {
            let validity = input.buffer().ok_or(short)?;
            Node::Nullable { items: Box::new(take(input, depth, left)?), validity }
        }
        STRINGS => {
            let is_text = input.flag()?;
            let len = input.u64().ok_or(short)?;
            let (offsets, data) = (input.buffer().ok_or(short)?, input.buffer().ok_or(short)?);
            let validity = Some(input.buffer().ok_or(short)?).filter(|buffer| buffer.0 != NONE);
            Node::Strings { len, offsets, data, validity, is_text }
        }
        DICTIONARY => {
            let is_ordered = input.flag()?;
            let [first] = input.take().ok_or(short)?;
            let indices = Box::new(take(input, depth, left)?);
            Node::Dictionary { indices, first, values: Box::new(take(input, depth, left)?), is_ordered }
        }
        LIST => Node::List(take_all(input, depth, left)?),
        TUPLE => Node::Tuple(take_all(input, depth, left)?),
        MAPPING => Node::Mapping(take_pairs(input, depth, left)?),
        TABLE => {
            let rows = input.u64().ok_or(short)?;
            Node::Table { rows, columns: take_pairs(input, depth, left)? }
        }
        ATTRIBUTED => {
            let owner = input.text()?;
            let count = input.u32().ok_or(short)?;
            let attribute = |_| Ok((input.text()?, take(input, depth, left)?));
            let attributes = (0..count).map(attribute).collect::<Result<_, Refused>>()?;
            Node::Attributed { value: Box::new(take(input, depth, left)?), owner, attributes }
        }
        FOREIGN => {
            let codec = input.text()?;
            let stream = input.buffer().ok_or(short)?;
            let count = input.u32().ok_or(short)?;
            let buffers = (0..count).map(|_| input.buffer()).collect::<Option<_>>().ok_or(short)?;
            Node::Foreign { codec, stream, buffers }
        }
        _ => return Err(Refused::Unknown("a node of its tree is unknown to this version")),
    })
}

fn take_array(input: &mut Input<'_>) -> Result<Array, Refused> {
    let short = Refused::Damaged("its tree ends too early");
    let [order, dimensions] = input.take().ok_or(short)?;
    let order = match order {
        0 => Order::RowMajor,
        1 => Order::ColumnMajor,
        _ => return Err(Refused::Damaged("an order makes no sense")),
    };
    if usize::from(dimensions) > Descriptor::MAX_DIMENSIONS {
        return Err(Refused::Damaged("an array has too many dimensions"));
    }
    let shape = input.u64s(dimensions.into()).ok_or(short)?;
    let buffer = input.buffer().ok_or(short)?;
    let dtype = decode_type(input, 0).ok_or(Refused::Damaged("a type makes no sense"))?;
    Ok(Array { dtype, shape, order, buffer })
}

/// A count of nodes is not believed before they are there: each takes a byte at least.
fn take_all(input: &mut Input<'_>, depth: usize, left: &mut usize) -> Result<Vec<Node>, Refused> {
    let count = input.u32().ok_or(Refused::Damaged("its tree ends too early"))?;
    (0..count).map(|_| take(input, depth, left)).collect()
}

fn take_pairs(input: &mut Input<'_>, depth: usize, left: &mut usize) -> Result<Vec<(Node, Node)>, Refused> {
    let count = input.u32().ok_or(Refused::Damaged("its tree ends too early"))?;
    (0..count).map(|_| Ok((take(input, depth, left)?, take(input, depth, left)?))).collect()
}

impl<'a> Input<'a> {
    fn f64(&mut self) -> Option<f64> {
        self.take().map(f64::from_le_bytes)
    }

    fn buffer(&mut self) -> Option<Buffer> {
        self.u32().map(Buffer)
    }

    fn counted(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.bytes(len as usize)
    }

    fn text(&mut self) -> Result<String, Refused> {
        let bytes = self.counted().ok_or(Refused::Damaged("its tree ends too early"))?;
        let text = std::str::from_utf8(bytes).map_err(|_| Refused::Damaged("a text of its tree is no UTF-8"))?;
        Ok(text.to_owned())
    }

    fn flag(&mut self) -> Result<bool, Refused> {
        match self.take() {
            Some([0]) => Ok(false),
            Some([1]) => Ok(true),
            Some(_) => Err(Refused::Damaged("a mark of its tree makes no sense")),
            None => Err(Refused::Damaged("its tree ends too early")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    fn array(len: u64, buffer: u32) -> Node {
        Node::Array(Array { dtype: DType::U8, shape: vec![len], order: Order::RowMajor, buffer: Buffer(buffer) })
    }

    /// One of each kind.
    fn everything() -> Node {
        let text = |text: &str| Node::Text(text.into());
        let strings =
            Node::Strings { len: 3, offsets: Buffer(3), data: Buffer(4), validity: Some(Buffer(5)), is_text: true };
        let dictionary = Node::Dictionary {
            indices: Box::new(array(3, 6)),
            first: 1,
            values: Box::new(Node::List(vec![text("low"), text("high")])),
            is_ordered: true,
        };
        let table = Node::Table {
            rows: 3,
            columns: vec![
                (text("a"), Node::Nullable { items: Box::new(array(3, 1)), validity: Buffer(2) }),
                (Node::Int(-7), strings),
                (text("größe"), dictionary),
            ],
        };
        let numbers = vec![
            Node::Nothing,
            Node::Bool(true),
            Node::Bool(false),
            Node::Float(-0.0),
            Node::Complex(1.5, f64::MIN),
            Node::LargeInt { is_negative: true, magnitude: vec![0, 0, 0, 0, 0, 0, 0, 0, 1] },
            Node::Bytes(vec![0, 255]),
        ];
        let foreign =
            Node::Foreign { codec: "python.pickle-5".into(), stream: Buffer(7), buffers: vec![Buffer(8), Buffer(9)] };
        let attributed = Node::Attributed {
            value: Box::new(table),
            owner: "pandas".into(),
            attributes: vec![("index".into(), Node::Tuple(numbers))],
        };
        Node::Mapping(vec![
            (text("table"), attributed),
            (text("foreign"), foreign),
            (text("long"), Node::Long { is_text: true, buffer: Buffer(0) }),
        ])
    }

    const BUFFER_BYTES: [u64; 10] = [1000, 3, 1, 32, 17, 1, 3, 50, 0, 8];

    #[test]
    fn every_kind_of_node_comes_back_and_fits_its_buffers() {
        let tree = everything();
        assert_eq!(decode_tree(&encode_tree(&tree)), Ok(tree.clone()));
        assert_eq!(tree.check(&BUFFER_BYTES), Ok(()));
        for number in 1..BUFFER_BYTES.len() {
            let mut bytes = BUFFER_BYTES;
            bytes[number] += 1;
            // Of these three nobody else knows the length.
            assert_eq!(tree.check(&bytes).is_ok(), [4, 7, 8, 9].contains(&number), "buffer {number}");
        }
        assert_eq!(tree.check(&BUFFER_BYTES[..9]), Err("a buffer is missing"));
        assert_eq!(tree.check(&[&BUFFER_BYTES[..], &[1]].concat()), Err("a buffer belongs to no node"));
        assert!(Node::List(vec![array(3, 0), array(3, 0)]).check(&[3]).is_err());
    }

    #[test]
    fn a_tree_that_is_cut_or_changed_is_refused_or_is_another_one() {
        let tree = everything();
        let bytes = encode_tree(&tree);
        for len in 0..bytes.len() {
            assert!(decode_tree(&bytes[..len]).is_err(), "{len} bytes");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                if let Ok(other) = decode_tree(&changed) {
                    assert!(other != tree || at_is_of_a_float(&changed, &bytes), "byte {at}, bit {bit}");
                }
            }
        }
    }

    /// -0.0 and 0.0 are equal.
    fn at_is_of_a_float(changed: &[u8], bytes: &[u8]) -> bool {
        changed.iter().zip(bytes).any(|(a, b)| a ^ b == 0x80)
    }

    #[test]
    fn a_tree_that_is_nested_too_deep_is_refused() {
        let nested = |depth: usize| (1..depth).fold(Node::Nothing, |node, _| Node::List(vec![node]));
        assert!(decode_tree(&encode_tree(&nested(Node::MAX_DEPTH))).is_ok());
        assert!(decode_tree(&encode_tree(&nested(Node::MAX_DEPTH + 1))).is_err());
        assert!(nested(Node::MAX_DEPTH + 1).check(&[]).is_err());
    }

    #[test]
    fn a_tree_of_too_many_nodes_is_refused() {
        let list = |nodes: usize| Node::List(vec![Node::Nothing; nodes - 1]);
        assert!(decode_tree(&encode_tree(&list(Node::MAX_NODES))).is_ok());
        assert!(decode_tree(&encode_tree(&list(Node::MAX_NODES + 1))).is_err());
        assert!(list(Node::MAX_NODES).check(&[]).is_ok() && list(Node::MAX_NODES + 1).check(&[]).is_err());
    }

    #[test]
    fn a_count_that_is_larger_than_its_tree_gets_no_memory() {
        let mut bytes = TREE_VERSION.to_le_bytes().to_vec();
        bytes.push(LIST);
        bytes.extend(u32::MAX.to_le_bytes());
        assert!(decode_tree(&bytes).is_err());
    }
}
