//! Edits of a store that become true together.

use std::ffi::{c_char, c_void};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use store::{Checksums, Node, Object, Order, PersistOptions, Progress, Source, copy_threads};

use crate::arguments::{Sized64, give, handle, items, lent, put, put_if, release, sized, text};
use crate::builder::{Begin, Builder};
use crate::dtype::{CDType, from_c};
use crate::error::{Result, entry, mistake};
use crate::store::StoreHandle;

/// Told now and then by the thread that commits, with bytes copied and bytes in all. What is not 0 gives the commit up.
pub type ProgressFn = Option<unsafe extern "C" fn(user: *mut c_void, done_bytes: u64, total_bytes: u64) -> i32>;

/// How a batch is committed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CommitOptions {
    /// sizeof(remanent_commit_options).
    pub size_bytes: u64,
    /// Threads that copy, at most the CPUs; 0 for as many as there are, at most 8.
    pub threads: u32,
    /// 1 to sum every payload (CRC-32C), for remanent_store_verify; this costs another pass over it.
    pub checksum: u32,
    /// Null for none.
    pub progress: ProgressFn,
    /// Handed to progress.
    pub user: *mut c_void,
}

// SAFETY: as in C, its size first; numbers, and a function and a pointer that may be null.
unsafe impl Sized64 for CommitOptions {
    const FIRST_BYTES: usize = 32;
    const NAME: &'static str = "remanent_commit_options";
}

/// Edits of a store that become true together: objects that are put, value by value, and names that are removed.
///
/// remanent_batch_put begins an object; its value follows, node by node: either one leaf, or a container that is begun,
/// filled and ended. Memory that is handed over as a pointer and a length is lent until the batch is committed or
/// released, and must stay as it is until then. A call that fails leaves the batch as it was; only a value whose parts do
/// not fit together is dropped with its name, by the call that completes it.
pub struct BatchHandle {
    store: Arc<StoreHandle>,
    edits: Mutex<Edits>,
}

// SAFETY: the sources' makers promised that any thread may read them, and everything else is owned.
unsafe impl Send for BatchHandle {}
// SAFETY: as above; the edits are behind a lock.
unsafe impl Sync for BatchHandle {}

#[derive(Default)]
struct Edits {
    puts: Vec<(String, Object<'static>)>,
    removes: Vec<String>,
    current: Option<(String, Builder)>,
}

impl Edits {
    /// Takes in the object that is whole.
    fn settle(&mut self) -> Result<()> {
        match self.current.take() {
            Some((name, builder)) if builder.is_whole() => {
                self.puts.push((name, builder.finish()?));
                Ok(())
            }
            Some(current) => {
                let message = format!("the object {:?} is not whole: end what was begun", current.0);
                self.current = Some(current);
                Err(mistake(message))
            }
            None => Ok(()),
        }
    }
}

impl BatchHandle {
    fn edits(&self) -> MutexGuard<'_, Edits> {
        self.edits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a step of the object that is being put.
fn build(batch: *const BatchHandle, step: impl FnOnce(&mut Builder) -> Result<()>) -> i32 {
    entry(|| {
        let mut edits = handle(batch, "batch")?.edits();
        let Some((_, builder)) = &mut edits.current else {
            return Err(mistake("there is no object for this: call remanent_batch_put first"));
        };
        step(builder)?;
        if builder.is_whole() { edits.settle() } else { Ok(()) }
    })
}

/// Memory that C lends until the batch is committed or released.
fn source(pointer: *const c_void, len_bytes: u64, what: &str) -> Result<Source<'static>> {
    let (pointer, len_bytes) = lent(pointer.cast(), len_bytes, what)?;
    // SAFETY: C promises that it stays readable until the batch is committed or released, and the batch's objects live no
    // longer than that.
    Ok(unsafe { Source::from_raw(pointer, len_bytes) })
}

/// Makes an empty batch, which holds the store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_new(store: *const StoreHandle, out: *mut *mut BatchHandle) -> i32 {
    entry(|| {
        put(out, "batch", std::ptr::null_mut())?;
        handle(store, "store")?;
        crate::arguments::retain(store);
        // SAFETY: the count was taken a line above.
        let store = unsafe { Arc::from_raw(store) };
        give(out, "batch", BatchHandle { store, edits: Mutex::default() })
    })
}

/// Gives the batch up. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_release(batch: *mut BatchHandle) {
    entry(|| {
        release(batch);
        Ok(())
    });
}

/// Removes a name at the commit, when it must be there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_remove(batch: *const BatchHandle, name: *const c_char) -> i32 {
    entry(|| {
        let name = text(name, "name")?.to_owned();
        let mut edits = handle(batch, "batch")?.edits();
        edits.settle()?;
        edits.removes.push(name);
        Ok(())
    })
}

/// Begins an object: the next node is its value. It replaces what has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_put(batch: *const BatchHandle, name: *const c_char) -> i32 {
    entry(|| {
        let name = text(name, "name")?;
        store::check_name(name).map_err(store::Error::from)?;
        let mut edits = handle(batch, "batch")?.edits();
        edits.settle()?;
        edits.current = Some((name.to_owned(), Builder::default()));
        Ok(())
    })
}

/// Begins a list; end it with remanent_batch_end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_begin_list(batch: *const BatchHandle) -> i32 {
    build(batch, |builder| builder.begin(Begin::List))
}

/// Begins a list that is not to be changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_begin_tuple(batch: *const BatchHandle) -> i32 {
    build(batch, |builder| builder.begin(Begin::Tuple))
}

/// Begins pairs: key, value, key, value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_begin_mapping(batch: *const BatchHandle) -> i32 {
    build(batch, |builder| builder.begin(Begin::Mapping))
}

/// Begins a table: name, column, name, column; each column has as many items as there are rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_begin_table(batch: *const BatchHandle, rows: u64) -> i32 {
    build(batch, |builder| builder.begin(Begin::Table { rows }))
}

/// Begins items by their places among few values: an array of places, then the values. first is the place of the first
/// value, 0 or 1; a smaller place is a missing item.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_begin_dictionary(
    batch: *const BatchHandle,
    first: u32,
    is_ordered: bool,
) -> i32 {
    build(batch, |builder| match u8::try_from(first) {
        Ok(first @ (0 | 1)) => builder.begin(Begin::Dictionary { first, is_ordered }),
        _ => Err(mistake("the first place of a dictionary is 0 or 1")),
    })
}

/// Begins items of which some are missing: one node. validity has a bit for each item, the lowest first, set where it is
/// there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_begin_nullable(
    batch: *const BatchHandle,
    validity: *const c_void,
    validity_bytes: u64,
) -> i32 {
    build(batch, |builder| {
        let validity = source(validity, validity_bytes, "validity")?;
        builder.begin(Begin::Nullable { validity })
    })
}

/// Begins a value with what its owner, a language or library, keeps beside it: the value, then each attribute, named by
/// remanent_batch_attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_begin_attributed(batch: *const BatchHandle, owner: *const c_char) -> i32 {
    build(batch, |builder| builder.begin(Begin::Attributed { owner: text(owner, "owner")? }))
}

/// Names the attribute that the next node is the value of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_attribute(batch: *const BatchHandle, name: *const c_char) -> i32 {
    build(batch, |builder| builder.attribute(text(name, "name of the attribute")?))
}

/// Ends what was begun last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_end(batch: *const BatchHandle) -> i32 {
    build(batch, Builder::end)
}

/// Nothing: R's NULL, Python's None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_nothing(batch: *const BatchHandle) -> i32 {
    build(batch, |builder| builder.push(Node::Nothing))
}

/// A truth value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_bool(batch: *const BatchHandle, value: bool) -> i32 {
    build(batch, |builder| builder.push(Node::Bool(value)))
}

/// A number of 64 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_int(batch: *const BatchHandle, value: i64) -> i32 {
    build(batch, |builder| builder.push(Node::Int(value)))
}

/// A larger one: its sign, and its magnitude with the lowest byte first, which is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_large_int(
    batch: *const BatchHandle,
    is_negative: bool,
    magnitude: *const u8,
    magnitude_bytes: u64,
) -> i32 {
    build(batch, |builder| {
        let magnitude = items(magnitude, magnitude_bytes as usize, "bytes of the number")?.to_vec();
        builder.push(Node::LargeInt { is_negative, magnitude })
    })
}

/// A binary64 number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_float(batch: *const BatchHandle, value: f64) -> i32 {
    build(batch, |builder| builder.push(Node::Float(value)))
}

/// A complex number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_complex(batch: *const BatchHandle, real: f64, imaginary: f64) -> i32 {
    build(batch, |builder| builder.push(Node::Complex(real, imaginary)))
}

/// A text in UTF-8; lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_text(batch: *const BatchHandle, data: *const c_char, len_bytes: u64) -> i32 {
    build(batch, |builder| {
        let source = source(data.cast(), len_bytes, "text")?;
        let bytes: &[u8] = items(data.cast(), len_bytes as usize, "bytes of the text")?;
        let text = std::str::from_utf8(bytes).map_err(|error| mistake(format!("the text is not UTF-8: {error}")))?;
        builder.long(true, source, || Node::Text(text.to_owned()))
    })
}

/// Bytes; lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_bytes(batch: *const BatchHandle, data: *const c_void, len_bytes: u64) -> i32 {
    build(batch, |builder| {
        let source = source(data, len_bytes, "data")?;
        let bytes: &[u8] = items(data.cast(), len_bytes as usize, "bytes")?;
        builder.long(false, source, || Node::Bytes(bytes.to_vec()))
    })
}

/// Items of one type in a grid, side by side; lent. Without dimensions it is a single item.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_array(
    batch: *const BatchHandle,
    dtype: *const CDType,
    shape: *const u64,
    dimensions: u64,
    is_column_major: bool,
    data: *const c_void,
    len_bytes: u64,
) -> i32 {
    build(batch, |builder| {
        let dtype = from_c(handle(dtype, "type")?)?;
        let shape = items(shape, dimensions as usize, "dimensions")?.to_vec();
        let order = if is_column_major { Order::ColumnMajor } else { Order::RowMajor };
        let source = source(data, len_bytes, "data")?;
        match store::payload_bytes(&shape, dtype.item_bytes()) {
            Some(expected_bytes) if expected_bytes == len_bytes => builder.array(dtype, shape, order, source),
            Some(expected_bytes) => Err(store::Error::LengthMismatch { got_bytes: len_bytes, expected_bytes }.into()),
            None => Err(store::Error::ShapeOverflow { shape, item_bytes: dtype.item_bytes() }.into()),
        }
    })
}

/// Strings of any length, as in Arrow's large layout: string i has the bytes from offsets[i] to offsets[i + 1] of data.
/// There is one offset more than strings. validity has a bit for each string, the lowest first, set where it is there;
/// null when all are. is_utf8 tells that all strings are UTF-8. All three are lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_strings(
    batch: *const BatchHandle,
    count: u64,
    offsets: *const u64,
    data: *const c_void,
    data_bytes: u64,
    validity: *const c_void,
    is_utf8: bool,
) -> i32 {
    build(batch, |builder| {
        let offsets_bytes = count.checked_add(1).and_then(|offsets| offsets.checked_mul(8));
        let offsets_bytes = offsets_bytes.ok_or_else(|| mistake(format!("{count} strings cannot be")))?;
        if offsets.is_null() {
            return Err(mistake("the offsets are null"));
        }
        let offsets = source(offsets.cast(), offsets_bytes, "offsets")?;
        let data = source(data, data_bytes, "data")?;
        let bits_bytes = count.div_ceil(8);
        let validity = if validity.is_null() { None } else { Some(source(validity, bits_bytes, "validity")?) };
        builder.strings(count, offsets, data, validity, is_utf8)
    })
}

/// What only one language can read: a stream of its codec, and further buffers that it keeps beside it; all lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_foreign(
    batch: *const BatchHandle,
    codec: *const c_char,
    stream: *const c_void,
    stream_bytes: u64,
    buffers: *const *const c_void,
    buffer_bytes: *const u64,
    buffer_count: u64,
) -> i32 {
    build(batch, |builder| {
        let codec = text(codec, "codec")?;
        let stream = source(stream, stream_bytes, "stream")?;
        let buffers = items(buffers, buffer_count as usize, "buffers")?;
        let lengths = items(buffer_bytes, buffer_count as usize, "lengths of the buffers")?;
        let more = buffers.iter().zip(lengths).map(|(&data, &len)| source(data, len, "buffer"));
        builder.foreign(codec, stream, more.collect::<Result<_>>()?)
    })
}

/// Makes all edits true and durable in one atomic step; tells the generation, unless that is null. The batch is empty
/// afterwards, also when the commit fails and nothing is changed. options may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_batch_commit(
    batch: *const BatchHandle,
    options: *const CommitOptions,
    generation: *mut u64,
) -> i32 {
    entry(|| {
        let batch = handle(batch, "batch")?;
        let options = if options.is_null() { None } else { Some(sized(options)?) };
        let mut edits = std::mem::take(&mut *batch.edits());
        edits.settle()?;
        let store = batch.store.open()?;
        let mut transaction = store.transaction();
        for (name, object) in edits.puts {
            transaction.put(&name, object);
        }
        for name in &edits.removes {
            transaction.remove(name);
        }
        let committed = commit(transaction, options)?;
        put_if(generation, committed);
        Ok(())
    })
}

fn commit(transaction: store::Transaction<'_, '_, store::Mapped>, options: Option<CommitOptions>) -> Result<u64> {
    let Some(options) = options else { return Ok(transaction.commit(&PersistOptions::default())?.generation) };
    let caller = thread::current().id();
    let user = AtomicPtr::new(options.user);
    // C is told by its own thread only, so that it needs no locks.
    let tell = |progress: Progress| match options.progress {
        Some(tell) if thread::current().id() == caller => {
            // SAFETY: C promises that the function can be called with what it gave, by the thread that commits.
            match unsafe { tell(user.load(Ordering::Relaxed), progress.done_bytes, progress.total_bytes) } {
                0 => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        }
        _ => ControlFlow::Continue(()),
    };
    let how = PersistOptions {
        threads: copy_threads(NonZeroUsize::new(options.threads as usize)),
        checksums: if options.checksum == 0 { Checksums::Off } else { Checksums::Crc32c },
        progress: options.progress.is_some().then_some(&tell),
        ..PersistOptions::default()
    };
    Ok(transaction.commit(&how)?.generation)
}
