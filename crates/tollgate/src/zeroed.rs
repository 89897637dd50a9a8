//! Memory that begins as zeros, and takes none of the machine's before it is touched.
//!
//! The standard library writes zeros itself wherever more than 16 bytes of alignment are asked for:
//! a table of a million keys, in slots of a line each, then took 85 MB and 50 ms at the start. Here
//! the alignment is found inside a block that is a little larger. It knows nothing of what lies in
//! it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

/// A slice that began as zeros.
#[derive(Debug)]
pub(crate) struct Zeroed<T> {
    first: NonNull<T>,
    count: usize,
    /// What was allocated; nothing if there is nothing to hold.
    block: Option<(NonNull<u8>, Layout)>,
    holds: PhantomData<T>,
}

// SAFETY: it is a `Box<[T]>` but for its alignment.
unsafe impl<T: Send> Send for Zeroed<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Zeroed<T> {}

impl<T> Zeroed<T> {
    /// So many of them.
    ///
    /// # Safety
    /// All-zero memory is a value of `T`.
    pub(crate) unsafe fn new(count: usize) -> Self {
        const { assert!(!std::mem::needs_drop::<T>(), "nothing of it would be dropped") };
        let of_all = Layout::array::<T>(count).expect("a table fits the address space");
        if of_all.size() == 0 {
            return Self { first: NonNull::dangling(), count, block: None, holds: PhantomData };
        }
        let size = of_all.size() + of_all.align();
        let layout = Layout::from_size_align(size, SYSTEM_ALIGN).expect("as above");
        // SAFETY: its size is not zero.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) });
        let Some(block) = block else { handle_alloc_error(layout) };
        let offset = block.align_offset(of_all.align());
        assert!(offset <= of_all.align(), "an address can be aligned");
        // SAFETY: the block has as many bytes more as `T` is aligned to.
        let first = unsafe { block.add(offset) }.cast();
        Self { first, count, block: Some((block, layout)), holds: PhantomData }
    }
}

impl<T> Deref for Zeroed<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: there are so many, aligned, each a value since the block was zeros, and it is
        // freed with this alone.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<T> Drop for Zeroed<T> {
    fn drop(&mut self) {
        if let Some((block, layout)) = self.block {
            // SAFETY: it was allocated so.
            unsafe { dealloc(block.as_ptr(), layout) };
        }
    }
}

/// Beyond that the standard library writes zeros itself.
const SYSTEM_ALIGN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Line([u64; 8]);

    #[test]
    fn it_is_aligned_and_zero_whatever_its_size() {
        for count in [0, 1, 3, 1_000] {
            // SAFETY: zeros are numbers.
            let lines = unsafe { Zeroed::<Line>::new(count) };
            assert_eq!((lines.len(), lines.as_ptr() as usize % 64), (count, 0));
            assert!(lines.iter().all(|line| line.0 == [0; 8]));
        }
        // SAFETY: nothing is a value of nothing.
        assert_eq!(unsafe { Zeroed::<()>::new(7) }.len(), 7);
    }
}
