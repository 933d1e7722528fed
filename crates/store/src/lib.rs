//! Named typed objects that survive restarts.
//!
//! A [`Store`] is a pool whose names are objects: arrays, bytes, texts, and values of several parts. Objects are copied in by
//! several threads and become visible together, all of them or none ([`Transaction`]); they are read where they lie
//! ([`ObjectView`]). What somebody views is never overwritten: replacing an object writes a new extent and changes the
//! catalogue once, and what was stays until the last view of it is gone. Of an object that nobody else views a few changed
//! bytes are written, and copied home after the commit.
//!
//! The mechanism is that of Imamura and Yoshida's `pmem_create`, `pmem_persist` and `pmem_restore`, with a catalogue in
//! place of their hash table and atomic commits in place of an end pointer.
//!
//! ```
//! use pmem::{Heap, PartOptions};
//! use remanent_store::{Object, PersistOptions, Store};
//!
//! let store = Store::create(Heap::new(), "/pools/a".as_ref(), &PartOptions::single(8 << 20))?;
//! let mut transaction = store.transaction();
//! transaction.put("weights", Object::array(&[0.5f32, 0.25, 0.125, 1.0], &[2, 2])?);
//! transaction.put("note", Object::text("after epoch 3"));
//! transaction.commit(&PersistOptions::default())?;
//!
//! let weights = store.get("weights")?;
//! assert_eq!(weights.descriptor().shape(), [2, 2]);
//! assert_eq!(weights.to_vec::<f32>()?, [0.5, 0.25, 0.125, 1.0]);
//! # Ok::<(), remanent_store::Error>(())
//! ```

mod descriptor;
mod direct;
mod dtype;
mod error;
mod format;
mod found;
mod holders;
mod populated;
mod prefault;
mod put;
mod redo;
#[allow(unsafe_code)] // raw sources of objects
mod source;
mod store;
mod transaction;
mod value;
#[allow(unsafe_code)] // copies items out of a mapping
mod view;

pub use descriptor::{Checksum, Descriptor, Flags, ObjectKind, Order};
pub use direct::DirectView;
pub use dtype::{ByteOrder, DType, Field, FloatFormat, TimeStep, TimeUnit, TypeClass, payload_bytes};
pub use error::{Error, Result};
pub use source::{Element, Object, Source};
pub use store::{LAYOUT, ObjectInfo, Store, Verified};
pub use transaction::{Checksums, Committed, PersistOptions, Progress, Transaction, Way, Written};
pub use value::{Array, Buffer, Node};
pub use view::{LateView, ObjectView, PrivateView, Value};

// What the signatures above speak of: users of the store need no other crate.
pub use pmem::{
    Backing, Durability, ErrorCode, Granularity, Mapped, Media, OpenMode, PageScan, PartInfo, PartOptions, Pool,
    PoolInfo, PrefaultProgress, Provenance, Stripe, check_name, copy_threads, default_copy_threads, process_id,
};
