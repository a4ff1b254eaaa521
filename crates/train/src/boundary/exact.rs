//! Exact exchange: every halo row is brought fresh in every layer, its gradient is taken back.
//!
//! Per layer and step each rank sends one message to each rank that reads rows of it, forward, and one to each
//! rank whose rows it reads, backward; `4 * width` bytes a row, each row once per reading rank.

use super::{Boundary, Crossing};
use crate::Result;
use crate::view::Layout;
use archipelago_comm::{Comm, Kind, Tag};
use std::rc::Rc;

/// The stream of tags that rows travel on.
const ROWS: Tag = Tag::new(1);

/// Halo rows come from their owners in every layer; see the module.
pub struct Exact {
    comm: Rc<Comm>,
    overlap: bool,
}

impl Exact {
    /// Exchanges over `comm`; rank `r` owns part `r`. With `overlap`, local work goes on meanwhile.
    pub fn new(comm: Rc<Comm>, overlap: bool) -> Self {
        Self { comm, overlap }
    }
}

/// Rows that the first layer aggregates are node features; what comes later was computed.
fn kind(crossing: Crossing) -> Kind {
    if crossing.layer == 0 { Kind::Features } else { Kind::Embeddings }
}

fn tag(crossing: Crossing) -> Tag {
    ROWS.layer(crossing.layer as u8)
}

impl Boundary for Exact {
    fn overlaps(&self) -> bool {
        self.overlap
    }

    fn depart(&mut self, crossing: Crossing, layout: &Layout, rows: &[f32]) -> Result<()> {
        let width = crossing.width;
        for (peer, wanted) in layout.routes.send.iter().enumerate().filter(|(_, wanted)| !wanted.is_empty()) {
            let mut frame = self.comm.frame(4 * width * wanted.len());
            for (slot, &row) in frame.values_mut::<f32>().chunks_exact_mut(width).zip(wanted) {
                slot.copy_from_slice(&rows[row as usize * width..][..width]);
            }
            self.comm.send(peer, tag(crossing), kind(crossing), frame)?;
        }
        Ok(())
    }

    fn arrive(&mut self, crossing: Crossing, layout: &Layout, halo: &mut [f32]) -> Result<()> {
        let mut rest = halo;
        for (peer, &count) in layout.routes.receive.iter().enumerate().filter(|(_, count)| **count > 0) {
            let numbers = count * crossing.width;
            let frame = self.comm.receive_exact(peer, tag(crossing), kind(crossing), 4 * numbers)?;
            let (rows, further) = rest.split_at_mut(numbers);
            rows.copy_from_slice(frame.values());
            rest = further;
        }
        Ok(())
    }

    fn depart_back(&mut self, crossing: Crossing, layout: &Layout, halo: &[f32]) -> Result<()> {
        let mut rest = halo;
        for (peer, &count) in layout.routes.receive.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (rows, further) = rest.split_at(count * crossing.width);
            let mut frame = self.comm.frame(4 * rows.len());
            frame.values_mut::<f32>().copy_from_slice(rows);
            self.comm.send(peer, tag(crossing).backward(), kind(crossing), frame)?;
            rest = further;
        }
        Ok(())
    }

    fn arrive_back(&mut self, crossing: Crossing, layout: &Layout, rows: &mut [f32]) -> Result<()> {
        let width = crossing.width;
        for (peer, wanted) in layout.routes.send.iter().enumerate().filter(|(_, wanted)| !wanted.is_empty()) {
            let bytes = 4 * width * wanted.len();
            let frame = self.comm.receive_exact(peer, tag(crossing).backward(), kind(crossing), bytes)?;
            for (gradient, &row) in frame.values::<f32>().chunks_exact(width).zip(wanted) {
                for (sum, more) in rows[row as usize * width..][..width].iter_mut().zip(gradient) {
                    *sum += more;
                }
            }
        }
        Ok(())
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        Ok(self.comm.all_reduce_sum_f64(values, Kind::Embeddings)?)
    }
}
