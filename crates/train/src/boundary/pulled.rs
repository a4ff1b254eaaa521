//! Rows were pulled before the step: nothing crosses in a layer, but statistics are still over all ranks.

use super::{Boundary, Crossing};
use crate::Result;
use crate::view::Layout;
use archipelago_comm::{Comm, Kind};
use std::sync::Arc;

/// The boundary of ranks that compute batches of their own. Their blocks have no halo rows.
pub struct Pulled {
    comm: Arc<Comm>,
}

impl Pulled {
    /// Sums over `comm`.
    pub fn new(comm: Arc<Comm>) -> Self {
        Self { comm }
    }
}

impl Boundary for Pulled {
    fn depart(&mut self, _: Crossing, _: &Layout, _: &[f32]) -> Result<()> {
        Ok(())
    }

    fn arrive(&mut self, _: Crossing, _: &Layout, _: &mut [f32]) -> Result<()> {
        Ok(())
    }

    fn depart_back(&mut self, _: Crossing, _: &Layout, _: &[f32]) -> Result<()> {
        Ok(())
    }

    fn arrive_back(&mut self, _: Crossing, _: &Layout, _: &mut [f32]) -> Result<()> {
        Ok(())
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        Ok(self.comm.all_reduce_sum_f64(values, Kind::Embeddings)?)
    }
}
