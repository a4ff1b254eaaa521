//! Once warm, an exchange allocates nothing. Alone in its process, because it counts every allocation there.

use archipelago_comm::{Comm, Config, Error, Kind, Tag, launch};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: the caller's promise about `layout` is ours.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise about `pointer` and `layout` is ours.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROW_BYTES: usize = 40_000;

fn round(comm: &Comm, step: u64, gradients: &mut [f32]) -> Result<(), Error> {
    for peer in 0..comm.size() {
        comm.send(peer, Tag::new(1).sequence(step), Kind::Embeddings, comm.frame(ROW_BYTES))?;
    }
    for peer in 0..comm.size() {
        comm.receive_exact(peer, Tag::new(1).sequence(step), Kind::Embeddings, ROW_BYTES)?;
    }
    comm.all_reduce_sum_f32(gradients, Kind::Gradients)?;
    comm.all_reduce_sum_f64(&mut [1.0], Kind::Control)?;
    comm.broadcast(0, gradients, Kind::Weights)
}

/// More frames and longer queues than any interleaving of [`round`]s needs.
fn warm_up(comm: &Comm, gradients: &mut [f32]) -> Result<(), Error> {
    for bytes in [0, 8, ROW_BYTES, size_of_val(gradients), size_of_val(gradients) / comm.size()] {
        for peer in 0..comm.size() {
            for _ in 0..8 {
                comm.send(peer, Tag::new(2), Kind::Control, comm.frame(bytes))?;
            }
        }
    }
    comm.barrier()?;
    for peer in 0..comm.size() {
        for _ in 0..5 * 8 {
            comm.receive(peer, Tag::new(2), Kind::Control)?;
        }
    }
    (0..3).try_for_each(|step| round(comm, step, gradients))
}

#[test]
fn after_a_warm_up_a_thousand_exchanges_allocate_nothing() {
    let config = Config::threads(3).with_deadline(Duration::from_secs(60));
    let counts = launch(&config, |comm| {
        let mut gradients = vec![0.5f32; 9000];
        warm_up(&comm, &mut gradients)?;
        comm.barrier()?;
        let before = ALLOCATIONS.load(SeqCst);
        (0..200).try_for_each(|step| round(&comm, step, &mut gradients))?;
        comm.barrier()?;
        let after = ALLOCATIONS.load(SeqCst);
        comm.barrier()?;
        Ok::<_, Error>(after - before)
    });
    assert_eq!(counts.unwrap(), [0; 3]);
}
