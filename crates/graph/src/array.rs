//! A read-only array that is either in memory or a stretch of a memory-mapped file.

use bytemuck::Pod;
use memmap2::{Advice, Mmap, UncheckedAdvice};
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// `[T]` that may live in a file. Reads like a slice.
#[derive(Debug, Clone)]
pub enum Array<T: Pod> {
    /// In memory.
    Owned(Arc<Vec<T>>),
    /// Bytes of a mapped file, checked for length and alignment when made.
    Mapped(MappedArray<T>),
}

/// The mapped kind of [`Array`].
#[derive(Debug, Clone)]
pub struct MappedArray<T> {
    map: Arc<Mmap>,
    offset: usize,
    bytes: usize,
    /// Whether the pages can be read again from a file.
    in_file: bool,
    element: PhantomData<T>,
}

impl<T: Pod> Array<T> {
    /// `len` elements of `map` from byte `offset`; `None` when they do not lie inside it or are not aligned.
    pub fn mapped(map: Arc<Mmap>, offset: usize, len: usize) -> Option<Self> {
        let bytes = len.checked_mul(size_of::<T>())?;
        let stretch = map.get(offset..offset.checked_add(bytes)?)?;
        bytemuck::try_cast_slice::<u8, T>(stretch).ok()?;
        Some(Self::Mapped(MappedArray { map, offset, bytes, in_file: true, element: PhantomData }))
    }

    /// [`mapped`](Self::mapped), of memory that no file stands behind.
    pub fn unpacked(map: Arc<Mmap>, offset: usize, len: usize) -> Option<Self> {
        let mut array = Self::mapped(map, offset, len)?;
        if let Self::Mapped(mapped) = &mut array {
            mapped.in_file = false;
        }
        Some(array)
    }

    /// Lets the system take back the memory of pages of a file; they are read again from it when next used.
    pub fn release(&self) {
        self.release_range(0..self.len());
    }

    /// [`release`](Self::release) of these elements only.
    pub fn release_range(&self, range: Range<usize>) {
        if let Self::Mapped(MappedArray { map, offset, in_file: true, .. }) = self {
            release(map, *offset + range.start * size_of::<T>(), range.len() * size_of::<T>());
        }
    }

    /// Maps the pages of these elements at once, which costs less than one by one when they are first used.
    pub fn populate(&self, range: Range<usize>) {
        #[cfg(target_os = "linux")]
        if let Self::Mapped(MappedArray { map, offset, in_file: true, .. }) = self
            && !range.is_empty()
        {
            let (start, bytes) = (*offset + range.start * size_of::<T>(), range.len() * size_of::<T>());
            // Advice only: a system that does not take it maps them later.
            let _ = map.advise_range(Advice::PopulateRead, start, bytes);
        }
    }

    /// Asks the system to read the pages of a file ahead of their use.
    pub fn expect(&self) {
        /// Bytes asked for at a time: Linux reads the start of a longer stretch and forgets the rest.
        const STRETCH: usize = 1 << 17;
        if let Self::Mapped(MappedArray { map, offset, bytes, in_file: true, .. }) = self {
            for start in (0..*bytes).step_by(STRETCH) {
                // Advice only: a system that does not take it reads them later.
                let _ = map.advise_range(Advice::WillNeed, *offset + start, STRETCH.min(*bytes - start));
            }
        }
    }

    /// The memory of the array, where it is memory and nobody else's.
    pub fn into_owned(self) -> Option<Vec<T>> {
        match self {
            Self::Owned(items) => Arc::into_inner(items),
            Self::Mapped(_) => None,
        }
    }

    /// An array without elements.
    pub fn empty() -> Self {
        Vec::new().into()
    }
}

impl<T: Pod> Default for Array<T> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T: Pod + PartialEq> PartialEq for Array<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Pod> From<Vec<T>> for Array<T> {
    fn from(items: Vec<T>) -> Self {
        Self::Owned(Arc::new(items))
    }
}

impl<T: Pod> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Owned(items) => items,
            Self::Mapped(MappedArray { map, offset, bytes, .. }) => {
                bytemuck::cast_slice(&map[*offset..*offset + *bytes])
            }
        }
    }
}

/// Asks for huge pages under the free room of a large buffer: at random places of it, small ones cost as much as the
/// reading itself.
pub fn advise_huge<T: Pod>(buffer: &mut Vec<T>) {
    const HUGE: usize = 2 << 20;
    let room = buffer.spare_capacity_mut();
    let aligned = room.as_ptr().align_offset(HUGE).min(room.len());
    let bytes = (room.len() - aligned) * size_of::<T>() / HUGE * HUGE;
    #[cfg(target_os = "linux")]
    if bytes > 0 {
        // SAFETY: whole pages inside the buffer's own memory, and advice changes no contents.
        unsafe { libc::madvise(room[aligned..].as_mut_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
    }
}

/// An empty list with room for `len`, on huge pages where it is large.
pub fn with_room<T: Pod>(len: usize) -> Vec<T> {
    let mut list = Vec::with_capacity(len);
    advise_huge(&mut list);
    list
}

/// These items, on huge pages where they are many.
pub fn collected<T: Pod>(items: impl ExactSizeIterator<Item = T>) -> Vec<T> {
    let mut list = with_room(items.len());
    list.extend(items);
    list
}

/// Lets the system take back the pages of a stretch of `map`, which must be a mapping of a file.
pub(crate) fn release(map: &Mmap, offset: usize, bytes: usize) {
    if bytes > 0 {
        cool(&map[offset..offset + bytes]);
        // SAFETY: the mapping is of a file and read-only, so its pages can be read again with the same contents.
        // Advice only: a system that does not take it keeps the pages.
        let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, bytes) };
    }
}

/// Tells the system that these pages are the first to be taken from the cache of files when memory is short. Otherwise pages that
/// were used count more than those that were read ahead, and these would be gone before their use.
fn cool(pages: &[u8]) {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize;
        let inside = pages.as_ptr() as usize % page;
        // SAFETY: pages of a mapping, of which only the place in the cache changes. Advice: a system may not take it.
        unsafe { libc::madvise(pages.as_ptr().sub(inside) as *mut _, pages.len() + inside, libc::MADV_COLD) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = pages;
}

/// Asks the machine to have `items[index]` in its cache soon; an index past the end asks for nothing useful.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program sees, and any address will do.
        unsafe { _mm_prefetch(items.as_ptr().wrapping_add(index).cast::<i8>(), _MM_HINT_T0) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, index);
}
