//! Memory of the process for large copies.
#![allow(unsafe_code)] // advises the kernel about it

use rustix::mm::{self, Advice};

/// From this length on huge pages are asked for, as NumPy does: a first pass over 4 KiB pages waits for the faults.
const HUGE_FROM_BYTES: usize = 4 << 20;

/// So many zeros, in huge pages where the system gives them on request (MADV_HUGEPAGE, madvise(2)).
pub fn zeroed(len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    if len_bytes >= HUGE_FROM_BYTES {
        let page = rustix::param::page_size();
        let skip_bytes = bytes.as_ptr().addr().wrapping_neg() % page;
        let pages_bytes = (len_bytes - skip_bytes) / page * page;
        // SAFETY: whole pages within the vector, and the advice changes no byte of them. It is refused where there are no such
        // pages, which costs nothing but time.
        let _ = unsafe { mm::madvise(bytes[skip_bytes..].as_mut_ptr().cast(), pages_bytes, Advice::LinuxHugepage) };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_zero_and_can_be_written_to_at_every_length() {
        for len_bytes in [0, 1, HUGE_FROM_BYTES - 1, HUGE_FROM_BYTES, 3 * HUGE_FROM_BYTES + 5] {
            let mut bytes = zeroed(len_bytes);
            assert!(bytes.len() == len_bytes && bytes.iter().all(|&byte| byte == 0));
            bytes.fill(1);
            assert!(bytes.iter().all(|&byte| byte == 1));
        }
    }
}
