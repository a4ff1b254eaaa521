//! After the first step a full-batch step allocates nothing at all, on one part and on several, with and without
//! helping threads, whatever the widths of layers and the timing of ranks. Alone in its process, because it counts
//! every allocation there.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use common::{communities, config, cut, on_ranks};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

/// How many blocks were ever taken.
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
/// The sizes of the last ones, to tell whose they are.
static SIZES: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let number = ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        SIZES[number % SIZES.len()].store(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is ours.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is ours.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The sizes of the blocks from number `from` to number `to`, as far as they are known.
fn sizes(from: usize, to: usize) -> Vec<usize> {
    (from..to).take(SIZES.len()).map(|number| SIZES[number % SIZES.len()].load(Ordering::Relaxed)).collect()
}

const STEPS: usize = 12;

#[test]
fn a_step_after_the_first_allocates_nothing() {
    let mut dataset = communities(2000, 20_000, 7);
    let models: &[&[&str]] = &[
        &["model.name=gcn"],
        &["model.name=gcn", "model.hidden=37", "model.norm=batch"],
        &["model.name=sage", "model.norm=layer"],
        &["model.name=sage", "model.aggregator=max"],
        &["model.name=gat", "model.heads=4", "model.attention_dropout=0.5"],
        &["model.name=gatv2", "model.heads=2"],
        &["model.name=gin", "model.input_dropout=0.2"],
        &["model.name=gcn", "agree.codec=int8", "agree.clip_local=0.1"],
    ];
    for parts in [1, 2] {
        let cut = cut(&mut dataset, parts, "random");
        for (model, threads) in models.iter().flat_map(|model| [(model, 1), (model, 3)]) {
            let threads = format!("train.threads={threads}");
            let config = config(&[&["model.hidden=64", &threads], *model].concat());
            let steps = on_ranks(&cut.store, &config, |worker, strategy| {
                let mut steps = [(0, 0); STEPS];
                for epoch in 1..=STEPS {
                    worker.comm.barrier()?;
                    let before = ALLOCATIONS.load(Ordering::Relaxed);
                    strategy.epoch(worker, epoch as u64, epoch as u64 - 1)?;
                    worker.comm.barrier()?;
                    steps[epoch - 1] = (before, ALLOCATIONS.load(Ordering::Relaxed));
                    worker.comm.barrier()?;
                }
                let taken = steps.map(|(before, after)| after - before);
                Ok((taken, sizes(steps[1].0, steps[STEPS - 1].1)))
            });
            for (taken, sizes) in steps {
                let what = format!("{model:?}, {threads}, on {parts} parts");
                assert_eq!(taken[1..], [0; STEPS - 1], "{what}: {taken:?}, of {sizes:?} bytes");
            }
        }
    }
}
