//! A private mapping as a counted handle of its own: it often outlives the view that it was made from.

use store::PrivateView;

use crate::arguments::{release, retain};
use crate::error::entry;

/// A private mapping of a buffer; see remanent_view_private.
pub struct MappingHandle {
    _private: PrivateView,
}

impl MappingHandle {
    pub(crate) fn new(private: PrivateView) -> MappingHandle {
        MappingHandle { _private: private }
    }
}

/// Counts the mapping once more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_mapping_retain(mapping: *const MappingHandle) {
    retain(mapping);
}

/// Counts the mapping down; the last count unmaps it. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remanent_mapping_release(mapping: *mut MappingHandle) {
    entry(|| {
        release(mapping);
        Ok(())
    });
}
