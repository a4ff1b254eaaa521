//! Every key of the run file: name, type, default and one line of doc, declared once.
//!
//! Names that stand in tables of other modules (models, strategies, partitioners, codecs, …) are texts here;
//! whoever owns the table checks them with [`RunConfig::check_name`](super::RunConfig::check_name).

use super::setting::{Setting, choice, section};
use crate::metric::Metric;
use std::collections::BTreeMap;

choice! {
    /// What is done to node features before the first layer.
    Features {
        /// Nothing.
        AsIs = "as-is",
        /// Every row is divided by its sum.
        RowNormalized = "row-normalized",
    }
}

choice! {
    /// How SAGE joins the messages of a node's neighbours.
    Aggregator {
        /// Their mean.
        Mean = "mean",
        /// Their sum.
        Sum = "sum",
        /// The largest, column by column.
        Max = "max",
    }
}

choice! {
    /// How weights are drawn at the start.
    Init {
        /// As the model's authors or their libraries do.
        Model = "model",
        /// Matrices within 1 / sqrt(inputs), as PyTorch's `Linear` does.
        Fan = "fan",
    }
}

choice! {
    /// What follows a hidden layer.
    Activation {
        /// max(z, 0).
        Relu = "relu",
        /// z above 0, exp(z) - 1 below.
        Elu = "elu",
    }
}

choice! {
    /// How hidden rows are normalised.
    Norm {
        /// Not at all.
        None = "none",
        /// Each row by its own mean and variance.
        Layer = "layer",
        /// Each column by its mean and variance over all nodes.
        Batch = "batch",
    }
}

choice! {
    /// How a gradient moves the weights.
    OptimizerKind {
        /// Adam; weight decay is added to the gradient.
        Adam = "adam",
        /// Adam; weight decay shrinks the weights directly.
        AdamW = "adamw",
        /// Stochastic gradient descent with momentum.
        Sgd = "sgd",
    }
}

choice! {
    /// How the gradient of a node moves its embedding.
    EmbeddingOptimizer {
        /// Stochastic gradient descent without momentum.
        Sgd = "sgd",
        /// Adagrad.
        Adagrad = "adagrad",
        /// Adam, in which rows that a step does not read rest.
        Adam = "adam",
    }
}

choice! {
    /// Which weights decay.
    DecayedLayers {
        /// All of them.
        All = "all",
        /// Those of the first layer (Kipf and Welling's GCN).
        First = "first",
    }
}

choice! {
    /// How the learning rate moves over the epochs.
    ScheduleKind {
        /// Not at all.
        Constant = "constant",
        /// Times `step_factor` every `step_every` epochs.
        Step = "step",
        /// Half a cosine from `lr` down to `min_lr`.
        Cosine = "cosine",
    }
}

choice! {
    /// What is predicted.
    Task {
        /// Classes or labels of nodes.
        Node = "node",
        /// Which edges there are.
        Link = "link",
    }
}

choice! {
    /// How scores of links become a loss.
    LinkLossKind {
        /// Binary cross-entropy: true links and false ones each for themselves.
        Bce = "bce",
        /// A softmax over a true link and its false ones.
        Contrastive = "contrastive",
    }
}

choice! {
    /// When rows of a part that others hold are too old.
    Staleness {
        /// After so many epochs, all parts together (SCS-E).
        Epochs = "epochs",
        /// After so many epochs, parts in turn (SCS-A).
        Turns = "turns",
        /// When they have changed by so much (SCS-H).
        Change = "change",
    }
}

choice! {
    /// Which rows of its own a part reads while those that others hold are not sent again.
    OwnBlock {
        /// Those that others hold.
        Stale = "stale",
        /// Those of this step.
        Fresh = "fresh",
    }
}

choice! {
    /// Which gradients pass through rows of an earlier step.
    Backward {
        /// None: the derivative of what was computed.
        ExactStale = "exact-stale",
        /// All, as if the rows were of this step.
        StraightThrough = "straight-through",
    }
}

choice! {
    /// Which rows of a part are sent to a part that reads some of them.
    Broadcast {
        /// Those.
        Needed = "needed",
        /// All.
        Block = "block",
    }
}

choice! {
    /// Which part holds an edge in training.
    Placement {
        /// That of its target: rows of sources cross.
        Destination = "destination",
        /// That of its source: partial aggregates of targets cross.
        Source = "source",
        /// That in the row of its source's part and the column of its target's, in a grid of parts: some of both cross.
        Grid = "2d",
        /// That of its source or of its target, chosen so that as few rows as possible cross.
        Cover = "cover",
    }
}

choice! {
    /// What is remembered of nodes that do not send in a step.
    HistoryOf {
        /// Sums at targets: of inputs of the layer, or of nodes of other parts of its outputs where those are narrower.
        Narrowest = "narrowest",
        /// Sums at targets, of inputs of the layer: its weights learn from all that is remembered.
        Inputs = "inputs",
        /// Rows of nodes of other parts as they last came; those of the own part are always of this step.
        Halo = "halo",
    }
}

/// A type of which a value is a word for the usual interval, `never`, or a number from 1 on.
macro_rules! interval {
    ($(#[$doc:meta])* $name:ident { $(#[$usual_doc:meta])* $usual:ident = $word:literal, of $unit:literal }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $(#[$usual_doc])*
            $usual,
            /// After so many.
            Every(u64),
            /// Never.
            Never,
        }

        impl Setting for $name {
            fn expected() -> String {
                concat!("`", $word, "`, `never`, or a number of ", $unit, " from 1 on").into()
            }

            fn words() -> &'static [&'static str] {
                &[$word, "never"]
            }

            fn read(value: &toml::Value) -> Option<Self> {
                match value.as_str() {
                    Some($word) => Some(Self::$usual),
                    Some("never") => Some(Self::Never),
                    Some(text) => text.parse().ok().filter(|&number| number > 0).map(Self::Every),
                    None => u64::read(value).filter(|&number| number > 0).map(Self::Every),
                }
            }

            fn show(&self) -> toml::Value {
                match self {
                    Self::$usual => toml::Value::String($word.into()),
                    Self::Never => toml::Value::String("never".into()),
                    Self::Every(number) => number.show(),
                }
            }
        }
    };
}

interval! {
    /// How often what targets remember is computed anew from all sources; the first time at the start.
    Refresh {
        /// After as many sweeps as there are chunks.
        Chunks = "chunks", of "sweeps"
    }
}

interval! {
    /// How long a part keeps the part that it was joined with.
    SweepEvery {
        /// So long that it meets all others once in the run.
        Once = "once", of "epochs"
    }
}

choice! {
    /// What batches are.
    BatchKind {
        /// Some targets with sampled neighbourhoods.
        Mini = "mini",
        /// All targets with all neighbours.
        Global = "global",
        /// The targets of some clusters, with their neighbours there.
        Cluster = "cluster",
    }
}

choice! {
    /// When the batches that are under way move the weights.
    Updates {
        /// All together, once all of them are done.
        Sync = "sync",
        /// Each by itself, in their order: weights that a batch began with may be `agree.in_flight - 1` steps old.
        Async = "async",
    }
}

choice! {
    /// How much a gradient counts that was made of a part of every neighbourhood.
    Correction {
        /// As much as any.
        None = "none",
        /// By the mean coverage of its targets.
        Uniform = "uniform",
        /// By how often neighbours would have to be drawn again.
        Resampling = "resampling",
        /// Every target by its own coverage.
        Node = "node",
    }
}

choice! {
    /// What becomes of an optimiser's memory where models are averaged.
    OptimizerMemory {
        /// Every part keeps its own.
        Local = "local",
        /// It is averaged too.
        Average = "average",
        /// It starts anew in every round.
        Reset = "reset",
    }
}

/// What scores of links are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkMetric {
    /// Chance that a true link scores higher than a false one.
    Auc,
    /// Mean of 1 over the rank of a true link among its false ones.
    Mrr,
    /// Share of true links that are among the first so many of their false ones.
    Hits(u32),
}

impl LinkMetric {
    /// The metric that reports name.
    pub fn metric(self) -> Metric {
        match self {
            Self::Auc => Metric::RocAuc,
            Self::Mrr => Metric::Mrr,
            Self::Hits(first) => Metric::Hits(first),
        }
    }
}

impl Setting for LinkMetric {
    fn expected() -> String {
        "`auc`, `mrr`, or `hits@K` such as `hits@10`".into()
    }

    fn words() -> &'static [&'static str] {
        &["auc", "mrr", "hits@10"]
    }

    fn read(value: &toml::Value) -> Option<Self> {
        match value.as_str()? {
            "auc" => Some(Self::Auc),
            name => match Metric::find(name)? {
                Metric::Mrr => Some(Self::Mrr),
                Metric::Hits(first) => Some(Self::Hits(first)),
                _ => None,
            },
        }
    }

    fn show(&self) -> toml::Value {
        toml::Value::String(match self {
            Self::Auc => "auc".into(),
            Self::Mrr | Self::Hits(_) => self.metric().name().into_owned(),
        })
    }
}

section! {
    /// `[data]`: the graph, and how it is cut.
    DataSection = "data" {
        /// Dataset or store to train on
        path: String = String::new(),
        /// Format of the dataset (`archi list formats`); `auto` looks at the files
        format: String = "auto".into(),
        /// Number of parts the graph is cut into
        parts: usize = 1,
        /// Method that assigns nodes to parts (`archi list partitioners`)
        partitioner: String = "spring".into(),
        /// File with the part of every node, one per line; instead of a method
        partition_file: String = String::new(),
        /// Seed of the partitioner
        partition_seed: u64 = 0,
        /// Settings of the partitioner that differ from its defaults (`archi list partitioners NAME`)
        partition_settings: BTreeMap<String, String> = BTreeMap::new(),
        /// What to balance besides nodes, if the partitioner can: train, valid, test, edges
        partition_balance: Vec<String> = Vec::new(),
        /// Add the reverse of every edge
        undirected: bool = false,
        /// Node features as they are, or every row divided by its sum
        features: Features = Features::AsIs,
        /// Which split of the dataset; empty for its default
        split: String = String::new(),
        /// Share of the edges held out to choose the best epoch by (link prediction)
        link_valid: f64 = 0.05,
        /// Share of the edges held out to report the score of (link prediction)
        link_test: f64 = 0.1,
        /// File with `source,target,split` lines; instead of shares (link prediction)
        link_split: String = String::new(),
    }
}

section! {
    /// `[model]`: the layers.
    ModelSection = "model" {
        /// Kind of layer (`archi list models`)
        name: String = "gcn".into(),
        /// Number of layers
        layers: usize = 2,
        /// Width of the hidden layers, all heads together
        hidden: usize = 64,
        /// Attention heads of the hidden layers
        heads: usize = 1,
        /// Attention heads of the last layer; their mean is the output
        output_heads: usize = 1,
        /// How sage joins the messages of neighbours
        aggregator: Aggregator = Aggregator::Mean,
        /// Matrices that rgcn mixes those of all edge types from
        bases: usize = 4,
        /// How weights are drawn at the start; `fan`: within 1 / sqrt(inputs), as PyTorch's Linear does
        init: Init = Init::Model,
        /// What follows a hidden layer
        activation: Activation = Activation::Relu,
        /// Share of hidden values dropped in training
        dropout: f64 = 0.5,
        /// Share of input values dropped in training
        input_dropout: f64 = 0.0,
        /// Share of attention coefficients dropped in training
        attention_dropout: f64 = 0.0,
        /// How hidden rows are normalised
        norm: Norm = Norm::None,
        /// Add a layer's input to its output, through a learned map where the widths differ
        residual: bool = false,
        /// Nodes attend to themselves (gat, gatv2)
        self_loops: bool = true,
        /// Width of a learned row beside the features of every node (instead of a 1 where there are none); 0 for none
        embedding: usize = 0,
    }
}

section! {
    /// `[train]`: epochs, steps and the optimiser.
    TrainSection = "train" {
        /// Passes over all training nodes
        epochs: u64 = 200,
        /// Seed of weights, dropout, sampling and shuffles
        seed: u64 = 0,
        /// How a gradient moves the weights
        optimizer: OptimizerKind = OptimizerKind::Adam,
        /// Learning rate
        lr: f64 = 0.01,
        /// Momentum of sgd
        momentum: f64 = 0.9,
        /// Pull of the weights towards 0
        weight_decay: f64 = 0.0,
        /// Which layers' weights decay
        weight_decay_layers: DecayedLayers = DecayedLayers::All,
        /// Largest norm of the whole gradient; 0 for no limit
        clip_norm: f64 = 0.0,
        /// How the gradient of a node moves its embedding
        embedding_optimizer: EmbeddingOptimizer = EmbeddingOptimizer::Adagrad,
        /// Learning rate of embeddings, in all epochs
        embedding_lr: f64 = 0.01,
        /// Send gradients of embeddings without waiting for those of others; results are then not reproducible
        embedding_async: bool = false,
        /// How the learning rate moves over the epochs
        schedule: ScheduleKind = ScheduleKind::Constant,
        /// Epochs in which the learning rate grows to its full value
        warmup_epochs: u64 = 0,
        /// Epochs between two steps of the step schedule
        step_every: u64 = 50,
        /// What each step multiplies the learning rate by
        step_factor: f64 = 0.5,
        /// Learning rate below which no schedule goes
        min_lr: f64 = 0.0,
        /// Stop after this many epochs without a better validation score; 0 for never
        patience: u64 = 0,
        /// Epochs between two evaluations, also after the last one; 0 for none at all
        eval_every: u64 = 1,
        /// What a batch is (grappa, graphtheta)
        batch: BatchKind = BatchKind::Mini,
        /// Parts (cluster-gcn) or clusters (graphtheta) that make up a batch
        clusters: usize = 2,
        /// How clusters of nodes are found (graphtheta): metis, louvain, label-propagation
        cluster_method: String = "metis".into(),
        /// How many clusters there are (graphtheta)
        cluster_count: usize = 32,
        /// Hops around its clusters that a batch sees (graphtheta)
        boundary_hops: usize = 0,
        /// Targets of one step in each part (mini-batch strategies)
        batch_size: usize = 1024,
        /// Neighbours sampled per layer, from the targets outward (DGL's order is the reverse); -1 for all
        fanouts: Vec<i64> = vec![15, 10],
        /// How neighbours are chosen (`archi list samplers`; mini-batch strategies)
        sampler: String = "neighbor".into(),
        /// Batches that are drawn ahead of training (distdgl), or at most are (bytegnn)
        prefetch: usize = 2,
        /// Milliseconds between two batches at which bytegnn begins another, at the next two values
        launch_gap_ms: f64 = 5.0,
        /// Percent of the processor in use at which bytegnn begins another batch, at the other two values
        launch_cpu: f64 = 90.0,
        /// Sampling time over training time of what is queued at which bytegnn begins another batch
        launch_balance: f64 = 1.0,
        /// What is predicted: classes of nodes, or edges
        task: Task = Task::Node,
        /// How two rows become the score of a link (`archi list decoders`)
        decoder: String = "dot".into(),
        /// How scores of links become a loss
        link_loss: LinkLossKind = LinkLossKind::Bce,
        /// What the contrastive loss divides scores by
        temperature: f64 = 1.0,
        /// False links per true one in training
        negatives: usize = 1,
        /// Where false links come from: uniform, degree, in-batch
        negative_sampler: String = "uniform".into(),
        /// No message passes along the links that a batch predicts; `false` leaks them, to see what that does
        exclude_targets: bool = true,
        /// False links per true one in evaluation
        eval_negatives: usize = 100,
        /// What scores of links are
        link_metric: LinkMetric = LinkMetric::Auc,
        /// Threads of this process; 0 for one per core
        threads: usize = 0,
    }
}

section! {
    /// `[strategy]`: how training uses the parts.
    StrategySection = "strategy" {
        /// How training uses the parts (`archi list strategies`); fills the dials below
        name: String = "full".into(),
    }
}

section! {
    /// `[exchange]`: what crosses between ranks.
    ExchangeSection = "exchange" {
        /// Seconds after which waiting for another rank is an error
        deadline_secs: u64 = 600,
        /// How rows are written on the wire (`f32`, `bf16`, `int8`); sparse and learned ones always exactly
        codec: String = "f32".into(),
        /// Share of a part's halo whose features are kept instead of pulled again (mini-batch strategies)
        cache: f64 = 0.1,
        /// Keep the features that one batch pulled for the next (mini-batch strategies)
        reuse: bool = true,
        /// Compute while messages are on their way
        overlap: bool = true,
        /// Part that holds an edge in training: of its target, of its source, in a grid, or so that least crosses (full, graphtheta)
        placement: Placement = Placement::Destination,
        /// Chunks of source nodes, one of which sends in a step; an epoch is a sweep over all (emma)
        chunks: usize = 10,
        /// Only the nodes of a chunk send in a step; `false`: all do (emma)
        chunking: bool = true,
        /// What a chunk sends joins what targets remember of the others; `false`: nothing is remembered (emma)
        moving: bool = true,
        /// Sweeps after which what targets remember is computed anew from all sources (emma)
        history_refresh_every: Refresh = Refresh::Chunks,
        /// What is remembered and chunks send: sums at targets, or rows of other parts (emma)
        history_of: HistoryOf = HistoryOf::Narrowest,
        /// Gradients on their way to a chunk stand for those that others would get (emma)
        rescale_gradient: bool = false,
        /// When rows that other parts hold are too old (sancus)
        staleness: Staleness = Staleness::Epochs,
        /// Epochs that rows may be old (sancus, skipg)
        stale_epochs: u64 = 1,
        /// Share by which the rows of a part may have changed, for `staleness = "change"` (sancus)
        stale_change: f64 = 0.01,
        /// Which rows of its own a part reads while they are not sent again (sancus)
        own_block: OwnBlock = OwnBlock::Stale,
        /// Which gradients pass through rows of an earlier step (sancus)
        backward: Backward = Backward::ExactStale,
        /// Which rows of a part are sent to a part that reads some of them (sancus, cagnet, skipg)
        broadcast: Broadcast = Broadcast::Needed,
        /// Share of the boundary nodes that send in a step (bns)
        boundary_rate: f64 = 0.1,
        /// Share of older rows in those that are read one step late (pipegcn)
        smooth_rows: f64 = 0.0,
        /// Share of older gradients in those that are read one step late (pipegcn)
        smooth_gradients: f64 = 0.0,
    }
}

section! {
    /// `[agree]`: how ranks agree on weights.
    AgreeSection = "agree" {
        /// What the ranks share after a step
        method: String = "sum-gradients".into(),
        /// How gradients are written on the wire; what is lost is added to the next step's
        codec: String = "f32".into(),
        /// Largest norm of a rank's own gradient, over sqrt of the number of ranks, before gradients are summed; 0 for no limit
        clip_local: f64 = 0.0,
        /// Batches under way at a time, each with the weights that it began with (graphtheta)
        in_flight: usize = 1,
        /// Whether batches under way make one step together, or each makes its own (graphtheta)
        updates: Updates = Updates::Sync,
        /// How much a gradient counts that was made of a part of every neighbourhood (grappa)
        correction: Correction = Correction::None,
        /// Epochs between two averages of models (sdt)
        every: u64 = 1,
        /// The optimiser's memory when models are averaged (sdt)
        optimizer_state: OptimizerMemory = OptimizerMemory::Local,
    }
}

section! {
    /// `[residency]`: which parts are in memory when.
    ResidencySection = "residency" {
        /// What a rank holds: its part (`all`), or its part joined with the others in turn (`sweep`)
        mode: String = "all".into(),
        /// Islands in memory at once, over all processes: fewer than there are parts take turns; 0 for one per part
        resident: usize = 0,
        /// How far around its parts an island reaches, for features: 0 for edges between its own nodes only
        halo: usize = 0,
        /// Epochs after which a part is joined with the next one
        sweep_every: SweepEvery = SweepEvery::Once,
        /// Share of neighbours that is missing above which a part is joined with the next one earlier
        deficit: f64 = 0.5,
        /// Steps in a row that it must be missing for
        deficit_steps: u64 = 20,
        /// Read the files of the parts that come next ahead
        prefetch: bool = true,
    }
}

section! {
    /// `[output]`: what the run leaves.
    OutputSection = "output" {
        /// Folder for results
        path: String = String::new(),
        /// Epochs between two checkpoints; 0 for one at the end or when interrupted
        checkpoint_every: u64 = 10,
        /// Keep the weights of the best epoch as well
        keep_best: bool = true,
        /// Write events.jsonl
        events: bool = true,
    }
}
