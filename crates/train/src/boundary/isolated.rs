//! Nothing crosses: for blocks without halo rows, such as a sampled mini-batch whose inputs were pulled before.

use super::{Boundary, Crossing};
use crate::Result;
use crate::view::Layout;

/// The boundary of a rank that has all it needs. Halo rows, if there are any, read as 0.
#[derive(Debug, Clone, Copy, Default)]
pub struct Isolated;

impl Boundary for Isolated {
    fn depart(&mut self, _: Crossing, _: &Layout, _: &[f32]) -> Result<()> {
        Ok(())
    }

    fn arrive(&mut self, _: Crossing, _: &Layout, halo: &mut [f32]) -> Result<()> {
        halo.fill(0.0);
        Ok(())
    }

    fn depart_back(&mut self, _: Crossing, _: &Layout, _: &[f32]) -> Result<()> {
        Ok(())
    }

    fn arrive_back(&mut self, _: Crossing, _: &Layout, _: &mut [f32]) -> Result<()> {
        Ok(())
    }

    fn sum(&mut self, _: &mut [f64]) -> Result<()> {
        Ok(())
    }
}
