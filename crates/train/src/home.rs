//! The input rows of the first layer's halo, brought once: node features never change, so they need not cross twice.
//!
//! Where the first layer only aggregates dense features, their aggregate is computed once and nothing is left to bring
//! (see [`Statics`](crate::view::Statics)). Any other first layer (attention, a maximum, sparse features, dropped
//! inputs) reads its halo rows in every step; with them at home it computes what it needs of them itself.

use crate::Result;
use crate::tape::{Buffer, Input, Matrix, SparseMatrix};
use crate::view::{Layout, Routes};
use crate::worker::Worker;
use archipelago_comm::Kind;
use archipelago_graph::Block;
use std::sync::Arc;

/// A first layer none of whose rows cross.
pub struct Home {
    /// Its layout: halo rows are local rows.
    pub layout: Arc<Layout>,
    /// Its input rows.
    pub input: Input,
}

impl Home {
    /// Brings the halo rows of the first layer of a global batch. All ranks do so together, or none, if the layer's
    /// aggregate is static.
    pub fn bring(worker: &Worker) -> Result<Option<Self>> {
        let Some(first) = worker.layers.first().filter(|_| !worker.first_is_static()) else {
            return Ok(None);
        };
        let input = match &worker.statics.features {
            Input::Dense(matrix) => dense_rows(worker, first, matrix)?,
            Input::Sparse(matrix) => sparse_rows(worker, first, matrix)?,
        };
        let block = Block::new(first.block.incoming.clone(), first.block.sources(), 0);
        let routes =
            Routes { send: vec![Vec::new(); worker.comm.size()], receive: vec![0; worker.comm.size()] };
        let (nodes, degrees) = (Arc::clone(&first.nodes), first.degrees.clone());
        let layout = Layout::new(Arc::new(block), nodes, degrees, routes).with_edges(first.edges.clone());
        let layout = Arc::new(layout);
        Ok(Some(Self { layout, input }))
    }

    /// Bytes of memory that it holds.
    pub fn bytes(&self) -> usize {
        self.layout.block.bytes() + self.input.bytes()
    }
}

fn dense_rows(worker: &Worker, first: &Layout, features: &Matrix) -> Result<Input> {
    let (width, local) = (features.cols, first.block.local);
    let row = |&row: &u32| features.values[row as usize * width..][..width].iter().copied();
    let told = first.routes.send.iter().map(|rows| rows.iter().flat_map(row).collect()).collect();
    let heard = worker.comm.all_to_all::<f32>(told, Kind::Features)?;
    let mut values = Buffer::zeros(first.block.sources() * width);
    values[..local * width].copy_from_slice(&features.values[..local * width]);
    values[local * width..].copy_from_slice(&heard.concat());
    Ok(Input::Dense(Arc::new(Matrix { rows: first.block.sources(), cols: width, values: values.into() })))
}

fn sparse_rows(worker: &Worker, first: &Layout, features: &SparseMatrix) -> Result<Input> {
    let (mut lengths, mut columns, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    for rows in &first.routes.send {
        let stored = || rows.iter().map(|&row| features.row(row as usize));
        lengths.push(stored().map(|(columns, _)| columns.len() as u32).collect::<Vec<_>>());
        columns.push(stored().flat_map(|(columns, _)| columns).copied().collect::<Vec<u32>>());
        numbers.push(stored().flat_map(|(_, values)| values).copied().collect::<Vec<f32>>());
    }
    let comm = &worker.comm;
    let lengths = comm.all_to_all(lengths, Kind::Features)?.concat();
    let columns = comm.all_to_all(columns, Kind::Features)?.concat();
    let numbers = comm.all_to_all(numbers, Kind::Features)?.concat();
    let mut input = SparseMatrix::empty(features.cols);
    for row in 0..first.block.local {
        let (columns, values) = features.row(row);
        input.push_row(columns, values.iter().copied());
    }
    let mut at = 0;
    for length in lengths {
        let stored = at..at + length as usize;
        input.push_row(&columns[stored.clone()], numbers[stored.clone()].iter().copied());
        at = stored.end;
    }
    Ok(Input::Sparse(Arc::new(input)))
}
