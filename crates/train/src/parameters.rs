//! The named weights of a model, with their gradients, always in sorted name order.

/// One weight: a row-major matrix (a bias has one row).
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Such as `layers.0.weight`.
    pub name: String,
    /// Rows of the matrix.
    pub rows: usize,
    /// Columns of the matrix.
    pub cols: usize,
    /// The weight itself.
    pub value: Vec<f32>,
    /// The gradient of the loss by it; the same length.
    pub grad: Vec<f32>,
}

/// Where a parameter stands in its [`Parameters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParameterId(pub usize);

/// All weights of a model. Sums over weights, digests and checkpoints run in the order of [`iter`](Self::iter).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parameters {
    sorted: Vec<Parameter>,
}

impl Parameters {
    /// Takes the weights in any order.
    pub fn new(mut parameters: Vec<Parameter>) -> Self {
        parameters.sort_by(|a, b| a.name.cmp(&b.name));
        Self { sorted: parameters }
    }

    /// The weights in sorted name order.
    pub fn iter(&self) -> std::slice::Iter<'_, Parameter> {
        self.sorted.iter()
    }

    /// The weights in sorted name order.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Parameter> {
        self.sorted.iter_mut()
    }

    /// The weight at `id`.
    pub fn get(&self, id: ParameterId) -> &Parameter {
        &self.sorted[id.0]
    }

    /// The weight at `id`.
    pub fn get_mut(&mut self, id: ParameterId) -> &mut Parameter {
        &mut self.sorted[id.0]
    }

    /// Where the weight called `name` stands.
    pub fn find(&self, name: &str) -> Option<ParameterId> {
        self.sorted.binary_search_by(|p| p.name.as_str().cmp(name)).ok().map(ParameterId)
    }

    /// Where the weights stand, in sorted name order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = ParameterId> + use<> {
        (0..self.sorted.len()).map(ParameterId)
    }

    /// How many numbers there are in all weights together.
    pub fn count(&self) -> usize {
        self.sorted.iter().map(|p| p.value.len()).sum()
    }

    /// Sets every gradient to 0.
    pub fn clear_gradients(&mut self) {
        for parameter in &mut self.sorted {
            parameter.grad.fill(0.0);
        }
    }
}

/// Writes back into `slots`, one after the other, what stands in `numbers` in the same order.
pub fn put_back<'a>(slots: impl Iterator<Item = &'a mut Vec<f32>>, numbers: &[f32]) {
    let mut rest = numbers;
    for slot in slots {
        let (mine, others) = rest.split_at(slot.len());
        slot.copy_from_slice(mine);
        rest = others;
    }
}

impl Parameter {
    /// A weight of zeros.
    pub fn zeros(name: impl Into<String>, rows: usize, cols: usize) -> Self {
        Self { name: name.into(), rows, cols, value: vec![0.0; rows * cols], grad: vec![0.0; rows * cols] }
    }
}

/// A layer's weights by their name inside the layer.
#[derive(Debug, Clone, Default)]
pub struct Names(Vec<(&'static str, ParameterId)>);

impl Names {
    /// These names of these weights.
    pub fn new(names: Vec<(&'static str, ParameterId)>) -> Self {
        Self(names)
    }

    /// All names and weights.
    pub fn iter(&self) -> impl Iterator<Item = &(&'static str, ParameterId)> {
        self.0.iter()
    }

    /// The weight called `name`, if this model has it.
    pub fn find(&self, name: &str) -> Option<ParameterId> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, id)| *id)
    }

    /// The weight called `name`.
    ///
    /// # Panics
    /// When the layer did not declare it, which is a mistake of the layer's author.
    pub fn get(&self, name: &str) -> ParameterId {
        match self.find(name) {
            Some(id) => id,
            None => panic!("a layer asks for weight `{name}`, which it did not declare"),
        }
    }
}
