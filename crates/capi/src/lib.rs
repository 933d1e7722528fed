//! The C ABI of the store, and its header `include/remanent.h`.
//!
//! Everything that C holds is an opaque, counted handle, or a pointer that lives as long as a handle. Each function
//! returns 0 or the number of an error; what happened in words is kept for the calling thread (`error`). A panic never
//! reaches C, and neither a null pointer nor wrong UTF-8 nor a wrong kind ends the process.
//!
//! The names and layouts here are an interface: functions and constants are added, never changed, and structures that C
//! fills in begin with their size.
//!
//! | what | where |
//! | --- | --- |
//! | error codes, the last error, panics | `error.rs` |
//! | pointers that C hands over | `arguments.rs` |
//! | opening, closing, names, space | `store.rs`, `listing.rs` |
//! | writing: a batch and the values in it | `batch.rs`, `builder.rs` |
//! | reading: an object, its nodes, its memory | `view.rs`, `node.rs`, `mapping.rs` |
//! | the type of an item | `dtype.rs` |

// The whole crate is an edge: pointers come in and go out in every function.
#![allow(unsafe_code)]
// What an argument must be is the same for all functions, and stands at the top of the header.
#![allow(clippy::missing_safety_doc)]
// What C sees is public, although no Rust program can reach it; the header is made from it.
#![allow(unreachable_pub)]

mod arguments;
mod batch;
mod builder;
mod dtype;
mod error;
mod listing;
mod mapping;
mod node;
mod store;
mod view;
