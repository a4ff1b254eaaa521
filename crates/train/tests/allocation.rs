//! After the first steps a full-batch step allocates nothing, on one part and on several.
//!
//! Two small things are not ours: each product of the `gemm` crate makes a list of flags of at most 64 bytes, and
//! `rayon` takes a new block of its queue (1.5 KB) every 63 calls. Blocks of that size are let pass, and their
//! number must not grow from step to step.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use common::{communities, config, cut, on_ranks};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

/// Blocks larger than those of `gemm` and `rayon`.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Smaller ones.
static SMALL: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let counter = if layout.size() > 2048 { &ALLOCATIONS } else { &SMALL };
        counter.fetch_add(1, Ordering::Relaxed);
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

const STEPS: usize = 12;

#[test]
fn a_step_after_the_first_ones_allocates_nothing() {
    let mut dataset = communities(2000, 20_000, 8);
    let models: &[&[&str]] = &[
        &["model.name=gcn"],
        &["model.name=sage", "model.norm=layer"],
        &["model.name=sage", "model.aggregator=max"],
        &["model.name=gat", "model.heads=4", "model.attention_dropout=0.5"],
        &["model.name=gatv2", "model.heads=2"],
        &["model.name=gin", "model.input_dropout=0.2"],
    ];
    for parts in [1, 2] {
        let cut = cut(&mut dataset, parts, "random");
        for model in models {
            let config = config(&[&["model.hidden=64", "train.threads=2"], *model].concat());
            let counts = on_ranks(&cut.store, &config, |worker, strategy| {
                let (mut counts, mut small) = (Vec::with_capacity(STEPS), Vec::with_capacity(STEPS));
                for epoch in 1..=STEPS as u64 {
                    worker.comm.barrier()?;
                    let before = [ALLOCATIONS.load(Ordering::Relaxed), SMALL.load(Ordering::Relaxed)];
                    strategy.epoch(worker, epoch, epoch - 1)?;
                    worker.comm.barrier()?;
                    counts.push(ALLOCATIONS.load(Ordering::Relaxed) - before[0]);
                    small.push(SMALL.load(Ordering::Relaxed) - before[1]);
                }
                Ok((counts, small))
            });
            for (counts, small) in &counts {
                assert_eq!(counts[4..], [0; STEPS - 4], "{model:?} on {parts} parts: {counts:?}");
                let (early, late) = small[1..].split_at(STEPS / 2);
                // A rank that has to wait queues what comes meanwhile, a few small blocks.
                let most = early.iter().max().unwrap() + 4 * u64::from(parts);
                assert!(late.iter().all(|&late| late <= most), "{model:?} on {parts} parts: {small:?} small");
            }
        }
    }
}
