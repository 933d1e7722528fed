//! Objects on their way into a store: a description, and where the bytes are.

use std::marker::PhantomData;
use std::ops::Range;

use crate::descriptor::{Descriptor, ObjectKind, Order};
use crate::direct::DirectView;
use crate::dtype::{ByteOrder, DType, FloatFormat, TypeClass};
use crate::error::{Error, Result};
use crate::value::Node;
use crate::view::sum;

/// A number that arrays are made of in Rust.
///
/// # Safety
/// Every bit pattern of the type's size is a value of it, and it has no padding.
pub unsafe trait Element: Copy + 'static {
    /// How the store describes it.
    fn dtype() -> DType;
}

macro_rules! elements {
    ($($type:ty: $class:expr;)*) => {
        $(
            // SAFETY: integers and floats take every bit pattern and have no padding.
            unsafe impl Element for $type {
                fn dtype() -> DType {
                    let size = size_of::<$type>() as u64;
                    let order = if size == 1 { ByteOrder::None } else { ByteOrder::Little };
                    DType::new($class, order, size).expect("the sizes of Rust's numbers fit their classes")
                }
            }
        )*
    };
}

elements! {
    u8: TypeClass::Uint;
    u16: TypeClass::Uint;
    u32: TypeClass::Uint;
    u64: TypeClass::Uint;
    i8: TypeClass::Int;
    i16: TypeClass::Int;
    i32: TypeClass::Int;
    i64: TypeClass::Int;
    f32: TypeClass::Float(FloatFormat::Ieee);
    f64: TypeClass::Float(FloatFormat::Ieee);
}

/// An object to be persisted: what it is, and its bytes wherever they are.
#[derive(Clone, Debug)]
pub struct Object<'a> {
    descriptor: Descriptor,
    /// Of a value.
    tree: Option<Node>,
    /// One, or those of a value in the order of their numbers.
    sources: Vec<Source<'a>>,
}

/// Bytes that lie at an address.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    from: *const u8,
    len_bytes: u64,
    lent: PhantomData<&'a [u8]>,
}

// SAFETY: the pointer is only read from, and whoever made the source promised that the bytes are readable as long as
// it lives, on any thread.
unsafe impl Send for Source<'_> {}
// SAFETY: as above.
unsafe impl Sync for Source<'_> {}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Source<'a> {
        Source { from: bytes.as_ptr(), len_bytes: bytes.len() as u64, lent: PhantomData }
    }
}

impl<'a> From<&'a DirectView> for Source<'a> {
    fn from(view: &'a DirectView) -> Source<'a> {
        // SAFETY: the view is readable for its length as long as it is borrowed.
        unsafe { Source::from_raw(view.address(), view.len_bytes() as u64) }
    }
}

impl Source<'_> {
    /// Bytes at an address. Others may write there meanwhile; then some mixture is persisted, or, when a checksum
    /// is asked for, the commit fails with `SourceChanged`.
    ///
    /// # Safety
    /// `from` is readable for `len_bytes` bytes, by any thread, as long as the source and its copies live.
    pub unsafe fn from_raw(from: *const u8, len_bytes: u64) -> Self {
        Source { from, len_bytes, lent: PhantomData }
    }

    /// How many they are.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    pub(crate) fn address(&self) -> usize {
        self.from.addr()
    }

    /// Asks for the first of them, which are soon copied.
    pub(crate) fn prefetch(&self) {
        pmem::prefetch(self.from);
    }

    /// Some of them.
    pub(crate) fn part(&self, range: Range<u64>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len_bytes, "a part of {} bytes", self.len_bytes);
        let from = self.from.wrapping_add(range.start as usize);
        Source { from, len_bytes: range.end - range.start, lent: PhantomData }
    }

    /// Copies some of them to memory.
    pub(crate) fn load(&self, offset_bytes: u64, into: &mut [u8]) {
        let part = self.part(offset_bytes..offset_bytes + into.len() as u64);
        // SAFETY: the bytes are readable for this length as long as `self` lives: the promise of its makers.
        unsafe { std::ptr::copy_nonoverlapping(part.from, into.as_mut_ptr(), into.len()) };
    }

    /// Their checksum, as they are now.
    pub(crate) fn sum(&self) -> u32 {
        sum(self.len_bytes, |at, into| self.load(at, into))
    }

    /// Copies them into a pool with several threads; durable after the next fence of `pending`.
    pub(crate) fn copy_to<M: pmem::Media>(
        &self,
        set: &pmem::PoolSet<M>,
        pending: &mut pmem::Pending,
        to: pmem::Offset,
        threads: std::num::NonZeroUsize,
        progress: pmem::CopyProgress<'_>,
    ) {
        // SAFETY: the bytes are readable for this length as long as `self` lives: the promise of its makers.
        unsafe { set.copy_parallel(pending, to, self.from, self.len_bytes as usize, threads, Some(progress)) };
    }
}

impl<'a> Object<'a> {
    /// An array of Rust's numbers, in row-major order.
    ///
    /// # Errors
    /// `LengthMismatch` when the shape has another number of items; `ShapeOverflow`.
    pub fn array<T: Element>(items: &'a [T], shape: &[u64]) -> Result<Object<'a>> {
        let descriptor = Descriptor::array(T::dtype(), shape, Order::RowMajor)?;
        // SAFETY: the slice is borrowed as long as the object lives, and an element has no padding.
        let source = unsafe { Source::from_raw(items.as_ptr().cast(), size_of_val(items) as u64) };
        Object::from_source(descriptor, source)
    }

    /// Bytes without a meaning.
    pub fn bytes(bytes: &'a [u8]) -> Object<'a> {
        Object::plain(ObjectKind::Bytes, bytes)
    }

    /// A text.
    pub fn text(text: &'a str) -> Object<'a> {
        Object::plain(ObjectKind::Text, text.as_bytes())
    }

    fn plain(kind: ObjectKind, bytes: &'a [u8]) -> Object<'a> {
        let descriptor = Descriptor::plain(kind, bytes.len() as u64);
        Object { descriptor, tree: None, sources: vec![bytes.into()] }
    }

    /// A text, or bytes without a meaning, at an address. Whoever makes a text answers for its being UTF-8; readers check.
    pub fn plain_from_source(is_text: bool, source: Source<'a>) -> Object<'a> {
        let kind = if is_text { ObjectKind::Text } else { ObjectKind::Bytes };
        Object { descriptor: Descriptor::plain(kind, source.len_bytes), tree: None, sources: vec![source] }
    }

    /// A value: its tree, and its buffers in the order of their numbers.
    ///
    /// # Errors
    /// `UnknownType` when tree and buffers do not belong together; see [`Node::check`].
    pub fn value(tree: Node, sources: Vec<Source<'a>>) -> Result<Object<'a>> {
        let lengths: Vec<u64> = sources.iter().map(Source::len_bytes).collect();
        tree.check(&lengths).map_err(|reason| Error::unknown_type("a value", reason))?;
        let payload_bytes = lengths.iter().try_fold(0u64, |sum, len| sum.checked_add(*len));
        let payload_bytes = payload_bytes.ok_or(Error::ShapeOverflow { shape: lengths, item_bytes: 1 })?;
        Ok(Object { descriptor: Descriptor::plain(ObjectKind::Value, payload_bytes), tree: Some(tree), sources })
    }

    /// An object of any type, from its bytes as they are to be kept: the items side by side, in the description's order.
    ///
    /// # Errors
    /// `LengthMismatch` when the description needs another number of bytes.
    pub fn described(descriptor: Descriptor, bytes: &'a [u8]) -> Result<Object<'a>> {
        Object::from_source(descriptor, bytes.into())
    }

    /// As [`Object::described`], from bytes at an address.
    ///
    /// # Errors
    /// `LengthMismatch` when the description needs another number of bytes.
    pub fn from_source(descriptor: Descriptor, source: Source<'a>) -> Result<Object<'a>> {
        if descriptor.payload_bytes() != source.len_bytes {
            let (got_bytes, expected_bytes) = (source.len_bytes, descriptor.payload_bytes());
            return Err(Error::LengthMismatch { got_bytes, expected_bytes });
        }
        Ok(Object { descriptor, tree: None, sources: vec![source] })
    }

    /// What it is.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    pub(crate) fn tree(&self) -> Option<&Node> {
        self.tree.as_ref()
    }

    pub(crate) fn sources(&self) -> &[Source<'a>] {
        &self.sources
    }

    pub(crate) fn into_descriptor(self) -> Descriptor {
        self.descriptor
    }
}

/// Copies the bytes at an address into items.
///
/// # Safety
/// `from` is readable for `len` items, and nobody writes there meanwhile.
pub(crate) unsafe fn items_at<T: Element>(from: *const u8, len: usize) -> Vec<T> {
    let mut items: Vec<T> = Vec::with_capacity(len);
    // SAFETY: the caller answers for the source; the vector has room for `len` items, every bit pattern is one, and
    // bytes need no alignment.
    unsafe {
        std::ptr::copy_nonoverlapping(from, items.as_mut_ptr().cast::<u8>(), len * size_of::<T>());
        items.set_len(len);
    }
    items
}
