//! What one rank holds, and the verb that every strategy ends a step with.

use crate::agree::SumGradients;
use crate::batch::operators::Operators;
use crate::clusters;
use crate::embedding::{self, Embeddings};
use crate::feature;
use crate::index::{self, Index, Placement};
use crate::island::Islands;
use crate::links::{self, LinkShares, LinkTask};
use crate::model::{self, EdgeNeed, Model, ModelShape};
use crate::ops::Pool;
use crate::optimizer::Optimizer;
use crate::parameters::{Parameter, Parameters};
use crate::plan::{Holding, Plan};
use crate::run::{self, RunConfig};
use crate::schedule::Schedule;
use crate::strategy::Behavior;
use crate::tape::{Arena, Buffer, Goal, Input, Matrix, Tape, Wanted};
use crate::view::{Layout, Statics};
use crate::{Error, Result};
use archipelago_comm::{Comm, Kind, Phase};
use archipelago_graph::dataset::EdgeColumns;
use archipelago_graph::store::PartLabels;
use archipelago_graph::{Part, PartId, Store, nearby};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// One rank: its part of the graph, its copy of the model, and its voice among the others.
pub struct Worker {
    /// Its voice.
    pub comm: Arc<Comm>,
    /// Its part.
    pub part: Arc<Part>,
    /// What the user asked for.
    pub config: Arc<RunConfig>,
    /// The model.
    pub model: Arc<Model>,
    /// Weights, buffers, and the memory of a step.
    pub tape: Tape,
    /// How weights move.
    pub optimizer: Optimizer,
    /// Layers of a global batch; none where the strategy makes batches of its own.
    pub layers: Vec<Arc<Layout>>,
    /// Rows and edges of the part among those of others, where the strategy makes batches of them.
    pub index: Option<Index>,
    /// The cluster of each owned row, where batches are made of clusters.
    pub clusters: Vec<u32>,
    /// One layout of all rows per layer: exact evaluation.
    pub whole: Vec<Arc<Layout>>,
    /// The node features and what follows from them alone.
    pub statics: Statics,
    /// Learnable rows of the owned nodes, if the run has any.
    pub embeddings: Option<Embeddings>,
    /// The part's row behind each row of `whole`; in a global batch labelled training nodes first.
    pub order: Vec<u32>,
    /// Original id of every row of the part, the halo included.
    pub originals: Arc<Vec<u64>>,
    /// Rows of labelled training nodes.
    pub labelled: Vec<u32>,
    /// The links of this rank, where links are predicted.
    pub links: Option<LinkTask>,
    /// Whether all training nodes make one step; else the strategy draws batches.
    pub global_batch: bool,
    /// Labelled training nodes of this rank; in a global batch the first rows of `order`.
    pub targets: usize,
    /// Memory of batches that were trained on, for those to come.
    pub spent: Arc<Mutex<Arena>>,
    /// Operators that batches are drawn with; none for those that the run file names.
    pub operators: Option<Operators>,
    /// Labelled training nodes (or links to learn from) of all ranks.
    pub all_targets: u64,
    /// How ranks agree on gradients, and what that remembers.
    pub agreement: SumGradients,
    /// All parts, one island at a time, where ranks train on islands.
    pub islands: Option<Islands>,
    schedule: Schedule,
}

/// What a rank stands on: the rows it holds, and what is learned of them.
struct Ground {
    plan: Plan,
    index: Option<Index>,
    features: Input,
    embeddings: Option<Embeddings>,
    labelled: Vec<u32>,
    targets: usize,
    links: Option<LinkTask>,
    global_batch: bool,
    all_targets: u64,
}

impl Worker {
    /// Sets one rank of a run on `store` up, for a strategy that behaves so. Scratch files go to `folder`.
    pub fn of_store(
        comm: Comm,
        store: &Store,
        config: Arc<RunConfig>,
        pool: Pool,
        behavior: Behavior,
        folder: &Path,
    ) -> Result<Self> {
        let comm = Arc::new(comm);
        if !behavior.isolated {
            let id = PartId(comm.rank() as u32);
            store.verify_part(id)?;
            let part = Arc::new(store.part(id)?);
            let clusters = match behavior.views(&config) {
                true => clusters::agree(store, &part, &comm, &config)?,
                false => Vec::new(),
            };
            return Ok(Self { clusters, ..Self::new(comm, part, config, pool, behavior)? });
        }
        comm.enter(Phase::new("set-up"));
        let islands = Islands::agree(store, &comm, &config, &pool, folder)?;
        let part = Arc::clone(&islands.like);
        let mut worker = match islands.turns.rotate() {
            true => Self::in_turns(comm, part, config, pool, islands.targets.iter().sum())?,
            false => Self::new(comm, part, config, pool, behavior)?,
        };
        worker.islands = Some(islands);
        Ok(worker)
    }

    /// Sets one rank up: agrees with the others on a plan, loads features, draws the weights.
    pub fn new(
        comm: Arc<Comm>,
        part: Arc<Part>,
        config: Arc<RunConfig>,
        pool: Pool,
        behavior: Behavior,
    ) -> Result<Self> {
        let global_batch = behavior.global(&config);
        comm.enter(Phase::new("set-up"));
        let (part, mut shares) = match config.train.task {
            run::Task::Node => (part, None),
            run::Task::Link => {
                let (part, shares) = links::share_out(&part, &comm, &config)?;
                (part, Some(shares))
            }
        };
        let labelled = if shares.is_some() { Vec::new() } else { labelled_training_rows(&part) };
        let targets = shares.as_ref().map_or(labelled.len(), LinkShares::to_learn);
        let mut counts = [targets as u64];
        comm.all_reduce_sum_u64(&mut counts, Kind::Control)?;
        let layers = if global_batch { config.model.layers } else { 0 };
        let all_hidden_rows = config.model.norm == run::Norm::Batch;
        let first = if global_batch { &labelled[..] } else { &[] };
        let (offsets, sources) = (part.offsets(), part.sources());
        let near = || nearby::border_last(offsets, sources, nearby::places(offsets, sources));
        let places = if global_batch { near() } else { None };
        let places = places.as_deref();
        let wanted = index::Wanted { targets: first, layers, all_hidden_rows, within: None, places };
        let edges = model::find(&config.model.name)?.edges != EdgeNeed::Nothing;
        // Only steps that ranks compute together find edges elsewhere; evaluation has them with their targets.
        let placed = global_batch || behavior.views(&config);
        let placement = if placed { config.exchange.placement } else { Placement::Destination };
        let holding = Holding { placement, edges };
        let (plan, index) = Plan::agree(&part, &comm, wanted, holding)?;
        let features = match global_batch {
            true => feature::rows(&part, &plan.order, config.data.features),
            false => feature::all_rows(&part, config.data.features),
        };
        part.release();
        comm.trim();
        let output = if shares.is_some() { config.model.hidden } else { part.classes() };
        let beside = shares.as_mut().map_or_else(Vec::new, LinkShares::take_weights);
        let (model, parameters, buffers) = build_model(&part, &config, output, beside)?;
        let links = shares.map(|shares| LinkTask::new(shares, &parameters, &config));
        let ground = Ground {
            features,
            embeddings: Embeddings::of(&part, &config),
            plan,
            index: behavior.views(&config).then_some(index),
            targets,
            labelled,
            links,
            global_batch,
            all_targets: counts[0],
        };
        Self::on_ground(comm, part, config, pool, (model, parameters, buffers), ground)
    }

    /// Sets up a rank whose parts take turns: it holds none of them, `part` only tells what all have alike.
    fn in_turns(
        comm: Arc<Comm>,
        part: Arc<Part>,
        config: Arc<RunConfig>,
        pool: Pool,
        all_targets: u64,
    ) -> Result<Self> {
        let built = build_model(&part, &config, part.classes(), Vec::new())?;
        let nothing = Matrix { rows: 0, cols: built.0.shape().input, values: Buffer::zeros(0).into() };
        let ground = Ground {
            plan: Plan::nothing(),
            index: None,
            features: Input::Dense(Arc::new(nothing)),
            embeddings: None,
            labelled: Vec::new(),
            targets: 0,
            links: None,
            global_batch: false,
            all_targets,
        };
        Self::on_ground(comm, part, config, pool, built, ground)
    }

    /// A rank with this model on this ground.
    fn on_ground(
        comm: Arc<Comm>,
        part: Arc<Part>,
        config: Arc<RunConfig>,
        pool: Pool,
        (model, parameters, buffers): (Model, Parameters, Parameters),
        ground: Ground,
    ) -> Result<Self> {
        let Ground { plan, index, features, embeddings, labelled, targets, links, global_batch, all_targets } =
            ground;
        Ok(Self {
            optimizer: Optimizer::new(&config.train, &parameters),
            schedule: Schedule::new(&config.train),
            agreement: SumGradients::new(&config, &comm, parameters.count())?,
            tape: Tape::new(parameters, buffers, pool),
            layers: plan.layers,
            index,
            clusters: Vec::new(),
            whole: vec![Arc::clone(&plan.whole); config.model.layers],
            statics: Statics::new(plan.whole, features, model.only_verb()),
            embeddings,
            order: plan.order,
            originals: plan.originals,
            targets,
            labelled,
            links,
            operators: None,
            spent: Arc::default(),
            global_batch,
            all_targets,
            islands: None,
            comm,
            part,
            config,
            model: Arc::new(model),
        })
    }

    /// Whether the first layer reads nothing of its sources but an aggregate of node features that never changes.
    pub fn first_is_static(&self) -> bool {
        matches!(self.statics.features, Input::Dense(_)) && self.model.aggregates_input()
    }

    /// Rows of this part from which sampling starts in an epoch: training nodes, or the targets of training links.
    pub fn starting_rows(&self) -> Vec<u32> {
        let own = self.part.range();
        match &self.links {
            None => self.labelled.clone(),
            Some(task) => task.train.iter().map(|link| (link.target - own.start) as u32).collect(),
        }
    }

    /// Ends a step: sums the gradients of all ranks, one that the tape [owes](Tape::backward_owing) included, and moves the
    /// weights. Epochs count from 1.
    pub fn update(&mut self, epoch: u64, step: u64) -> Result<()> {
        self.comm.enter(Phase { epoch: epoch as usize, step: step as usize, layer: 0, what: "agree" });
        self.agreement.agree(&self.comm, &mut self.tape, step)?;
        self.update_alone(epoch, step)
    }

    /// Moves the weights along this rank's own gradient, or along what ranks have agreed on.
    pub fn update_alone(&mut self, epoch: u64, step: u64) -> Result<()> {
        self.tape.catch_up();
        let norm = self.optimizer.step(&mut self.tape.parameters, self.schedule.lr(epoch - 1));
        match norm.is_finite() {
            true => Ok(()),
            false => Err(Error::NotFinite { epoch, step, what: "the gradient".into() }),
        }
    }

    /// The learning rate of `epoch`, counted from 1.
    pub fn learning_rate(&self, epoch: u64) -> f64 {
        self.schedule.lr(epoch - 1)
    }

    /// What a loss over `targets` on all ranks weighs each of them with: 1 over their number, and for several
    /// labels per node also over the number of labels.
    pub fn loss_weight(&self, targets: u64) -> f32 {
        let labels = match self.part.labels() {
            PartLabels::Multi(_) => self.part.classes() as f64,
            _ => 1.0,
        };
        (1.0 / (targets.max(1) as f64 * labels)) as f32
    }
}

/// The labels of some rows of a part, side by side: what the first rows of a step's scores should be.
#[derive(Debug, Clone)]
pub struct TargetLabels {
    rows: Vec<u32>,
    labels: Labels,
}

#[derive(Debug, Clone)]
enum Labels {
    Classes(Vec<i64>),
    Multi(Vec<u8>),
}

impl TargetLabels {
    /// The labels of these owned rows of `part`.
    pub fn of(part: &Part, rows: &[u32]) -> Self {
        let labels = match part.labels() {
            PartLabels::None => Labels::Classes(Vec::new()),
            PartLabels::Classes(values) => {
                Labels::Classes(rows.iter().map(|&row| values[row as usize]).collect())
            }
            PartLabels::Multi(values) => {
                let classes = part.classes();
                let row = |row: &u32| values[*row as usize * classes..][..classes].iter().copied();
                Labels::Multi(rows.iter().flat_map(row).collect())
            }
        };
        Self { rows: (0..rows.len() as u32).collect(), labels }
    }

    /// One class per target.
    pub fn classes(classes: Vec<i64>) -> Self {
        Self { rows: (0..classes.len() as u32).collect(), labels: Labels::Classes(classes) }
    }

    /// A 0/1 row for each of `targets` targets.
    pub fn multi(targets: usize, labels: Vec<u8>) -> Self {
        Self { rows: (0..targets as u32).collect(), labels: Labels::Multi(labels) }
    }

    /// The same as the loss takes it.
    pub fn goal(&self) -> Goal<'_> {
        let labels = match &self.labels {
            Labels::Classes(classes) => Wanted::Classes(classes),
            Labels::Multi(labels) => Wanted::Multi(labels),
        };
        Goal { rows: &self.rows, labels, weights: None }
    }
}

/// Rows of the training nodes of `part` that have a label.
pub fn labelled_training_rows(part: &Part) -> Vec<u32> {
    let labelled = |row: &u32| match part.labels() {
        PartLabels::None => false,
        PartLabels::Classes(values) => values[*row as usize] >= 0,
        PartLabels::Multi(_) => true,
    };
    part.train().iter().copied().filter(labelled).collect()
}

/// The model that `config` asks for on the data of `part`, with `others` among its weights.
fn build_model(
    part: &Part,
    config: &RunConfig,
    output: usize,
    others: Vec<Parameter>,
) -> Result<(Model, Parameters, Parameters)> {
    let entry = model::find(&config.model.name)?;
    let columns = part.edge_columns();
    entry.edges.check(config, columns)?;
    let shape = model_shape(config, embedding::input_width(part, config), output, columns);
    Ok(Model::build_beside(entry, shape, config.train.seed, others))
}

/// The shape of the model that `config` asks for, with so many numbers per input row and per output row, on edges that
/// have these columns.
pub fn model_shape(config: &RunConfig, input: usize, output: usize, edges: EdgeColumns) -> ModelShape {
    let model = &config.model;
    ModelShape {
        input,
        hidden: model.hidden,
        output,
        layers: model.layers,
        heads: model.heads,
        output_heads: model.output_heads,
        aggregator: match model.aggregator {
            run::Aggregator::Mean => model::Aggregator::Mean,
            run::Aggregator::Sum => model::Aggregator::Sum,
            run::Aggregator::Max => model::Aggregator::Max,
        },
        activation: match model.activation {
            run::Activation::Relu => crate::tape::Activation::Relu,
            run::Activation::Elu => crate::tape::Activation::Elu,
        },
        norm: match model.norm {
            run::Norm::None => model::Norm::None,
            run::Norm::Layer => model::Norm::Layer,
            run::Norm::Batch => model::Norm::Batch,
        },
        dropout: model.dropout as f32,
        input_dropout: model.input_dropout as f32,
        attention_dropout: model.attention_dropout as f32,
        residual: model.residual,
        self_loops: model.self_loops,
        edge_width: edges.attribute_width,
        edge_kinds: edges.types as usize,
        bases: model.bases,
        init: match model.init {
            run::Init::Model => model::Init::Model,
            run::Init::Fan => model::Init::Fan,
        },
    }
}
