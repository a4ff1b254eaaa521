//! The bytes of one message, in buffers that are used again and again.
//!
//! A [`Frame`] is filled by the sender, moved (not copied) to a receiver in the same process, and returns to the
//! [`Pool`] it came from when dropped. Once the pool has seen a run's largest need, exchanges allocate nothing.
//!
//! The first 64 bytes of every buffer are the envelope; the payload follows, so both are 64-byte aligned and a
//! transport between processes can send the whole as one message without a copy.

use crate::envelope::Envelope;
use crate::lock;
use bytemuck::{Pod, Zeroable};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// A cache line: the unit and the alignment of buffers.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

const LINE: usize = 64;

/// Buffer sizes have at most three significant bits (at most 25 % is spare), so there are four per doubling.
const CLASSES: usize = 4 * usize::BITS as usize;

/// The bytes that go from one process to another as one message; longer frames go in pieces. Longer messages of MPI are agreed on by
/// sender and receiver before they flow, and what they say of one direction queues behind the data of the other: two hosts
/// that send to each other reach half the rate of their link. Pieces of this size flow at once.
pub(crate) const LONGEST_MESSAGE: usize = 61_440;

/// About how many bytes of a long message travel in one frame, so that one is on the wire while the next is filled, and is
/// read while the next arrives. A few of them fit the second-level cache: what is filled, sent, received and read there costs half
/// of what it costs in memory. Whole messages, none of them short.
const STRETCH: usize = 3 * LONGEST_MESSAGE;

/// How many items of so many `bytes` travel in one frame of a long message.
pub(crate) fn items_of(bytes: usize) -> usize {
    (STRETCH / bytes.max(1)).max(1)
}

/// Which of `count` items, of so many `bytes` each, travel in one frame after the other: at least one frame, and both ends
/// know where each ends.
pub fn frames_of(count: usize, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let items = items_of(bytes);
    (0..count.div_ceil(items).max(1)).map(move |frame| frame * items..((frame + 1) * items).min(count))
}

/// An owned byte buffer, aligned for any number type, that goes back to its pool when dropped.
pub struct Frame {
    lines: Vec<Line>,
    bytes: usize,
    pool: Arc<Pool>,
}

impl Frame {
    /// The bytes of a line, the unit of buffers.
    pub const LINE: usize = LINE;

    /// The number of payload bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The payload.
    pub fn bytes(&self) -> &[u8] {
        &self.wire()[LINE..]
    }

    /// The payload, to be filled. A recycled buffer holds what its last user left.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.wire_mut()[LINE..]
    }

    /// The payload as numbers.
    ///
    /// # Panics
    /// When the payload is not a whole number of `T`; [`Comm::receive_exact`](crate::Comm::receive_exact) rules
    /// that out for what arrives.
    pub fn values<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    /// The payload as numbers, to be filled.
    ///
    /// # Panics
    /// When the payload is not a whole number of `T`.
    pub fn values_mut<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }

    /// Keeps the first `bytes` of the payload; does nothing when it is not longer than that.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }

    /// Envelope and payload: what a transport between processes puts on the wire.
    pub fn wire(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..LINE + self.bytes]
    }

    /// Envelope and payload, to be filled from the wire.
    pub fn wire_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..LINE + self.bytes]
    }

    /// The same, up to the end of the last line.
    pub fn lines(&self) -> &[u8] {
        bytemuck::cast_slice(&self.lines[..1 + self.bytes.div_ceil(LINE)])
    }

    /// The same, to be filled.
    pub fn lines_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.lines[..1 + self.bytes.div_ceil(LINE)])
    }

    pub(crate) fn envelope(&self) -> &Envelope {
        bytemuck::from_bytes(&self.wire()[..size_of::<Envelope>()])
    }

    pub(crate) fn address(&mut self, envelope: Envelope) {
        *bytemuck::from_bytes_mut(&mut self.wire_mut()[..size_of::<Envelope>()]) = envelope;
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.pool.take_back(std::mem::take(&mut self.lines));
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes)", self.bytes)
    }
}

/// The buffers of all ranks of this process, sorted by size.
pub struct Pool {
    classes: Vec<Mutex<Class>>,
}

/// The buffers of one size.
#[derive(Default)]
struct Class {
    free: Vec<Vec<Line>>,
    /// How many exist, free or in use: `free` has room for all, so taking one back never allocates.
    made: usize,
}

impl Pool {
    /// An empty pool.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { classes: (0..CLASSES).map(|_| Mutex::default()).collect() })
    }

    /// A frame with a payload of `bytes` bytes: a free one of that size, or a new one. Its contents are arbitrary.
    pub fn frame(self: &Arc<Self>, bytes: usize) -> Frame {
        let (class, lines) = size_class(1 + bytes.div_ceil(LINE));
        let recycled = lock(&self.classes[class]).free.pop();
        let lines = recycled.unwrap_or_else(|| self.make(class, lines));
        Frame { lines, bytes, pool: Arc::clone(self) }
    }

    /// Gives all free buffers back to the system: worth it after a set-up with messages larger than any later one.
    pub fn trim(&self) {
        for class in &self.classes {
            let mut class = lock(class);
            class.made -= class.free.len();
            class.free = Vec::with_capacity(class.made);
        }
    }

    /// Makes as many buffers as there are, at least two: a rank that runs ahead of others takes more of them than in
    /// the steps before. Large ones cost no memory until they are written.
    fn make(&self, class: usize, lines: usize) -> Vec<Line> {
        let mut class = lock(&self.classes[class]);
        let new = class.made.max(2);
        class.made += new;
        let missing = class.made - class.free.len();
        class.free.reserve(missing);
        class.free.extend((1..new).map(|_| bytemuck::zeroed_vec(lines)));
        drop(class);
        bytemuck::zeroed_vec(lines)
    }

    fn take_back(&self, lines: Vec<Line>) {
        let (class, _) = size_class(lines.len());
        lock(&self.classes[class]).free.push(lines);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let made: usize = self.classes.iter().map(|class| lock(class).made).sum();
        write!(f, "Pool({made} buffers)")
    }
}

/// The class of a buffer of at least `lines` lines, and the number of lines buffers of that class have.
fn size_class(lines: usize) -> (usize, usize) {
    let bits = usize::BITS - lines.leading_zeros();
    let shift = bits.saturating_sub(3);
    let top = lines.div_ceil(1 << shift);
    (4 * shift as usize + top, top << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_a_long_message_travel_in_one_frame_after_the_other() {
        for (count, bytes) in
            [(0, 4), (1, 4), (STRETCH / 2, 4), (STRETCH / 2 + 1, 4), (1000, 4000), (5, STRETCH + 1), (3, 0)]
        {
            let frames: Vec<_> = frames_of(count, bytes).collect();
            assert!(!frames.is_empty(), "whoever waits is told that there is nothing");
            assert_eq!(
                frames.iter().flat_map(Clone::clone).collect::<Vec<_>>(),
                (0..count).collect::<Vec<_>>()
            );
            assert!(frames.iter().all(|frame| frame.len() <= 1 || frame.len() * bytes <= STRETCH));
        }
    }

    #[test]
    fn a_size_class_is_large_enough_and_at_most_a_quarter_too_large_and_maps_to_itself() {
        for lines in (1..5000).chain([1 << 20, (1 << 20) + 1, (1 << 40) - 1]) {
            let (class, capacity) = size_class(lines);
            assert!(capacity >= lines && capacity * 4 <= lines * 5 + 4, "{lines} -> {capacity}");
            assert_eq!(size_class(capacity), (class, capacity));
            assert!(class < CLASSES);
        }
    }

    #[test]
    fn a_dropped_frame_is_the_next_frame_of_its_size() {
        let pool = Pool::new();
        let mut frame = pool.frame(1000);
        frame.values_mut::<f32>().fill(2.5);
        let place = frame.bytes().as_ptr();
        drop(frame);
        let again = pool.frame(1000);
        assert_eq!(again.bytes().as_ptr(), place);
        assert_eq!(again.values::<f32>(), [2.5; 250]);
        assert_eq!(format!("{pool:?}"), "Pool(2 buffers)");
    }

    #[test]
    fn a_payload_is_aligned_for_every_number_type_and_may_be_empty() {
        let pool = Pool::new();
        for bytes in [0, 8, 64, 72, 4096] {
            let frame = pool.frame(bytes);
            assert_eq!(frame.bytes().as_ptr() as usize % LINE, 0);
            assert_eq!(frame.values::<u64>().len(), bytes / 8);
            assert_eq!(frame.wire().len(), LINE + bytes);
            assert_eq!(frame.is_empty(), bytes == 0);
        }
    }

    #[test]
    fn trimming_frees_the_free_and_leaves_the_used() {
        let pool = Pool::new();
        let used = pool.frame(100);
        drop(pool.frame(1 << 20));
        pool.trim();
        assert_eq!(format!("{pool:?}"), "Pool(1 buffers)");
        drop(used);
        assert_eq!(format!("{pool:?}"), "Pool(1 buffers)");
    }

    #[test]
    fn a_truncated_frame_is_shorter_and_never_longer() {
        let mut frame = Pool::new().frame(10);
        frame.truncate(20);
        assert_eq!(frame.len(), 10);
        frame.truncate(3);
        assert_eq!(frame.bytes().len(), 3);
    }
}
